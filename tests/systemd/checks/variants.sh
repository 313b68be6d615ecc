# Drop-ins: those of the tree, and other ways to run the same binary.

# REL-28, REL-29: under Type=exec nothing but the moment differs at which systemd calls the unit active.
the_same_binary_runs_under_type_exec() {
    ended
    drop_in exec <<<$'[Service]\nType=exec'
    serving
    exits 0 ready
    eventually "$BOUND" is_status 'open for Cloudly dispatch'
    same NRestarts 0 "$(show NRestarts)"
}

# REL-36: one line for each event, on standard output and from a warning on on standard error.
lines_go_to_standard_streams_that_are_no_journal() {
    local former line
    ended
    rm -f "$WORK"/relay.*
    drop_in streams <<<"[Service]"$'\n'"StandardOutput=append:$WORK/relay.out"$'\n'"StandardError=append:$WORK/relay.err"
    serving
    former=$(worker pulld)
    eventually "$BOUND" every_worker_runs
    kill -KILL "$former"
    eventually "$BOUND" replaced pulld "$former"
    says 'INFO supervisor: the relay is open for Cloudly dispatch' "$(<"$WORK/relay.out")"
    says 'INFO relayd: node node-1 is carried' "$(<"$WORK/relay.out")"
    eventually "$BOUND" eval 'says "the worker" "$(<"$WORK/relay.err")"'
    while read -r line; do [[ $line =~ ^(INFO|DEBUG|TRACE)\ (supervisor|relayd|pulld|vpnd):\ . ]]; done <"$WORK/relay.out"
    while read -r line; do [[ $line =~ ^(ERROR|WARN)\ (supervisor|relayd|pulld|vpnd):\ . ]]; done <"$WORK/relay.err"
}

# A relay on port 443, with a Cloudly of its own that publishes that origin.
on_port_443() {
    [[ -S /run/peers-443/peers.sock ]] || peers /run/peers-443 443 9445
    sed -e 's/:9444$/:9445/' -e 's/=8443$/=443/' -e 's|/run/peers/|/run/peers-443/|' /etc/coreflow/coreflow.env >"$WORK/443.env"
    seal </run/peers-443/bearer
    drop_in port-443 <<<"[Service]"$'\n'"EnvironmentFile="$'\n'"EnvironmentFile=$WORK/443.env"
}

# REL-32: the capability, and no other, is what such a port takes.
the_drop_in_for_privileged_ports_serves_on_port_443() {
    local from pid set capabilities
    ended
    on_port_443
    from=$(mark)
    # Without it the port is refused by name.
    systemctl start --no-block "$UNIT"
    eventually "$BOUND" fails_with_1
    said "$from" 'listener-bind-failed: 127.0.0.1:443'
    ended
    drop_in privileged-port </dev/null
    systemctl start "$UNIT"
    /opt/peers/coreflow-systemd-peers ask /run/peers-443 served
    /opt/peers/coreflow-systemd-peers ask /run/peers-443 pulled
    eventually "$BOUND" every_worker_runs
    for pid in $(processes); do
        ((($(of_status "$pid" Uid | cut -f 1)) >= 61184))
        # CAP_NET_BIND_SERVICE is the tenth bit. The supervisor binds; a worker may not even that.
        capabilities=0000000000000000
        if [[ $pid == "$(main)" ]]; then capabilities=0000000000000400; fi
        for set in CapInh CapPrm CapEff CapAmb; do
            same "$set of $pid" "$capabilities" "$(of_status "$pid" "$set")"
        done
        same "CapBnd of $pid" 0000000000000400 "$(of_status "$pid" CapBnd)"
        same "NoNewPrivs of $pid" 1 "$(of_status "$pid" NoNewPrivs)"
    done
    says 'all that is promised holds' "$(ctl isolation)"
    never said "$from" 'confinement is degraded'
    seal <"$BEARER"
    ended
}

the_drop_in_for_debugging_leaves_a_held_process_alone() {
    local supervisor from
    ended
    # A watchdog that would be due within this check; what the tree's drop-in says comes after it and has the last word.
    drop_in a-short-watchdog <<<$'[Service]\nWatchdogSec=2s'
    drop_in debug </dev/null
    serving
    supervisor=$(main) from=$(mark)
    same WatchdogUSec 0 "$(show WatchdogUSec)"
    same TimeoutStopUSec infinity "$(show TimeoutStopUSec)"
    never grep -qz '^WATCHDOG_USEC=' "/proc/$supervisor/environ"
    kill -STOP "$supervisor"
    sleep 5
    same ActiveState active "$(show ActiveState)"
    never says atchdog "$(lines "$from")"
    kill -CONT "$supervisor"
    ask served
    same MainPID "$supervisor" "$(main)"
    # What ended stays ended.
    kill -KILL "$supervisor"
    eventually "$BOUND" is ActiveState failed
    same NRestarts 0 "$(show NRestarts)"
    ended
}

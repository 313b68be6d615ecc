# The credential, the start, and what serves then.

# The start ended with exit 1, and systemd is about to make another one.
fails_with_1() { is SubState auto-restart && is ExecMainStatus 1; }

# As many lines as starts say why one failed, and no more.
says_each_cause_once() {
    local lines starts causes
    lines=$(lines "$1")
    starts=$(grep -c 'coreflow [0-9.]* starts' <<<"$lines" || true)
    causes=$(grep -c 'the start failed: ' <<<"$lines" || true)
    [ "$causes" -ge 1 ] && [ "$causes" -le "$starts" ]
}

# REL-35: an exit with 1 leads to a new start.
a_missing_credential_fails_the_start_by_its_name() {
    local from
    from=$(mark)
    ended
    rm -f "$SEALED"
    systemctl start --no-block "$UNIT"
    eventually "$BOUND" fails_with_1
    said "$from" "the start failed: missing $CREDENTIAL"
    says_each_cause_once "$from"
    never accepts 8443
    eventually "$BOUND" is NRestarts 1
}

a_bearer_that_ends_in_a_line_break_is_refused_by_name() {
    local from
    ended
    from=$(mark)
    (cat "$BEARER" && echo) | seal
    systemctl start --no-block "$UNIT"
    eventually "$BOUND" fails_with_1
    said "$from" 'the start failed: Cloudly refused the identity exchange: identity-token-refused'
    said "$from" 'the stored bearer ends with a line break'
    never said "$from" "$(<"$BEARER")"
    # What is mended is taken by the next start, without a hand at the unit.
    seal <"$BEARER"
    eventually "$BOUND" is ActiveState active
}

a_sealed_credential_of_another_name_is_refused_by_systemd() {
    ended
    seal ANOTHER_NAME <"$BEARER"
    never systemctl start "$UNIT"
    eventually "$BOUND" is ExecMainStatus 243
    seal <"$BEARER"
    ended
}

# REL-38: ready is the moment at which the port accepts, and READY=1 is sent at no other.
systemd_is_told_that_the_relay_is_ready_when_its_listener_opens() {
    local from
    ended
    ask away
    from=$(mark)
    systemctl start --no-block "$UNIT"
    eventually "$BOUND" is_status 'starting: waiting for '
    note "while Cloudly is away \"$(show StatusText)\""
    same ActiveState activating "$(show ActiveState)"
    never accepts 8443
    exits 3 ready
    never said "$from" 'the relay is open for Cloudly dispatch'
    ask back
    eventually "$BOUND" is ActiveState active
    accepts 8443
    eventually "$BOUND" is_status 'open for Cloudly dispatch'
    eventually "$BOUND" ready
    said "$from" 'the relay is open for Cloudly dispatch'
    said "$from" 'the bearer is held in secret memory'
}

nodes_and_pulls_and_the_hub_are_served() {
    serving
    ask pulled
    ask networked
    says 'ready' "$(status | head -n 1)"
    says '127.0.0.1:4443' "$(status)"
}

coreflowctl_answers_root_and_nobody_else() {
    serving
    exits 0 ready
    says '"ready": true' "$(status --json)"
    same 'mode of the socket' 600 "$(stat --format=%a /run/coreflow/control.sock)"
    same 'mode of its directory' 700 "$(stat --format=%a /run/coreflow/)"
    exits 1 setpriv --reuid=nobody --regid=nogroup --clear-groups /opt/coreflow/coreflowctl status
}

# OPS-02: what an operator looks at and changes, as the unit's sandbox leaves it to the relay and to root.
each_command_answers_root_under_the_unit() {
    local former from role
    serving
    eventually "$BOUND" every_worker_runs
    for role in supervisor $ROLES; do says "$role" "$(ctl workers)"; done
    says 'node-1  registered' "$(ctl nodes)"
    says 'coreflow_nodes_carried 1' "$(ctl metrics)"
    says '-> AskStanding' "$(traced relayd)"
    says '"kind":"AskStanding"' "$(traced pulld --json)"
    same 'what log says' 'pulld records at debug, before at info' "$(ctl log pulld debug)"
    ctl log pulld info
    for role in $ROLES; do
        former=$(worker "$role") from=$(mark)
        says "$role runs again, pid " "$(ctl restart "$role")"
        eventually "$BOUND" replaced "$role" "$former"
        says "the worker is restarted, by command" "$(lines "$from")"
        never said "$from" 'it is started again in'
        ask served
    done
    is NRestarts 0
    # Last, so that it judges workers that were restarted too.
    says 'all that is promised holds' "$(ctl isolation)"
}

a_rotated_credential_parks_the_relay_until_its_restart_binds_to_it() {
    local from former
    serving
    former=$(mktemp)
    cp "$BEARER" "$former"
    head -c 24 /dev/urandom | base64 | tr -d '\n=' >"$BEARER"
    from=$(mark)
    ask rotate "$(<"$BEARER")"
    # It learns of it with its next registration.
    ask cut
    eventually "$BOUND" is_status 'not ready: clusterRelayRegistration: relay-credential-generation-stale: '
    says 'relay-credential-generation-stale' "$(systemctl status "$UNIT" --no-pager --lines=0)"
    exits 3 ready
    is ActiveState active
    ask served
    # The old bearer buys no identity any more.
    systemctl restart --no-block "$UNIT"
    eventually "$BOUND" fails_with_1
    said "$from" 'Cloudly refused the identity exchange: identity-token-refused'
    ended
    # The documented way: the new one to the same path, and a restart.
    from=$(mark)
    seal <"$BEARER"
    systemctl restart "$UNIT"
    ask served
    said "$from" 'cluster relay credential relay-credential-1 generation 2'
    says 'relay-credential-1 generation 2' "$(status)"
    exits 0 ready
    rm "$former"
}

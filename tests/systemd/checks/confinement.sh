# What the processes of the unit may and hold.

# REL-30, REL-31: any user, without root and without a capability.
each_process_is_one_user_without_privileges() {
    local pid user
    serving
    eventually "$BOUND" every_worker_runs
    same 'number of processes' 4 "$(processes | wc -l)"
    user=$(of_status "$(main)" Uid | cut -f 1)
    # The range that systemd takes such users from.
    ((user >= 61184 && user <= 65519))
    for pid in $(processes); do
        same "users of $pid" "$user	$user	$user	$user" "$(of_status "$pid" Uid)"
        for set in CapInh CapPrm CapEff CapBnd CapAmb; do
            same "$set of $pid" 0000000000000000 "$(of_status "$pid" "$set")"
        done
        same "NoNewPrivs of $pid" 1 "$(of_status "$pid" NoNewPrivs)"
        same "Seccomp of $pid" 2 "$(of_status "$pid" Seccomp)"
        says 'Max core file size 0 0 ' "$(tr -s ' ' <"/proc/$pid/limits")"
    done
    # A worker's own filters lie over those of the unit.
    for role in $ROLES; do
        (($(of_status "$(worker "$role")" Seccomp_filters) > $(of_status "$(main)" Seccomp_filters)))
    done
}

each_worker_is_confined_by_every_layer() {
    local from
    from=$(mark)
    systemctl restart "$UNIT"
    ask served
    eventually "$BOUND" every_worker_runs
    ask pulled
    never said "$from" 'confinement is degraded'
}

a_filter_without_landlock_is_told_loudly_and_serves() {
    local from role
    from=$(mark)
    drop_in no-landlock <<<$'[Service]\nSystemCallFilter=~landlock_create_ruleset landlock_add_rule landlock_restrict_self'
    systemctl restart "$UNIT"
    ask served
    ask pulled
    for role in $ROLES; do
        eventually "$BOUND" eval 'says "confinement is degraded: landlock" "$(lines '"'$from' COREFLOW_WORKER=$role"')"'
    done
    is NRestarts 0
}

no_worker_inherits_what_systemd_gave_the_supervisor() {
    local role given name
    serving
    eventually "$BOUND" every_worker_runs
    given=$(tr '\0' '\n' <"/proc/$(main)/environ")
    for name in NOTIFY_SOCKET CREDENTIALS_DIRECTORY WATCHDOG_USEC JOURNAL_STREAM INVOCATION_ID RUNTIME_DIRECTORY; do
        says "$name=" "$given"
        for role in $ROLES; do never says "$name=" "$(tr '\0' '\n' <"/proc/$(worker "$role")/environ")"; done
    done
}

# A process of the unit's control group and user tells systemd lies, as a worker would that got so far.
# REL-38: ready is the supervisor's word.
nobody_but_the_supervisor_speaks_for_the_unit() {
    local user group
    serving
    eventually "$BOUND" is_status 'open for Cloudly dispatch'
    # At this level every version says what it dropped.
    systemctl log-level debug
    read -r user _ <<<"$(of_status "$(main)" Uid)"
    read -r group _ <<<"$(of_status "$(main)" Gid)"
    (
        echo "$BASHPID" >"$GROUP/cgroup.procs"
        export NOTIFY_SOCKET=/run/systemd/notify
        exec setpriv --reuid="$user" --regid="$group" --clear-groups \
            systemd-notify --status=forged STOPPING=1 MAINPID=1 WATCHDOG=trigger
    ) || true
    systemctl log-level info
    # It arrived, and was dropped.
    journalctl --sync
    says 'reception only permitted for main PID' "$(journalctl --boot --no-pager)"
    same StatusText 'open for Cloudly dispatch' "$(show StatusText)"
    same ActiveState active "$(show ActiveState)"
    ask served
}

# held ROLE: what its descriptors lead to, without numbers that differ from one process to the next.
held() { find "/proc/$(worker "$1")/fd" -type l -printf '%l\n' | sed 's/:\[[0-9]*\]//' | sort | uniq -c; }
holds() { [[ $(held "$1") == "$2" ]]; }

a_worker_holds_the_same_descriptors_after_restarts() {
    local role round
    declare -A before former
    # Workers of a fresh supervisor are started again with short delays.
    systemctl restart "$UNIT"
    serving
    ask pulled
    ask networked
    before[supervisor]=$(find "/proc/$(main)/fd" -type l | wc -l)
    for role in $ROLES; do
        before[$role]=$(held "$role")
        # No file, and no directory, is open.
        same "files that $role holds" '' "$(grep / <<<"${before[$role]}" | grep -v ' /dev/null$' || true)"
    done
    for round in 1 2; do
        for role in $ROLES; do
            former[$role]=$(worker "$role")
            kill -KILL "${former[$role]}"
        done
        for role in $ROLES; do eventually "$BOUND" replaced "$role" "${former[$role]}"; done
    done
    ask served
    ask pulled
    ask networked
    for role in $ROLES; do eventually "$BOUND" holds "$role" "${before[$role]}"; done
    eventually "$BOUND" eval '(( $(find "/proc/$(main)/fd" -type l | wc -l) <= '"${before[supervisor]}"' ))'
}

no_filter_killed_a_process() {
    journalctl --sync
    same 'words of a process that a filter killed' '' "$(journalctl --unit="$UNIT" --no-pager | grep -E 'SIGSYS|status=31' || true)"
}

# How the unit ends, and that nothing is left of it then.

# nothing_is_left PID...
nothing_is_left() {
    same 'the control group' '' "$(processes 2>/dev/null || true)"
    gone "$@"
    never test -e /run/coreflow
    never accepts 8443
    # Names are shown by their first 15 characters; this one is the peers'.
    same 'processes of the relay anywhere' '' "$(pgrep --list-name coreflow | grep -v ' coreflow-system$' || true)"
}

# REL-33, REL-39: the signal goes to the supervisor, which ends its workers in order; the exit is 0.
a_stop_leaves_nothing_and_a_start_binds_afresh() {
    local former from
    serving
    ask networked
    eventually "$BOUND" every_worker_runs
    former=$(processes) from=$(mark)
    systemctl stop "$UNIT"
    same ActiveState inactive "$(show ActiveState)"
    same Result success "$(show Result)"
    same ExecMainStatus 0 "$(show ExecMainStatus)"
    # shellcheck disable=SC2086
    nothing_is_left $former
    said "$from" 'the relay stopped'
    never said "$from" 'SIGKILL'
    systemctl start "$UNIT"
    ask served
    same NRestarts 0 "$(show NRestarts)"
}

a_signal_to_every_process_is_a_stop_in_order() {
    local former from supervisor
    serving
    eventually "$BOUND" every_worker_runs
    supervisor=$(main) former=$(processes) from=$(mark)
    systemctl kill --signal=TERM "$UNIT"
    # Nobody told systemd to stop the unit, so the relay runs again.
    eventually "$BOUND" another_than "$supervisor"
    # shellcheck disable=SC2086
    gone $former
    said "$from" 'the relay stopped'
    never said "$from" 'it is started again in'
    never said "$from" 'Main process exited, code=exited, status=1'
    ask served
}

# REL-34: within TimeoutStopSec, here by the supervisor's own bounds. ends_although_these_hang WORKER...
ends_although_these_hang() {
    local former began role
    serving
    eventually "$BOUND" every_worker_runs
    former=$(processes)
    for role in "$@"; do kill -STOP "$(worker "$role")"; done
    began=$SECONDS
    systemctl stop "$UNIT"
    ((SECONDS - began < 30))
    # shellcheck disable=SC2086
    nothing_is_left $former
    # A stop in which somebody had to be killed is none that was completed.
    same ExecMainStatus 1 "$(show ExecMainStatus)"
    never is Result timeout
    ended
}

a_stop_ends_workers_that_ignore_everything() { ends_although_these_hang pulld vpnd; }

a_stop_ends_a_relayd_that_ignores_everything() {
    local from
    from=$(mark)
    ends_although_these_hang relayd pulld vpnd
    said "$from" 'the worker is killed: it does not answer'
}

# REL-34: what lasts longer than the unit's bound ends by it, whatever the supervisor waits for.
a_stop_that_takes_too_long_is_ended_by_systemd() {
    local former
    drop_in bound <<<$'[Service]\nTimeoutStopSec=2s'
    serving
    eventually "$BOUND" every_worker_runs
    former=$(processes)
    kill -STOP "$(worker relayd)" "$(worker pulld)" "$(worker vpnd)"
    systemctl stop "$UNIT"
    same Result timeout "$(show Result)"
    # shellcheck disable=SC2086
    nothing_is_left $former
    ended
}

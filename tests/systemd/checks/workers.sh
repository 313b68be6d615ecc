# The end of a worker or of the supervisor, by whatever cause.

zombies() { ps --no-headers -eo stat,comm | grep '^Z.*coreflow' || true; }

a_killed_worker_is_replaced_by_the_supervisor() {
    local role former supervisor restarts from
    serving
    ask networked
    eventually "$BOUND" every_worker_runs
    supervisor=$(main) restarts=$(show NRestarts)
    for role in $ROLES; do
        from=$(mark)
        former=$(worker "$role")
        kill -KILL "$former"
        eventually "$BOUND" replaced "$role" "$former"
        ask served
        ask pulled
        eventually "$BOUND" ready
        says 'it is started again in' "$(lines "$from" COREFLOW_WORKER="$role")"
        same MainPID "$supervisor" "$(main)"
        same NRestarts "$restarts" "$(show NRestarts)"
        same 'zombies' '' "$(zombies)"
    done
    ask networked
}

stopped_workers_are_replaced_by_the_supervisor_and_no_ping_is_missed() {
    local supervisor former role
    drop_in watchdog <<<$'[Service]\nWatchdogSec=3s'
    serving
    same WatchdogUSec 3s "$(show WatchdogUSec)"
    eventually "$BOUND" every_worker_runs
    supervisor=$(main) former="$(worker relayd) $(worker pulld) $(worker vpnd)"
    # shellcheck disable=SC2086
    kill -STOP $former
    # shellcheck disable=SC2086
    eventually "$BOUND" gone $former
    eventually "$BOUND" every_worker_runs
    ask served
    ask pulled
    same MainPID "$supervisor" "$(main)"
    same NRestarts 0 "$(show NRestarts)"
}

# another_than PID: the unit's supervisor is another one, and serves.
another_than() { is ActiveState active && [[ $(main) != "$1" ]]; }

# REL-35: a kill leads to a new start.
a_killed_supervisor_leaves_no_worker_and_is_started_again() {
    local former restarts
    serving
    eventually "$BOUND" every_worker_runs
    former=$(processes) restarts=$(show NRestarts)
    kill -KILL "$(main)"
    # shellcheck disable=SC2086
    eventually 2 gone $former
    eventually "$BOUND" another_than "$(head -n 1 <<<"$former")"
    ask served
    same NRestarts "$((restarts + 1))" "$(show NRestarts)"
    same 'zombies' '' "$(zombies)"
}

a_hanging_supervisor_is_restarted_by_the_watchdog() {
    local from former supervisor
    from=$(mark)
    drop_in watchdog <<<$'[Service]\nWatchdogSec=2s'
    serving
    eventually "$BOUND" every_worker_runs
    supervisor=$(main) former=$(processes)
    kill -STOP "$supervisor"
    eventually "$BOUND" another_than "$supervisor"
    said "$from" 'Watchdog timeout'
    # shellcheck disable=SC2086
    gone $former
    ask served
}

interruptions_end_nothing() {
    local former i supervisor ends
    serving
    eventually "$BOUND" every_worker_runs
    supervisor=$(main) former=$(processes) ends=$(ask ends)
    for ((i = 0; i < 1000; i++)); do kill -USR1 "$supervisor"; done
    for ((i = 0; i < 20; i++)); do
        kill -STOP "$supervisor"
        kill -CONT "$supervisor"
    done
    ask served
    same 'the processes' "$former" "$(processes)"
    same "ends of the node's connections" "$ends" "$(ask ends)"
}

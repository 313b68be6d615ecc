# What the journal has, and what it has not.

# events FIELD=VALUE...: the unit's events with these fields, as JSON, a line each.
events() { journalctl --unit="$UNIT" --output=json --no-pager "$@"; }

the_journal_has_its_fields() {
    local event
    serving
    journalctl --sync
    event=$(events COREFLOW_WORKER=relayd COREFLOW_NODE=node-1 | tail -n 1)
    says '"MESSAGE":"node node-1 is' "$event"
    says '"_SYSTEMD_UNIT":"coreflow.service"' "$event"
    # The journal's own word on who wrote it, which no worker can forge.
    says "\"_PID\":\"$(main)\"" "$event"
    says '"PRIORITY":"' "$event"
    # What an operator filters by: how urgent, and which worker.
    says 'it is started again in' "$(events PRIORITY=3 COREFLOW_WORKER=pulld)"
    says '"MESSAGE":"Cloudly accepted this relay' "$(events COREFLOW_WORKER=relayd COREFLOW_METHOD=registerClusterRelay)"
}

# What of standard input holds a secret; its exit status is 1 when nothing does.
holding_a_secret() { grep --text --fixed-strings --file="$WORK/secrets"; }

no_secret_is_in_the_journal_or_in_what_systemd_shows() {
    local pid
    # At its most verbose as well, through a start.
    serving
    systemctl kill --kill-whom=main --signal=USR1 "$UNIT"
    ask served
    ask pulled
    ask cut
    ask served
    systemctl kill --kill-whom=main --signal=USR1 "$UNIT"
    (ask secrets && cat "$BEARER" && echo) | sort -u >"$WORK/secrets"
    (($(wc -l <"$WORK/secrets") > 6))
    never grep -q '^.\{0,15\}$' "$WORK/secrets"
    # What is there is found.
    # By standard input, since the journal also keeps command lines.
    printf 'a control: %s\n' "$(tail -n 1 "$WORK/secrets")" | logger
    journalctl --sync
    says 'a control: ' "$(journalctl --output=json --all --no-pager | holding_a_secret)"
    journalctl --output=json --all --no-pager | grep -v '"a control: ' >"$WORK/journal.json"
    journalctl --output=export --all --no-pager | grep --text -v '^MESSAGE=a control: ' >"$WORK/journal.export"
    (($(wc -l <"$WORK/journal.json") > 300))
    note "$(wc -l <"$WORK/journal.json") events, $(wc -l <"$WORK/secrets") secrets"
    never holding_a_secret <"$WORK/journal.json"
    never holding_a_secret <"$WORK/journal.export"
    never holding_a_secret <<<"$(systemctl show "$UNIT"; systemctl status "$UNIT" --no-pager --lines=100; status; status --json)"
    # Nor in what else coreflowctl prints; a relayd that begins is told its identity meanwhile.
    eventually "$BOUND" every_worker_runs
    (
        timeout 30 /opt/coreflow/coreflowctl trace relayd &
        traces=$!
        timeout 30 /opt/coreflow/coreflowctl trace relayd --json &
        traces+=" $!"
        sleep 1
        ctl restart relayd
        ask served
        ctl metrics
        ctl nodes
        ctl workers --json
        ctl isolation --json || true
        # shellcheck disable=SC2086
        kill $traces
        wait || true
    ) >"$WORK/printed-by-ctl"
    says '-> AnswerIdentity' "$(<"$WORK/printed-by-ctl")"
    never holding_a_secret <"$WORK/printed-by-ctl"
    for pid in $(processes); do
        never holding_a_secret <"/proc/$pid/environ"
        never holding_a_secret <"/proc/$pid/cmdline"
    done
}

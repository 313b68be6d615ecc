# What the checks are written in: the unit, its processes, its journal, its peers.

readonly UNIT=coreflow.service
readonly CREDENTIAL=SERVEZONE_CLUSTER_RELAY_AUTHORIZATION
readonly SEALED=/etc/credstore.encrypted/$CREDENTIAL
readonly DROP_INS=/run/systemd/system/$UNIT.d
readonly GROUP=/sys/fs/cgroup/system.slice/$UNIT
readonly ROLES='relayd pulld vpnd'
readonly WORK=/run/checks
# What a check printed, and what it adds to its line.
readonly PRINTED=$WORK/printed NOTE=$WORK/note
# The bearer that Cloudly takes at the moment.
readonly BEARER=$WORK/bearer
# Bound of a wait that has none of its own, in seconds: far above what a loaded machine takes.
readonly BOUND=40

# ---- saying ----

note() { printf '%s' "$*" >>"$NOTE"; }

# same WHAT EXPECTED ACTUAL
same() {
    [[ $2 == "$3" ]] || {
        printf '%s is "%s" and not "%s"\n' "$1" "$3" "$2"
        return 1
    }
}

# says PART TEXT
says() {
    [[ $2 == *"$1"* ]] || {
        printf 'not said: %s\nin: %s\n' "$1" "$(tail -n 40 <<<"$2" | cut -c 1-1000)"
        return 1
    }
}

# never COMMAND...: it has to fail.
never() {
    if "$@"; then
        printf 'this succeeded: %s\n' "$*"
        return 1
    fi
}

# eventually SECONDS COMMAND...: it has to succeed within that time.
eventually() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >"$WORK/tried" 2>&1; do
        if ((SECONDS >= end)); then
            printf 'not in time: %s\n%s\n' "$*" "$(<"$WORK/tried")"
            return 1
        fi
        sleep 0.05
    done
}

# ---- the unit ----

show() { systemctl show "$UNIT" --property="$1" --value; }
is() { [[ $(show "$1") == "$2" ]]; }
is_status() { [[ $(show StatusText) == "$1"* ]]; }

# drop_in NAME: standard input, or the tree's own file of that name, is laid over the unit, of which nothing runs then.
drop_in() {
    ended
    mkdir -p "$DROP_INS"
    if [[ -e /opt/drop-ins/$1.conf ]]; then cp "/opt/drop-ins/$1.conf" "$DROP_INS/"; else cat >"$DROP_INS/$1.conf"; fi
    systemctl daemon-reload
}

without_drop_ins() {
    [[ -d $DROP_INS ]] || return 0
    rm -rf "$DROP_INS"
    systemctl daemon-reload
    # What was started under one ends with it.
    ended
}

# Nothing of the unit runs, and no failure is remembered.
ended() {
    systemctl kill --signal=CONT "$UNIT" 2>/dev/null || true
    systemctl stop "$UNIT"
    systemctl reset-failed "$UNIT" 2>/dev/null || true
}

# The unit is active, with its own file alone or with the drop-ins of the check, and a node is served.
serving() {
    systemctl start "$UNIT"
    ask served
}

# seal [NAME]: standard input becomes the credential's sealed file.
seal() {
    mkdir -p -m 0700 "$(dirname "$SEALED")"
    rm -f "$SEALED"
    systemd-creds encrypt --with-key=host --name="${1:-$CREDENTIAL}" - "$SEALED"
}

status() { /opt/coreflow/coreflowctl status "$@"; }
ready() { status >/dev/null; }
ctl() { /opt/coreflow/coreflowctl "$@"; }
# traced WORKER [OPTION]...: the messages of its link in two seconds, some of which are ours.
traced() {
    # A program and no function, so that the signal ends it and not the shell around it.
    timeout 2 /opt/coreflow/coreflowctl trace "$@" &
    sleep 1
    status >/dev/null
    wait $! || true
}
# exits CODE COMMAND...
exits() {
    local expected=$1 code=0
    shift
    "$@" || code=$?
    same "exit status of $*" "$expected" "$code"
}

# ---- its processes ----

main() { show MainPID; }
# worker ROLE: its process, which has to be the only one.
worker() { pgrep --parent "$(main)" --exact "coreflow-$1"; }
running() { pgrep --parent "$(main)" --exact "coreflow-$1" >/dev/null; }
every_worker_runs() { running relayd && running pulld && running vpnd; }
# replaced ROLE FORMER
replaced() { running "$1" && [[ $(worker "$1") != "$2" ]]; }
processes() { cat "$GROUP/cgroup.procs"; }
of_status() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }
# gone PID...
gone() {
    local pid
    for pid in "$@"; do [[ ! -e /proc/$pid ]] || return 1; done
}
# The unit's control group has no process, or is gone.
empty() { [[ ! -e $GROUP || -z $(processes) ]]; }
accepts() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# ---- its journal ----

# The place in the journal at which a check begins to read: an entry of its own, since what follows `--after-cursor` in
# systemd 252 lacks its first entry where that one is filtered out.
mark() {
    logger --tag=check 'a check reads from here'
    journalctl --sync
    journalctl --identifier=check --lines=1 --output=export --no-pager | sed -n 's/^__CURSOR=//p'
}
# lines MARK [FIELD=VALUE...]: what the unit wrote since, and what systemd wrote of it.
lines() {
    local since=$1
    shift
    journalctl --sync
    journalctl --unit="$UNIT" --cursor="$since" --output=cat --no-pager "$@"
}
# said MARK PART
said() { says "$2" "$(lines "$1")"; }

# ---- its peers ----

ask() { /opt/peers/coreflow-systemd-peers ask /run/peers "$@"; }

# Peers of a relay on port RELAY with Cloudly on port CLOUDLY stand in FOLDER, until the container ends.
peers() {
    local folder=$1 relay=$2 cloudly=$3
    mkdir -p "$folder"
    systemd-run --quiet --unit="peers-$relay" --property=StandardOutput=null \
        /opt/peers/coreflow-systemd-peers serve "$folder" "$relay" "$cloudly"
    eventually "$BOUND" test -S "$folder/peers.sock"
}

meet_the_peers() {
    mkdir -p "$WORK"
    peers /run/peers 8443 9444
    cp /run/peers/bearer "$BEARER"
    # The key that a host's credentials are sealed with.
    systemd-creds setup >/dev/null 2>&1
}

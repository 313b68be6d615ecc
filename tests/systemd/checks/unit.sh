# What systemd makes of the unit's file, and of each drop-in over it.

each_drop_in() { find /opt/drop-ins -name '*.conf' -printf '%f\n' | sort | sed 's/\.conf$//'; }

the_unit_and_its_drop_ins_verify_without_a_word() {
    local name
    same 'what systemd-analyze says' '' "$(systemd-analyze verify "$UNIT" 2>&1)"
    for name in $(each_drop_in); do
        drop_in "$name" </dev/null
        same "what systemd-analyze says with $name" '' "$(systemd-analyze verify "$UNIT" 2>&1)"
        without_drop_ins
    done
    # A word of it would be seen.
    drop_in wrong <<<$'[Service]\nNoSuchDirective=yes'
    says NoSuchDirective "$(systemd-analyze verify "$UNIT" 2>&1)"
}

exposure() {
    # Its exit status is 1 above the threshold, in tenths.
    systemd-analyze security --no-pager --threshold=15 "$UNIT" | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\) .*/\1/p'
}

the_exposure_is_low_with_each_drop_in_too() {
    local name figure
    figure=$(exposure)
    note "$figure of at most 1.5"
    for name in $(each_drop_in); do
        drop_in "$name" </dev/null
        figure=$(exposure)
        note ", with $name $figure"
        without_drop_ins
    done
    # The threshold is one: a unit without the wall is above it.
    drop_in bare <<<$'[Service]\nDynamicUser=no\nPrivateUsers=no\nSystemCallFilter=\nProtectProc=default'
    never exposure
}

# REL-27: the executable of the release directory, without arguments. REL-28, REL-29: of type notify, a recorded
# difference. REL-31: a user of the unit's own. REL-33, REL-34: the stop goes to the supervisor, and has a bound.
# REL-35: every end leads to a start, shortly after. REL-37: memory that is writable and executable is forbidden.
the_running_unit_has_what_the_requirements_fix() {
    says 'path=/opt/coreflow/coreflow ; argv[]=/opt/coreflow/coreflow ;' "$(show ExecStart)"
    same Type notify "$(show Type)"
    same NotifyAccess main "$(show NotifyAccess)"
    same DynamicUser yes "$(show DynamicUser)"
    same KillMode mixed "$(show KillMode)"
    same TimeoutStopUSec 30s "$(show TimeoutStopUSec)"
    same Restart always "$(show Restart)"
    same RestartUSec 2s "$(show RestartUSec)"
    same MemoryDenyWriteExecute yes "$(show MemoryDenyWriteExecute)"
}

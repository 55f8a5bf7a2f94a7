#!/usr/bin/env bash
# Shows in ten seconds what is different about redlock, on a Redis that it starts itself. A line that begins with $ is a
# command as it is run; its output follows. Each host of the demo is a process with a host name of its own (a UTS
# namespace); where the machine allows none, a label stands for the name. Ends with a status other than 0 if a step does
# not end as announced.
#
#     tests/demo.sh target/release/redlock
set -u

PATH=$(cd "$(dirname "${1:-target/release/redlock}")" && pwd):$PATH
for program in redlock redis-server redis-cli pgrep setsid; do
    command -v "$program" >/dev/null || { echo "demo: $program is missing" >&2; exit 1; }
done

directory=$(mktemp -d "${TMPDIR:-/tmp}/redlock-demo-XXXXXX") || exit
web1= web2=
# shellcheck disable=SC2329 # called by the trap
clean_up() {
    local status=$?
    trap - EXIT
    # A redlock that is killed takes its job along.
    for pid in $web1 $web2; do
        kill -9 "$pid"
        wait "$pid"
    done 2>/dev/null
    # Redis may still be stopped.
    kill -CONT "${redis:-}" 2>/dev/null
    redis-cli -s "$directory/redis.sock" shutdown 2>/dev/null
    rm -rf "$directory"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$directory" || exit

# The user's own settings must not change the demo.
unset "${!REDLOCK_@}" REDIS_URL
export HOME=$directory

bold= plain=
[ -t 1 ] && bold=$'\e[1m' plain=$'\e[0m'
name_host='echo "$REDLOCK_LABEL" > /proc/sys/kernel/hostname && unset REDLOCK_LABEL'
namespace=(unshare --map-root-user --uts)
REDLOCK_LABEL=web-1 "${namespace[@]}" sh -c "$name_host" 2> /dev/null || namespace=() name_host=:
say() { printf '\n# %s\n' "$*"; }
run() {
    printf '%s$ %s%s\n' "$bold" "$1" "$plain"
    eval "$1"
}
# Prints a line as typed on this host, and runs it there, in the background. Its messages may go to a file.
on() {
    printf '%s%s$ %s%s\n' "$bold" "$1" "$2" "$plain"
    REDLOCK_LABEL=$1 "${namespace[@]}" sh -c "$name_host; exec $2" 2> "${3:-/dev/stderr}" &
}
must() {
    "${@:2}" && return
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}
# Polls for ten seconds.
eventually() {
    for _ in {1..500}; do
        "$@" && return
        sleep 0.02
    done
    return 1
}
now() { echo $((${EPOCHREALTIME//[!0-9]/} / 1000)); }
# A number by which this demo's sleeps are found among all processes.
nap=$((100000 + RANDOM))

say "A Redis that the first lock starts, just for this."
run "export REDLOCK_REDIS=local:$directory"

# Two hosts with the same line of a crontab, at the same second.
both() {
    on web-1 "$1"
    on web-2 "$1"
    wait
}

say "Two hosts have the same crontab. At the same second both begin; the report is made once."
echo 'echo "the report is made" | tee -a reports; sleep 0.4' > report
both "redlock run report --once-per day -- sh report"
must "the report was not made once" [ "$(grep -c . reports)" = 1 ]

say "The backup fails on one host: the next in line repeats it, and cron would mail what the first has said."
cat > backup << 'END'
echo began >> backups
sleep 0.4
[ "$(grep -c . backups)" -gt 1 ] || { echo "disk full"; exit 1; }
echo "the backup is made"
END
both "redlock run backup --once-per day -- sh backup"
must "the backup was not begun twice" [ "$(grep -c . backups)" = 2 ]
run "redlock check backup"
must "the backup is not in order" redlock check backup

say "At most three downloads at a time, each with a slot of its own. The fourth waits."
echo 'echo "slot $REDLOCK_SLOT"; sleep 0.3' > download
for i in 1 2 3 4; do on web-$i "redlock run download -q --slots 3 --wait -- sh download"; done
wait

say "web-1 deploys. Its job leaves a process in a session of its own, the kind that gets away."
echo "setsid sleep $nap & sleep $nap" > work
on web-1 "redlock run deploy --ttl 2s -- sh work" web-1.log
web1=$!
# Otherwise bash would report web-1's death, which the demo shows below.
disown "$web1"
must "web-1 did not get the lock" eventually grep -qs acquired web-1.log
redis=$(redis-cli -s redis.sock info server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')
must "redis-server does not run" [ -n "$redis" ]
both_run() { [ "$(pgrep -fc "^sleep $nap")" = 2 ]; }
must "web-1's job does not run" eventually both_run

say "web-2 is turned away, and told by whom: status 75. So it waits in line."
on web-2 "redlock run deploy -- echo 'I have it'" web-2.said
wait $!
status=$?
cat web-2.said
echo "status $status"
must "web-2 was not turned away with status 75" [ $status = 75 ]
must "the message does not name web-1" grep -q '[@(]web-1' web-2.said
echo "echo \$\$ > job.pid; exec sleep $nap" > work
on web-2 "redlock run deploy --ttl 2s --wait 1m -- sh work" web-2.log
web2=$!
must "web-2 does not wait" eventually grep -qs waiting web-2.log
run "redlock status deploy"
must "status does not show web-1" grep -q '[@(]web-1' <(redlock status deploy)

say "web-1's redlock is killed, the hard way. Nothing of its job is left, and its lease runs out."
run "kill -9 $web1; sleep 0.5; pgrep -fl '^(setsid )?sleep $nap' || echo nothing is left"
killed=$(now)
must "something of web-1's job is left" [ "$(pgrep -fc "^(setsid )?sleep $nap")" = 0 ]
web1=

say "web-2 takes over, with a larger fencing token: a database can tell that whatever web-1 sends now comes late."
must "web-2 did not take over" eventually grep -qs acquired web-2.log
run "grep -o 'fencing token [0-9]*' web-1.log web-2.log"
fence() { grep -o 'fencing token [0-9]*' "$1" | tr -dc 0-9; }
must "web-2's fencing token is not larger" [ "$(fence web-2.log)" -gt "$(fence web-1.log)" ]
must "web-2 waited longer than web-1's lease" [ $(($(now) - killed)) -lt 2500 ]
must "web-2's job does not run" eventually test -s job.pid

say "Now Redis hangs. web-2's lease cannot be renewed, so its job has to end before it can run out."
run "left=\$(redis-cli -s redis.sock pttl redlock:deploy); read_at=\$(now); kill -STOP $redis"
run "while kill -0 \$(cat job.pid) 2> gone; do sleep 0.01; done; gone_at=\$(now)"
# shellcheck disable=SC2154 # set by the commands above
ended=$((gone_at - read_at)) spare=$((left - gone_at + read_at))
echo "The lease had ${left}ms left when Redis stopped. The job was gone after ${ended}ms, ${spare}ms before its end."
must "web-2's job outlived its lease" [ "$spare" -gt 0 ]

run "kill -CONT $redis; wait $web2"
status=$?
web2=
run "tail -n 1 web-2.log"
echo "status $status"
must "web-2's redlock did not end with status 76" [ $status = 76 ]
must "something of web-2's job is left" [ -z "$(pgrep -f "sleep $nap")" ]

say "What has run here, where, for how long, and how it ended."
run "redlock log | tee log"
told() { must "the log has no $*" grep -q "$1.*$2" log; }
told 'report .*[@(]web-[12]' 'exit 0'
told 'backup .*[@(]web-[12]' 'exit 1'
told 'backup .*[@(]web-[12]' 'exit 0'
told 'download .*slot 2' 'exit 0'
told 'deploy .*[@(]web-1' 'lease ran out'
told 'deploy .*[@(]web-2' 'lease lost'

say "The same at a glance: what ran (█ or #), and what failed or was stopped (✗ or x)."
run "redlock log --format chart --since $((SECONDS + 1))s"
must "the chart does not show that deploy failed" grep -qE '^deploy .*(✗|x$)' <(redlock log --format chart --since 1m)

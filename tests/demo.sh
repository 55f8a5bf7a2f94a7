#!/usr/bin/env bash
# Shows in ten seconds what is different about redlock, on a Redis that it starts itself. A line that begins with $ is a
# command as it is run; its output follows. Ends with a status other than 0 if a step does not end as announced.
#
#     tests/demo.sh target/release/redlock
set -u

PATH=$(cd "$(dirname "${1:-target/release/redlock}")" && pwd):$PATH
for program in redlock redis-server redis-cli pgrep setsid; do
    command -v "$program" >/dev/null || { echo "demo: $program is missing" >&2; exit 1; }
done

directory=$(mktemp -d "${TMPDIR:-/tmp}/redlock-demo-XXXXXX") || exit
alice= bob=
# shellcheck disable=SC2329 # called by the trap
clean_up() {
    local status=$?
    trap - EXIT
    # A redlock that is killed takes its job along.
    for pid in $alice $bob; do
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
say() { printf '\n# %s\n' "$*"; }
run() {
    printf '%s$ %s%s\n' "$bold" "$1" "$plain"
    eval "$1"
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
    run "$1 --label web-1 $2 & $1 --label web-2 $2; wait"
}
cron="redlock run --wait 1m --once-per 1h -q -E 0"

say "Two hosts have the same crontab. At the same second both begin; the report is made once."
echo 'echo "the report is made" | tee -a reports; sleep 0.4' > report
both "$cron report" "-- sh report"
must "the report was not made once" [ "$(grep -c . reports)" = 1 ]

say "The backup fails on one host: the next in line repeats it, and cron would mail what the first has said."
cat > backup << 'END'
echo began >> backups
sleep 0.4
[ "$(grep -c . backups)" -gt 1 ] || { echo "disk full"; exit 1; }
echo "the backup is made"
END
both "$cron backup" "-- sh backup"
must "the backup was not begun twice" [ "$(grep -c . backups)" = 2 ]
run "redlock status backup --ran-within 1h"
must "the backup did not succeed" redlock status backup -q --ran-within 1h

say "At most three downloads at a time, each with a slot of its own. The fourth waits."
echo 'echo "slot $REDLOCK_SLOT"; sleep 0.3' > download
run "for i in 1 2 3 4; do redlock run download -q --slots 3 --wait -- sh download & done; wait"

say "Alice deploys. Her job leaves a process in a session of its own, the kind that gets away."
run "redlock run deploy --label alice --ttl 2s -- sh -c 'setsid sleep $nap & sleep $nap' 2> alice.log &"
alice=$!
# Otherwise bash would report alice's death, which the demo shows below.
disown "$alice"
must "alice did not get the lock" eventually grep -qs acquired alice.log
redis=$(redis-cli -s redis.sock info server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')
must "redis-server does not run" [ -n "$redis" ]
both_run() { [ "$(pgrep -fc "^sleep $nap")" = 2 ]; }
must "alice's job does not run" eventually both_run

say "Bob is turned away, and told by whom: status 75. So he waits in line."
run "redlock run deploy --label bob -- echo 'I have it'"
status=$?
echo "status $status"
must "bob was not turned away with status 75" [ $status = 75 ]
must "the message does not name alice" grep -q '(alice)' <(redlock run deploy -- true 2>&1)
run "redlock run deploy --label bob --ttl 2s --wait 1m -- sh -c 'echo \$\$ > bob.pid; sleep $nap' 2> bob.log &"
bob=$!
must "bob does not wait" eventually grep -qs waiting bob.log
run "redlock status deploy"
must "status does not show alice" grep -q '(alice)' <(redlock status deploy)

say "Alice's redlock is killed, the hard way. Nothing of her job is left, and her lease runs out."
run "kill -9 $alice; sleep 0.5; pgrep -fl '^(setsid )?sleep $nap' || echo nothing is left"
killed=$(now)
must "something of alice's job is left" [ "$(pgrep -fc "^(setsid )?sleep $nap")" = 0 ]
alice=

say "Bob takes over, with a larger fencing token: a database can tell that whatever alice sends now comes late."
must "bob did not take over" eventually grep -qs acquired bob.log
run "grep -o 'fencing token [0-9]*' alice.log bob.log"
fence() { grep -o 'fencing token [0-9]*' "$1" | tr -dc 0-9; }
must "bob's fencing token is not larger" [ "$(fence bob.log)" -gt "$(fence alice.log)" ]
must "bob waited longer than alice's lease" [ $(($(now) - killed)) -lt 2500 ]
must "bob's job does not run" eventually test -s bob.pid

say "Now Redis hangs. Bob's lease cannot be renewed, so his job has to end before it can run out."
run "left=\$(redis-cli -s redis.sock pttl redlock:deploy); read_at=\$(now); kill -STOP $redis"
run "while kill -0 \$(cat bob.pid) 2> gone; do sleep 0.01; done; gone_at=\$(now)"
# shellcheck disable=SC2154 # set by the commands above
ended=$((gone_at - read_at)) spare=$((left - gone_at + read_at))
echo "The lease had ${left}ms left when Redis stopped. The job was gone after ${ended}ms, ${spare}ms before its end."
must "bob's job outlived its lease" [ "$spare" -gt 0 ]

run "kill -CONT $redis; wait $bob"
status=$?
bob=
run "tail -n 1 bob.log"
echo "status $status"
must "bob's redlock did not end with status 76" [ $status = 76 ]
must "something of bob's job is left" [ -z "$(pgrep -f "sleep $nap")" ]

say "What has run here, where, for how long, and how it ended."
run "redlock log | tee log"
told() { must "the log has no $*" grep -q "$1.*$2" log; }
told 'report .*(web-[12])' 'exit 0'
told 'backup .*(web-[12])' 'exit 1'
told 'backup .*(web-[12])' 'exit 0'
told 'download .*slot 2' 'exit 0'
told 'deploy .*(alice)' 'lease ran out'
told 'deploy .*(bob)' 'lease lost'

say "The same at a glance: what ran (█ or #), and what failed or was stopped (✗ or x)."
run "redlock log --format chart --since $((SECONDS + 1))s"
must "the chart does not show that deploy failed" grep -qE '^deploy .*(✗|x$)' <(redlock log --format chart --since 1m)

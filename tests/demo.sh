#!/usr/bin/env bash
# Ten seconds that show what redlock does, on a Redis that it starts itself. Every line that begins with $ is a command as it is
# run; what follows is its output. Ends with a status other than 0 when anything happens otherwise than said.
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
    # It may still stand still.
    kill -CONT "${redis:-}" 2>/dev/null
    redis-cli -s "$directory/redis.sock" shutdown 2>/dev/null
    rm -rf "$directory"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$directory" || exit

# The user's own settings are not to be in the way.
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
# Rare enough to be found among all processes.
nap=$((100000 + RANDOM))

say "A Redis that the first lock starts, just for this."
run "export REDLOCK_REDIS=local:$directory"
run "redlock status"

say "Alice runs her job under the lock. It leaves a process in a session of its own, the kind that gets away."
run "redlock run --name demo --label alice --ttl 3s -- sh -c 'setsid sleep $nap & sleep $nap' 2> alice.log &"
alice=$!
# bash is not to report her death, which is seen below.
disown "$alice"
must "alice did not get the lock" eventually grep -q acquired alice.log
redis=$(redis-cli -s redis.sock info server | sed -n 's/^process_id:\([0-9]*\).*/\1/p')
must "redis-server does not run" [ -n "$redis" ]
both_run() { [ "$(pgrep -fc "^sleep $nap")" = 2 ]; }
must "alice's job does not run" eventually both_run
run "cat alice.log"

say "Bob is turned away, and told by whom: status 75."
run "redlock run --name demo --label bob -- echo 'I have it'"
status=$?
echo "status $status"
must "bob was not turned away with status 75" [ $status = 75 ]
must "the message does not name alice" grep -q '(alice)' <(redlock run --name demo -- true 2>&1)

say "So he queues."
run "redlock run --name demo --label bob --ttl 3s --wait 1m -- sh -c 'echo \$\$ > bob.pid; sleep $nap' 2> bob.log &"
bob=$!
must "bob does not wait" eventually grep -q waiting bob.log
run "redlock status demo"
must "status does not show alice" grep -q '(alice)' <(redlock status demo)

say "Alice's redlock is killed, the hard way. Nothing of her job is left, and her lease runs out."
run "kill -9 $alice; sleep 0.5; pgrep -fl '^(setsid )?sleep $nap' || echo nothing is left"
killed=$(now)
must "something of alice's job is left" [ "$(pgrep -fc "^(setsid )?sleep $nap")" = 0 ]
alice=

say "Bob takes over, with a larger fencing token: a database can tell that whatever alice sends now comes late."
must "bob did not take over" eventually grep -q acquired bob.log
run "grep -o 'fencing token [0-9]*' alice.log bob.log"
fence() { grep -o 'fencing token [0-9]*' "$1" | tr -dc 0-9; }
must "bob's fencing token is not larger" [ "$(fence bob.log)" -gt "$(fence alice.log)" ]
must "bob waited longer than alice's lease" [ $(($(now) - killed)) -lt 3500 ]
must "bob's job does not run" eventually test -s bob.pid

say "Now Redis hangs. Nobody can renew the lease, so bob's job has to end before it can run out."
run "left=\$(redis-cli -s redis.sock pttl redlock:demo); read_at=\$(now); kill -STOP $redis"
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

#!/bin/bash
# Counts the instructions that the two scripts of `redlock run -- true` cost the server, for this tree and for each git revision:
#     tests/bench/instructions.sh [REVISION]...
# The server runs under valgrind, which counts each call apart: a busy machine changes nothing. The counted calls come when the server knows
# the scripts, and the log of the lock is full.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=$PWD/target/instructions
RUNS=40
FIRST=25 # runs that bring the scripts, make the keys and fill the log
mkdir -p "$OUT"

# The path of the binary of revision $1, built once. Without a revision: the binary in REDLOCK, which `make bench` has
# built, or else one built from this tree.
binary() {
    if [ -z "$1" ] && [ -n "${REDLOCK:-}" ]; then
        echo "$REDLOCK"
        return
    fi
    if [ -z "$1" ]; then
        cargo build -q --locked --bin redlock --target-dir target
        echo target/debug/redlock
        return
    fi
    local kept
    kept=$OUT/redlock-$(git rev-parse --short=10 "$1")
    if [ ! -x "$kept" ]; then
        rm -rf "$OUT/tree" && mkdir "$OUT/tree"
        git archive "$1" | tar x -C "$OUT/tree"
        (cd "$OUT/tree" && cargo build -q --locked --bin redlock --target-dir "$OUT/build")
        cp "$OUT/build/debug/redlock" "$kept"
    fi
    echo "$kept"
}

# The instructions of each EVALSHA of this binary, in the order of the calls: TAKE, RELEASE, TAKE, RELEASE, ...
calls() {
    local parts=$OUT/parts at
    rm -rf "$parts" && mkdir "$parts"
    valgrind -q --tool=callgrind --callgrind-out-file="$parts/part" --toggle-collect=evalShaCommand --dump-after=evalShaCommand \
        redis-server --port 0 --unixsocket "$parts/socket" --save '' >"$parts/log" 2>&1 &
    trap "kill $!" EXIT
    until redis-cli -s "$parts/socket" ping >/dev/null 2>&1; do sleep 0.1; done
    for _ in $(seq $((FIRST + RUNS))); do
        REDLOCK_REDIS=unix://$parts/socket "$1" run -q --name bench -- true
    done
    for at in $(seq $((2 * FIRST + 1)) $((2 * (FIRST + RUNS)))); do
        sed -n 's/^totals: //p' "$parts/part.$at"
    done
}

printf '%-12s %10s %10s %10s\n' instructions TAKE RELEASE both
for revision in '' "$@"; do
    calls "$(binary "$revision")" | awk -v name="${revision:-this tree}" -v runs=$RUNS '
        { sum[NR % 2] += $1 / runs }
        END { printf "%-12s %10d %10d %10d\n", name, sum[1], sum[0], sum[1] + sum[0] }'
done

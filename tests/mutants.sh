#!/bin/sh
# Tests the tests: breaks a copy of the program in one place after the other, and looks which tests notice the break.
#
#   tests/mutants.sh [NAME...]     all mutants below, or those with these names: prints how soon the test of the `try`
#                                  finds each: the chaos of `make test`, or a finer test where chaos is too coarse
#   tests/mutants.sh --check       only checks that each mutant still changes something, and prints the tests
#   tests/mutants.sh --drawn lua|rust COUNT SEED [NUMBER...]
#                                  COUNT mutants by chance (mutants.pl), the same ones for the same SEED, or only those
#                                  with these numbers: prints which tests find each
#
# The exit status is 1 if a mutant stays alive. Each `try` below has a name, the tests that attack, a file, and what
# perl changes in the file; a `try` that changes nothing any more is an error.
cd "$(dirname "$0")/.." || exit
copy=$PWD/target/mutants
patience=120 # seconds of attacks
alive=0

copied() {
    rm -rf "$copy/tree" && mkdir -p "$copy/tree" && tar -c --exclude=./target --exclude=./.git . | tar -x -C "$copy/tree" || exit
}

# Builds these tests of the copy, and the program; $binary is then the tests' binary.
build() {
    output=$( (cd "$copy/tree" && CARGO_TARGET_DIR=../target timeout 900 cargo test --locked --no-run "$@") 2>&1)
    binary=$copy/$(echo "$output" | sed -n 's/.*(\.\.\/\(.*\))$/\1/p' | tail -1)
    [ "$binary" != "$copy/" ]
}

try() { # name, test, file, expression
    case " $wanted " in "  " | *" $1 "*) ;; *) return ;; esac
    if perl -0pe "$4" "$3" | cmp -s - "$3"; then
        echo "$1: nothing to change in $3" >&2
        alive=1
        return
    fi
    [ -z "$check" ] || { echo "$2" && return; }
    copied
    perl -0pi -e "$4" "$copy/tree/$3" || exit
    touch "$copy/tree/$3"
    build --test main || {
        echo "$output" | grep -m 3 '^error'
        echo "$1: cannot be built"
        alive=1
        return
    }
    start=$(date +%s)
    while [ $(($(date +%s) - start)) -lt $patience ]; do
        if ! output=$(cd "$copy/tree" && "$binary" "$2" 2>&1); then
            seconds=$(($(date +%s) - start))
            why=$(echo "$output" | grep -A 1 -e 'violations with seed' -e "^thread '" | grep -v -e "^thread '" -e 'violations with' -e '^--' | head -1)
            echo "$1: found in $seconds s: $(echo "$why" | cut -c1-150)"
            return
        fi
    done
    echo "$1: not found in $patience s by $2"
    alive=1
}

# The steps that judge a mutant of this file: first the tests that take seconds, then the folders of its subject.
judges() {
    case $1 in
    *.lua) echo lua:: queue::+lock::+commands:: ;;
    src/run/* | src/keeper* | src/sys/*) echo unit run:: ;;
    src/redis/*) echo unit nodes:: ;;
    src/lock/*) echo unit model:: lock::+queue:: commands::+nodes:: ;;
    *) echo unit commands:: ;;
    esac
}

# Runs one step on the copy, for at most $2 seconds. `unit` means the tests in src. The tests of the Lua scripts are
# built only once, since they read the scripts when they run.
run() {
    case $1 in
    unit) build --bin redlock ;;
    lua::) [ -n "$binary" ] || build --test main ;;
    *) build --test main ;;
    esac || return
    # shellcheck disable=SC2046
    output=$(cd "$copy/tree" && timeout -k 9 "$2" "$binary" $(echo "$1" | sed 's/unit//; s/+/ /g') --test-threads=4 2>&1)
}

try_drawn() { # a diff
    name=$(sed -n 's/^+++ //p' "$1") file=$(sed -n 's/^--- //p' "$1") found=
    for step in $(judges "$file"); do
        [ -s "$copy/$step" ] || { # three times as long as where nothing is broken
            start=$(date +%s)
            run "$step" 900 || { echo "$output" | tail -50 && exit 2; }
            echo $((3 * ($(date +%s) - start) + 10)) > "$copy/$step"
        }
        patch -s "$copy/tree/$file" "$1" || exit
        run "$step" "$(cat "$copy/$step")"
        status=$?
        cp "$file" "$copy/tree/$file"
        [ $status -ne 0 ] || continue
        found=$(echo "$output" | sed -n 's/^test \(.*\) \.\.\. FAILED/\1/p; s/^\(error.*\)/\1/p' | head -3 | paste -sd ' ')
        found="found by ${found:-$step, which did not end}"
        break
    done
    echo "$(basename "$1" .diff) $name: ${found:-ALIVE}"
    [ -n "$found" ] || alive=1
}

if [ "$1" = --drawn ]; then
    drawn=$copy/$2
    rm -rf "$drawn" && mkdir -p "$drawn" && perl tests/mutants.pl "$2" "$3" "$4" "$drawn" && copied || exit
    [ $# -gt 4 ] || set -- "$@" $(seq "$3")
    shift 4
    for number; do try_drawn "$drawn/$number.diff"; done
    exit $alive
fi
check=
[ "$1" != --check ] || { check=1 && shift; }
wanted="$*"
try drift-left-out chaos::on_one src/lock/votes/quorum.rs 's/ttl \/ 100 \+ Duration::from_millis\(2\)/ttl * 0/'
try extend-recreates chaos::on_one src/lock/scripts/extend.lua \
    's/if not is_held then return answer_without_lease\(\) end/if not is_held and value == false and not ARG.slot then redis.call("SET", K, ARG.token, "PX", ARG.ttl or ARG.default or 3000) value = ARG.token is_held = true end\nif not is_held then return answer_without_lease() end/'
try no-roll-back chaos::on_three src/lock/lease/traces.rs \
    's/may\.then\(\|\| call\.clone\(\)\)/may.then(|| call.clone()).filter(|_| false)/; s/if self\.may_have_it\[node\] \&\&/if false \&\&/'
try slot-counted chaos::on_three src/lock/scripts/take.lua 's/if ARG.slot and not is_vacant\(\)/if false/'
try outdated-let-in chaos::on_one src/lock/scripts/newest.lua 's/known > asked/false/'
try no-wake-up chaos::on_one src/lock/scripts/line.lua 's/pcall\(call_next\)/return/'
try no-quarantine chaos::on_three src/lock/votes/quarantine.rs 's/length: given\.unwrap_or\(default\)/length: Duration::ZERO.min(given.unwrap_or(default))/'
try late-kill chaos::on_one src/run/timeline.rs 's/let kill_at = valid_until - margin/let kill_at = valid_until + margin/'
try no-fence-vote chaos::on_three src/lock/votes/fencing.rs 's/let needed = quorum\(nodes\)/let needed = 0 * quorum(nodes)/'
try sweep-without-clock chaos::on_one src/lock/scripts/state.lua 's/ms, .BYSCORE./"+inf", "BYSCORE"/'
try release-without-compare chaos::on_one src/lock/scripts/release.lua 's/find_hold\(ARG.token, ARG.hold\)/value ~= false and not claim, ARG.hold/'
try inner-release-frees chaos::on_one src/lock/scripts/release.lua 's/if left == 0 then\n    drop/if left < 99 then\n    drop/'
try earlier-forgotten nodes::cuts::a_waiter_does_not_stand_behind_its_own_try src/lock/lease/traces.rs \
    's/earlier\.push\(last\.clone\(\)\)/let _ = \&last/'
try large-job-late run::margins::the_more_processes src/keeper/mod.rs 's/EACH_DEATH \* u32/Duration::ZERO * u32/'
try node-seeds-readers lock::fencing::a_master_that_lost_its_counter src/lock/lease/attempt.rs 's/seeds\.then\(unix_time\)/Some(unix_time())/'
try history-lies chaos::on_one src/lock/history/end.lua \
    's/local run, errors = /if ending.s then ending.s, ending.x = nil, "0" end\n  $&/; s/is_usual and ARG\.run or //'
try renewal-from-answer run::margins::a_renewal src/lock/lease/renew.rs 's/sent \+ less_drift/Boot::now() + less_drift/g'
try last-lease-decides run::margins::of_several src/run/supervision.rs 's/\.min_by_key/.max_by_key/'
try undo-overtakes nodes::masters::nodes_that_timed_out src/lock/lease/traces.rs 's/\)\.on_same_connection\(\)/)/g'
try once-in-haste commands::once_per::a_success src/lock/lease/attempt.rs 's/is_once => None/is_once => Some(straggler_wait_once_granted(start, answers))/'
exit $alive

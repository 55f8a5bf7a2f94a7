#!/bin/sh
# Tests turned against themselves: breaks a copy of the program in one place, and looks how soon the attack of `make test` finds it, or,
# where chaos is too coarse for that, the test whose name is given.
#
#   tests/chaos/mutants.sh [NAME...]     all of them, or these; those that are left alive make the exit status 1
#   tests/chaos/mutants.sh --check       only looks whether each still changes something, and prints the tests
#
# A mutant is a name, the tests that attack it, a file, and what perl changes in it. One that changes nothing any more is an error.
cd "$(dirname "$0")/../.." || exit
copy=target/mutants/tree
patience=120 # seconds of attacks
alive=0

try() { # name, test, file, expression
    case " $wanted " in "  " | *" $1 "*) ;; *) return ;; esac
    if perl -0pe "$4" "$3" | cmp -s - "$3"; then
        echo "$1: nothing to change in $3" >&2
        alive=1
        return
    fi
    [ -z "$check" ] || { echo "$2" && return; }
    mkdir -p $copy && tar -c --exclude=./target --exclude=./.git . | tar -x -C $copy || exit
    perl -0pi -e "$4" "$copy/$3" || exit
    touch "$copy/$3"
    build=$( (cd $copy && CARGO_TARGET_DIR=../target cargo test --locked --test main --no-run) 2>&1) || {
        echo "$build" | grep -m 3 '^error'
        echo "$1: cannot be built"
        alive=1
        return
    }
    binary=$(echo "$build" | sed -n 's/.*(\(.*\))$/\1/p' | tail -1) # as seen from the copy
    start=$(date +%s)
    while [ $(($(date +%s) - start)) -lt $patience ]; do
        if ! output=$(cd $copy && "$binary" "$2" 2>&1); then
            seconds=$(($(date +%s) - start))
            why=$(echo "$output" | grep -A 1 -e 'violations with seed' -e "^thread '" | grep -v -e "^thread '" -e 'violations with' -e '^--' | head -1)
            echo "$1: found in $seconds s: $(echo "$why" | cut -c1-150)"
            return
        fi
    done
    echo "$1: not found in $patience s by $2"
    alive=1
}

check=
[ "$1" != --check ] || { check=1 && shift; }
wanted="$*"
try drift-left-out chaos::on_one src/lock/quorum.rs 's/ttl \/ 100 \+ Duration::from_millis\(2\)/ttl * 0/'
try extend-recreates chaos::on_one src/lock/scripts/extend.lua \
    's/if not is_held then return answer_without_lease\(\) end/if not is_held and value == false and not ARG.slot then redis.call("SET", K, ARG.token, "PX", ARG.ttl or ARG.default or 3000) value = ARG.token is_held = true end\nif not is_held then return answer_without_lease() end/'
try no-roll-back chaos::on_three src/lock/traces.rs \
    's/may\.then\(\|\| call\.clone\(\)\)/may.then(|| call.clone()).filter(|_| false)/; s/if self\.may_have_it\[node\] \&\&/if false \&\&/'
try place-counted chaos::on_three src/lock/scripts/take.lua 's/if ARG.slot and not is_vacant\(\)/if false/'
try no-wake-up chaos::on_one src/lock/scripts/line.lua 's/pcall\(call_next\)/return/'
try no-quarantine chaos::on_three src/lock/quarantine.rs 's/length: given\.unwrap_or\(default\)/length: Duration::ZERO.min(given.unwrap_or(default))/'
try late-kill chaos::on_one src/run/timeline.rs 's/let kill_at = valid_until - margin/let kill_at = valid_until + margin/'
try no-fence-vote chaos::on_three src/lock/fencing.rs 's/let needed = quorum\(nodes\)/let needed = 0 * quorum(nodes)/'
try sweep-without-clock chaos::on_one src/lock/scripts/state.lua 's/ms, .BYSCORE./"+inf", "BYSCORE"/'
try release-without-compare chaos::on_one src/lock/scripts/release.lua 's/find_hold\(ARG.token, ARG.hold\)/value ~= false and not claim, ARG.hold/'
try inner-release-frees chaos::on_one src/lock/scripts/release.lua 's/local is_freed = left == 0/local is_freed = left < 99/'
try earlier-forgotten nodes::cuts::a_waiter_does_not_stand_behind_its_own_try src/lock/traces.rs \
    's/earlier\.push\(last\.clone\(\)\)/let _ = \&last/'
try large-job-late run::margins::the_more_processes src/keeper.rs 's/EACH_DEATH \* u32/Duration::ZERO * u32/'
try node-seeds-readers lock::fencing::a_master_that_lost_its_counter src/lock/attempt.rs 's/seeds\.then\(unix_time\)/Some(unix_time())/'
try memory-lies chaos::on_one src/lock/scripts/end.lua \
    's/local outcome = ./if word == "signaled" then word, code = "exited", "0" end\n  $&/'
try renewal-from-answer run::margins::a_renewal src/lock/renew.rs 's/sent \+ less_drift/Boot::now() + less_drift/g'
try last-lease-decides run::margins::of_several src/run/supervision.rs 's/\.min_by_key/.max_by_key/'
try undo-overtakes nodes::masters::nodes_that_timed_out src/lock/traces.rs 's/\)\.on_same_connection\(\)/)/g'
try once-in-haste commands::once_per::a_success src/lock/attempt.rs 's/is_once => return Boot::NEVER/is_once => straggler_wait_once_granted(start, answers)/'
exit $alive

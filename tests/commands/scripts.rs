//! redlock in other people's scripts: `set -e`, command substitution, pipes, loops, traps, cron's bare environment.

use crate::support::{Redis, SOON, Test, acquire, any, eventually, message, redlock, when};
use std::fs;

/// A script that is told of no server.
fn shell(script: &str) -> Test {
    Test::of("/bin/sh").args(["-c", script])
}

#[test]
fn set_e_ends_a_script_that_does_not_get_the_lock() {
    let redis = Redis::start();
    let script = "set -e
        token=$(redlock acquire --name backup)
        echo working
        redlock release -q --name backup --token \"$token\"
        echo done";
    Test::sh(&redis, script).stdout("working\ndone\n").run();
    acquire(&redis, "backup");
    Test::sh(&redis, script).status(75).stderr(message(["\"backup\" is held by"])).run();
}

#[test]
fn a_failed_acquire_that_nobody_checked_shows_at_the_next_step() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let script =
        "token=$(redlock acquire -q --name backup 2>/dev/null); redlock release --name backup --token \"$token\"";
    Test::sh(&redis, script).status(64).stderr(message(["empty token: did acquire fail?"])).run();
}

#[test]
fn a_trap_releases_whatever_happens() {
    let redis = Redis::start();
    let script = "set -e
        token=$(redlock acquire --name backup)
        trap 'redlock release -q --name backup --token \"$token\"' EXIT
        false";
    Test::sh(&redis, script).status(1).run();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn the_documented_script_ends_well_also_when_it_releases_by_itself() {
    let redis = Redis::start();
    let idiom = "token=$(redlock acquire deploy --ttl 5m --wait 10m)
        trap 'redlock release deploy --token \"$token\"' EXIT
        echo one
        redlock extend -q deploy --token \"$token\"
        echo two
        ";
    let earlier = "redlock release deploy --token \"$token\" && trap - EXIT
        echo three";
    let manual = include_str!("../../man/src/redlock-acquire.man");
    for line in idiom.lines().take(2).chain(earlier.lines().take(1)) {
        assert!(manual.lines().any(|said| said == line.trim()), "the manual does not say: {line}");
    }
    for shell in ["dash", "bash"] {
        for (end, lines) in [("", "one\ntwo\n"), (earlier, "one\ntwo\nthree\n")] {
            let test = Test::program(&redis, shell).args(["-c", &format!("set -e\n{idiom}{end}")]);
            test.stdout(lines).stderr("redlock: released \"deploy\"\n").run();
            assert!(!redis.exists("redlock:deploy"));
        }
    }
}

#[test]
fn command_substitution_comes_back_at_once_and_the_token_has_no_blanks() {
    let redis = Redis::start();
    let script = "token=$(redlock acquire --name backup) && set -- $token && echo $# && redlock status --token $1 backup >/dev/null";
    Test::sh(&redis, script).stdout("1\n").run();
}

#[test]
fn a_pipe_passes_through_a_job() {
    let redis = Redis::start();
    let script = "seq 1000 | redlock run -q --name backup -- sort -rn | head -n 2";
    Test::sh(&redis, script).stdout("1000\n999\n").run();
    let script = "redlock run -q --name backup -- yes | head -n 1";
    Test::sh(&redis, script).stdout("y\n").run();
    eventually(SOON, "released", || !redis.exists("redlock:backup"));
}

#[test]
fn a_loop_that_reads_its_input_keeps_it() {
    let redis = Redis::start();
    let script = "printf 'a\\nb\\nc\\n' | while read name; do
            token=$(redlock acquire --name \"$name\")
            redlock extend -q --name \"$name\" --token \"$token\"
            redlock status \"$name\" >/dev/null
            redlock wait -q other
            redlock release -q --name \"$name\" --token \"$token\"
            echo \"did $name\"
        done";
    Test::sh(&redis, script).stdout("did a\ndid b\ndid c\n").run();
}

#[test]
fn xargs_runs_one_at_a_time_in_parallel_slots() {
    let redis = Redis::start();
    let job = "mkdir inside || exit 9; echo \"$1\" >>done; rmdir inside";
    let script = format!(
        "seq 12 | xargs -P 6 -I N redlock run -q --name backup --wait 30s -- sh -c '{job}' sh N && wc -l <done"
    );
    let test = Test::sh(&redis, &script).stdout(when("twelve", |text| text.trim() == "12"));
    test.run();
}

#[test]
fn statuses_can_be_told_apart() {
    let mut redis = Redis::start();
    acquire(&redis, "held");
    let script = "
        redlock run -q --name free -- true;            echo $?
        redlock run -q --name free -- sh -c 'exit 3';  echo $?
        redlock run -q --name held -- true 2>/dev/null; echo $?
        redlock run -q -E 0 --name held -- true;       echo $?
        redlock run -q --name free -- no-such-command 2>/dev/null; echo $?
        redlock release --name held --token x 2>/dev/null; echo $?
        redlock run --name free --ttl 30M -- true 2>/dev/null; echo $?";
    Test::sh(&redis, script).stdout("0\n3\n75\n0\n127\n77\n64\n").run();
    redis.kill();
    Test::sh(&redis, "redlock run -q --name free -- true 2>/dev/null; echo $?").stdout("69\n").run();
}

#[test]
fn cron_has_next_to_no_environment() {
    let redis = Redis::start();
    let binary = env!("CARGO_BIN_EXE_redlock");
    let line = format!("env -i {binary} run -q -E 0 --redis {} --name backup -- /bin/echo ran", redis.url());
    shell(&line).stdout("ran\n").run();
    acquire(&redis, "backup");
    shell(&line).run();
}

#[test]
fn a_job_finds_its_command_without_a_path() {
    let redis = Redis::start();
    let line =
        format!("env -i {} run -q --redis {} --name backup -- echo ran", env!("CARGO_BIN_EXE_redlock"), redis.url());
    shell(&line).stdout("ran\n").run();
}

#[test]
fn the_configuration_file_says_where_when_the_environment_does_not() {
    let redis = Redis::start();
    let other = Redis::start();
    let test = Test::bare();
    let directory = test.directory();
    let folder = directory.path().join(".config/redlock");
    fs::create_dir_all(&folder).unwrap();
    let lines = format!("# where\nREDLOCK_REDIS={}\n\nREDLOCK_PREFIX=conf:\n", redis.url());
    fs::write(folder.join("redlock.conf"), lines).unwrap();
    let acquire = |name: &str| Test::bare().in_directory(&directory).args(["acquire", "--name", name]).stdout(any());
    acquire("a").run();
    assert!(redis.exists("conf:a"));
    acquire("b").env("REDLOCK_PREFIX", "env:").run();
    assert!(redis.exists("env:b"));
    acquire("c").args(["--prefix", "flag:", "--redis", &other.url()]).run();
    assert!(other.exists("flag:c"));
    acquire("d").env("REDLOCK_REDIS", other.url()).run();
    assert!(other.exists("conf:d"));
}

#[test]
fn a_job_in_the_background_of_a_script_is_waited_for() {
    let redis = Redis::start();
    let script = "redlock run -q --name a -- sh -c 'sleep 0.2; echo a; exit 4' & first=$!
        redlock run -q --name b -- sh -c 'sleep 0.1; echo b; exit 5' & second=$!
        wait $second; echo $?; wait $first; echo $?";
    let finished = Test::sh(&redis, script).stdout(any()).run();
    let mut lines: Vec<&str> = finished.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["4", "5", "a", "b"]);
}

#[test]
fn a_shell_sees_death_by_signal_as_it_would_without_redlock() {
    let redis = Redis::start();
    let script = "redlock run -q --name backup -- sh -c 'kill -9 $$'; echo $?";
    // Some shells say that it was killed.
    Test::sh(&redis, script).stdout("137\n").stderr(any()).run();
}

#[test]
fn fifty_locks_one_after_the_other() {
    let redis = Redis::start();
    let script = "i=0; while [ $i -lt 50 ]; do redlock run -q --name \"lock-$i\" -- true || exit; i=$((i + 1)); done";
    Test::sh(&redis, script).run();
    assert_eq!(redis.keys_without_the_memory().len(), 50, "only the counters");
}

#[test]
fn what_is_evaluated_ends_a_script_when_there_is_no_lock() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let line = "eval \"$(redlock acquire -q --name backup --format env)\"; echo went on";
    Test::sh(&redis, &format!("set -e; {line}")).turned_away().run();
    Test::sh(&redis, "set -e; eval \"$(redlock acquire --format=env)\"; echo went on")
        .status(64)
        .stderr("redlock: missing lock name: redlock acquire NAME\n")
        .run();
    // A lock of this name is no format.
    let said = "redlock: unexpected argument '--bogus' found; redlock acquire -h shows its options\n";
    redlock(&redis, "acquire env --bogus").status(64).stderr(said).run();
}

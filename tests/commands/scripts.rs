//! redlock in other people's scripts: `set -e`, command substitution, pipes, loops, traps, cron's bare environment.

use crate::support::{Redis, SOON, Test, acquire, eventually, redlock};

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
    Test::sh(&redis, script).fails(75, ["\"backup\" is held by"]).run();
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
    let page = include_str!("../../docs/scripts.md");
    for line in idiom.lines().take(2).chain(earlier.lines().take(1)) {
        assert!(page.lines().any(|said| said == line.trim()), "docs/scripts.md does not say: {line}");
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
fn cron_has_next_to_no_environment() {
    let redis = Redis::start();
    let binary = env!("CARGO_BIN_EXE_redlock");
    let line = format!("env -i {binary} run -q -E 0 --redis {} --name backup -- echo ran", redis.url());
    let cron = || Test::of("/bin/sh").args(["-c", &line]);
    // redlock finds the command without a PATH.
    cron().stdout("ran\n").run();
    acquire(&redis, "backup");
    cron().run();
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
    // The name of a lock may be `env`: it is not taken for a format.
    let said = "redlock: unexpected argument '--bogus' found; redlock acquire -h shows its options\n";
    redlock(&redis, "acquire env --bogus").status(64).stderr(said).run();
}

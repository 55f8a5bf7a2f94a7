//! What `run` says and ends as when the lease is lost under its job, or cannot be given back. The time line of a loss is
//! elsewhere.

use crate::support::{Redis, SOON, Test, any, eventually, like, message, when};
use std::time::{Duration, Instant};

const ACQUIRED: &str = "redlock: acquired \"backup\" on <node>, token <token>, fencing token <n>, lease 30s\n";

/// `run --name backup` with these arguments behind it.
fn run<const N: usize>(redis: &Redis, arguments: [&str; N]) -> Test {
    Test::new(redis).args(["run", "--name", "backup"]).args(arguments)
}

#[test]
fn what_is_left_of_a_deleted_lease_is_lease_loss() {
    let redis = Redis::start();
    let job = run(&redis, ["--ttl", "1s", "--", "sleep", "30"]).status(76);
    let job = job.stderr(message(["lost \"backup\""])).spawn();
    job.says(like(ACQUIRED.trim_end().replace("30s", "1s")));
    redis.command(&["DEL", "redlock:backup"]);
    let start = Instant::now();
    job.finish();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(!redis.exists("redlock:backup"), "a lost lease is never brought back");
}

#[test]
fn an_overwritten_lease_is_lost_and_the_new_one_is_left_alone() {
    let redis = Redis::start();
    let job = run(&redis, ["-q", "--ttl", "1s", "--", "sleep", "30"]).status(76);
    let job = job.stderr(message(["lost \"backup\""])).spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    redis.command(&["SET", "redlock:backup", "another", "PX", "60000"]);
    job.finish();
    assert_eq!(redis.get("redlock:backup").as_deref(), Some("another"));
    assert!(redis.pttl("redlock:backup") > 30_000);
}

#[test]
fn a_lease_whose_key_is_of_another_type_now_is_lost() {
    let redis = Redis::start();
    let job = run(&redis, ["-q", "--ttl", "1s", "--", "sleep", "30"]).status(76);
    let said = "redlock: lost \"backup\": something that is not redlock now has it (<node>); job stopped\n";
    let job = job.stderr(like(said)).spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    redis.command(&["EVAL", "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'x', 'y')", "1", "redlock:backup"]);
    job.finish();
}

#[test]
fn loss_outranks_the_status_even_when_it_shows_at_the_release_only() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let job = run(&redis, ["-q", "--", "sh", "-c", "echo ready; read line; exit 3"]);
    let job = job.stdin_from(reader).status(76).stderr(message(["lost \"backup\""])).spawn();
    job.prints("ready");
    redis.command(&["DEL", "redlock:backup"]);
    drop(writer);
    job.finish();
}

#[test]
fn with_on_lost_continue_the_command_ends_by_itself_and_the_status_is_76() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let job = run(
        &redis,
        ["-q", "--ttl", "600ms", "--on-lost", "continue", "--", "sh", "-c", "echo ready; read line; echo done"],
    );
    let job = job.stdin_from(reader).status(76).stdout("done\n").stderr(any()).spawn();
    job.prints("ready");
    redis.command(&["DEL", "redlock:backup"]);
    job.says(like("redlock: lost \"backup\"<any>"));
    drop(writer);
    job.finish();
}

#[test]
fn a_release_without_an_answer_is_a_warning_and_never_hides_the_status() {
    let mut redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let job = run(&redis, ["-q", "--", "sh", "-c", "echo ready; read line; exit 3"]);
    let job =
        job.stdin_from(reader).status(3).stderr(when("at most a warning", |text| text.lines().count() <= 1)).spawn();
    job.prints("ready");
    redis.kill();
    drop(writer);
    job.finish();
    redis.restart();
    let (reader, writer) = std::io::pipe().unwrap();
    let job = run(&redis, ["--", "sh", "-c", "echo ready; read line; exit 3"]);
    let job = job.stdin_from(reader).status(3).stderr(message(["\"backup\""])).spawn();
    job.says(like(ACQUIRED.trim_end()));
    job.prints("ready");
    redis.kill();
    drop(writer);
    job.finish();
}

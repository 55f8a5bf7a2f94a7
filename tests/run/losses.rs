//! Messages and statuses of `run` when the lease cannot be renewed, is lost while the job runs, or cannot be released.
//! Other files test the timeline of a loss.

use crate::support::{
    Ended, Mode, Proxy, Redis, SOON, Test, any, eventually, like, lost, message, ms, redlock, send, when,
};
use nix::sys::signal::Signal;

const ACQUIRED: &str = "redlock: acquired \"backup\" on <node>, token <token>, fencing token <n>, lease 30s\n";

fn run<const N: usize>(redis: &Redis, arguments: [&str; N]) -> Test {
    redlock(redis, "run backup").args(arguments)
}

#[test]
fn an_outage_is_reported_when_it_begins_and_when_it_is_over() {
    let said = ACQUIRED.replace("30s", "6s")
        + "redlock: cannot renew \"backup\": <node> timed out; the job is stopped in <duration> unless the node comes back\n\
           redlock: renewed \"backup\" again after <duration>\n";
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    for (flag, said) in [(None, said.as_str()), (Some("-q"), "")] {
        let test = redlock(&proxy, "run backup --ttl 6s").args(flag);
        let test = test.args(["--", "sh", "-c", "echo ready; read line || :"]).stderr(like(said));
        let (job, writer) = test.ready_to_read();
        let before = proxy.requested();
        proxy.set(Mode::BlackHole);
        eventually(SOON, "a try has begun", || proxy.requested() > before + 1);
        // The try times out after a tenth of the ttl, 600 ms.
        std::thread::sleep(ms(900));
        let low = redis.pttl("redlock:backup");
        proxy.set(Mode::Pass);
        eventually(SOON, "it is renewed", || redis.pttl("redlock:backup") > low);
        eventually(SOON, "it is reported", || flag.is_some() || job.all_stderr().contains("again"));
        drop(writer);
        job.finish();
    }
}

#[test]
fn an_outage_that_goes_on_is_reported_when_the_job_is_stopped_with_quiet_too() {
    let said = "redlock: cannot renew \"backup\": <node> timed out for <duration>; sent SIGTERM to the job, SIGKILL follows \
                in <duration>\n\
                redlock: lost \"backup\": <node> timed out for <duration>; job stopped before the lease could expire; \
                a longer --ttl rides out longer outages\n";
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    for quiet in [false, true] {
        let test = redlock(&proxy, "run backup --ttl 6s").args(quiet.then_some("-q"));
        let first = "redlock: cannot renew \"backup\": <node> timed out; the job is stopped in <duration> unless the node comes back\n";
        let first = if quiet { String::new() } else { ACQUIRED.replace("30s", "6s") + first };
        let test = test.args(["--", "sh", "-c", "echo ready; exec sleep 30"]).status(76).stderr(like(first + said));
        proxy.set(Mode::Pass);
        let job = test.ready();
        proxy.set(Mode::BlackHole);
        job.finish();
        eventually(SOON, "expired", || !redis.exists("redlock:backup"));
    }
}

#[test]
fn with_quiet_the_first_failure_is_kept_for_what_comes_of_it() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let job = redlock(&proxy, "run backup -q --ttl 6s -- sh -c").arg("echo ready; exec sleep 30");
    let job = job.status(76).stderr(like("redlock: lost <any>\n")).ready();
    proxy.set(Mode::Garbage(b"-MASTERDOWN it is\r\n".to_vec()));
    let before = proxy.requested();
    eventually(SOON, "a try has failed", || proxy.requested() > before);
    std::thread::sleep(ms(100));
    proxy.set(Mode::BlackHole);
    job.says(when("the first failure", |line| line.contains("cannot renew \"backup\": ") && line.ends_with(" ago")));
    job.says(like("redlock: cannot renew \"backup\": <node> timed out for <duration>; sent SIGTERM <any>"));
    job.finish();
}

#[test]
fn a_job_that_had_ended_before_its_lease_did_is_no_loss() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let test = run(&redis, ["--ttl", "4s", "--node-timeout", "2s", "--", "sh", "-c", "echo ready; read line; exit 3"])
        .stdin_from(reader);
    let job = test
        .status(3)
        .stderr("redlock: \"backup\" was not released before its lease ran out; the job had ended in time\n");
    let job = job.spawn();
    job.says(like(ACQUIRED.trim_end().replace("30s", "4s")));
    job.prints("ready");
    send(job.pid(), Signal::SIGSTOP);
    drop(writer);
    eventually(SOON, "the lease has run out", || !redis.exists("redlock:backup"));
    // A new holder does not change redlock's message.
    redis.command(&["SET", "redlock:backup", "another", "PX", "60000"]);
    send(job.pid(), Signal::SIGCONT);
    job.finish();
    let log = redlock(&redis, "log backup").stdout(any()).run().stdout;
    assert!(log.ends_with("exit 3\n"), "{log}");
}

/// The freeze begins at a random moment after the grant. For example, redlock may just have read the keeper's reports.
#[test]
fn a_job_that_ends_while_redlock_is_frozen_from_the_grant_on_is_no_loss() {
    let redis = Redis::start();
    for flags in ["", "--on-lost continue"] {
        let freeze = |number| {
            let test = redlock(&redis, format!("run job-{number} --ttl 1500ms --node-timeout 500ms {flags} -- true"));
            let job = test.any_end().stderr(like("<lines>")).spawn();
            job.says(like("redlock: acquired <any>"));
            send(job.pid(), Signal::SIGSTOP);
            job
        };
        let jobs: Vec<_> = (0..12).map(freeze).collect();
        let is_held = |number| redis.exists(&format!("redlock:job-{number}"));
        eventually(SOON, "the leases have run out", || !(0..12).any(is_held));
        for job in jobs {
            send(job.pid(), Signal::SIGCONT);
            let end = job.finish();
            assert!([Ended::Status(0), Ended::Status(69)].contains(&end.ended), "{end:?}");
        }
    }
}

#[test]
fn what_is_left_of_a_deleted_lease_is_lease_loss() {
    let redis = Redis::start();
    let job = run(&redis, ["--ttl", "8s", "--", "sleep", "30"]).status(76);
    let job = job.stderr(lost("it was released or deleted on <node>")).spawn();
    job.says(like(ACQUIRED.trim_end().replace("30s", "8s")));
    redis.command(&["DEL", "redlock:backup"]);
    job.finish();
    assert!(!redis.exists("redlock:backup"), "a lost lease is never brought back");
}

#[test]
fn an_overwritten_lease_is_lost_and_the_new_one_is_left_alone() {
    let redis = Redis::start();
    let job = run(&redis, ["-q", "--ttl", "4s", "--node-timeout", "2s", "--", "sleep", "30"]).status(76);
    let why = "another program (the key's value begins with \"another\") now holds it (<node>)";
    let job = job.stderr(lost(why)).spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    redis.command(&["SET", "redlock:backup", "another", "PX", "60000"]);
    job.finish();
    assert_eq!(redis.get("redlock:backup").as_deref(), Some("another"));
    assert!(redis.pttl("redlock:backup") > 30_000);
}

#[test]
fn a_lease_whose_key_is_of_another_type_now_is_lost() {
    let redis = Redis::start();
    let job = run(&redis, ["-q", "--ttl", "4s", "--node-timeout", "2s", "--", "sleep", "30"]).status(76);
    let job = job.stderr(lost("another program now holds it (<node>)")).spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    redis.command(&["EVAL", "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'x', 'y')", "1", "redlock:backup"]);
    job.finish();
}

#[test]
fn loss_outranks_the_status_even_when_it_shows_at_the_release_only() {
    let redis = Redis::start();
    let job = run(&redis, ["-q", "--", "sh", "-c", "echo ready; read line; exit 3"]);
    let (job, writer) = job.status(76).stderr(message(["lost \"backup\""])).ready_to_read();
    redis.command(&["DEL", "redlock:backup"]);
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
    // Before the job ends, redlock may notice and say that the server does not answer.
    let said = like("<lines>redlock: cannot release \"backup\": <any>\n");
    let job = job.stdin_from(reader).status(3).stderr(said).spawn();
    job.says(like(ACQUIRED.trim_end()));
    job.prints("ready");
    redis.kill();
    drop(writer);
    job.finish();
}

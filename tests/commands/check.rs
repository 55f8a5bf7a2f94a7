//! `check`: what is expected of a lock, by the server's clock, and what it says when that does not happen. `forget`.

use crate::support::{Directory, Redis, SOON, Test, any, eventually, like, message, redlock, send, status, when};
use nix::sys::signal::Signal;
use std::time::Duration;

const RUNS: &str = "{redlock:backup}:\u{1f}runs";
const HOUR: Duration = Duration::from_secs(3600);
const NIGHTLY: &str = "run backup --once-per day -- true";

/// The hosts call, each night by the clock of a server.
fn night<W: crate::support::Where + ?Sized>(servers: &W, line: &str, hosts: &[&str]) {
    for host in hosts {
        redlock(servers, line).on_host(host).any_end().stdout(any()).stderr(any()).run();
    }
}

fn expected(redis: &Redis) -> Option<String> {
    redis.query(&["HGET", RUNS, "expected"])
}

#[test]
fn a_call_notes_what_is_to_be_expected() {
    let redis = Redis::start();
    redlock(&redis, "run -q backup -- true").run();
    assert_eq!(expected(&redis), None);
    let noted = |line: &str| {
        redlock(&redis, format!("run -q backup {line} -- true")).run();
        let [period, due, first] = <[u64; 3]>::try_from(
            expected(&redis).unwrap().split(' ').map(|ms| ms.parse().unwrap()).collect::<Vec<_>>(),
        )
        .unwrap();
        (period / 3_600_000, due / 3_600_000, first)
    };
    let (period, due, first) = noted("--once-per day");
    assert_eq!((period, due), (24, 24));
    assert!(redis.pttl(RUNS) > 100 * 24 * 3_600_000);
    // Whatever a call changes, the first one stays the first. A call that is turned away counts, too.
    assert_eq!(noted("--once-per day --due 3d"), (24, 72, first));
    assert_eq!(noted("--once-per month"), (720, 744, first));
    assert_eq!(noted("--once-per 1h"), (1, 1, first));
    // A call that cannot note it goes on.
    redis.command(&["HSET", RUNS, "expected", "nonsense"]);
    assert_eq!(noted("--once-per day").0, 24);
    for line in ["--due 3d", "--once-per day --due 23h", "--once-per 0 --due 3d", "--once-per day --due 101d"] {
        redlock(&redis, format!("run backup {line} -- true")).fails(64, ["--due"]).run();
    }
}

#[test]
fn absence_is_reported_and_cron_is_silent_when_all_is_well() {
    const HOSTS: [&str; 3] = ["web-1", "web-2", "web-3"];
    let redis = Redis::with_clock(&[], 7200);
    let at = |hours: u32| redis.clock().set(hours * HOUR);
    let silent = || drop(redlock(&redis, "check -q").run());
    redlock(&redis, "check").fails(1, ["nothing to check", "half a period"]).run();
    redlock(&redis, "check --format nagios").status(3).stdout(like("UNKNOWN - nothing to check<any>\n")).run();
    night(&redis, NIGHTLY, &HOSTS);
    // A trial promises nothing, unless it is named.
    redlock(&redis, "check").fails(1, ["nothing to check"]).run();
    redlock(&redis, "check backup").stdout("1 lock in order\n").run();
    at(24);
    night(&redis, NIGHTLY, &HOSTS);
    silent();
    at(48);
    night(&redis, NIGHTLY, &HOSTS[..2]);
    silent();
    redlock(&redis, "check").stdout("1 lock in order\n").run();
    redlock(&redis, "check --min-hosts 3").stdout(any()).run();
    at(51);
    let few = "backup: 2 of 3 hosts came; web-3 last came <any>. Is cron running on the others, with this name and this \
               Redis (redlock doctor)? Who came: redlock status backup --hosts\n";
    redlock(&redis, "check --min-hosts 3 -q").status(1).stdout(like(few)).run();
    // No cron runs any more. D and S are 26 hours.
    redis.clock().set(74 * HOUR - Duration::from_secs(60));
    silent();
    at(75);
    let overdue = "backup: no success since <any> on web-1, expected each 1d; no host has come since then. Is cron running? Is \
                   Redis ready (redlock doctor)? Another rhythm: --due D. Gone for good: redlock forget backup\n";
    redlock(&redis, "check -q").status(1).stdout(like(overdue)).run();
    // A host comes again, and its job fails.
    let directory = Directory::new();
    let fails = Test::new(&redis).args("run backup --once-per day --keep-errors".split(' '));
    let fails = fails.arg(directory.path().join("errors")).args(["--", "sh", "-c", "echo disk full >&2; exit 2"]);
    fails.on_host("web-2").status(2).stderr(any()).run();
    let both = "backup: no success since <any> on web-1, expected each 1d; 1 host came, the last <any>. redlock log backup -v\n\
                backup: failed on web-2 <any>, exit 2: disk full; 1 host came. redlock log backup -v; by hand: redlock run \
                backup --once-per 1d -- JOB\n";
    redlock(&redis, "check -q").status(1).stdout(like(both)).run();
    let metrics = redlock(&redis, "status --format prometheus").text();
    for line in [
        "redlock_in_order{name=\"backup\"} 0\n",
        "redlock_finding{name=\"backup\",finding=\"overdue\"} 1\n",
        "redlock_finding{name=\"backup\",finding=\"failed\"} 1\n",
        "redlock_finding{name=\"backup\",finding=\"hangs\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let object = redlock(&redis, "check --format json").status(1).stdout(any()).run().json();
    assert_eq!(
        (&object["finding"], &object["due_ms"], &object["hosts"]),
        (&"overdue".into(), &86_400_000.into(), &1.into())
    );
    let nagios =
        "CRITICAL - backup: no success<any>; backup: failed<any> | overdue=1 failed=1 hangs=0 hosts=0 unknown=0\n";
    redlock(&redis, "check --format nagios").status(2).stdout(like(nagios)).run();
    // Somebody repairs it.
    night(&redis, "run backup -- true", &["web-9"]);
    silent();
    assert!(redlock(&redis, "status --format prometheus").text().contains("redlock_in_order{name=\"backup\"} 1\n"));
}

#[test]
fn a_run_that_hangs_is_reported_and_one_that_has_lost_its_keeper_has_failed() {
    let redis = Redis::with_clock(&[], 7200);
    for _ in 0..3 {
        redlock(&redis, "run -q backup --once-per 1s -n -E 0 -- sleep 0.6").run();
    }
    redis.command(&["HSET", RUNS, "expected", "86400000 86400000 1763715123004"]);
    let job = redlock(&redis, "run -q backup --ttl 30d -- sleep 1000").on_host("web-1").any_end();
    let job = job.stderr(any()).spawn();
    eventually(SOON, "it runs", || status(&redis, "backup")["state"] == "held");
    redlock(&redis, "check backup").stdout("1 lock in order\n").run();
    redis.clock().set(HOUR);
    let hangs = "backup: runs for <any> on web-1, pid <n> (usually <any>). To end it: redlock stop backup\n";
    redlock(&redis, "check backup").status(1).stdout(like(hangs)).run();
    let nagios = like("WARNING - backup: runs for<any> | overdue=0 failed=0 hangs=1 hosts=0 unknown=0\n");
    redlock(&redis, "check backup --format nagios").status(1).stdout(nagios).run();
    redis.clock().set(Duration::ZERO);
    send(job.keeper(), Signal::SIGKILL);
    job.finish();
    redlock(&redis, "check backup").status(1).stdout(like("backup: failed on web-1 at <any>, released<any>\n")).run();
    // What an operator has ended has not failed, and a lease of acquire is no run.
    redlock(&redis, "run -q backup -- true").run();
    let token = redlock(&redis, "acquire backup").token();
    redlock(&redis, format!("release -q backup --token {token} --status 2")).run();
    redlock(&redis, "check backup").stdout("1 lock in order\n").run();
    let token = redlock(&redis, "acquire backup").token();
    redlock(&redis, "release -q backup --force").run();
    redlock(&redis, "check backup").stdout("1 lock in order\n").run();
    redlock(&redis, format!("release -q backup --token {token}")).status(77).stderr(any()).run();
}

#[test]
fn a_run_that_ended_with_its_host_is_reported() {
    let redis = Redis::start();
    let job = redlock(&redis, "run -q backup --ttl 500ms -- sleep 1000").on_host("web-1").any_end();
    let job = job.stderr(any()).spawn();
    eventually(SOON, "it runs", || status(&redis, "backup")["state"] == "held");
    let (host, keeper) = (job.pid(), job.keeper());
    send(host, Signal::SIGSTOP);
    send(keeper, Signal::SIGSTOP);
    eventually(SOON, "the lease ran out", || status(&redis, "backup")["state"] == "free");
    let failed = "<any>\nbackup: failed on web-1 <any>, lease ran out (is that host off, or cut off?); 1 host came. redlock \
                  log backup -v; by hand: redlock run backup -- JOB\n";
    redlock(&redis, "check backup --within 1h").status(1).stdout(like(failed)).run();
    send(keeper, Signal::SIGCONT);
    send(host, Signal::SIGCONT);
    job.finish();
}

#[test]
fn a_closed_lock_has_no_finding_but_hosts() {
    let redis = Redis::with_clock(&[], 7200);
    for hours in [0, 24] {
        redis.clock().set(hours * HOUR);
        night(&redis, NIGHTLY, &["web-1", "web-2"]);
    }
    redlock(&redis, "run -q backup -- false").status(1).run();
    redis.clock().set(75 * HOUR);
    redlock(&redis, "check").status(1).stdout(like("backup: no success<any>\nbackup: failed<any>\n")).run();
    redlock(&redis, "stop backup -q --for 3d").run();
    redlock(&redis, "check").stdout("1 lock in order\n").run();
    redlock(&redis, "check backup --within 1h").stdout("1 lock in order\n").run();
    let few = like("backup: 0 of 2 hosts came; <any>\n");
    redlock(&redis, "check --min-hosts 2").status(1).stdout(few).run();
    let object = redlock(&redis, "check --format json").json();
    assert!(object["finding"].is_null() && object["closed_until"].is_string(), "{object}");
    let metrics = redlock(&redis, "status --format prometheus").text();
    assert!(metrics.contains("redlock_in_order{name=\"backup\"} 1\n"), "{metrics}");
    redlock(&redis, "stop backup -q --for 0").run();
    redlock(&redis, "check").status(1).stdout(any()).run();
}

#[test]
fn what_nothing_is_known_of_never_passes() {
    let redis = Redis::start();
    redlock(&redis, "run -q plain -- true").run();
    redlock(&redis, "run -q trial --once-per day -- true").run();
    redlock(&redis, "check plain").fails(64, ["\"plain\"", "--within D"]).run();
    redlock(&redis, "check plain --within 1h").stdout("1 lock in order\n").run();
    redlock(&redis, "check trial never").fails(1, ["nothing to check", "\"never\""]).stdout("1 lock in order\n").run();
    redlock(&redis, "check trail --within 1h").fails(1, ["\"trail\" is known on", "; did you mean \"trial\"?"]).run();
    redlock(&redis, "check t*").fails(1, ["nothing to check", "\"t*\""]).run();
    redlock(&redis, "check t* --within 1h").stdout("1 lock in order\n").run();
    redlock(&redis, "check t* p* --within 1h").stdout("2 locks in order\n").run();
    redlock(&redis, "check --within 1h").fails(64, ["NAME"]).run();
    for (old, new) in [
        ("status backup --ran-within 28h --min-hosts 30 -q", "check backup --within 28h --min-hosts 30 -q"),
        ("-q status a job-* -a --format nagios --ran-within=28h", "-q check a 'job-*' --format nagios '--within=28h'"),
        ("status backup --min-hosts=3", "check backup '--min-hosts=3'"),
        ("status backup --format nagios", "check backup --format nagios"),
        ("status backup --exit-code", "status backup -q"),
    ] {
        redlock(&redis, old).fails(64, ["any more"]).stderr(like(format!("<any>: redlock {new}\n"))).run();
    }
    redlock(&redis, "run x -- redlock status --ran-within 1h").any_end().stderr(any()).stdout(any()).run();
}

#[test]
fn of_three_masters_a_quorum_judges() {
    let mut masters: Vec<Redis> = (0..3).map(|_| Redis::with_clock(&[], 7200)).collect();
    let all = |masters: &[Redis], hours: u32| masters.iter().for_each(|master| master.clock().set(hours * HOUR));
    for hours in [0, 24] {
        all(&masters, hours);
        night(&masters, NIGHTLY, &["web-1", "web-2"]);
    }
    redlock(&masters, "check -q").run();
    masters[0].kill();
    let away = || message(["unreachable", "judged by the other nodes"]);
    redlock(&masters, "check").stdout("1 lock in order\n").stderr(away()).run();
    redlock(&masters, "check -q --min-hosts 3")
        .status(1)
        .stdout(like("backup: 2 of 3 hosts came. Is cron running<any>\n"))
        .stderr(away())
        .run();
    let nagios = like("OK - 1 lock in order; <any> is unreachable<any> | overdue=0<any>\n");
    redlock(&masters, "check --format nagios").stdout(nagios).stderr(away()).run();
    // It comes back empty: the others know what to expect.
    masters[0].restart_aged(7200);
    all(&masters, 51);
    let overdue = like("backup: no success since <any> on web-1, expected each 1d; no host has come since then<any>\n");
    redlock(&masters, "check").status(1).stdout(overdue).run();
    night(&masters, NIGHTLY, &["web-1", "web-2"]);
    redlock(&masters, "check").stdout("1 lock in order\n").run();
    masters[1].kill();
    masters[2].kill();
    redlock(&masters, "check").fails(69, ["1 of 3 nodes answered"]).run();
    let object = redlock(&masters, "check --format json").status(69).stdout(any()).stderr(any()).run().json();
    assert_eq!(object["outcome"], "unavailable");
    redlock(&masters, "check --format nagios").status(3).stdout(like("UNKNOWN - <any>\n")).stderr(any()).run();
    redlock(&masters, "forget backup").fails(69, ["1 of 3 nodes answered"]).run();
}

#[test]
fn forget_deletes_all_but_the_fencing_counter_of_a_free_lock() {
    let redis = Redis::with_clock(&[], 7200);
    redlock(&redis, "run -q backup --once-per day --tries 3 -- true").run();
    redlock(&redis, "run -q backup --newest 7 -- true").run();
    let token = redlock(&redis, "acquire backup").token();
    redlock(&redis, "forget backup").fails(75, ["\"backup\" is held by", "once it is free"]).run();
    redlock(&redis, format!("release -q backup --token {token}")).run();
    redlock(&redis, "forget backup").stderr(message(["forgot \"backup\""])).run();
    assert_eq!(redis.query::<Vec<String>>(&["KEYS", "*"]), ["{redlock:backup}:\u{1f}fence"]);
    redlock(&redis, "forget backup").stderr(message(["nothing is known of \"backup\""])).run();
    redlock(&redis, "forget -q backup").run();
    redlock(&redis, "forget backup --format json")
        .stdout(like("{\"name\":\"backup\",\"outcome\":\"forgot\",<any>\n"))
        .run();
    redlock(&redis, "check backup").fails(1, ["nothing to check"]).run();
    redlock(&redis, "forget").fails(64, ["redlock forget NAME"]).run();
    let mut masters = Redis::several(3);
    redlock(&masters, "run -q backup --once-per day -- true").run();
    masters[0].pause();
    redlock(&masters, "forget backup")
        .stderr(when("both", |text| text.contains("bring it back") && text.contains("forgot")))
        .run();
    masters[0].resume();
    redlock(&masters, "check backup").stdout("1 lock in order\n").run();
    redlock(&masters, "forget -q backup").run();
    redlock(&masters, "check backup").fails(1, ["nothing to check"]).run();
    masters.truncate(1);
}

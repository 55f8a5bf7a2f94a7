//! Visits of hosts: what each host met, which hosts are missing in the morning, and whose runs `--once-per` leaves out.

use crate::run::crontab::crontab;
use crate::support::{
    Chance, Line, Redis, Running, SOON, Test, acquire, any, eventually, like, message, ms, redlock, release, status,
    when,
};
use serde_json::Value;
use std::time::Duration;

const VISITS: &str = "{redlock:backup}:\u{1f}visits";
const HOUR: Duration = Duration::from_secs(3600);

/// The hosts that `--hosts` shows, the latest first, each with what it met.
fn hosts<W: crate::support::Where + ?Sized>(servers: &W) -> Vec<(String, String)> {
    let reported = redlock(servers, "status backup --hosts --format json").stdout(any()).run().json();
    let text = |host: &Value, field: &str| host[field].as_str().unwrap().to_owned();
    reported["hosts"].as_array().unwrap().iter().map(|host| (text(host, "host"), text(host, "met"))).collect()
}

fn reported(hosts: &[(&str, &str)]) -> Vec<(String, String)> {
    hosts.iter().map(|(host, met)| ((*host).to_owned(), (*met).to_owned())).collect()
}

#[test]
fn each_host_is_reported_once_with_what_it_met_last() {
    let redis = Redis::start();
    redlock(&redis, "status backup --hosts").stdout(like("<any>\n  hosts   none is known\n")).run();
    redlock(&redis, "run -q backup --log 2 -- true").on_host("db-1").run();
    redlock(&redis, "run -q backup --log 2 -- sh -c").args(["exit 3"]).on_host("web-1").status(3).run();
    redlock(&redis, "run -q backup --log 2 --once-per 1h -- true").on_host("web-2").run();
    for _ in 0..2 {
        redlock(&redis, "run backup --once-per 1h -E 0 -q -- true").on_host("web-3").run();
    }
    let token = redlock(&redis, "acquire backup --log 2").on_host("web-4").stdout(any()).run().token();
    redlock(&redis, "run backup -- true").on_host("web-5").status(75).stderr(any()).run();
    let shown = "backup  held\n<lines>  last    <any>\n  \
        hosts   web-5  <date>  <duration> ago <any>it was taken\n          \
                web-4  <date>  <duration> ago <any>running\n          \
                web-3  <date>  <duration> ago <any>it had succeeded\n          \
                web-2  <date>  <duration> ago <any>ran, exit 0\n          \
                web-1  <date>  <duration> ago <any>ran, exit 3\n          \
                db-1   <date>  <duration> ago <any>took it\n";
    redlock(&redis, "status backup --hosts").stdout(like(shown)).run();
    release(&redis, "backup", &token);
    redlock(&redis, "acquire backup --slots 3").on_host("web-1").stdout(any()).run();
    redlock(&redis, "run backup --slots 4 -- true").on_host("web-5").status(64).stderr(any()).run();
    let last = like(
        "<any>\n<lines>  hosts   web-5  <date>  <duration> ago <any>turned away\n          web-1  <any>  running\n<lines>",
    );
    redlock(&redis, "status backup --hosts").stdout(last).run();
    let expected = [
        ("web-5", "other"),
        ("web-1", "took"),
        ("web-4", "took"),
        ("web-3", "done"),
        ("web-2", "took"),
        ("db-1", "took"),
    ];
    assert_eq!(hosts(&redis), reported(&expected));
    let exact = like(
        "{\"name\":\"backup\",<any>,\"usual_ms\":null,\"hosts\":[{\"host\":\"web-5\",\"came_at\":\"<time>\",\"met\":\"other\"},<any>],\"nodes\":<any>\n",
    );
    redlock(&redis, "status backup --hosts --format json").stdout(exact).run();
    assert_eq!(status(&redis, "backup").get("hosts"), None, "nobody asked");
}

#[test]
fn a_visit_is_the_time_at_which_the_host_came_not_of_its_looks_from_the_line() {
    let redis = Redis::start();
    let score = || redis.query::<Option<String>>(&["ZSCORE", VISITS, "web-2"]);
    let token = acquire(&redis, "backup");
    let waiter = Line::join(&redis, Line::waiter(&redis).on_host("web-2"));
    let came = score();
    assert!(came.is_some());
    redis.command(&["PUBLISH", &format!("{{redlock:backup}}:\u{1f}w:{}", Line::waiters(&redis)[0]), "go"]);
    let calls = || redis.info("total_commands_processed").parse::<u64>().unwrap();
    let before = calls();
    eventually(SOON, "it has looked", || calls() > before + 20);
    assert_eq!(score(), came);
    release(&redis, "backup", &token);
    waiter.finish();
    assert!(score() > came && score().unwrap().ends_with('0'), "it took the lock");
}

/// The waiter's first try reaches no Redis. The host's visit is noted once the waiter joins the line.
#[test]
fn a_host_that_waited_for_redis_has_come() {
    let mut redis = Redis::durable();
    let token = redlock(&redis, "acquire backup").on_host("web-1").stdout(any()).run().token();
    redis.kill();
    let waiter = redlock(&redis, "acquire backup --wait").on_host("web-2").stdout(any()).stderr(any()).spawn();
    assert!(waiter.stderr_line().contains("unreachable"));
    redis.restart();
    Line::becomes(&redis, 1);
    assert_eq!(hosts(&redis), reported(&[("web-2", "taken"), ("web-1", "took")]));
    release(&redis, "backup", &token);
    waiter.finish();
    assert_eq!(hosts(&redis), reported(&[("web-2", "took"), ("web-1", "took")]));
}

#[test]
fn what_keeps_visits_from_being_written_fails_no_lock() {
    let redis = Redis::start();
    redlock(&redis, "run -q backup --log 0 -- true").run();
    assert!(!redis.exists(VISITS));
    redis.command(&["SET", VISITS, "x"]);
    redlock(&redis, "run -q backup --once-per 1h -- true").run();
    redlock(&redis, "run -q backup --once-per 1h -E 0 -- true").run();
    redlock(&redis, "status backup").stdout(any()).run();
    let delete = "redis-cli unlink $'{redlock:backup}:\\x1fvisits'";
    let unread = || message(["\"backup\"", "wrong type; delete it: ", delete]);
    redlock(&redis, "check backup --min-hosts 1")
        .status(69)
        .stdout(when("why", move |text| text.contains(delete)))
        .run();
    redlock(&redis, "status backup --hosts").status(69).stdout(any()).stderr(unread()).run();
    redlock(&redis, "doctor").any_end().stdout(when("the command", move |text| text.contains(delete))).run();
}

#[test]
fn the_latest_hundred_hosts_are_kept_for_as_long_as_the_log() {
    const DAY_MS: i64 = 24 * 3_600_000;
    let redis = Redis::start();
    let host = |number: u32| redlock(&redis, "run -q backup -- true").on_host(&format!("web-{number}")).run();
    host(0);
    assert!(redis.pttl(VISITS) > 100 * DAY_MS);
    let came: u64 = redis.query::<String>(&["ZSCORE", VISITS, "web-0"]).parse().unwrap();
    for number in 1..100 {
        redis.command(&["ZADD", VISITS, &(came - 10_000 * number).to_string(), &format!("web-{number}")]);
    }
    host(100);
    assert_eq!(redis.query::<u32>(&["ZCARD", VISITS]), 100);
    assert_eq!(redis.query::<Option<String>>(&["ZSCORE", VISITS, "web-99"]), None, "the one that came first");
    // The end of a run renews the expiry of the log and of the visits.
    for key in [VISITS, "{redlock:backup}:\u{1f}log"] {
        redis.command(&["PEXPIRE", key, &(50 * DAY_MS).to_string()]);
    }
    host(100);
    assert!(redis.pttl(VISITS) > 100 * DAY_MS);
    assert_eq!(hosts(&redis).len(), 100);
    redlock(&redis, "check backup --within 1h --min-hosts 100").stdout(any()).run();
}

#[test]
fn too_few_hosts_are_reported_with_those_that_came_before() {
    let redis = Redis::with_clock(&[], 7200);
    let run = |host: &str| redlock(&redis, "run -q backup -- true").on_host(host).run();
    let morning = |rest: &str| redlock(&redis, format!("check backup --within 5h --min-hosts {rest}"));
    morning("1").fails(1, ["nothing to check"]).run();
    run("web-1");
    redis.clock().set(24 * HOUR);
    run("web-2");
    redis.clock().set(72 * HOUR);
    run("web-3");
    run("web-4");
    morning("2").stdout("1 lock in order\n").run();
    let few = "backup: 2 of 4 hosts came; web-2 last came <any>, web-1 last came <any>";
    morning("4").status(1).stdout(like(format!("{few}. Is cron running<any>\n"))).run();
    let data = "overdue=0 failed=0 hangs=0 hosts=1 unknown=0";
    morning("4 --format nagios").status(1).stdout(like(format!("WARNING - {few} | {data}\n"))).run();
    let object = morning("4 --format json").status(1).stdout(any()).run().json();
    assert_eq!((&object["finding"], &object["hosts"], &object["min_hosts"]), (&"hosts".into(), &2.into(), &4.into()));
    // A failed run is a visit, too.
    redis.clock().set(80 * HOUR);
    redlock(&redis, "run -q backup -- false").on_host("web-9").status(1).run();
    let failed = "backup: no success within 5h, the last <any> on web-4; 1 host came, the last <any>. redlock log backup -v\n\
                  backup: failed on web-9 <any>, exit 1; 1 host came. redlock log backup -v; by hand: redlock run backup -- JOB\n\
                  backup: 1 of 2 hosts came; web-4 last came <any>\n";
    morning("2").status(1).stdout(like(failed)).run();
    // A visit in the future counts as one in the past: the server's clock was changed.
    redis.clock().set(74 * HOUR);
    morning("3")
        .status(1)
        .stdout(like(
            "backup: 2 of 3 hosts came; web-9 last came <any>, web-2 last came <any>, web-1 last came <any>\n",
        ))
        .run();
    for number in 10..22 {
        let came = (1_000_000_000_000_u64 + number).to_string();
        redis.command(&["ZADD", VISITS, &came, &format!("old-{number}")]);
    }
    morning("9")
        .status(1)
        .stdout(when("ten of them", |text| {
            text.matches("last came").count() == 10 && text.contains(" and 5 more. Is cron")
        }))
        .run();
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for wrong in [
        "check backup --min-hosts 0",
        "check backup --min-hosts 101",
        "check --within 1h",
        "status --hosts",
        "status a b --hosts",
        "status a* --hosts",
        "status backup --hosts --format prometheus",
    ] {
        Test::bare().args(wrong.split(' ')).status(64).stderr(message([])).run();
    }
}

#[test]
fn one_of_three_masters_slept_or_has_another_clock_and_each_hosts_latest_visit_counts() {
    let masters: Vec<Redis> = (0..3).map(|_| Redis::with_clock(&[], 7200)).collect();
    let all = |ahead: [Duration; 3]| masters.iter().zip(ahead).for_each(|(master, ahead)| master.clock().set(ahead));
    let run = |host: &str| {
        redlock(&masters, "run -q backup -- true").on_host(host).run();
        let is_noted = |master: &Redis| master.query::<Option<String>>(&["ZSCORE", VISITS, host]).is_some();
        eventually(SOON, "all know it", || masters.iter().all(is_noted));
    };
    run("web-1");
    run("web-2");
    // This master is frozen during the next night.
    masters[2].pause();
    all([24 * HOUR; 3]);
    redlock(&masters, "run -q backup -- true").on_host("web-1").run();
    masters[2].resume();
    let morning = |rest: &str| redlock(&masters, format!("check backup --within 5h --min-hosts {rest}"));
    morning("1").stdout(any()).run();
    morning("2").status(1).stdout(like("backup: 1 of 2 hosts came; web-2 last came <any>\n")).run();
    // Clocks that differ by minutes do not change the order of the visits.
    all([48 * HOUR, 48 * HOUR + ms(120_000), 48 * HOUR + ms(240_000)]);
    run("web-2");
    run("web-3");
    assert_eq!(hosts(&masters), reported(&[("web-3", "took"), ("web-2", "took"), ("web-1", "took")]));
    let shown = like("<lines>  hosts   web-3  <date>  <duration> ago <any>ran, exit 0\n<lines>");
    redlock(&masters, "status backup --hosts").stdout(shown).run();
    morning("2").stdout(any()).run();
}

#[test]
fn thirty_waiters_that_go_home_have_come() {
    let redis = Redis::start();
    let job = "while [ \"$(redis-cli -s $SOCKET ZCARD '{redlock:backup}:\u{1f}queue')\" != 29 ]; do sleep 0.05; done";
    let host = |number: u32| {
        redlock(&redis, "run backup -q -E 0 --wait 2h --once-per 20h -c")
            .arg(job)
            .env("SOCKET", redis.socket())
            .on_host(&format!("web-{number}"))
            .within(SOON * 6)
            .spawn()
    };
    let hosts_at_night: Vec<Running> = (0..30).map(host).collect();
    hosts_at_night.into_iter().for_each(|host| drop(host.finish()));
    let met = |what: &str| hosts(&redis).iter().filter(|(_, met)| met == what).count();
    assert_eq!((met("took"), met("done")), (1, 29));
    redlock(&redis, "check backup --min-hosts 30").stdout(any()).run();
}

/// README's line for the night, with a job that does nothing.
fn nightly() -> String {
    let crontab = crontab();
    let line = crontab.lines().find(|line| line.contains("redlock run")).expect("the line of the night");
    line.split_whitespace().skip(6).collect::<Vec<_>>().join(" ").replace("/usr/local/bin/backup", "true")
}

/// A month of nights by the server's clock: each night the hosts come within seconds, in changing order. web-2 is off
/// for a night, web-3 asks another server for four nights, web-4 loses its crontab. The check 4.5 hours later names
/// each missing host, and no other.
#[test]
fn a_month_of_mornings_reports_each_host_that_is_missing_and_no_other() {
    const HOSTS: [&str; 4] = ["web-1", "web-2", "web-3", "web-4"];
    let (redis, elsewhere) = (Redis::with_clock(&[], 7200), Redis::start());
    let (line, mut chance) = (nightly(), Chance::new(35));
    let mut ahead = ms(0);
    for night in 0..30 {
        let lost = |host: &str| match host {
            "web-2" => night == 6,
            "web-3" => (10..14).contains(&night),
            "web-4" => night >= 25,
            _ => false,
        };
        let mut order = HOSTS;
        order.rotate_left(usize::try_from(chance.below(4)).unwrap());
        let mut at = 24 * HOUR * night + ms(chance.below(50));
        for host in order {
            at += ms(chance.below(2_000));
            ahead = ahead.max(at);
            redis.clock().set(ahead);
            let server = if lost(host) && host == "web-3" { &elsewhere } else { &redis };
            if !lost(host) || host == "web-3" {
                redlock(server, &line).on_host(host).run();
            }
        }
        redis.clock().set(24 * HOUR * night + 9 * HOUR / 2 + ms(chance.below(100)));
        let missing: Vec<&str> = HOSTS.into_iter().filter(|host| lost(host)).collect();
        let morning = redlock(&redis, "check backup --within 5h --min-hosts 4");
        match missing.as_slice() {
            [] => morning.stdout("1 lock in order\n").run(),
            [one] => {
                let few = format!("backup: 3 of 4 hosts came; {one} last came <any>\n");
                morning.status(1).stdout(like(few)).run()
            }
            several => panic!("{several:?}"),
        };
    }
}

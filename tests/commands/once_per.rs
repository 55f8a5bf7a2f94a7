//! `run --once-per` from thirty hosts at once. If a living node knows a success, no job runs again within the period,
//! whatever fails or restarts, and even if clocks are changed, by less than half the period. No call is refused for
//! longer than the period.

use crate::support::{
    Directory, Ended, Line, Mode, Proxy, Redis, Running, SOON, Test, any, eventually, like, message, ms, perhaps,
    redlock, send, several, tagged,
};
use nix::sys::signal::Signal;
use std::fs;
use std::io::PipeWriter;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOSTS: usize = 30;
const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(400 * 24 * 3600);

/// Hosts that have the same crontab, and what their jobs have noted.
struct Hosts {
    directory: Arc<Directory>,
    masters: Vec<Redis>,
}

impl Hosts {
    /// The first `failures` jobs fail, counted over all hosts, and all later ones succeed.
    fn new(masters: Vec<Redis>, failures: usize) -> Hosts {
        let directory = Arc::new(Directory::new());
        let job = format!(
            "exec 9>>lock; flock -n 9 || echo two at once >>faults
            echo >>runs; sleep 0.1; [ $(wc -l <runs) -gt {failures} ] || exit 3; echo >>successes"
        );
        fs::write(directory.path().join("job"), job).unwrap();
        Hosts { directory, masters }
    }

    /// Hosts that use this many masters; the clocks of all masters are ahead by this time.
    fn ahead(masters: usize, ahead: Duration) -> Hosts {
        let hosts = Hosts::new((0..masters).map(|_| Redis::with_clock(&[], 7200)).collect(), 0);
        hosts.masters.iter().for_each(|master| master.clock().set(ahead));
        hosts
    }

    fn call(&self, once_per: &str) -> Test {
        let line = format!("run backup --ttl 10s --once-per {once_per} -- sh job");
        redlock(&self.masters, line).in_directory(&self.directory).within(SOON * 9)
    }

    /// Starts the call on all hosts at the same moment.
    fn all(&self, once_per: &str) -> Vec<Running> {
        (0..HOSTS).map(|_| self.call(once_per).any_end().stderr(perhaps(["backup"])).spawn()).collect()
    }

    fn count(&self, file: &str) -> usize {
        fs::read_to_string(self.directory.path().join(file)).unwrap_or_default().lines().count()
    }

    /// Waits until the hosts end. `failures` hosts must end with the status of a failed job. Up to now, `runs` jobs
    /// must have run, one at a time, and `successes` of them must have succeeded.
    #[track_caller]
    fn end(&self, all: Vec<Running>, failures: usize, runs: usize, successes: usize) {
        let ends: Vec<Ended> = all.into_iter().map(|host| host.finish().ended).collect();
        let others: Vec<&Ended> = ends.iter().filter(|ended| **ended != Ended::Status(0)).collect();
        assert_eq!(others, vec![&Ended::Status(3); failures]);
        assert_eq!((self.count("runs"), self.count("successes"), self.count("faults")), (runs, successes, 0));
    }
}

#[test]
fn of_thirty_hosts_each_failure_is_repeated_and_no_success() {
    for masters in [1, 3] {
        let hosts = Hosts::new((0..masters).map(|_| Redis::durable()).collect(), 3);
        hosts.end(hosts.all("1h"), 3, 4, 1);
        hosts.end(hosts.all("1h"), 0, 4, 1);
    }
}

#[test]
fn restarts_in_between_repeat_no_success() {
    for masters in [1, 3] {
        let mut hosts = Hosts::new((0..masters).map(|_| Redis::durable()).collect(), 2);
        let all = hosts.all("1h");
        for runs in [1, 2] {
            eventually(SOON * 2, "one runs", || hosts.count("runs") >= runs);
            hosts.masters[0].restart();
        }
        hosts.end(all, 2, 3, 1);
        // One of several masters may forget everything.
        if masters > 1 {
            hosts.masters[1].kill();
            hosts.masters[1] = Redis::start();
        }
        hosts.end(hosts.all("1h"), 0, 3, 1);
    }
}

/// Two of three masters forget the success, and grant at once. The third reports it late, and it counts.
#[test]
fn a_success_that_a_slow_master_alone_knows_counts() {
    let masters = several(3);
    redlock(&masters, "run backup --once-per 1h -- echo started").stdout("started\n").run();
    let runs = "{redlock:backup}:\u{1f}runs";
    eventually(SOON, "all know it", || masters.iter().all(|master| master.exists(runs)));
    masters[..2].iter().for_each(|master| master.command(&["FLUSHALL"]));
    let slow = Proxy::new(&masters[2], Mode::Delay(ms(150)));
    let urls = [masters[0].url(), masters[1].url(), slow.url()].to_vec();
    let late = redlock(&urls, "run backup --once-per 1h --node-timeout 5s -E 9 -- echo started");
    late.status(9).run();
}

#[test]
fn clocks_that_change_let_no_second_run_in_unless_that_is_due_by_all_of_them() {
    for masters in [1, 3] {
        // The clocks change by an hour, forward or back.
        for (before, after) in [(ms(0), HOUR), (HOUR, ms(0))] {
            let hosts = Hosts::ahead(masters, before);
            hosts.end(vec![hosts.call("4h").spawn()], 0, 1, 1);
            hosts.masters.iter().for_each(|master| master.clock().set(after));
            hosts.end(hosts.all("4h"), 0, 1, 1);
        }
        // The clocks change by 400 days: the success is forgotten, or lies too far ahead. All hosts together make one
        // more run.
        for (before, after) in [(ms(0), LONG), (LONG, ms(0))] {
            let hosts = Hosts::ahead(masters, before);
            hosts.end(vec![hosts.call("4h").spawn()], 0, 1, 1);
            let change = |masters: &[Redis]| masters.iter().for_each(|master| master.clock().set(after));
            // No job runs while the first master, whose clock is unchanged, knows the success.
            change(&hosts.masters[1..]);
            hosts.end(hosts.all("4h"), 0, 1, 1);
            change(&hosts.masters);
            hosts.end(hosts.all("4h"), 0, 2, 2);
            hosts.end(hosts.all("4h"), 0, 2, 2);
        }
    }
}

#[test]
fn no_clock_blocks_for_more_than_a_period() {
    let hosts = Hosts::ahead(1, ms(3_900));
    hosts.end(vec![hosts.call("8s").spawn()], 0, 1, 1);
    hosts.masters[0].clock().set(ms(0));
    let back = Instant::now();
    hosts.call("8s").run();
    assert_eq!(hosts.count("runs"), 1);
    let mut refused = ms(0);
    eventually(SOON, "it runs again", || {
        let start = back.elapsed();
        hosts.call("8s").run();
        if hosts.count("runs") == 1 {
            refused = start;
        }
        hosts.count("runs") == 2
    });
    assert!(refused < ms(8_000), "a call that began after {refused:?} was refused");
    assert!(back.elapsed() > ms(3_900), "{:?}", back.elapsed());
}

/// The commands of the rule that doctor prints.
fn allowed() -> Vec<String> {
    let permissions = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/doctor/permissions.rs")).unwrap();
    let rule = permissions.split_once("COMMANDS: &str = \"").unwrap().1.split_once('"').unwrap().0.replace('\\', " ");
    rule.split_whitespace().map(str::to_owned).collect()
}

/// Makes the same call twice, as two hosts would; returns the number of jobs that ran, and the messages.
fn two_hosts(redis: &Redis) -> (usize, String) {
    let url = redis.tcp_url().replace("redis://", "redis://locks@");
    let line = "run backup --ttl 10s --once-per 1h --wait 0 -- echo ran";
    let host = || {
        let host = Test::new(url.as_str()).env("REDLOCK_PASSWORD", "pw").args(line.split(' '));
        host.any_end().stdout(any()).stderr(any()).run()
    };
    let (one, other) = (host(), host());
    ((one.stdout + &other.stdout).matches("ran").count(), one.stderr + &other.stderr)
}

#[test]
fn no_right_that_is_missing_and_no_key_of_a_wrong_type_lets_a_job_run_again_in_silence() {
    let redis = Redis::with_tcp(&[]);
    let rule = allowed();
    assert!(rule.len() > 40, "{rule:?}");
    let user = |without: Option<&str>| {
        redis.command(&["FLUSHALL"]);
        // Redis 6 can take back only whole commands.
        let missing = without.map(|command| command.split('|').next().unwrap().replace('+', "-"));
        let words = ["ACL", "SETUSER", "locks", "reset", "on", ">pw", "~*", "&*", "-@all"].into_iter();
        let words = words.chain(rule.iter().map(String::as_str)).chain(missing.as_deref());
        redis.command(&words.collect::<Vec<_>>());
    };
    user(None);
    assert_eq!(two_hosts(&redis), (1, String::new()));
    let mut silent = Vec::new();
    let mut check = |case: &str| {
        let (runs, said) = two_hosts(&redis);
        silent.extend((runs > 1 && said.is_empty()).then(|| case.to_owned()));
    };
    for command in &rule {
        user(Some(command));
        check(command);
    }
    for key in ["log", "runs", "fence", "queue", "lease", "visits"] {
        for kind in
            [&["SET", "KEY", "x"][..], &["RPUSH", "KEY", "x"], &["SADD", "KEY", "x"], &["HSET", "KEY", "once", "x"]]
        {
            user(None);
            let key = format!("{{redlock:backup}}:\u{1f}{key}");
            redis.command(&kind.iter().map(|word| if *word == "KEY" { &*key } else { *word }).collect::<Vec<_>>());
            check(&format!("{kind:?} {key}"));
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn a_success_that_cannot_be_noted_is_said_though_the_call_is_quiet() {
    let redis = Redis::with_tcp(&[]);
    let script = "redis-cli -u $URL SET '{redlock:backup}:\u{1f}runs' x >/dev/null"; // while the job runs
    let job = redlock(&redis, "run backup -q --once-per 1h -- sh -c").args([script]).env("URL", redis.tcp_url());
    let said =
        message(["\"backup\" succeeded, but ", "could not note it", "WRONGTYPE", "may let another host run it again"]);
    job.stderr(said).run();
}

/// README says: redlock tries to report the success for 5 s, or until the lease ends if that is earlier.
#[test]
fn a_success_that_no_node_hears_of_is_reported_no_longer_than_its_lease_lasts() {
    let (mut redis, directory) = (Redis::with_tcp(&[]), Arc::new(Directory::new()));
    let job = redlock(&redis, "run backup -q --ttl 2s --once-per 1h -- sh -c").in_directory(&directory);
    let job = job.args(["echo ready; while [ ! -e go ]; do sleep 0.02; done"]);
    let job =
        job.stderr(message(["cannot release \"backup\"", "--once-per may let another host run it again"])).ready();
    redis.kill();
    fs::write(directory.path().join("go"), "").unwrap();
    let end = Instant::now();
    job.finish();
    assert!(end.elapsed() < ms(5_000), "{:?}", end.elapsed());
}

#[test]
fn a_success_that_no_node_hears_of_is_said_though_the_call_is_quiet() {
    let start = |option: &str, status: i32, said: Option<&str>| {
        let (redis, directory) = (Redis::with_tcp(&[]), Arc::new(Directory::new()));
        let line = format!("run backup -q --ttl 5s {option} 1h -- sh -c");
        let script = format!("echo ready; while [ ! -e go ]; do sleep 0.05; done; exit {status}");
        let job = redlock(&redis, line).args([script]).in_directory(&directory).status(status);
        let job = match said {
            Some(said) => job.stderr(message(["cannot release \"backup\"", "is unreachable", said])),
            None => job.stderr(""),
        };
        (redis, directory, job.ready())
    };
    let again = Some("--once-per may let another host run it again");
    let jobs = [start("--once-per", 0, again), start("--once-per", 3, None), start("--max-run", 0, None)];
    let stop = |(mut redis, directory, job): (Redis, Arc<Directory>, Running)| {
        redis.kill();
        fs::write(directory.path().join("go"), "").unwrap();
        job
    };
    jobs.map(stop).into_iter().for_each(|job| drop(job.finish()));
}

const HALF: Duration = Duration::from_secs(12 * 3600);

#[test]
fn half_a_day_after_its_beginning_a_success_turns_nobody_away() {
    let redis = Redis::with_clock(&[], 7200);
    let call = |ran: bool| {
        let test = redlock(&redis, "run backup --once-per day -E 9 -- echo ran");
        if ran {
            test.stdout("ran\n").run()
        } else {
            test.status(9).run()
        };
    };
    call(true);
    call(false);
    redis.clock().set(HALF - ms(5_000));
    call(false);
    redis.clock().set(HALF + ms(5_000));
    call(true);
    // A run without the option does not count.
    redis.clock().set(HALF * 3);
    redlock(&redis, "run -q backup -- true").run();
    call(true);
}

#[test]
fn a_call_that_is_not_needed_ends_with_0_in_silence() {
    let redis = Redis::start();
    let call = |options: &str| redlock(&redis, format!("run backup --once-per 1h {options} -- echo started"));
    call("").stdout("started\n").run();
    call("").run();
    call("-q").run();
    call("-E 9").status(9).run();
    call("-v").stderr(like("redlock: <any>\nredlock: \"backup\" has run: <host>, <any>:<any>, 0s\n")).run();
}

/// A job that ends with this status when its standard input is closed.
fn going(redis: &Redis, name: &str, period: &str, status: i32) -> (Running, PipeWriter) {
    let script = format!("echo ready; read line; exit {status}");
    redlock(redis, format!("run {name} --once-per {period} -- sh -c")).args([script]).any_end().ready_to_read()
}

#[test]
fn a_call_that_finds_its_run_going_on_waits_and_ends_with_0() {
    let redis = Redis::start();
    let (holder, _job) = going(&redis, "backup", "day", 1);
    let call = |line: &str| redlock(&redis, format!("run backup --label sh {line} -- echo started"));
    call("--once-per day --wait 0").run();
    call("--once-per day -n -E 9").status(9).run();
    call("--once-per day --wait 300ms -E 9").status(9).run();
    let said = like("redlock: <any>\nredlock: \"backup\" is being run by <host> since <any>:<any>\n");
    call("--once-per day --wait 0 -v").stderr(said).run();
    // A twelfth of 12 s is over after a second. While the run goes on, a call waits for half, and looks no further.
    let start = Instant::now();
    call("--once-per 12s").run();
    assert!((ms(6_000)..ms(9_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(holder);
}

#[test]
fn whoever_waits_beyond_the_usual_wait_repeats_a_run_that_fails() {
    let redis = Redis::start();
    let (holder, job) = going(&redis, "backup", "24s", 3);
    let others: Vec<Running> = (0..3)
        .map(|_| redlock(&redis, "run backup --label sh --once-per 24s -- echo started").stdout(any()).spawn())
        .collect();
    std::thread::sleep(ms(3_000)); // a twelfth of 24 s is over
    drop(job);
    let ran: Vec<String> = others.into_iter().map(|other| other.finish().stdout).collect();
    assert_eq!(ran.concat(), "started\n");
    assert_eq!(holder.finish().ended, Ended::Status(3));
}

#[test]
fn of_thirty_hosts_that_meet_something_else_one_says_so() {
    let redis = Redis::start();
    redlock(&redis, "acquire backup --ttl 1m").stdout(any()).run();
    let hosts: Vec<Running> = (0..HOSTS)
        .map(|_| redlock(&redis, "run backup --once-per 24s -E 0 -- echo started").any_end().stderr(any()).spawn())
        .collect();
    let ends: Vec<_> = hosts.into_iter().map(Running::finish).collect();
    assert!(ends.iter().all(|end| end.ended == Ended::Status(75)));
    let said: Vec<&str> = ends.iter().map(|end| end.stderr.as_str()).filter(|said| !said.is_empty()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("redlock: \"backup\" is held by ") && said[0].contains("gave up after 2s"), "{said:?}");
    for _ in 0..2 {
        let call = redlock(&redis, "run backup --once-per day --wait 0 -E 0 -- echo started");
        call.status(75).stderr(message(["\"backup\" is held by "])).run();
    }
}

#[test]
fn a_run_that_began_before_this_period_is_not_this_periods() {
    let redis = Redis::start();
    let (holder, _job) = going(&redis, "backup", "4s", 0);
    std::thread::sleep(ms(2_500));
    let call = redlock(&redis, "run backup --label sh --once-per 4s -- echo started").status(75);
    call.stderr(message(["\"backup\" is held by ", "gave up after "])).run();
    drop(holder);
}

/// Far behind in line, a call has last looked seconds ago.
#[test]
fn whoever_has_the_lock_at_the_end_of_the_wait_decides() {
    let redis = Redis::start();
    let (holder, job) = going(&redis, "backup", "day", 1);
    let plain = || redlock(&redis, "acquire -q backup --wait 1m --ttl 1m").any_end().stdout(any()).spawn();
    let plain = [plain(), plain()]; // the second stays the first in line, and so no call hears that it is
    eventually(SOON, "they wait", || Line::length(&redis) == 2);
    let call = |_| redlock(&redis, "run backup --label sh --once-per 8s -E 9 -- true").any_end().spawn();
    let calls: Vec<Running> = (0..5).map(call).collect();
    eventually(SOON, "all wait", || Line::length(&redis) == 7);
    std::thread::sleep(ms(500)); // the looks with which a wait begins are over
    drop(job);
    // None of them was the first in line, so none prints a line.
    calls.into_iter().for_each(|call| assert_eq!(call.finish().ended, Ended::Status(75)));
    assert_eq!(holder.finish().ended, Ended::Status(1));
    drop(plain);
}

#[test]
fn two_jobs_with_one_name_are_reported_unless_they_name_their_labels() {
    let redis = Redis::start();
    redlock(&redis, "run nightly --once-per day -- true").run();
    let said = |name: &str, verb: &str, theirs: &str, ours: &str| {
        let said = format!(
            "redlock: \"{name}\" {verb} as {theirs} on <host>, not as {ours}: two jobs with one name? (one job: give both the same --label)\n"
        );
        like(said)
    };
    redlock(&redis, "run nightly --once-per day -q -- echo x").stderr(said("nightly", "has run", "true", "echo")).run();
    redlock(&redis, "run nightly --once-per day --label files -- echo x").run();
    redlock(&redis, "run nightly --once-per day -- true").run();
    redlock(&redis, "run other --once-per day --label db -- true").run();
    redlock(&redis, "run other --once-per day -- echo x").run();
    let (holder, _job) = going(&redis, "third", "day", 0);
    redlock(&redis, "run third --once-per day --wait 0 -- true")
        .stderr(said("third", "is being run", "echo", "true"))
        .run();
    drop(holder);
}

#[test]
fn a_log_that_cannot_be_written_is_reported_by_a_quiet_call() {
    let redis = Redis::start();
    redis.command(&["SET", "{redlock:backup}:\u{1f}log", "x"]);
    let said = "redlock: the log of \"backup\" could not be written: <node> could not note it (<any>WRONGTYPE<any>)\n";
    for line in ["run backup --once-per 1s -- true", "run -q backup -- true"] {
        redlock(&redis, line).stderr(like(said)).run();
    }
}

const TRIES: &str = "{redlock:backup}:\u{1f}tries";

#[test]
fn so_many_runs_begin_in_a_period_whatever_becomes_of_them() {
    for masters in [1, 3] {
        let masters: Vec<Redis> = (0..masters).map(|_| Redis::with_clock(&[], 7200)).collect();
        let call = |line: &str| redlock(&masters, format!("run backup --once-per day --tries 2 {line}"));
        call("-- false").status(1).run();
        // Without the option, a run is not counted.
        redlock(&masters, "run backup --once-per day -- false").status(1).run();
        call("-- sh -c").args(["exit 3"]).status(3).run();
        call("-- echo started").run();
        call("-E 9 -- echo started").status(9).run();
        let said =
            "redlock: <any>\nredlock: \"backup\" has been tried 2 times since <any>:<any>, last on <host>: exit 3\n";
        call("-v -- echo started").stderr(like(said)).run();
        // The last run is no try: the message is still about the last try, or about none that the log has.
        redlock(&masters, "run -q backup -- sh -c").args(["exit 7"]).status(7).run();
        call("-v -- echo started").stderr(like(said)).run();
        redlock(&masters, "run -q backup --log 1 -- sh -c").args(["exit 7"]).status(7).run();
        let unknown = "redlock: <any>\nredlock: \"backup\" has been tried 2 times since <any>:<any>\n";
        call("-v -- echo started").stderr(like(unknown)).run();
        redlock(&masters, "run backup --once-per day --tries 3 -- false").status(1).run();
        masters.iter().for_each(|master| master.clock().set(HALF + ms(60_000)));
        call("-- echo started").stdout("started\n").run();
    }
}

#[test]
fn what_must_not_be_repeated_is_not_though_its_host_dies() {
    let redis = Redis::start();
    let call = |job: &str| redlock(&redis, "run backup --ttl 1s --once-per day --tries 1 -- sh -c").args([job]);
    let host = call("echo ready; sleep 1000").any_end().stderr(any()).ready();
    // A call does not wait.
    call("echo started").run();
    eventually(SOON, "nothing of it is left", || {
        let left = tagged(host.tag());
        left.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
        left.is_empty()
    });
    eventually(SOON, "its lease has run out", || !redis.exists("redlock:backup"));
    call("echo started").run();
}

#[test]
fn one_masters_word_of_a_try_is_enough() {
    let masters = several(3);
    let call = |job: &str| redlock(&masters, "run backup --once-per day --tries 1 -- sh -c").args([job]);
    call("exit 3").status(3).run();
    eventually(SOON, "all know it", || masters.iter().all(|master| master.exists(TRIES)));
    masters[1..].iter().for_each(|master| master.command(&["FLUSHALL"]));
    call("echo started").run();
}

#[test]
fn a_try_that_is_not_noted_does_not_run_and_counts_for_nothing() {
    let redis = Redis::with_tcp(&[]);
    let user = |without: &[&str]| {
        let words = ["ACL", "SETUSER", "locks", "reset", "on", ">pw", "~*", "&*", "+@all"].into_iter();
        redis.command(&words.chain(without.iter().copied()).collect::<Vec<_>>());
    };
    let url = redis.tcp_url().replace("redis://", "redis://locks@");
    let call = || {
        let line = "run backup --once-per day --tries 1 -- echo started";
        Test::new(url.as_str()).env("REDLOCK_PASSWORD", "pw").args(line.split(' '))
    };
    user(&["-zadd"]);
    call().status(78).stderr(message(["\"backup\" did not run: ", "NOPERM", "redlock doctor"])).run();
    assert!(!redis.exists(TRIES) && !redis.exists("redlock:backup"));
    user(&[]);
    call().stdout("started\n").run();
    // A history that cannot be read: nothing runs.
    redis.command(&["FLUSHALL"]);
    redis.command(&["SET", TRIES, "x"]);
    call().status(69).stderr(message(["\"backup\" did not run: ", "WRONGTYPE"])).run();
}

/// Whatever keeps two of three masters from noting a try, the third takes its note back.
#[test]
fn a_try_that_one_of_three_masters_notes_counts_for_nothing() {
    let masters: Vec<Redis> = (0..3).map(|_| Redis::with_tcp(&[])).collect();
    let allow = |masters: &[Redis], less: &[&str]| {
        let words = [&["ACL", "SETUSER", "locks", "on", ">pw", "~*", "&*", "+@all"], less].concat();
        masters.iter().for_each(|master| master.command(&words));
    };
    allow(&masters, &[]);
    allow(&masters[1..], &["-zadd"]);
    let urls: Vec<String> =
        masters.iter().map(|master| master.tcp_url().replace("redis://", "redis://locks@")).collect();
    let line = "run backup -q --once-per day --tries 1 -- echo started";
    let call = || Test::new(&urls).env("REDLOCK_PASSWORD", "pw").args(line.split(' '));
    call().status(78).stderr(message(["\"backup\" did not run: ", "NOPERM"])).run();
    assert!(masters.iter().all(|master| !master.exists(TRIES) && !master.exists("redlock:backup")));
    allow(&masters, &[]);
    call().stdout("started\n").run();
    call().run();
}

#[test]
fn a_try_that_two_hanging_masters_hear_of_late_counts_for_nothing() {
    let masters = several(3);
    redlock(&masters, "run other --once-per day --tries 1 -- true").run(); // all masters know the scripts now
    let proxies = [1, 2].map(|master| Proxy::new(&masters[master], Mode::Delay(ms(800))));
    let urls = vec![masters[0].url(), proxies[0].url(), proxies[1].url()];
    let line = "run backup -q --ttl 1m --node-timeout 4s --once-per day --tries 1 -- echo started";
    let call = redlock(&urls, line).status(69).within(SOON * 3).stderr(message(["\"backup\" did not run: "])).spawn();
    eventually(SOON, "one master has noted it", || masters[0].exists(TRIES));
    masters[1..].iter().for_each(Redis::pause);
    call.finish();
    masters[1..].iter().for_each(Redis::resume);
    eventually(SOON, "it is taken back", || {
        masters.iter().all(|master| !master.exists(TRIES) && !master.exists("redlock:backup"))
    });
    redlock(&masters, "run backup --once-per day --tries 1 -- echo started").stdout("started\n").run();
}

#[test]
fn a_lease_that_is_re_created_is_counted_again() {
    let mut redis = Redis::start();
    let line = "run backup --ttl 5s --once-per day --tries 1 -- sh -c";
    let job = redlock(&redis, line).args(["echo ready; read line; exit 3"]).any_end().stderr(any());
    let (host, stdin) = job.ready_to_read();
    redis.restart();
    eventually(SOON, "it is counted again", || redis.exists(TRIES));
    drop(stdin);
    assert_eq!(host.finish().ended, Ended::Status(3));
    redlock(&redis, "run backup --once-per day --tries 1 -- echo started").run();
}

//! `run --once-per` from thirty hosts at once. If a living node knows a success, no job runs again within the period.
//! This holds whatever fails or restarts, and even if clocks are changed, by less than the period. No call is refused
//! for longer than twice the period.

use crate::support::{
    Directory, Ended, Mode, Proxy, Redis, Running, SOON, Test, any, eventually, message, ms, perhaps, redlock, several,
};
use std::fs;
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
    /// The first `failures` jobs fail, counted over all hosts. All later jobs succeed.
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
        let line = format!("run backup -q -E 0 --ttl 10s --wait 1m --once-per {once_per} -- sh job");
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
    /// must have run, one at a time; `successes` of these jobs must have succeeded.
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

/// Two of three masters forget the success, and grant at once. The third tells of the success late; the success counts.
#[test]
fn a_success_that_a_slow_master_alone_knows_counts() {
    let masters = several(3);
    redlock(&masters, "run -q backup --once-per 1h -- true").run();
    let runs = "{redlock:backup}:\u{1f}runs";
    eventually(SOON, "all know it", || masters.iter().all(|master| master.exists(runs)));
    masters[..2].iter().for_each(|master| master.command(&["FLUSHALL"]));
    let slow = Proxy::new(&masters[2], Mode::Delay(ms(150)));
    let urls = [masters[0].url(), masters[1].url(), slow.url()].to_vec();
    let late = redlock(&urls, "run -q backup --once-per 1h --node-timeout 5s -- echo started").status(75);
    late.stderr(message(["\"backup\" ran on"])).run();
}

#[test]
fn clocks_that_change_let_no_second_run_in_unless_that_is_due_by_all_of_them() {
    for masters in [1, 3] {
        // The clocks change by an hour, forward or back.
        for (before, after) in [(ms(0), HOUR), (HOUR, ms(0))] {
            let hosts = Hosts::ahead(masters, before);
            hosts.end(vec![hosts.call("2h").spawn()], 0, 1, 1);
            hosts.masters.iter().for_each(|master| master.clock().set(after));
            hosts.end(hosts.all("2h"), 0, 1, 1);
        }
        // The clocks change by 400 days: the success is forgotten, or lies too far ahead. All hosts together make one
        // more run.
        for (before, after) in [(ms(0), LONG), (LONG, ms(0))] {
            let hosts = Hosts::ahead(masters, before);
            hosts.end(vec![hosts.call("2h").spawn()], 0, 1, 1);
            let change = |masters: &[Redis]| masters.iter().for_each(|master| master.clock().set(after));
            // No job runs while the first master, whose clock is unchanged, knows the success.
            change(&hosts.masters[1..]);
            hosts.end(hosts.all("2h"), 0, 1, 1);
            change(&hosts.masters);
            hosts.end(hosts.all("2h"), 0, 2, 2);
            hosts.end(hosts.all("2h"), 0, 2, 2);
        }
    }
}

#[test]
fn no_clock_blocks_for_more_than_twice_the_time() {
    let hosts = Hosts::ahead(1, ms(3_900));
    hosts.end(vec![hosts.call("4s").spawn()], 0, 1, 1);
    hosts.masters[0].clock().set(ms(0));
    let back = Instant::now();
    hosts.call("4s").run();
    assert_eq!(hosts.count("runs"), 1);
    let mut refused = ms(0);
    eventually(SOON, "it runs again", || {
        let start = back.elapsed();
        hosts.call("4s").run();
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
    let line = "run backup -q -E 0 --ttl 10s --once-per 1h -- echo ran";
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
        let missing = without.map(|command| command.replace('+', "-"));
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
    for key in ["open", "ends", "log", "runs", "fence", "queue", "lease", "visits", "errors"] {
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
        message(["\"backup\" succeeded, but ", "could not note it", "WRONGTYPE", "will let another host run it again"]);
    job.stderr(said).run();
}

/// README says: redlock tries to report the success for 5 s, or until the lease ends if the lease ends earlier.
#[test]
fn a_success_that_no_node_hears_of_is_told_no_longer_than_its_lease_lasts() {
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

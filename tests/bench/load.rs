//! `make load`: very many runs, waiters, holders and renewals, in four stages. Each prints its figures, and fails if a
//! call fails or a lease is lost. `holders` also fails if a script takes too long, and `renewals` if memory,
//! descriptors or connections grow.

use crate::crowd::{children_of, drain, gather_redlocks};
use crate::measure::{memory, processor_time};
use crate::peers::redlock;
use crate::support::{Redis, die_with_parent, eventually, ms};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A script of `status` or `log` must take less than this, however many locks and holders exist.
const LONGEST_SCRIPT: Duration = ms(5);
const LONG: Duration = Duration::from_secs(120);

/// Runs all stages: with LOAD=full in full size, else in a tenth of it.
pub(crate) fn load() {
    let share = if std::env::var("LOAD").is_ok_and(|load| load == "full") { 1 } else { 10 };
    runs_at_once(1_000 / share);
    waiters(3_000 / share);
    holders(10_000 / share);
    renewals(300 / share, Duration::from_secs(60 / u64::try_from(share).unwrap()).max(Duration::from_secs(20)));
}

/// A server that records scripts of more than 0.5 ms.
fn server() -> Redis {
    let arguments = ["--maxclients", "10000", "--slowlog-log-slower-than", "500", "--slowlog-max-len", "100000"];
    let redis = Redis::with_tcp(&arguments);
    redis.go_first();
    redis
}

fn number(redis: &Redis, field: &str) -> u64 {
    redis.info(field).parse().unwrap()
}

fn print_server(redis: &Redis) {
    println!(
        "  server: {} requests and commands in scripts, worst script {}, {:.1} MB, {} connections at the end",
        number(redis, "total_commands_processed"),
        words_for(worst_script(redis)),
        number(redis, "used_memory") as f64 / 1e6,
        number(redis, "connected_clients"),
    );
}

/// The longest script since the slow log was emptied; zero if none took 0.5 ms.
fn worst_script(redis: &Redis) -> Duration {
    let slow: Vec<(i64, i64, u64, Vec<String>, String, String)> = redis.query(&["SLOWLOG", "GET", "-1"]);
    let scripts = slow.iter().filter(|(_, _, _, words, ..)| words[0].to_lowercase().starts_with("eval"));
    scripts.map(|(_, _, us, ..)| Duration::from_micros(*us)).max().unwrap_or_default()
}

fn words_for(worst: Duration) -> String {
    if worst.is_zero() { "below 0.5 ms".to_owned() } else { format!("{:.1} ms", worst.as_secs_f64() * 1e3) }
}

fn start(command: &mut Command) -> Child {
    die_with_parent(command.stdin(Stdio::null()).stdout(Stdio::null())).spawn().unwrap()
}

fn finish(children: Vec<Child>) {
    for mut child in children {
        let status = child.wait().unwrap();
        assert!(status.success(), "a call: {status}");
    }
}

fn assert_free(redis: &Redis) {
    let locks: Vec<String> =
        redis.keys_without_history().into_iter().filter(|key| key.starts_with("redlock:")).collect();
    assert!(locks.is_empty(), "still held: {locks:?}");
}

/// Starts `count` calls of `redlock run` as fast as possible, each for a lock of its own.
fn runs_at_once(count: usize) {
    let (redis, begin) = (server(), Instant::now());
    let url = redis.tcp_url();
    let run = |at: usize| start(redlock(&url).args(["run", "-q", "--wait", "1m", &format!("lock-{at}"), "--", "true"]));
    let children: Vec<Child> = (0..count).map(run).collect();
    let connections = number(&redis, "connected_clients");
    finish(children);
    let taken = begin.elapsed();
    println!("\n{count} redlock run at once: {:.2} s, {:.2} ms each", taken.as_secs_f64(), per(taken, count));
    println!("  {connections} connections when the last one was started");
    assert_free(&redis);
    print_server(&redis);
}

fn per(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e3 / count as f64
}

/// `count` waiters wait for one lock, and then get it one after the other.
fn waiters(count: usize) {
    let (redis, begin) = (server(), Instant::now());
    let mut crowd = gather_redlocks(&redis, "load", count);
    println!("\n{count} waiters, in line after {:.1} s", begin.elapsed().as_secs_f64());
    std::thread::sleep(Duration::from_secs(2));
    let pids: Vec<u32> = crowd.children[1..].iter().map(Child::id).collect();
    let (before, used, time) =
        (number(&redis, "total_commands_processed"), processor_time(&pids), Duration::from_secs(10));
    std::thread::sleep(time);
    println!(
        "  {:.1} requests and commands in scripts a second, {:.2} % of a core for all; {} connections",
        (number(&redis, "total_commands_processed") - before) as f64 / time.as_secs_f64(),
        (processor_time(&pids) - used).as_secs_f64() / time.as_secs_f64() * 100.0,
        number(&redis, "connected_clients"),
    );
    let resources = Resources::of(&pids[..10.min(count)]);
    println!("  each: {resources}");
    drain(&redis, &mut crowd, count);
    assert_free(&redis);
    print_server(&redis);
}

/// Takes `count` locks, `count` slots of the lock `slots`, and `count` shared leases of the lock `readers`. Then times
/// `status` and `log`.
fn holders(count: usize) {
    let redis = server();
    let url = redis.tcp_url();
    let slots = count.to_string();
    for (what, arguments) in
        [("locks", &[][..]), ("slots", &["slots", "--slots", &slots][..]), ("readers", &["readers", "--shared"][..])]
    {
        let begin = Instant::now();
        for some in (0..count).collect::<Vec<_>>().chunks(8) {
            let acquire = |at: &usize| {
                let name = format!("lock-{at}");
                let mut acquire = redlock(&url);
                acquire.args(["acquire", "-q", "--ttl", "1h"]);
                start(if arguments.is_empty() { acquire.arg(&name) } else { acquire.args(arguments) })
            };
            finish(some.iter().map(acquire).collect());
        }
        println!("\n{count} {what} taken by redlock acquire: {:.2} ms each", per(begin.elapsed(), count));
    }
    for looks in [
        &["status"][..],
        &["status", "--all", "--format", "json"],
        &["status", "--format", "prometheus"],
        &["status", "slots"],
        &["status", "readers", "--format", "json"],
        &["log", "-n", "20"],
        &["log", "--since", "1h"],
    ] {
        // The best of three, because the server may have to wait for a processor.
        let tries = [(); 3].map(|()| {
            redis.command(&["SLOWLOG", "RESET"]);
            let begin = Instant::now();
            finish(vec![start(redlock(&url).args(looks).stderr(Stdio::null()))]);
            (begin.elapsed(), worst_script(&redis))
        });
        let [taken, worst] =
            [tries.map(|one| one.0), tries.map(|one| one.1)].map(|times| times.into_iter().min().unwrap());
        let line = format!("redlock {}", looks.join(" "));
        println!("  {line:<40} {:7.1} ms, worst script {}", taken.as_secs_f64() * 1e3, words_for(worst));
        assert!(worst < LONGEST_SCRIPT, "a script takes {worst:?}");
    }
    print_server(&redis);
}

/// The memory (KiB) and the descriptors of processes, on average.
struct Resources {
    resident: u64,
    unshared: u64,
    descriptors: usize,
}

impl Resources {
    fn of(pids: &[u32]) -> Resources {
        let count = pids.len();
        let all: Vec<_> = pids.iter().map(|pid| memory(*pid)).collect();
        let descriptors = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Resources {
            resident: all.iter().map(|one| one.resident).sum::<u64>() / count as u64,
            unshared: all.iter().map(|one| one.unshared).sum::<u64>() / count as u64,
            // Rounded, because a process may have one descriptor more or less for a moment.
            descriptors: (pids.iter().map(descriptors).sum::<usize>() + count / 2) / count,
        }
    }
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Resources { resident, unshared, descriptors } = self;
        write!(f, "resident {resident} KiB, unshared {unshared} KiB, {descriptors} descriptors")
    }
}

/// Runs `count` jobs, whose leases have a ttl of 500 ms and are renewed eight times a second.
fn renewals(count: usize, time: Duration) {
    let redis = server();
    let url = redis.tcp_url();
    let seconds = time.as_secs().to_string();
    let (before, begin) = (number(&redis, "total_commands_processed"), Instant::now());
    let run = |at: usize| {
        let name = format!("lock-{at}");
        start(redlock(&url).args(["run", "-q", "--wait", "1m", &name, "--ttl", "500ms", "--", "sleep", &seconds]))
    };
    let children: Vec<Child> = (0..count).map(run).collect();
    let own: Vec<u32> = children.iter().map(Child::id).collect();
    let keepers = || own.iter().flat_map(|&pid| children_of(pid)).collect::<Vec<u32>>();
    eventually(LONG, "all jobs run", || keepers().iter().filter(|&&pid| !children_of(pid).is_empty()).count() == count);
    let keepers = keepers();
    let mut early = None;
    while begin.elapsed() < time * 9 / 10 {
        std::thread::sleep(ms(500));
        let now = || [Resources::of(&own), Resources::of(&keepers)];
        let connections = number(&redis, "connected_clients");
        let (first, connected) = early.get_or_insert_with(|| (now(), connections));
        let now = now();
        for (first, now) in first.iter().zip(&now) {
            let is_flat = now.unshared <= first.unshared + 64 && now.descriptors <= first.descriptors;
            assert!(is_flat, "grown: {now}, at first {first}");
        }
        assert!(connections <= *connected, "{connections} connections, at first {connected}");
    }
    let renewed = time.as_secs_f64() * 8.0 * count as f64;
    let commands = number(&redis, "total_commands_processed") - before;
    println!(
        "\n{count} jobs with a ttl of 500 ms for {seconds} s, about {renewed:.0} renewals ({commands} commands with those in scripts)"
    );
    let now = [Resources::of(&own), Resources::of(&keepers)];
    println!("  redlock: {}\n  keeper:  {}", now[0], now[1]);
    // A call whose lease is lost ends with 76, at which `finish` panics.
    finish(children);
    println!("  no lease was lost");
    assert_free(&redis);
    print_server(&redis);
}

//! `make bench`: compares redlock with other programs, its peers, on one machine. redlock runs on one, three and five
//! masters, and over TLS. The peers are floor.c and keeper.c (which do the least possible), flock, etcdctl lock,
//! redis-py's Lock, redis-cli, and a loop that polls SET NX. The output names those that are not installed.
//!
//! `make bench ONLY='run crowd'` runs the sections run and crowd only. The sections are run, crowd, acquire, wire,
//! thousand, memory, away and instructions. `make load` runs load.rs, which is part of this program.
//!
//! This binary is also the job that the contenders run (`--hold`), and the polling peer (`--poll`).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints, and ends where it cannot go on"
)]

mod bench {
    pub(crate) mod crowd;
    pub(crate) mod load;
    pub(crate) mod measure;
    pub(crate) mod peers;
}
#[expect(dead_code, unused_imports, reason = "servers and proxies are those of the tests; the rest is for these")]
mod support;

use bench::{crowd, load, measure, peers};
use measure::{Samples, Table, memory, time};
use peers::{Nodes, Peer, own_binary, peers, redlock};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Mode, Proxy, Redis, eventually, ms};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--hold") => measure::hold(&arguments[1..]),
        Some("--poll") => peers::poll(&arguments[1..]),
        // Only `cargo bench` gives this flag: `cargo test --all-targets` must not run the benchmarks.
        _ if arguments.iter().any(|one| one == "--bench") => {
            let sections = arguments.into_iter().filter(|one| !one.starts_with('-')).collect();
            compare(sections);
        }
        _ => {}
    }
}

fn compare(sections: Vec<String>) {
    let begin = Instant::now();
    let wanted = |section: &str| sections.is_empty() || sections.iter().any(|one| one == section);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("redlock {} on {cores} cores", env!("CARGO_PKG_VERSION"));
    if sections == ["load"] {
        load::load();
        return;
    }
    let nodes = Nodes::start();
    let (redis, url) = (&nodes.masters[0], nodes.urls(1));
    let etcd = peers::Etcd::start();
    let (peers, missing) = peers(&nodes, etcd.as_ref());
    if missing.is_empty() {
        println!("all peers are here");
    } else {
        println!("not installed, and left out: {}", missing.join(", "));
    }
    if wanted("run") {
        run_true(redis, &peers);
    }
    if wanted("crowd") {
        crowd::hand_over(&peers);
    }
    drop(etcd);
    if wanted("acquire") {
        acquire_and_release(&nodes);
    }
    if wanted("wire") {
        crowd::wire(redis, 10);
    }
    if wanted("thousand") {
        crowd::thousand(redis);
    }
    if wanted("memory") {
        resident(&url);
    }
    if wanted("away") {
        five_masters_away();
    }
    if wanted("instructions") {
        instructions();
    }
    println!("\n{:.0} s in all", begin.elapsed().as_secs_f64());
}

/// Measures how long each peer takes to run a command that does nothing. Also prints three parts of redlock's time: the
/// command itself, a request, and the scripts.
fn run_true(redis: &Redis, peers: &[Peer]) {
    let mut table = Table::new("run a command that does nothing, the lock being free");
    let mut alone = Samples::default();
    let mut samples: Vec<Samples> = peers.iter().map(|_| Samples::default()).collect();
    let mut rounds = Vec::new();
    for round in 0..405 {
        let taken = time(&mut Command::new("true"));
        if round >= 5 {
            alone.add(taken);
        }
        let mut times = vec![None; peers.len()];
        // Each program changes the caches for the next one, so each round has another order.
        for at in shuffled(peers.len()) {
            let peer = &peers[at];
            if round % peer.seldom == 0 {
                times[at] = Some(time(&mut (peer.command)("bench-true", &["true".to_owned()])));
            }
        }
        // The first five rounds do not count: caches are cold, and some servers do not know the scripts yet.
        if round >= 5 {
            times.iter().zip(&mut samples).for_each(|(time, samples)| time.iter().for_each(|time| samples.add(*time)));
            rounds.push(times);
        }
    }
    for (peer, samples) in peers.iter().zip(samples) {
        table.row(peer.name, &samples);
    }
    table.row("the command alone", &alone);
    table.print();
    print_pairs(peers, &rounds);
    let mut request = Samples::default();
    let mut connection = redis.connection();
    for _ in 0..400 {
        let begin = Instant::now();
        redis::cmd("PING").exec(&mut connection).unwrap();
        request.add(begin.elapsed());
    }
    println!("  a request over an open connection, and its answer: {:.3} ms", request.percentile(50));
    println!("  the scripts TAKE and RELEASE, of which each run has one: {:.3} ms on average", script_time(redis));
}

/// Prints redlock's time on one master, divided by that of each other peer in the same round, because other load slows
/// both down. The ratio is the median of all rounds.
fn print_pairs(peers: &[Peer], rounds: &[Vec<Option<Duration>>]) {
    let ours = peers.iter().position(|peer| peer.name == peers::OURS).unwrap();
    println!("  pairs: `{}` by each other in the same round, the median of all rounds", peers::OURS);
    for (at, peer) in peers.iter().enumerate().filter(|(at, _)| *at != ours) {
        let ratio = |round: &Vec<Option<Duration>>| Some(round[ours]?.as_secs_f64() / round[at]?.as_secs_f64());
        let mut ratios: Vec<f64> = rounds.iter().filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        println!("    {:5.2} x {}", ratios[ratios.len() / 2], peer.name);
    }
}

/// In ms on average.
fn script_time(redis: &Redis) -> f64 {
    let calls = redis.info("cmdstat_evalsha");
    let us = calls.split(',').find_map(|field| field.strip_prefix("usec_per_call="));
    us.and_then(|us| us.parse::<f64>().ok()).map_or(f64::NAN, |us| us / 1e3)
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_cached_key(|_| support::rand(u64::MAX));
    order
}

/// Measures how long redlock, redis-cli and redis-py take to acquire and release a lock.
fn acquire_and_release(nodes: &Nodes) {
    let mut table = Table::new("acquire, then release");
    let url = nodes.urls(1);
    let script = format!(
        "redis-cli -u {url} set bench-cli t nx px 30000 >/dev/null
         redis-cli -u {url} eval 'if redis.call(\"get\",KEYS[1])==ARGV[1] then return redis.call(\"del\",KEYS[1]) end' 1 bench-cli t >/dev/null"
    );
    let masters = [1, 3, 5].map(|count| nodes.urls(count));
    let mut samples = [(); 4].map(|()| Samples::default());
    for round in 0..105 {
        for at in shuffled(4) {
            let taken = match masters.get(at) {
                Some(urls) => pair(urls),
                None => time(Command::new("sh").args(["-c", &script])),
            };
            if round >= 5 {
                samples[at].add(taken);
            }
        }
    }
    let names =
        ["redis-cli set nx; redis-cli eval", "redlock acquire; redlock release", "on three masters", "on five masters"];
    for (name, at) in names.into_iter().zip([3, 0, 1, 2]) {
        table.row(name, &samples[at]);
    }
    if let Some((whole, warm)) = peers::python_pairs(&url) {
        table.row("redis-py Lock, one python3 for each pair", &whole);
        table.row("redis-py Lock, in a python3 that runs", &warm);
    }
    table.print();
}

fn pair(urls: &str) -> Duration {
    let begin = Instant::now();
    let token = redlock(urls).args(["acquire", "--name", "bench-pair"]).output().unwrap().stdout;
    let token = String::from_utf8(token).unwrap();
    time(redlock(urls).args(["release", "-q", "--name", "bench-pair", "--token", token.trim()]));
    begin.elapsed()
}

/// Prints the memory of a `redlock run` while its job runs, and of its keeper.
fn resident(url: &str) {
    let mut run = redlock(url);
    let child = run.args(["run", "-q", "--name", "bench-memory", "--", "sleep", "60"]);
    let mut child = support::die_with_parent(child).spawn().unwrap();
    let mut below = Vec::new();
    eventually(support::SOON, "the job runs", || {
        below = support::descendants(child.id());
        below.len() == 2
    });
    // In this time redlock and the keeper finish their starting work.
    std::thread::sleep(ms(200));
    let [own, keeper] = [child.id(), below[0]].map(memory);
    println!("\nmemory of a running `redlock run`, in KiB");
    println!("  redlock  resident {:5}, unshared {:5}", own.resident, own.unshared);
    println!("  keeper   resident {:5}, unshared {:5}", keeper.resident, keeper.unshared);
    support::send(child.id(), nix::sys::signal::Signal::SIGTERM);
    child.wait().unwrap();
}

/// Measures `acquire` on masters that are 20 ms away: one master, five masters, and five with a black hole among them.
fn five_masters_away() {
    let servers = Redis::several(5);
    let away = || Mode::Delay(ms(20));
    let proxies: Vec<Proxy> = servers.iter().map(|one| Proxy::new(one, away())).collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let mut table =
        Table::new("acquire on masters that answer after 40 ms (20 ms each way; connecting is not delayed)");
    let measure = |urls: &str, black_hole: bool| {
        let mut samples = Samples::default();
        for round in 0..21 {
            let mut acquire = redlock(urls);
            let name = format!("bench-far-{black_hole}-{round}");
            acquire.args(["acquire", "--quarantine", "0", "--name", &name]);
            acquire.stdout(std::process::Stdio::null());
            let taken = time(&mut acquire);
            if round > 0 {
                samples.add(taken);
            }
        }
        samples
    };
    let all = urls.join(",");
    table.row("one of them", &measure(&urls[0], false));
    table.row("five", &measure(&all, false));
    proxies[2].set(Mode::BlackHole);
    table.row("five, one of them a black hole", &measure(&all, true));
    table.print();
}

/// Counts the instructions of the two scripts that each run calls; a busy machine does not change the count.
fn instructions() {
    println!("\nwhat the scripts of a run cost the server, in instructions");
    if !peers::installed("valgrind", &["--version"]) {
        println!("  not counted: valgrind is not installed");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/instructions.sh");
    time(Command::new(script).env("REDLOCK", peers::redlock_binary()));
}

fn holding(time: Duration, file: &std::path::Path, id: usize) -> Vec<String> {
    let time = time.as_millis().to_string();
    let file = file.display().to_string();
    vec![own_binary(), "--hold".to_owned(), time, file, id.to_string()]
}

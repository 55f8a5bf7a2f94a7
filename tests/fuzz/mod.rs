//! Random hostile input, from a seed: words of users, replies of servers, records that others have left in Redis. With
//! any input, redlock ends soon, without a panic, with a status that README lists, with little memory, and without a
//! control character for the terminal. `make fuzz MINUTES= SEED=` runs for longer.

mod call;
mod records;
mod replies;
mod words;

use crate::support::{Chance, rand};
use replies::{Manner, server};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long `make test` tries each kind of input.
const SHORT: Duration = Duration::from_secs(8);

/// How many trials run at once.
const STRANDS: u64 = 4;

/// The [`Chance`] decides on all its input.
type Trial = fn(&mut Chance, &call::Ground);

#[test]
fn words_of_users() {
    attack(words::trial, any_seed(), SHORT);
}

#[test]
fn replies_of_servers() {
    attack(replies::trial, any_seed(), SHORT);
}

#[test]
fn records_of_others() {
    attack(records::trial, any_seed(), SHORT);
}

/// Inputs that have found faults.
#[test]
fn found_once() {
    let ground = call::Ground::new();
    let url = ground.redis.url();
    let call = |line: &str, variables: &[(&str, &str)]| {
        let variables = [&[("REDLOCK_REDIS", url.as_str())], variables].concat();
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        ground.call(&words, &variables).status
    };
    // redlock refuses or shows these words, which contain a mark of writing direction, or a special character of
    // several bytes.
    assert_eq!(call("completions \u{202e}txt", &[]), 64);
    assert_eq!(call("acquire x --ttl \u{202e}1s", &[]), 64);
    assert_eq!(call("status", &[("REDLOCK_PASSWORD_FILE", "\u{85}")]), 64);
    assert_eq!(call("doctor", &[("REDLOCK_PREFIX", "\u{2028}")]), 0);
    // Longer than the buffer for standard error.
    assert_eq!(call(&format!("acquire x {}", "y".repeat(20_000)), &[]), 64);
    // The metrics show a label that another program has written.
    ground.redis.command(&["SET", "redlock:x", "t", "PX", "60000"]);
    let record = "token t host h user u label \u{1b}[2J".split(' ');
    let words: Vec<&str> = ["HSET", "{redlock:x}:\u{1f}lease"].into_iter().chain(record).collect();
    ground.redis.command(&words);
    assert_eq!(call("status --format prometheus", &[]), 0);
    // SCAN returns a key that does not match the pattern. The first is shorter than the prefix; in the second, a
    // character of two bytes reaches across the prefix's end.
    for key in ["$1\r\nx", "$9\r\nanother\u{e9}"] {
        let server = server(Manner::Replace(ground.redis.socket(), "$9\r\nredlock:x", key), &Chance::new(0));
        for line in ["status", "status --all", "status --format json", "log", "log --format json"] {
            assert_eq!(call(line, &[("REDLOCK_REDIS", &server.url())]), 0, "{line}");
        }
    }
}

/// `make fuzz`.
#[test]
#[ignore = "takes as long as MINUTES says: make fuzz"]
fn as_long_as_asked() {
    let setting = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let minutes: f64 = setting("MINUTES").map_or(3.0, |text| text.parse().unwrap());
    let seed = setting("SEED").map_or_else(any_seed, |text| text.parse().unwrap());
    let each = Duration::from_secs_f64(minutes * 20.0);
    for trial in [words::trial as Trial, replies::trial, records::trial] {
        attack(trial, seed, each);
    }
}

fn any_seed() -> u64 {
    rand(1_000_000_000)
}

/// Runs trials again and again, several at once, because most only wait. Each has a seed of its own: one that fails
/// reports it, and can be repeated alone.
fn attack(trial: Trial, seed: u64, time: Duration) {
    let start = Instant::now();
    let strand = |number: u64| {
        let (ground, mut seed, mut count) = (call::Ground::new(), seed + number, 0);
        while start.elapsed() < time {
            let failure = SeedOfFailure(seed);
            trial(&mut Chance::new(seed), &ground);
            std::mem::forget(failure);
            (count, seed) = (count + 1, Chance::new(seed).below(1_000_000_000));
        }
        (count, ground.calls())
    };
    let (trials, calls) = std::thread::scope(|scope| {
        let strands: Vec<_> = (0..STRANDS).map(|number| scope.spawn(move || strand(number))).collect();
        let ended = strands.into_iter().map(|one| one.join().expect("no trial fails"));
        ended.fold((0, 0), |sum, one: (usize, usize)| (sum.0 + one.0, sum.1 + one.1))
    });
    eprintln!("{trials} trials, {calls} calls in {} s", time.as_secs());
}

struct SeedOfFailure(u64);

impl Drop for SeedOfFailure {
    fn drop(&mut self) {
        eprintln!("fails with SEED={}", self.0);
    }
}

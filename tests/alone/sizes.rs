//! The longest script of each command, on a lock with a thousand or ten thousand holders, dead holders or dead waiters.
//! Meanwhile a job with a lease of a second must keep its lease. SIZE_ROUNDS=10 tries each case ten times.

use crate::lock::sizes::{LATER, dead_waiters, token};
use crate::support::{Redis, any, redlock, rounds};
use nix::sys::signal::Signal;

/// The sizes of a crowd of holders or waiters, each with the longest time (µs) of a script beside it.
const SIZES: [(usize, i64); 2] = [(1_000, 5_000), (10_000, 60_000)];

const LINES: [&str; 28] = [
    "status",
    "status --all --format json",
    "status backup",
    "status backup --format json",
    "status backup -q",
    "status backup --token TOKEN",
    "check backup --within 1h",
    "check backup --within 1h --format nagios",
    "status --format prometheus backup",
    "log",
    "log backup -n 10000 --format json",
    "log backup --since 100d --failed",
    "wait backup --timeout 1ms",
    "doctor",
    "run -q backup -- true",
    "run -q backup --shared -- true",
    "run -q backup --slots 10000 -- true",
    "run -q backup --once-per 1h -- true",
    "run -q backup --wait 1ms -- true",
    "acquire backup",
    "extend backup --token TOKEN --ttl 2h",
    "release backup --token TOKEN",
    "release backup --token TOKEN --status 1",
    "stop backup --token 00000000",
    "release backup --force --token TOKEN",
    "stop backup",
    "stop backup --for 1h",
    "release backup --force",
];

/// An entry of SLOWLOG. The third field is the time that the command took (µs), the fourth has the command's words.
type Slow = (i64, i64, i64, Vec<Vec<u8>>, String, String);

type Gather = fn(&Redis, usize);

/// Makes a call, and returns the time (µs) of the longest script that the server has run for it, 0 if it has recorded
/// none.
#[track_caller]
fn longest(redis: &Redis, line: &str, count: usize) -> i64 {
    redis.command(&["SLOWLOG", "RESET"]);
    let line = line.replace("TOKEN", &token(count));
    redlock(redis, line).any_end().stdout(any()).stderr(any()).run();
    let slow: Vec<Slow> = redis.query(&["SLOWLOG", "GET", "-1"]);
    let scripts = slow.iter().filter(|(_, _, _, words, ..)| words[0].to_ascii_lowercase().starts_with(b"eval"));
    scripts.map(|(_, _, us, ..)| *us).max().unwrap_or(0)
}

/// Acquires the lock with `claim`, and adds `count` copies of the holder, with longer host names and leases that end at
/// `ends` (ms since 1970). If `kept`, the jobs of the copies have ended. Fills the log.
fn held(redis: &Redis, count: usize, claim: &str, ends: &str, kept: bool) {
    const FILL: &str = "local base, first, ends, count = '{redlock:backup}:\\31', ARGV[1], ARGV[2], tonumber(ARGV[3])
        local record, run = redis.call('HGETALL', base .. 'member:' .. first), redis.call('HGET', base .. 'open', first)
        local is_placed, wide = redis.call('ZSCORE', base .. 'slots', first), string.rep('漢', 60)
        run = string.gsub(run, '\"h\":\"[^\"]*', '\"h\":\"' .. wide)
        for i = 1, count do
          local token = string.format('%032x', i)
          local member = base .. 'member:' .. token
          redis.call('HSET', member, unpack(record))
          redis.call('HSET', member, 'token', token, 'host', wide)
          if ARGV[4] ~= '' then redis.call('HSET', member, 'kept', '1') end
          redis.call('ZADD', base .. 'members', ends, token)
          if is_placed and i < count then redis.call('ZADD', base .. 'slots', i, token) end
          local own = string.gsub(run, first, token)
          redis.call('HSET', base .. 'open', token, own)
          redis.call('ZADD', base .. 'ends', ends, token)
          if i <= 1000 then redis.call('LPUSH', base .. 'log', string.sub(own, 1, -2) .. ',\"d\":\"1\",\"x\":\"0\"}') end
        end
        if ARGV[4] ~= '' then redis.call('HSET', base .. 'lease', 'some_kept', 1) end";
    let label = "字".repeat(40);
    let acquire = redlock(redis, format!("acquire backup --ttl 1h --log 1000 {claim} --label {label}"));
    let first = acquire.stdout(any()).run().token();
    redis.command(&["EVAL", FILL, "0", &first, ends, &count.to_string(), if kept { "kept" } else { "" }]);
}

const CROWDS: [(&str, Gather); 7] = [
    ("places", |redis, count| held(redis, count, "--slots 10000", LATER, false)),
    ("readers", |redis, count| held(redis, count, "--shared", LATER, false)),
    ("kept", |redis, count| held(redis, count, "--shared", LATER, true)),
    ("dead places", |redis, count| held(redis, count, "--slots 10000", "1", false)),
    ("dead readers", |redis, count| held(redis, count, "--shared", "1", false)),
    ("dead waiters", |redis, count| {
        redlock(redis, "acquire backup --ttl 1h").stdout(any()).run();
        dead_waiters(redis, count);
    }),
    ("dead waiters of a free lock", dead_waiters),
];

/// The time (µs) of the longest script beside this crowd. The best of several tries counts, because the server may lose
/// its processor during a script.
#[track_caller]
fn shortest_of_tries(redis: &Redis, line: &str, gather: Gather, count: usize) -> i64 {
    let tries = (0..rounds("SIZE_ROUNDS", 2)).map(|_| {
        let keys: Vec<String> = redis.query(&["KEYS", "{redlock:backup}*"]);
        let words = ["DEL", "redlock:backup"].into_iter().chain(keys.iter().map(String::as_str));
        redis.command(&words.collect::<Vec<_>>());
        gather(redis, count);
        longest(redis, line, count)
    });
    tries.min().unwrap()
}

#[test]
fn a_script_takes_5_ms_for_a_thousand_of_anything_and_grows_no_faster_than_they_do() {
    let redis = Redis::with(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"]);
    redis.go_first();
    let mut job = redlock(&redis, "run -q job --ttl 1s -- sleep 3600").signal(Signal::SIGTERM).spawn();
    let mut late = Vec::new();
    for (count, most) in SIZES {
        for line in LINES {
            let tries = CROWDS.map(|(crowd, gather)| (shortest_of_tries(&redis, line, gather, count), crowd));
            let (us, crowd) = tries.into_iter().max().unwrap();
            eprintln!("{count:>6} {line:<50} {:>6.2} ms, {crowd}", us as f64 / 1e3);
            assert!(us > 0, "{line} ran no script");
            late.extend((us > most).then_some((count, us, crowd, line)));
        }
    }
    assert!(!job.has_ended());
    job.send(Signal::SIGTERM);
    job.finish();
    assert!(late.is_empty(), "{late:?}");
}

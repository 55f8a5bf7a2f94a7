//! The requests of the redlock under test: its scripts as they go over the wire, and a call of each kind. In the calls,
//! names stand for tokens and the like, which differ from call to call.

use super::{Call, Release};
use crate::support::{Line, Monitor, Redis, SOON, Test, acquire, any, eventually, job, release};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;

/// A server, and what it has been asked so far.
struct Recorder {
    redis: Redis,
    monitor: Monitor,
    seen: usize,
    bodies: BTreeMap<String, String>,
    made: Release,
}

impl Recorder {
    fn new() -> Recorder {
        let redis = Redis::start();
        let monitor = Monitor::new(&redis);
        Recorder { redis, monitor, seen: 0, bodies: BTreeMap::new(), made: Release::default() }
    }

    /// Those that clients have sent since the last call of this function, each as its words.
    fn requests(&mut self) -> Vec<Vec<String>> {
        let lines = self.monitor.lines(&self.redis);
        let requests = lines.iter().skip(self.seen).filter(|line| !line.contains(" lua] ")).map(|line| words(line));
        let requests = requests.collect();
        self.seen = lines.len();
        requests
    }

    /// The calls of scripts since the last call of this function: the script's SHA1, and the words.
    fn calls(&mut self, holder: &str) -> Vec<(String, Vec<String>)> {
        let mut calls: Vec<(String, Vec<String>)> = Vec::new();
        for request in self.requests() {
            let words = &mut request.into_iter();
            match words.next().unwrap_or_default().as_str() {
                "EVALSHA" => calls.push((words.next().unwrap(), words.collect())),
                "EVAL" => {
                    let body = words.next().unwrap();
                    let sha1 = redis::Script::new(&body).get_hash().to_owned();
                    self.bodies.insert(sha1.clone(), body);
                    calls.push((sha1, words.collect()));
                }
                "SUBSCRIBE" => self.made.channel = portable(&words.next().unwrap(), holder),
                _ => {}
            }
        }
        calls.dedup(); // after NOSCRIPT, the script was sent again with its body
        calls
    }

    /// Gives these names to the calls of scripts since the last `keep`, and keeps each call whose name is not empty.
    /// `holder`: the token of another client.
    #[track_caller]
    fn keep(&mut self, names: &[&str], holder: &str) {
        let calls = self.calls(holder);
        self.keep_calls(calls, names, holder);
    }

    #[track_caller]
    fn keep_calls(&mut self, calls: Vec<(String, Vec<String>)>, names: &[&str], holder: &str) {
        assert_eq!(calls.len(), names.len(), "{names:?}: {calls:?}");
        for ((sha1, words), name) in calls.into_iter().zip(names).filter(|(_, name)| !name.is_empty()) {
            let body = self.bodies[&sha1].clone();
            let known = self.made.scripts.iter().find(|(_, one)| **one == body).map(|(script, _)| script.clone());
            let script = known.unwrap_or_else(|| (*name).to_owned());
            self.made.scripts.insert(script.clone(), body);
            let words = words.iter().map(|word| portable(word, holder)).collect();
            self.made.calls.insert((*name).to_owned(), Call { script, words });
        }
    }

    fn run(&self, line: &str) {
        Test::new(&self.redis).args(line.split(' ')).stdout(any()).stderr(any()).run();
    }
}

/// The words of a line of MONITOR, without time, client and quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.split_once("] ").map_or("", |(_, rest)| rest).bytes();
    while rest.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = rest.next().filter(|byte| *byte != b'"') {
            let escaped = (byte == b'\\').then(|| rest.next().unwrap());
            word.push(match escaped {
                None => byte,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'x') => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                Some(other) => other,
            });
        }
        words.push(String::from_utf8(word).unwrap());
    }
    words
}

/// The word, with a placeholder such as `<token>` in place of a token, a waiter, a run_id or a time.
fn portable(word: &str, holder: &str) -> String {
    let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_now = |text: &str| text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit());
    if word == holder {
        return "<holder>".to_owned();
    }
    match word {
        token if is_hex(token, 32) => "<token>".to_owned(),
        run if is_hex(run, 40) => "<run>".to_owned(),
        time if is_now(time) => "<now>".to_owned(),
        name => match name.split_once('\u{1f}') {
            Some((waiter, rest)) if is_hex(waiter, 32) => format!("<waiter>\u{1f}{rest}"),
            Some((front, rest)) => match rest.split_once(':') {
                Some((kind, rest)) if rest.len() > 32 && is_hex(&rest[..32], 32) => {
                    format!("{front}\u{1f}{kind}:<waiter>{}", &rest[32..])
                }
                _ => name.to_owned(),
            },
            None => name.to_owned(),
        },
    }
}

/// Makes the calls on the lock `backup`.
pub(super) fn recorded() -> Release {
    let mut recorder = Recorder::new();
    recorder.run("run backup --label kept -- true");
    recorder.keep(&["take", "release"], "");
    recorder.run("run backup --label kept --once-per 1h -- true");
    recorder.keep(&["take-once", "release-once"], "");
    recorder.run("log backup");
    recorder.keep(&["runs"], "");

    let token = acquire(&recorder.redis, "backup");
    recorder.keep(&[""], "");
    recorder.run(&format!("extend backup --token {token}"));
    recorder.keep(&["extend"], "");
    let waiter = Line::waiter(&recorder.redis).arg("--label").arg("kept").any_end().stderr(any());
    let waiter = Line::join(&recorder.redis, waiter);
    eventually(SOON, "it listens", || Line::listeners(&recorder.redis) == 1);
    recorder.keep(&["", "wait"], &token);
    waiter.send(Signal::SIGTERM);
    waiter.finish();
    recorder.keep(&["leave"], &token);
    release(&recorder.redis, "backup", &token);
    recorder.keep(&["give"], "");

    // `stop` looks until the job is over. Only the request that asks for the end says who asks.
    let (job, input) = job(&recorder.redis, &["--ttl", "1s"], 76);
    let token = recorder.redis.get(Line::KEY).unwrap();
    recorder.run("stop backup");
    job.finish();
    drop(input);
    let mut calls = recorder.calls(&token);
    calls.retain(|(_, words)| words.iter().any(|word| word == "by"));
    recorder.keep_calls(calls, &["revoke"], &token);

    for (name, shape) in [("take-shared", "--shared"), ("take-slot", "--slots 2")] {
        recorder.run(&format!("run backup --label kept {shape} -- true"));
        recorder.keep(&[name, ""], "");
    }
    recorder.made
}

//! Servers whose answer does not end: memory stays small, and each call ends in time.

use crate::support::{Endless, Test, any, perhaps, redlock, status_line};
use std::time::Duration;

/// The most that a call may fill, in kB.
const MEMORY: u64 = 40_000;

/// Returns the standard error of the call, which must end in time, with this status, and with little memory used. A
/// call that ends before the first measurement had no time to fill it.
#[track_caller]
fn stays_small(test: Test, status: i32) -> String {
    let said =
        perhaps(["more than 4 MB", "something other than a Redis reply", "more keys than can be listed", "timed out"]);
    let mut call = test.status(status).stdout(any()).stderr(said).spawn();
    let mut most = 0;
    while !call.has_ended() {
        let peak = status_line(call.pid(), "VmHWM").and_then(|peak| peak.strip_suffix(" kB")?.parse().ok());
        most = peak.unwrap_or(0).max(most);
        std::thread::sleep(Duration::from_millis(1));
    }
    let finished = call.finish();
    assert!(most < MEMORY, "{most} kB: {}", finished.stderr);
    finished.stderr
}

const COMMANDS: [&[&str]; 9] = [
    &["acquire", "backup"],
    &["acquire", "backup", "--wait", "300ms"],
    &["run", "backup", "--", "true"],
    &["run", "backup", "--wait", "300ms", "--", "true"],
    &["extend", "backup", "--token", "t"],
    &["release", "backup", "--token", "t"],
    &["status", "backup"],
    &["status"],
    &["wait", "backup", "--timeout", "300ms"],
];

/// Endless replies, each as its beginning and the part that repeats: a text, a list of texts, a list of numbers, and
/// lists in lists.
const REPLIES: [(&str, &str); 4] =
    [("$500000000\r\n", "x"), ("*1000000000\r\n", "$4\r\nabcd\r\n"), ("*1000000000\r\n", ":1\r\n"), ("", "*1000\r\n")];

#[test]
fn no_reply_fills_the_memory() {
    for (number, (start, rest)) in REPLIES.into_iter().enumerate() {
        let server = Endless::start(start, rest);
        // Each command meets one kind of reply, and the first command all kinds.
        let others = COMMANDS[number + 1..].iter().step_by(REPLIES.len());
        for &arguments in others.chain(&COMMANDS[..1]) {
            let said = stays_small(Test::new(&server.url()[..]).args(arguments), 69);
            assert!(said.contains(&server.address()), "{said}");
        }
        stays_small(redlock(&server.url()[..], "doctor"), 69);
    }
}

#[test]
fn nor_does_one_of_a_sentinel_or_a_cluster() {
    for (start, rest) in REPLIES {
        let server = Endless::start(start, rest);
        for url in [format!("redis+sentinel://{}/s", server.address()), format!("redis+cluster://{}", server.address())]
        {
            for arguments in [&["acquire", "backup"][..], &["status"], &["doctor"]] {
                stays_small(Test::new(&url[..]).args(arguments), 69);
            }
        }
    }
}

#[test]
fn a_server_that_names_keys_without_end_is_left() {
    let scan = |keys: Vec<String>| {
        let keys: Vec<String> = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
        format!("*2\r\n$1\r\n1\r\n*{}\r\n{}", keys.len(), keys.concat()).into_bytes()
    };
    let none = Endless::answering(move |_| scan(vec![]));
    let same = Endless::answering(move |_| scan(vec!["redlock:a".to_owned()]));
    let new = Endless::answering(move |number| scan((0..1000).map(|key| format!("redlock:{number}-{key}")).collect()));
    for server in [none, same, new] {
        for arguments in [["status"], ["doctor"]] {
            let test = Test::new(&server.url()[..]).args(arguments).args(["--node-timeout", "50ms"]);
            let said = stays_small(test, 69);
            // On a busy machine a page of the list may take longer than the node timeout.
            let left = ["more keys than can be listed", "timed out"].iter().any(|why| said.contains(why));
            assert!(arguments == ["doctor"] || left, "{said}");
        }
    }
}

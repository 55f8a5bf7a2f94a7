//! Tests of the tools of the tests: with a tool that does not do what it says, tests could pass although redlock is
//! wrong.

use crate::support::{
    Ended, Mode, Monitor, Proxy, Redis, SOON, Test, alive, any, command_calls, descendants, eventually, like, ms,
    regex, reset_command_calls, tagged, when,
};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

fn fails(test: impl FnOnce()) -> bool {
    // The output of the failing inner test belongs to the outer test: Rust shows it only if the outer test fails.
    catch_unwind(AssertUnwindSafe(test)).is_err()
}

#[test]
fn a_server_answers_is_paused_killed_and_restarted_empty() {
    let mut redis = Redis::start();
    redis.command(&["SET", "a", "1"]);
    assert_eq!(redis.get("a").as_deref(), Some("1"));
    redis.pause();
    assert!(alive(redis.pid()));
    redis.resume();
    assert_eq!(redis.keys_without_history(), ["a"]);
    redis.kill();
    assert!(redis.try_query::<String>(&["PING"]).is_err());
    redis.restart();
    assert!(redis.keys_without_history().is_empty());
    assert!(!redis.log().is_empty());
}

#[test]
fn a_server_listens_on_tcp_and_wants_its_password() {
    let redis = Redis::with_tcp(&["--requirepass", "secret"]);
    redis.command(&["SET", "a", "1"]);
    let mut stream = TcpStream::connect(redis.address()).unwrap();
    stream.write_all(b"GET a\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"-NOAUTH");
}

#[test]
fn servers_die_with_the_test() {
    let pid = {
        let redis = Redis::start();
        redis.pid()
    };
    assert!(!alive(pid));
}

#[test]
fn unexpected_output_or_status_fails() {
    let sh = |script: &str| Test::of("/bin/sh").args(["-c", script]);
    sh("exit 0").run();
    sh("cat; echo b >&2; exit 3").stdin("a\n").status(3).stdout("a\n").stderr("b\n").run();
    sh("kill -TERM $$").signal(Signal::SIGTERM).run();
    assert!(fails(|| drop(sh("exit 1").run())));
    assert!(fails(|| drop(sh("exit 143").signal(Signal::SIGTERM).run())));
    assert!(fails(|| drop(sh("echo a").run())));
    assert!(fails(|| drop(sh("echo a >&2").run())));
    assert!(fails(|| drop(sh("echo a").stdout("a").run())));
    assert!(fails(|| drop(sh("exec sleep 20").within(ms(50)).run())));
    assert!(fails(|| drop(sh("echo x").stdout(when("short", |text| text.len() < 2)).run())));
    sh("echo x").stdout(any()).run();
}

#[test]
fn the_environment_is_clean_and_there_is_no_terminal() {
    let finished = Test::of("/usr/bin/env").env("A", "b").stdout(any()).run();
    let mut names: Vec<&str> = finished.stdout.lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["A", "HOME", "PATH", "TEST_TAG"]);
    Test::of("/bin/sh").args(["-c", "exec 2>&-; : </dev/tty"]).status(2).run();
}

#[test]
fn holes_match_what_they_stand_for() {
    let cases = [
        ("a <n> b", "a 12 b", true),
        ("a <n> b", "a x b", false),
        ("(<duration>)", "(1m 30s)", true),
        ("(<duration>)", "(30)", false),
        ("<time>", "2026-11-21T08:52:03.374Z", true),
        ("x.y", "xzy", false),
        ("<any>", "a\nb", false),
        ("<lines>", "a\nb", true),
        ("<token>", "3f2a9c01-1111-4222-8333-444455556666", true),
    ];
    for (template, text, matches) in cases {
        assert_eq!(like(template).matches(text), matches, "{template} {text}");
    }
    assert!(regex("a|b").matches("b") && !regex("a|b").matches("bb"));
}

#[test]
fn a_running_call_is_read_and_signalled_and_leaves_nothing() {
    let script = "trap 'echo term; exit 7' TERM; echo ready; echo oops >&2; sleep 30 & echo $!; wait; sleep 30";
    let mut running = Test::of("/bin/sh").args(["-c", script]).status(7).stdout("term\n").spawn();
    running.prints("ready");
    running.says("oops");
    let sleeper: u32 = running.stdout_line().parse().unwrap();
    assert!(descendants(running.pid()).contains(&sleeper));
    eventually(SOON, "tagged", || running.others() == [sleeper]);
    assert!(!running.has_ended());
    running.send(Signal::SIGTERM);
    assert_eq!(running.wait(SOON), Ended::Status(7));
    let tag = running.tag().to_owned();
    assert!(alive(sleeper));
    assert!(fails(|| drop(running.finish())), "the sleeper keeps the output open");
    eventually(SOON, "the sleeper has ended", || !alive(sleeper) && tagged(&tag).is_empty());
}

#[test]
fn monitor_and_counters_show_what_was_asked() {
    let redis = Redis::start();
    let monitor = Monitor::new(&redis);
    reset_command_calls(&redis);
    redis.command(&["SET", "a", "1"]);
    redis.command(&["EVAL", "return redis.call('GET', 'a')", "0"]);
    let calls = command_calls(&redis);
    assert_eq!((calls["set"], calls["eval"], calls["get"]), (1, 1, 1));
    let commands = monitor.commands(&redis);
    assert_eq!(commands.iter().filter(|name| ["SET", "EVAL", "GET"].contains(&&***name)).count(), 2, "{commands:?}");
    assert!(monitor.lines(&redis).iter().any(|line| line.contains("lua] \"GET\" \"a\"")));
}

/// Sends a PING to the proxy. Returns the first line of the answer, or as much of it as comes in time.
fn ping(proxy: &Proxy) -> String {
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    let _ = stream.write_all(b"PING\r\n");
    stream.set_read_timeout(Some(ms(200))).unwrap();
    let (mut reply, mut byte) = (String::new(), [0]);
    while !reply.ends_with('\n') && matches!(stream.read(&mut byte), Ok(1)) {
        reply.push(char::from(byte[0]));
    }
    reply
}

#[test]
fn a_proxy_misbehaves_as_told() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    assert_eq!(ping(&proxy), "+PONG\r\n");
    assert_eq!((proxy.connections(), proxy.requested(), proxy.replied()), (1, 6, 7));
    for (mode, reply) in [
        (Mode::BlackHole, ""),
        (Mode::Cut, ""),
        (Mode::LoseReplies, ""),
        (Mode::HalfReply, "+PO"),
        (Mode::Garbage(b"garbage\n".to_vec()), "garbage\n"),
        (Mode::Pass, "+PONG\r\n"),
    ] {
        proxy.set(mode.clone());
        assert_eq!(ping(&proxy), reply, "{mode:?}");
    }
    for (mode, least) in [(Mode::Delay(ms(40)), ms(80)), (Mode::Drip(ms(10)), ms(70))] {
        proxy.set(mode);
        let start = Instant::now();
        assert_eq!(ping(&proxy), "+PONG\r\n");
        assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    }
}

#[test]
fn a_proxy_cuts_connections_that_are_open() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    proxy.set(Mode::Cut);
    assert_eq!(stream.read(&mut [0; 7]).unwrap(), 0);
}

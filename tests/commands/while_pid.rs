//! `redlock acquire --while-pid`: a guard renews the lease as long as a given process lives.

use crate::support::{
    Caller, EPOLL_WAIT, Ended, Fault, Faults, Finished, Mode, Moment, Proxy, Redis, Running, SOON, Terminal, Test,
    Where, acquire, alive, any, eventually, free_port, is_renewed, like, lost, message, ms, myself, name, namespace,
    redlock, release, send, several, status, status_line,
};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{PipeWriter, Write};
use std::time::{Duration, Instant};

const KEY: &str = "redlock:backup";
const TTL: Duration = ms(4000);
/// The first commands of a script that takes the lock for itself.
const TAKE: &str = "token=$(redlock acquire --name backup --ttl 4s --while-pid $$) || exit; echo \"$token\"; ";

/// Starts a script that takes the lock, with the commands `rest` after TAKE. Returns the script once the lock is taken,
/// with the token, and the writing end of the script's standard input.
#[track_caller]
fn script<W: Where + ?Sized>(
    servers: &W,
    rest: &str,
    test: impl FnOnce(Test) -> Test,
) -> (Running, String, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let script = test(Test::sh(servers, &format!("{TAKE}{rest}")).stdin_from(reader)).spawn();
    let token = script.prints(like("<token>"));
    (script, token, writer)
}

/// The process that renews the lease.
#[track_caller]
fn guard(script: &Running) -> u32 {
    let guard = script.others().into_iter().find(|&pid| name(pid) == "redlock-guard");
    guard.expect("a process that renews the lease")
}

/// Checks that the lease exists for longer than its ttl.
#[track_caller]
fn stays_held(redis: &Redis, token: &str) {
    let start = Instant::now();
    while start.elapsed() < TTL + ms(500) {
        assert_eq!(redis.get(KEY).as_deref(), Some(token), "{:?} after it was granted", start.elapsed());
        std::thread::sleep(ms(5));
    }
}

#[test]
fn the_lease_is_renewed_until_the_process_ends_and_then_released() {
    for killed in [false, true] {
        let redis = Redis::start();
        let end = |test: Test| if killed { test.signal(Signal::SIGKILL) } else { test.status(3) };
        let (script, token, input) = script(&redis, "read line; exit 3", end);
        let holder = &status(&redis, "backup")["holders"][0];
        assert_eq!(holder["pid"], script.pid(), "the process that has the lock");
        stays_held(&redis, &token);
        let guard = guard(&script);
        if killed {
            script.send(Signal::SIGKILL);
        }
        drop(input);
        let finished_at = Instant::now();
        eventually(SOON, "the guard has ended", || !alive(guard));
        assert!(!redis.exists(KEY) || finished_at.elapsed() > TTL, "released, and did not run out");
        script.finish();
        assert_eq!(redis.keys_without_history(), ["{redlock:backup}:\u{1f}fence"]);
    }
}

#[test]
fn nothing_of_the_caller_stays_open_and_little_memory_is_used() {
    let redis = Redis::start();
    let test = "exec 7>&1 8</etc/passwd; ";
    let (reader, input) = std::io::pipe().unwrap();
    let script = Test::sh(&redis, &format!("{test}{TAKE}read line || :")).stdin_from(reader).spawn();
    script.prints(like("<token>"));
    let guard = guard(&script);
    // After a renewal the guard has a connection.
    is_renewed(&redis);
    for entry in std::fs::read_dir(format!("/proc/{guard}/fd")).unwrap() {
        let entry = entry.unwrap();
        let target = std::fs::read_link(entry.path()).unwrap().to_string_lossy().into_owned();
        let own = ["anon_inode:", "socket:"].iter().any(|kind| target.starts_with(kind));
        assert!(own || target == "/dev/null", "{:?} is {target}", entry.file_name());
    }
    let session = |pid: u32| nix::unistd::getsid(Some(Pid::from_raw(pid.cast_signed()))).unwrap();
    assert_ne!(session(guard), session(script.pid()));
    let own = status_line(guard, "RssAnon").and_then(|size| size.strip_suffix(" kB")?.parse::<u32>().ok()).unwrap();
    // RssAnon leaves out the mapped pages of the program's file: 2 MB of the release build.
    assert!(own < 1536, "{own} kB");
    drop(input);
    script.finish();
}

#[test]
fn a_lease_that_is_released_by_its_token_ends_that_in_silence() {
    let one = vec![Redis::start()];
    for nodes in [one, several(3)] {
        let dead = format!("redis://127.0.0.1:{}", free_port());
        let mut urls: Vec<String> = nodes.iter().map(Redis::url).collect();
        if let [_, _, last] = urls.as_mut_slice() {
            // The third node does not hear of the release.
            *last = dead;
        }
        let urls = urls.join(",");
        let rest = format!(
            "read line; REDLOCK_REDIS={urls} redlock release -q backup --token $token; echo released; read line; exit 3"
        );
        let (script, _, mut input) = script(&nodes, &rest, |test| test.status(3));
        eventually(SOON, "on all nodes", || nodes.iter().all(|node| node.exists(KEY)));
        writeln!(input).unwrap();
        script.prints("released");
        // Another client takes the lock before the guard asks.
        acquire(&vec![nodes[0].url()], "backup");
        eventually(SOON, "the guard has ended", || script.others().iter().all(|&pid| name(pid) != "redlock-guard"));
        if let [_, _, last] = nodes.as_slice() {
            assert!(!last.exists(KEY), "what the release missed is released too");
        }
        drop(input);
        script.finish();
    }
}

#[test]
fn whatever_else_takes_the_lease_away_stops_the_process_and_what_it_started() {
    for (how, why) in [
        ("release -q backup --force", "it was released or deleted on <node>".to_owned()),
        ("stop -q backup", format!("it was revoked by {}@{} (<node>)", myself().0, myself().1)),
    ] {
        let redis = Redis::start();
        // Three children: the first ignores SIGTERM and SIGHUP, the second is in another session, the third is stopped.
        // When the script dies, Linux sends SIGHUP to its group, because the third is stopped (setpgid(2)).
        let rest = "(trap '' TERM HUP; sleep 1000) & setsid sleep 1000 & sleep 1000 & kill -STOP $!; echo ready; wait";
        let (script, _, _input) = script(&redis, rest, |test| test.signal(Signal::SIGTERM).stderr(lost(&why)));
        script.prints("ready");
        redlock(&redis, how).run();
        eventually(SOON, "the script and all its children are dead", || script.others().is_empty());
        script.finish();
    }
}

#[test]
fn what_is_forked_while_the_process_is_being_killed_dies_too() {
    let redis = Redis::start();
    // Each loop forks every 10 ms, and ignores SIGTERM, but not SIGHUP: when the script dies, Linux wakes the stopped
    // processes of its group, and sends them SIGHUP (setpgid(2)). A `sleep` that gets away ends by itself.
    let forker = "(while :; do sleep 30 & sleep 0.01; done) & ";
    let rest = format!("trap '' TERM; {}echo ready; wait", forker.repeat(6));
    let why = "it was released or deleted on <node>";
    let (script, _, _input) = script(&redis, &rest, |test| test.signal(Signal::SIGKILL).stderr(lost(why)));
    script.prints("ready");
    redlock(&redis, "release -q backup --force").run();
    eventually(SOON, "it is killed", || !alive(script.pid()));
    eventually(SOON, "and all that it has forked", || script.others().is_empty());
    script.finish();
}

#[test]
fn a_stopped_process_can_clean_up_before_it_is_killed() {
    let redis = Redis::start();
    // When the script dies, Linux wakes all stopped processes of its group (setpgid(2)), but not the child, which has a
    // session and a group of its own.
    let child = "setsid sh -c 'trap \"echo cleaned\" TERM; kill -STOP $$' & ";
    let rest = "until grep -q '^State:.T' /proc/$!/status; do :; done; echo ready; wait";
    let script = Test::sh(&redis, &format!("{}{child}{rest}", TAKE.replace("4s", "12s")));
    let why = "it was released or deleted on <node>";
    let script = script.signal(Signal::SIGTERM).stdout("cleaned\n").stderr(lost(why)).spawn();
    script.prints(like("<token>"));
    script.prints("ready");
    redlock(&redis, "release -q backup --force").run();
    eventually(SOON, "the script and all its children are dead", || script.others().is_empty());
    script.finish();
}

#[test]
fn a_server_that_restarts_empty_before_the_first_renewal_gets_the_lease_again() {
    let mut redis = Redis::start();
    let (reader, input) = std::io::pipe().unwrap();
    let script = Test::sh(&redis, &format!("{}read line; exit 3", TAKE.replace("4s", "10s"))).stdin_from(reader);
    let script = script.status(3).spawn();
    let token = script.prints(like("<token>"));
    redis.restart();
    eventually(SOON, "it is there again", || redis.get(KEY).as_ref() == Some(&token));
    drop(input);
    script.finish();
}

#[test]
fn without_the_server_the_process_is_stopped_before_the_lease_can_expire() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let said = "redlock: cannot renew \"backup\": <node> timed out; the job is stopped in <duration> unless the node comes back\n\
                redlock: cannot renew \"backup\": <node> timed out for <duration>; sent SIGTERM to the job, SIGKILL follows \
                in <duration>\n\
                redlock: lost \"backup\": <node> timed out for <duration>; job stopped before the lease could expire; a longer \
                --ttl rides out longer outages\n";
    let rest = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let (script, _, _input) = script(&proxy, rest, |test| test.signal(Signal::SIGKILL).stderr(like(said)));
    script.prints("ready");
    proxy.set(Mode::BlackHole);
    eventually(SOON, "the script and all its children are dead", || script.others().is_empty());
    script.finish();
}

#[test]
fn a_process_that_is_to_go_on_is_only_told() {
    let redis = Redis::start();
    let take = TAKE.replace("--while-pid", "--on-lost continue --while-pid");
    let (reader, input) = std::io::pipe().unwrap();
    let said = "redlock: lost \"backup\": it was released or deleted on <node>; the job continues without the lock\n";
    let test = Test::sh(&redis, &format!("{take}read line; exit 3")).stdin_from(reader).status(3);
    let script = test.stderr(like(said)).spawn();
    script.prints(like("<token>"));
    redlock(&redis, "release -q backup --force").run();
    eventually(SOON, "the guard has ended", || script.others().iter().all(|&pid| name(pid) != "redlock-guard"));
    drop(input);
    script.finish();
}

#[test]
fn what_is_typed_at_a_terminal_ends_no_lease_of_its_shell() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    terminal.enters(TAKE);
    terminal.prompts();
    let token = redis.get(KEY).unwrap();
    // Ctrl-C at the prompt, then Ctrl-C and Ctrl-Z while a command runs.
    terminal.types("\x03");
    terminal.prompts();
    for key in ["\x03", "\x1a"] {
        terminal.enters("cat");
        terminal.enters("heard");
        // The word appears as it is typed, and again from cat.
        terminal.shows("heard");
        terminal.shows("heard");
        terminal.types(key);
        terminal.prompts();
    }
    let others = terminal.others();
    let guard = others.into_iter().find(|&pid| name(pid) == "redlock-guard").unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTSTP] {
        send(guard, signal);
    }
    stays_held(&redis, &token);
    drop(terminal);
}

#[test]
fn a_hang_up_that_the_process_survives_ends_nothing() {
    let redis = Redis::start();
    let (script, token, input) = script(&redis, "trap '' HUP INT; echo ready; read line || :", |test| test);
    script.prints("ready");
    let group = Pid::from_raw(-script.pid().cast_signed());
    for signal in [Signal::SIGHUP, Signal::SIGINT] {
        kill(group, signal).unwrap();
    }
    stays_held(&redis, &token);
    drop(input);
    eventually(SOON, "released", || !redis.exists(KEY));
    script.finish();
}

#[test]
fn a_process_that_has_ended_or_is_of_another_user_is_refused() {
    let redis = Redis::start();
    let acquire = |pid: &str| redlock(&redis, "acquire backup --while-pid").arg(pid).status(64);
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    eventually(SOON, "a zombie", || !alive(ended.id()));
    acquire(&ended.id().to_string()).stderr(message(["--while-pid: there is no process "])).run();
    ended.wait().unwrap();
    acquire(&ended.id().to_string()).stderr(message(["--while-pid: there is no process "])).run();
    for pid in ["0", "1x", "", "99999999999"] {
        acquire(pid).stderr(message(["invalid value", "--while-pid"])).run();
    }
    // This needs a process of another user. Root starts one, for a user who is not in /etc/passwd. Without root,
    // process 1 of a container serves.
    if nix::unistd::geteuid().is_root() {
        let other = Test::of("setpriv").args(["--reuid", "54321", "--clear-groups", "sleep", "1000"]).any_end().spawn();
        let is_other = || status_line(other.pid(), "Uid").is_some_and(|ids| ids.starts_with("54321"));
        eventually(SOON, "it is another user's", is_other);
        acquire(&other.pid().to_string()).stderr(message(["belongs to another user"])).run();
    } else if !is_in_initial_namespace() {
        acquire("1").stderr(message(["process 1 belongs to another user"])).run();
    }
    assert!(!redis.exists(KEY));
}

fn is_in_initial_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").unwrap().as_os_str() == "pid:[4026531836]"
}

#[test]
fn the_first_process_of_the_machine_is_refused_and_that_of_a_container_is_a_script() {
    let redis = Redis::start();
    if is_in_initial_namespace() {
        let why = message(["--while-pid: process 1 is the init of this machine", "$PPID"]);
        redlock(&redis, "acquire backup --while-pid 1").status(64).stderr(why).run();
    }
    let Some(options) = namespace(&["--pid", "--fork", "--kill-child", "--mount-proc"]) else { return };
    let script = "echo $$; token=$(\"$0\" acquire --name backup --while-pid $$) || exit; echo taken; \"$0\" release -q backup --token $token";
    let test = Test::program(&redis, "unshare").args(options).args(["sh", "-c", script]);
    test.arg(env!("CARGO_BIN_EXE_redlock")).stdout("1\ntaken\n").run();
    assert!(!redis.exists(KEY));
}

#[test]
fn without_a_guard_no_token_is_printed_and_nothing_is_held() {
    let redis = Redis::start();
    let watched = Test::of("sleep").arg("1000").any_end().spawn();
    let line = format!("acquire backup --ttl 4s --while-pid {}", watched.pid());
    let healthy = Faults::none();
    let call = |faults: &_| {
        let test = redlock(&redis, &line).any_end().stdout(any()).stderr(any()).with_faults(faults);
        test.run()
    };
    let token = call(&healthy).token();
    release(&redis, "backup", &token);
    // All system calls of the guard until it has said that it renews the lease, and eight more.
    let by_guard = |moment: &Moment| moment.caller.0 == "redlock-guard" || moment.caller == Caller("redlock".into(), 1);
    let mut first: Vec<Moment> = healthy.seen().into_iter().filter(by_guard).collect();
    // The guard sends two messages: that it is ready, and that it renews the lease.
    let sends = |moments: &[Moment]| moments.iter().filter(|moment| moment.call == libc::SYS_sendto).count();
    let heard = (0..=first.len()).find(|&end| sends(&first[..end]) == 2).expect("both");
    first.truncate(heard + 8);
    for moment in first {
        let scarce = [
            libc::SYS_openat,
            libc::SYS_epoll_create1,
            libc::SYS_eventfd2,
            libc::SYS_fcntl,
            libc::SYS_epoll_ctl,
            libc::SYS_sendto,
        ];
        let short = scarce.contains(&moment.call).then_some(Fault::Error(Errno::ENOMEM));
        for fault in [Fault::Kill].into_iter().chain(short) {
            let faults = Faults::planned(moment.clone(), fault);
            let Finished { ended, stdout, stderr, .. } = call(&faults);
            let context = format!("{moment:?}, {fault:?}: {ended:?}, {stdout:?}, {stderr:?}");
            match stdout.strip_suffix('\n') {
                // Success has three possible reasons: the guard does not need the failed call; it had sent both
                // messages before it was killed; or the lease came early, so that it did not wait for it, and made
                // fewer calls.
                Some(token) if ended == Ended::Status(0) => {
                    let seen = faults.seen().into_iter().filter(by_guard).take_while(|seen| *seen != moment);
                    let has_said = sends(&seen.collect::<Vec<_>>()) >= 2;
                    assert!(stderr.is_empty() && (fault != Fault::Kill || has_said), "{context}");
                    release(&redis, "backup", token);
                }
                // redlock may have printed a token before the guard failed, which does no harm, because scripts look at
                // the status.
                _ => {
                    let why = match fault {
                        Fault::Kill => "the process that was to renew the lease was killed",
                        _ => "cannot supervise the job",
                    };
                    assert!(ended == Ended::Status(69) && message([why]).matches(&stderr), "{context}");
                }
            }
            assert!(!redis.exists(KEY), "{context}");
            assert!(alive(watched.pid()), "{context}");
        }
    }
}

#[test]
fn a_guard_that_fails_stops_the_process_first_or_no_lease_is_granted() {
    let redis = Redis::start();
    let script = "sleep 1000 & redlock acquire -q backup --ttl 4s --while-pid $$ || { kill $!; exit 69; }; read line";
    for calls in 1..12 {
        // This error makes tokio panic.
        let faults = Faults::at("redlock-guard", EPOLL_WAIT, calls, Fault::Error(Errno::ENOMEM));
        let (reader, _input) = std::io::pipe().unwrap();
        let test = Test::sh(&redis, script).stdin_from(reader).with_faults(&faults).any_end().stdout(any());
        let Finished { ended, stderr, .. } = test.stderr(any()).run();
        assert!(faults.happened() && !stderr.contains("internal error"), "{stderr}");
        match ended {
            Ended::Status(69) => assert!(!redis.exists(KEY), "call {calls}"),
            _ => assert_eq!(ended, Ended::Signal(libc::SIGTERM), "call {calls}"),
        }
        redlock(&redis, "release -q backup --force").any_end().stderr(any()).run();
    }
}

#[test]
fn a_guard_that_has_not_answered_ends_with_the_call_and_stops_nothing() {
    let redis = Redis::start();
    let watched = Test::of("sleep").arg("1000").any_end().spawn();
    for (signal, end, why) in [
        (Some(Signal::SIGTERM), Ended::Signal(libc::SIGTERM), "interrupted by SIGTERM"),
        (None, Ended::Status(69), "too much of the lease of 1s had passed"),
    ] {
        let token = acquire(&redis, "backup");
        let line = format!("acquire backup --ttl 1s --wait --while-pid {}", watched.pid());
        let mut call = redlock(&redis, line).any_end().stderr(any()).spawn();
        eventually(SOON, "it stands in line", || status(&redis, "backup")["waiting"] == 1);
        let guard = guard(&call);
        send(guard, Signal::SIGSTOP);
        release(&redis, "backup", &token);
        call.prints(like("<token>"));
        if let Some(signal) = signal {
            call.send(signal);
        }
        call.wait(SOON);
        assert!(!alive(guard) && alive(watched.pid()), "{why}");
        let Finished { ended, stderr, .. } = call.finish();
        assert!(ended == end && stderr.contains(why), "{ended:?}, {stderr}");
        assert!(!redis.exists(KEY), "{why}");
    }
}

#[test]
fn the_parent_of_a_process_that_is_killed_never_sees_it_stopped() {
    let redis = Redis::start();
    // With job control, a shell goes on when its child is stopped.
    let jobs = "set -m; sh -c \"$0\"; echo $?";
    let rest = "trap '' TERM; sleep 1000 & echo ready; while :; do wait; done";
    let parent = Test::program(&redis, "bash").args(["-c", jobs, &format!("{TAKE}{rest}")]);
    let parent = parent.stderr(any()).spawn();
    parent.prints(like("<token>"));
    parent.prints("ready");
    redlock(&redis, "release -q backup --force").run();
    parent.prints("137");
    eventually(SOON, "all its children are dead", || parent.others().is_empty());
    parent.finish();
}

#[test]
fn combinations_that_make_no_sense_are_refused() {
    let redis = Redis::start();
    let pid = std::process::id();
    for (arguments, why) in [
        ("--on-lost continue".to_owned(), "--while-pid"),
        (format!("--while-pid {pid} --reentrant"), "--reentrant"),
        (format!("--while-pid {pid} --ttl 499ms"), "500ms"),
    ] {
        redlock(&redis, format!("acquire backup {arguments}")).status(64).stderr(message([why])).run();
    }
    assert!(redis.keys_without_history().is_empty());
}

#[test]
fn a_token_that_cannot_be_printed_leaves_nothing() {
    let redis = Redis::start();
    let script = "redlock acquire backup --while-pid $$ >/dev/full";
    let script = Test::sh(&redis, &format!("{script}; echo $?; read line")).stdin_from(std::io::pipe().unwrap().0);
    let script = script.stdout("74\n").stderr(message(["\"backup\" was released"])).any_end().spawn();
    script.finish();
    assert!(!redis.exists(KEY));
}

#[test]
fn a_process_that_ends_in_line_leaves_the_line() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let mut ward = Test::of("sleep").arg("1000").any_end().spawn();
    let waiter = redlock(&redis, format!("acquire backup -q --wait --while-pid {}", ward.pid())).status(64);
    let waiter = waiter.stderr(message(["there is no process"])).spawn();
    eventually(SOON, "it stands in line", || status(&redis, "backup")["waiting"] == 1);
    ward.send(Signal::SIGKILL);
    ward.wait(SOON);
    let tag = waiter.tag().to_owned();
    waiter.finish();
    eventually(SOON, "the guard has ended", || crate::support::tagged(&tag).is_empty());
    assert_eq!(status(&redis, "backup")["waiting"], 0);
    release(&redis, "backup", &token);
}

#[test]
fn of_a_script_that_is_process_1_the_lock_stays_for_its_ttl_and_run_is_the_way_there() {
    let Some(options) = namespace(&["--pid", "--fork", "--kill-child", "--mount-proc"]) else { return };
    let redis = Redis::start();
    for (call, is_held) in
        [("acquire --name backup --ttl 10m --while-pid $$", true), ("run --name other -- true", false)]
    {
        let script = format!("redlock {call} -q > /dev/null; exit 0").replace(" -- true -q", " -q -- true");
        Test::program(&redis, "unshare").args(&options).args(["sh", "-c", &script]).run();
        assert_eq!(redis.exists("redlock:backup") || redis.exists("redlock:other"), is_held, "{call}");
        redis.command(&["FLUSHALL"]);
    }
}

//! Signals to redlock, one after the other: which processes get the signals, which signals stay ignored, and what the
//! job inherits.

use crate::support::{
    Ended, Mode, Proxy, Redis, Running, SOON, Test, Watched, acquire, alive, any, descendants, eventually, is_renewed,
    like, lost, ms, name, namespace, redlock, run, stopped, when,
};
use nix::libc;
use nix::sys::signal::Signal;

/// The shell code of a command and of its child: each prints every signal that comes, and goes on. The child is started
/// by `setsid`, in a session of its own, because one started with `&` would ignore INT and QUIT.
const TALKER: &str = "talk() { for s in TERM INT QUIT HUP USR1 USR2 WINCH CONT; do trap \"echo $1 $s\" $s; done; \
     echo $1 ready; while :; do sleep 0.01; done; }";

#[track_caller]
fn talkers(redis: &Redis, more: &[&str]) -> Running {
    let script = format!("{TALKER}; setsid -f sh -c '{TALKER}; talk child'; talk command");
    let test = redlock(redis, "run -q backup").args(more).args(["--", "bash", "-c", &script]);
    let job = test.spawn();
    let mut ready = [job.stdout_line(), job.stdout_line()];
    ready.sort();
    assert_eq!(ready, ["child ready", "command ready"]);
    job
}

#[test]
fn term_int_and_quit_reach_all_of_the_job_once_each() {
    let redis = Redis::start();
    let job = talkers(&redis, &[]);
    for signal in ["TERM", "INT", "QUIT", "TERM"] {
        job.send(format!("SIG{signal}").parse().unwrap());
        let mut heard = [job.stdout_line(), job.stdout_line()];
        heard.sort();
        assert_eq!(heard, [format!("child {signal}"), format!("command {signal}")]);
    }
    // If a signal had reached the job twice, the job would have printed it again before USR1.
    job.send(Signal::SIGUSR1);
    assert_eq!(job.stdout_line(), "command USR1");
}

#[test]
fn hup_usr1_usr2_winch_and_cont_reach_the_command_alone() {
    let redis = Redis::start();
    let job = talkers(&redis, &[]);
    for signal in ["HUP", "USR1", "USR2", "WINCH", "CONT", "HUP"] {
        job.send(format!("SIG{signal}").parse().unwrap());
        assert_eq!(job.stdout_line(), format!("command {signal}"));
    }
    job.send(Signal::SIGTERM);
    let mut heard = [job.stdout_line(), job.stdout_line()];
    heard.sort();
    assert_eq!(heard, ["child TERM", "command TERM"], "and nothing before");
}

#[test]
fn a_reload_does_not_kill_what_a_script_is_doing() {
    let redis = Redis::start();
    let script = "trap 'echo reload' HUP; sleep 1000 & echo $!; while :; do wait; done";
    let mut job = run(&redis, ["--", "bash", "-c", script]).any_end().spawn();
    let sleep: u32 = job.stdout_line().parse().unwrap();
    // Before its exec the child is still a shell, and treats the signal as a shell does.
    eventually(SOON, "it sleeps", || name(sleep) == "sleep");
    for _ in 0..3 {
        job.send(Signal::SIGHUP);
        job.prints("reload");
    }
    assert!(alive(sleep));
    job.send(Signal::SIGTERM);
    assert_eq!(job.wait(SOON), Ended::Signal(Signal::SIGTERM as i32));
    eventually(SOON, "the sleep has ended, too", || !alive(sleep));
}

#[test]
fn signals_ignored_at_the_start_stay_ignored() {
    let redis = Redis::start();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR2] {
        let script = "grep SigIgn /proc/$$/status; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.01; done";
        let test = run(&redis, ["--", "sh", "-c", script]).ignoring(signal);
        let mut job = test.spawn();
        let ignored = job.stdout_line();
        let ignored = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // The other bits are real-time signals. The job ignores them if the tests ignore them.
        assert_eq!(ignored & 0x7fff_ffff, 1 << (signal as i32 - 1));
        job.prints("ready");
        job.send(signal);
        job.send(Signal::SIGUSR1);
        job.prints("usr1");
        assert!(!job.has_ended());
        let other = if signal == Signal::SIGTERM { Signal::SIGINT } else { Signal::SIGTERM };
        job.send(other);
        assert_eq!(job.wait(SOON), Ended::Signal(other as i32));
    }
}

#[test]
fn under_nohup_and_in_the_background_of_a_script() {
    let redis = Redis::start();
    let script = "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.01; done";
    for (wrapper, ignored) in [
        ("nohup redlock run -q --name backup -- sh -c", &[Signal::SIGHUP][..]),
        ("exec redlock run -q --name backup -- sh -c", &[Signal::SIGINT, Signal::SIGQUIT]),
    ] {
        let line = if wrapper.starts_with("exec") {
            format!("( {wrapper} \"$1\" ) & echo $!; wait")
        } else {
            format!("echo $$; exec {wrapper} \"$1\"")
        };
        let job = Test::sh(&redis, &line).args(["sh", script]).spawn();
        let redlock: u32 = job.stdout_line().parse().unwrap();
        job.prints("ready");
        for &signal in ignored {
            crate::support::send(redlock, signal);
        }
        crate::support::send(redlock, Signal::SIGUSR1);
        job.prints("usr1");
        assert!(alive(redlock), "{wrapper}");
        crate::support::send(redlock, Signal::SIGTERM);
        eventually(SOON, "ended by TERM", || !alive(redlock));
    }
}

#[test]
fn mask_dispositions_and_sigpipe_are_as_redlock_was_started_with() {
    let redis = Redis::start();
    let look = ["grep", "^Sig[BIC]", "/proc/self/status"];
    let everything = |test: Test| {
        test.ignoring(Signal::SIGUSR2)
            .ignoring(Signal::SIGPIPE)
            .ignoring(Signal::SIGCHLD)
            .blocking(Signal::SIGALRM)
            .blocking(Signal::SIGTERM)
    };
    let nothing = |test: Test| test;
    for inherit in [&everything as &dyn Fn(Test) -> Test, &nothing] {
        let direct = inherit(Test::of(look[0]).args(&look[1..])).stdout(any()).run();
        let test = run(&redis, ["--"]).args(look);
        inherit(test).stdout(direct.stdout.as_str()).run();
    }
    // `yes` dies of SIGPIPE, though Rust's start-up code ignores this signal.
    let script = "redlock run -q --name backup -- sh -c 'yes; echo $? >&2' | head -1";
    Test::sh(&redis, script).stdout("y\n").stderr("141\n").run();
    let test = Test::sh(&redis, script).ignoring(Signal::SIGPIPE).stdout("y\n");
    let stderr = crate::support::when("a status of yes' own", |text| text.ends_with("\n1\n"));
    test.stderr(stderr).run();
}

#[test]
fn kill_after_is_what_timeout_does_with_k() {
    let redis = Redis::start();
    // The shell may report on standard error that its child was killed.
    let deaf = "exec 2>/dev/null; trap '' TERM INT QUIT; setsid sleep 1000 & echo ready; while :; do sleep 0.01; done";
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        let test = run(&redis, ["--kill-after", "200ms", "--", "sh", "-c", deaf]);
        let mut job = test.signal(Signal::SIGKILL).ready();
        let start = std::time::Instant::now();
        job.send(signal);
        job.wait(SOON);
        assert!(start.elapsed() >= ms(200), "{:?}", start.elapsed());
        eventually(SOON, "nothing is left", || job.others().is_empty());
        job.finish();
        assert!(!redis.exists("redlock:backup"));
    }
    // Only TERM, INT and QUIT start the countdown to SIGKILL.
    let script = "trap 'echo hup' HUP; echo ready; while read line; do echo line; exit 4; done";
    let test = run(&redis, ["--kill-after", "0", "--", "bash", "-c", script]);
    let (job, mut writer) = test.status(4).ready_to_read();
    job.send(Signal::SIGHUP);
    job.prints("hup");
    std::io::Write::write_all(&mut writer, b"\n").unwrap();
    job.prints("line");
    job.finish();
}

#[test]
fn kill_after_counts_from_the_signal_of_redlock_too_and_may_be_longer_than_the_ttl() {
    let redis = Redis::start();
    let deaf = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
    for (kill_after, least) in [("300ms", 500), ("2500ms", 2_700)] {
        let options = ["--ttl", "1s", "--max-run", "200ms", "--kill-after", kill_after, "--", "sh", "-c", deaf];
        let stopped = "redlock: stopped the job of \"backup\" after 200ms (--max-run)\n";
        let job = run(&redis, options).status(124).stdout("ready\n").stderr(stopped).run();
        assert!((ms(least)..ms(least + 2_000)).contains(&job.elapsed), "{kill_after}: {:?}", job.elapsed);
    }
    // A revocation. The default would be one second, and SIGKILL 5.2 s after the last renewal at the latest.
    let deaf = "exec 2>/dev/null; trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done";
    let test = run(&redis, ["--ttl", "6s", "--kill-after", "3s", "--", "sh", "-c", deaf]);
    let job = test.status(76).stderr(lost("it was revoked by <any>")).ready();
    let watched = Watched::new(&job.job());
    let revoker = redlock(&redis, "stop backup").stdout(any()).stderr(any()).spawn();
    job.prints("term");
    let start = std::time::Instant::now();
    assert!(watched.all_end(SOON));
    assert!((ms(2_900)..ms(4_000)).contains(&start.elapsed()), "{:?}", start.elapsed());
    job.finish();
    revoker.finish();
}

#[test]
fn a_kill_after_that_is_longer_than_the_lease_ends_with_it() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let script = "trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done";
    let test = redlock(&proxy, "run -q backup --ttl 3s --kill-after 1h -- sh -c").arg(script).status(76);
    let mut job = test.stderr(any()).ready();
    let watched = Watched::new(&job.job());
    proxy.set(Mode::BlackHole);
    job.prints("term");
    let asked = std::time::Instant::now();
    assert!(watched.all_end(SOON) && redis.exists("redlock:backup"), "it outlived its lease");
    // The default would be half a second. The lease has room for 1.47 s.
    assert!(asked.elapsed() > ms(1_000), "{:?}", asked.elapsed());
    job.wait(SOON);
    proxy.set(Mode::Cut);
    job.finish();
}

#[test]
fn signal_is_what_asks_the_job_to_stop() {
    let redis = Redis::start();
    let script = format!("exec 2>/dev/null; {TALKER}; setsid -f sh -c '{TALKER}; talk child'; talk command");
    let options = "--ttl 10m --kill-after 3s --signal";
    // The whole job gets it, once, when --max-run has passed.
    let stopped_by_redlock = [("INT", "INT"), ("sigusr1", "USR1"), ("1", "HUP")].map(|(signal, said)| {
        let test = redlock(&redis, format!("run -q {said} {options} {signal} --max-run 3s -- bash -c"));
        let stopped = format!("redlock: stopped the job of \"{said}\" after 3s (--max-run)\n");
        let said = move |text: &str| {
            let mut lines: Vec<&str> = text.lines().filter(|line| !line.ends_with("CONT")).collect();
            lines.sort();
            lines == [&format!("child {said}"), "child ready", &format!("command {said}"), "command ready"]
        };
        test.arg(&script).status(124).stderr(stopped).stdout(when("each says it once", said)).spawn()
    });
    let lost = "redlock: lost \"backup\": <any>; sent SIGINT to the job, SIGKILL follows in <duration>\n\
                redlock: lost \"backup\": <any>; job stopped\n";
    let test = redlock(&redis, format!("run -q backup {options} INT -- sh -c"))
        .arg("trap 'exit 3' INT; echo ready; while :; do sleep 0.01; done");
    let job = test.status(76).stderr(like(lost)).ready();
    redis.command(&["DEL", "redlock:backup"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    job.finish();
    // What comes from others is passed on as itself. The signal of --signal is one that starts the countdown.
    for (signal, said) in [(Signal::SIGTERM, "TERM"), (Signal::SIGUSR1, "USR1")] {
        let test = redlock(&redis, format!("run -q backup {options} USR1 -- bash -c"));
        let mut job = test.arg(format!("exec 2>/dev/null; {TALKER}; talk command")).signal(Signal::SIGKILL).spawn();
        job.prints("command ready");
        job.send(signal);
        job.prints(format!("command {said}"));
        job.wait(SOON);
        job.finish();
    }
    stopped_by_redlock.into_iter().for_each(|job| drop(job.finish()));
}

#[test]
fn the_lease_is_renewed_until_the_command_that_was_told_to_end_has_ended() {
    let redis = Redis::start();
    // The shell may report on standard error that its child was terminated.
    let script = "exec 2>/dev/null; trap 'echo term; read line; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let test = run(&redis, ["--ttl", "6s", "--", "sh", "-c", script]);
    let (job, writer) = test.status(7).ready_to_read();
    let token = redis.get("redlock:backup");
    job.send(Signal::SIGTERM);
    job.prints("term");
    for _ in 0..2 {
        is_renewed(&redis);
        assert_eq!(redis.get("redlock:backup"), token);
    }
    drop(writer);
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

/// The numbers in a row of the table of all signals in redlock-run(1).
fn row(begin: &str) -> Vec<i32> {
    let manual = include_str!("../../man/src/redlock-run.man");
    let (_, row) = manual.split_once(&format!("\n{begin}: ")).unwrap();
    let words: Vec<&str> = row.split(".br").next().unwrap().split_whitespace().collect();
    let numbers = words.iter().filter_map(|word| word.parse().ok());
    let range = |numbers: Vec<i32>| match (words.contains(&"to"), numbers.split_last_chunk()) {
        (true, Some((numbers, &[first, last]))) => numbers.iter().copied().chain(first..=last).collect(),
        _ => numbers,
    };
    range(numbers.collect())
}

fn send_number(pid: u32, signal: i32) {
    // SAFETY: touches no memory. (nix knows no real-time signals.)
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

/// The code of a command, and of its child in a session of its own: each prints the number of every signal that comes.
const TALKER_OF_ALL: &str = "exec 2>/dev/null; talk() { for s in $(seq 64 | grep -vw 17); do trap \"echo $1 $s\" $s; done; \
     echo $1 ready; while :; do sleep 0.01; done; }";

/// Sends each signal of the manual's table to `redlock`, whose job is made of two talkers.
fn each_signal_goes_where_the_manual_says(job: &Running, redlock: u32, is_process_1: bool) {
    let mut ready = [job.stdout_line(), job.stdout_line()];
    ready.sort();
    assert_eq!(ready, ["child ready", "command ready"]);
    for signal in row("Passed on to the command") {
        send_number(redlock, signal);
        assert_eq!(job.stdout_line(), format!("command {signal}"));
    }
    for signal in row("Passed on to the whole job") {
        send_number(redlock, signal);
        let mut heard = [job.stdout_line(), job.stdout_line()];
        heard.sort();
        assert_eq!(heard, [format!("child {signal}"), format!("command {signal}")]);
    }
    // What process 1 cannot catch does nothing to it, except SIGKILL and SIGSTOP from outside of its namespace.
    let harmless = if is_process_1 { [32, 33] } else { [libc::SIGSTOP; 2] };
    for signal in row("Kept").into_iter().chain(harmless) {
        send_number(redlock, signal);
        if !is_process_1 && signal != libc::SIGCHLD {
            eventually(SOON, "it is suspended", || stopped(redlock));
            send_number(redlock, libc::SIGCONT);
            assert_eq!(job.stdout_line(), "command 18");
        }
        send_number(redlock, libc::SIGUSR1);
        assert_eq!(job.stdout_line(), "command 10", "nothing came of {signal}");
    }
}

#[test]
fn each_of_the_64_signals_goes_where_the_manual_says() {
    let all = ["Passed on to the command", "Passed on to the whole job", "Kept", "Cannot be caught"].map(row);
    let mut numbers = all.concat();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=64).collect::<Vec<i32>>());
    let redis = Redis::start();
    let script = format!("{TALKER_OF_ALL}; setsid -f bash -c '{TALKER_OF_ALL}; talk child'; talk command");
    let job = redlock(&redis, "run -q backup -- bash -c").arg(&script).any_end().spawn();
    each_signal_goes_where_the_manual_says(&job, job.pid(), false);
    job.send(Signal::SIGKILL);
    job.finish();
    let Some(options) = namespace(&["--pid", "--fork", "--kill-child", "--mount-proc"]) else { return };
    let test = Test::program(&redis, "unshare").args(options).arg(env!("CARGO_BIN_EXE_redlock"));
    let job = test.args(["run", "-q", "--name", "first", "--", "bash", "-c", &script]).any_end().spawn();
    eventually(SOON, "it runs", || redis.exists("redlock:first"));
    let first = descendants(job.pid()).into_iter().find(|&pid| name(pid) == "redlock").unwrap();
    each_signal_goes_where_the_manual_says(&job, first, true);
    job.send(Signal::SIGKILL);
    job.finish();
}

#[test]
fn a_redlock_that_dies_of_a_signal_that_cannot_be_caught_takes_its_job_with_it() {
    let redis = Redis::start();
    // A process with threads, such as this one, ignores signal 32, and so do those that it starts.
    let ends_it = |signal: &i32| ![libc::SIGSTOP, 32].contains(signal);
    for signal in row("Cannot be caught").into_iter().filter(ends_it) {
        let test = run(&redis, ["--", "sh", "-c", "echo ready; (setsid sleep 1000 &); sleep 1000"]);
        let mut job = test.any_end().ready();
        send_number(job.pid(), signal);
        assert_eq!(job.wait(SOON), Ended::Signal(signal), "{signal}");
        eventually(SOON, "nobody is left", || job.others().is_empty());
        redis.command(&["DEL", "redlock:backup"]);
    }
}

#[test]
fn any_signal_that_ends_a_program_ends_a_waiting_call_and_leaves_nothing() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let before = redis.keys_without_history();
    for line in ["run -q backup --wait -- true", "acquire -q backup --wait"] {
        for signal in [libc::SIGALRM, libc::SIGPWR, libc::SIGXCPU, libc::SIGPIPE, libc::SIGABRT, libc::SIGRTMIN() + 3] {
            let mut call = redlock(&redis, line).any_end().spawn();
            eventually(SOON, "it waits", || redis.keys_without_history() != before);
            send_number(call.pid(), signal);
            assert_eq!(call.wait(SOON), Ended::Signal(signal), "{line}");
            eventually(SOON, "nothing is left", || redis.keys_without_history() == before);
        }
    }
}

#[test]
fn the_command_is_as_nice_as_redlock() {
    let redis = Redis::start();
    for nice in ["0", "7"] {
        let script = format!("exec nice -n {nice} sh -c 'nice; exec redlock run -q --name backup -- nice'");
        let said = Test::sh(&redis, &script).stdout(any()).run().stdout;
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said, [said[0], said[0]]);
    }
}

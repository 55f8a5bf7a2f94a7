//! The keeper at its limits: jobs that fork fast, commands that start slowly, signals during the start, a keeper that
//! is stopped or killed, processes that do not die, a /proc that does not show the job, a sandbox.

use crate::support::{
    Ended, Finished, Mode, Proxy, Redis, Running, SOON, Slow, Terminal, Test, Watched, acquire, alive, any, at_last,
    descendants, eventually, like, loss, message, ms, name, namespace, perhaps, redlock, release, run, send, stopped,
};
use nix::libc;
use nix::sys::signal::Signal;
use std::time::Instant;

#[test]
fn chains_of_processes_that_fork_and_exit_die_too() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    // Each chain has a session of its own. One that nobody kills ends by itself some seconds later.
    let chain = "setsid sh -c \"trap \\\"\\\" TERM; f() { [ \\$1 = 0 ] || f \\$((\\$1-1)) & }; f 10000\" &";
    let script = format!("n=0; while [ $n -lt 16 ]; do {chain} n=$((n+1)); done; echo ready; sleep 1000");
    // Each chain ends after a thousand calls, because dash allows no deeper nesting. The lease ends earlier than that.
    let test = redlock(&proxy, "run -q backup --ttl 2s --node-timeout 900ms");
    let job = test.args(["--", "sh", "-c", &script]).status(76).stderr(like("<lines>lost \"backup\"<any>\n")).ready();
    proxy.set(Mode::BlackHole);
    eventually(SOON, "they are killed", || (0..3).all(|_| job.job().is_empty()));
    proxy.set(Mode::Cut);
    job.finish_whole();
}

#[test]
fn redlock_ends_the_job_of_a_keeper_that_is_stopped_while_it_kills() {
    let redis = Redis::start();
    for _ in 0..3 {
        let script = format!("trap '' TERM; {}", line_of(40));
        let test = redlock(&redis, "run -q backup --ttl 4s --node-timeout 2s -- sh -c").arg(&script);
        let job = test.status(76).stderr(at_last(message(["lost \"backup\"", "job stopped"]))).ready();
        let keeper = job.keeper();
        let all = descendants(keeper);
        let (tree, command) = (Watched::new(&all), all[0]);
        redis.command(&["DEL", "redlock:backup"]);
        eventually(SOON, "the keeper is at it", || !alive(command));
        send(keeper, Signal::SIGSTOP);
        assert!(tree.all_end(SOON), "alive");
        job.finish();
    }
}

/// A shell line that starts `size` processes, each the child of the one before, in a session of its own. The last one
/// says that it is ready.
fn line_of(size: u32) -> String {
    format!(
        "LINE='if [ $1 -gt 1 ]; then setsid sh -c \"$LINE\" sh $(($1-1)) & else echo ready; fi; sleep 1000'; export LINE; \
         set -- {size}; eval \"$LINE\""
    )
}

/// Keeps a dead process from being reaped: the kernel first waits until the tracer has heard of the death.
struct Tracer {
    over: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Tracer {
    #[track_caller]
    fn of(pid: u32) -> Tracer {
        let (over, wait) = std::sync::mpsc::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes numbers and touches no memory.
            let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
            ready.send(seized).unwrap();
            let _ = wait.recv();
        });
        assert_eq!(is_ready.recv().unwrap(), 0, "a process that may be traced");
        Tracer { over, thread }
    }

    fn let_go(self) {
        drop(self.over);
        self.thread.join().unwrap();
    }
}

#[test]
fn a_job_that_does_not_die_is_reported_and_waited_for() {
    let redis = Redis::start();
    let test = run(&redis, ["--max-run", "200ms", "--kill-after", "1ms", "--", "sh", "-c", "echo $$; exec sleep 1000"]);
    let stopped = "redlock: stopped the job of \"backup\" after 200ms (--max-run)\n";
    let mut job = test.status(124).stderr(stopped).spawn();
    let command: u32 = job.stdout_line().parse().unwrap();
    let tracer = Tracer::of(command);
    job.says(like(format!(
        "redlock: waiting for the job of \"backup\" to end: SIGKILL has not ended pid {command} yet"
    )));
    assert!(!job.has_ended() && redis.exists("redlock:backup"));
    tracer.let_go();
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn without_a_keeper_too_the_lock_is_kept_until_the_job_is_dead() {
    let redis = Redis::start();
    let test = run(&redis, ["--", "sh", "-c", "echo $$; exec sleep 1000"]).status(69);
    let mut job = test.stderr(message(["the keeper process of \"backup\" was killed"])).spawn();
    let command: u32 = job.stdout_line().parse().unwrap();
    let tracer = Tracer::of(command);
    send(job.keeper(), Signal::SIGKILL);
    job.says(like(format!(
        "redlock: waiting for the job of \"backup\" to end: SIGKILL has not ended pid {command} yet"
    )));
    let start = Instant::now();
    while start.elapsed() < ms(2_500) {
        assert!(!job.has_ended() && redis.exists("redlock:backup"));
        std::thread::sleep(ms(20));
    }
    tracer.let_go();
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn the_corpse_of_a_keeper_that_a_tracer_holds_is_not_waited_for() {
    let redis = Redis::start();
    let test = run(&redis, ["--", "sh", "-c", "(setsid sleep 1000 &); echo ready; sleep 1000"]);
    let mut job = test.status(69).stderr(message(["\"backup\"", "its job was stopped"])).ready();
    let keeper = job.keeper();
    let tracer = Tracer::of(keeper);
    send(keeper, Signal::SIGKILL);
    job.wait(SOON);
    assert!(!redis.exists("redlock:backup"), "released");
    tracer.let_go();
    job.finish_whole();
}

#[test]
fn nothing_is_left_of_the_keeper_where_the_first_process_reaps_no_orphans() {
    let redis = Redis::start();
    let Some(options) = namespace(&["--pid", "--fork", "--kill-child", "--mount-proc"]) else { return };
    // Process 1 is cat, which reaps no orphans; the shell prints the names of all processes.
    let script = "(\"$0\" run -q --name backup -- true; \"$0\" run -q --name backup -- false; \
                  for name in /proc/[0-9]*/comm; do read line < \"$name\" && names=\"$names $line\"; done; \
                  echo $names) & exec cat > /dev/null";
    let (input, writer) = std::io::pipe().unwrap();
    let test = Test::program(&redis, "unshare").args(options).args(["sh", "-c", script]).stdin_from(input);
    let job = test.arg(env!("CARGO_BIN_EXE_redlock")).any_end().spawn();
    job.prints("cat sh");
    drop(writer);
    job.finish();
}

#[test]
fn where_proc_does_not_show_the_processes_of_a_job_none_is_started() {
    // In the second case, another file system hides /proc, as if /proc were not mounted.
    for (options, first) in
        [(&["--pid", "--fork", "--kill-child"][..], ""), (&["--mount"][..], "mount -t tmpfs tmpfs /proc || exit 9;")]
    {
        let Some(options) = namespace(options) else { return };
        let redis = Redis::start();
        for call in ["run --name backup -- echo started", "acquire --name backup --while-pid $$"] {
            let script = format!("{first} \"$0\" {call}; exit $?");
            let test = Test::program(&redis, "unshare").args(&options).args(["sh", "-c", &script]);
            let why = "cannot supervise the job: /proc is not mounted, or belongs to another pid namespace";
            test.arg(env!("CARGO_BIN_EXE_redlock")).status(78).stderr(message([why])).run();
            assert_eq!(redis.keys_without_history(), [""; 0]);
        }
    }
}

/// A waiter that has got the lock, and has ordered its keeper, which is stopped, to start this command.
#[track_caller]
fn about_to_start(redis: &Redis, ttl: &str, command: &[&str]) -> (Running, u32) {
    let token = acquire(redis, "backup");
    let test = redlock(redis, format!("run backup --wait --ttl {ttl} --")).args(command);
    let waiter = test.any_end().stderr(perhaps(["trying again", "acquired", "interrupted by"])).spawn();
    waiter.stderr_line();
    let keeper = waiter.keeper();
    send(keeper, Signal::SIGSTOP);
    eventually(SOON, "it is stopped", || stopped(keeper));
    release(redis, "backup", &token);
    waiter.says(like("redlock: acquired \"backup\"<any>"));
    std::thread::sleep(ms(50)); // the order is sent a moment later
    (waiter, keeper)
}

#[test]
fn a_signal_that_comes_while_a_command_cannot_be_started_outranks_127() {
    let redis = Redis::start();
    let directory = crate::support::Directory::new();
    let (waiter, keeper) = about_to_start(&redis, "30s", &[&directory.without_interpreter()]);
    waiter.send(Signal::SIGTERM);
    send(keeper, Signal::SIGCONT);
    let finished = waiter.finish();
    assert_eq!(finished.ended, crate::support::Ended::Signal(Signal::SIGTERM as i32));
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn a_command_that_is_too_late_for_its_lease_is_started_under_the_next_one() {
    let redis = Redis::start();
    let (waiter, keeper) = about_to_start(&redis, "4s", &["sh", "-c", "exit 3"]);
    std::thread::sleep(ms(1000)); // a quarter of the lease
    send(keeper, Signal::SIGCONT);
    waiter.says(like("redlock: \"backup\": too much of the lease of 4s had passed<any>; trying again"));
    waiter.says(like("redlock: acquired \"backup\"<any>"));
    assert_eq!(waiter.finish().ended, crate::support::Ended::Status(3));
    assert!(!redis.exists("redlock:backup"));
}

/// The pids of the only redlock in this terminal, and of its keeper.
#[track_caller]
fn redlock_and_keeper(terminal: &Terminal) -> (u32, u32) {
    let named = |wanted: &str| terminal.others().into_iter().find(|&pid| name(pid) == wanted);
    eventually(SOON, "both exist", || named("redlock").is_some() && named("redlock-keeper").is_some());
    (named("redlock").unwrap(), named("redlock-keeper").unwrap())
}

#[test]
fn ctrl_c_reaches_the_job_once_though_redlock_has_not_yet_heard_that_it_has_started() {
    let redis = Redis::start();
    let directory = crate::support::Directory::new();
    let script =
        "trap 'n=$((n+1)); echo got=$n.' INT; trap 'echo bye; exit 5' USR1; echo ready; while :; do sleep 0.01; done";
    let slow = Slow::script(&directory, script);
    let terminal = Terminal::bash(&redis);
    // Another shell runs between bash and redlock, because bash would notice that redlock is stopped.
    terminal
        .enters(&format!("sh -c 'trap : INT; redlock run -q --name backup -- {}; echo en\"\"ded=$?.'", slow.path()));
    slow.is_asked();
    let (redlock, _) = redlock_and_keeper(&terminal);
    send(redlock, Signal::SIGSTOP);
    eventually(SOON, "it is stopped", || stopped(redlock));
    slow.let_go();
    terminal.shows("ready\r\n");
    terminal.types("\x03");
    terminal.shows("got=1.");
    send(redlock, Signal::SIGCONT);
    // If redlock sent the job a second SIGINT, the job would answer it before this signal.
    send(redlock, Signal::SIGUSR1);
    let rest = terminal.shows("bye");
    assert!(!rest.contains("got="), "{rest:?}");
    terminal.shows("ended=5.");
    terminal.prompts();
}

#[test]
fn ctrl_c_that_comes_just_before_the_birth_of_the_command_reaches_it() {
    let redis = Redis::start();
    // The second program may have set its trap before the signal comes.
    for program in ["sleep 1000", "sh -c \"trap 'exit 130' INT; while :; do sleep 0.01; done\""] {
        let token = acquire(&redis, "backup");
        let terminal = Terminal::bash(&redis);
        terminal.enters(&format!("redlock run --name backup --wait -- {program}"));
        terminal.shows("waiting for \"backup\"");
        let (redlock, keeper) = redlock_and_keeper(&terminal);
        send(keeper, Signal::SIGSTOP);
        eventually(SOON, "it is stopped", || stopped(keeper));
        release(&redis, "backup", &token);
        terminal.shows("acquired");
        std::thread::sleep(ms(50)); // the order to start is sent a moment later
        terminal.types("\x03");
        send(keeper, Signal::SIGCONT);
        terminal.prompts();
        assert!(!alive(redlock));
        assert_eq!(terminal.status(), 130);
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn ctrl_c_at_any_moment_of_the_start_reaches_the_job_exactly_once() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    let directory = crate::support::Directory::new();
    let file = directory.path().join("job");
    let script = "trap 'n=$((n+1)); echo got=$n.' INT; trap 'echo bye; exit 5' USR1; while :; do sleep 0.01; done";
    std::fs::write(&file, script).unwrap();
    for number in 0..30_u64 {
        // redlock is surely the terminal's foreground job once it says "waiting for".
        let token = acquire(&redis, "backup");
        terminal.enters(&format!("redlock run --name backup --wait -- sh {}", file.display()));
        terminal.shows("waiting for");
        std::thread::scope(|scope| {
            scope.spawn(|| release(&redis, "backup", &token));
            // redlock gets the lock, and starts its command, some 5 to 30 ms after the release.
            std::thread::sleep(ms(number));
            terminal.types("\x03");
        });
        // A job that has set its trap answers `got=1`, or `got=2` after a second signal. A job without its trap dies.
        let answered =
            || terminal.others().is_empty() || terminal.all().rsplit("/job").next().unwrap().contains("got=");
        eventually(SOON, "it comes", answered);
        if let Some(redlock) = terminal.others().into_iter().find(|&pid| name(pid) == "redlock") {
            send(redlock, Signal::SIGUSR1);
        }
        terminal.prompts();
        let all = terminal.all();
        assert!(!all.contains("got=2"), "{all}");
    }
}

#[test]
fn a_job_of_a_lost_lease_is_killed_in_time_though_its_keeper_is_stopped() {
    let redis = Redis::start();
    let test = run(&redis, ["--ttl", "10m", "--kill-after", "300ms", "--", "sh", "-c", "echo ready; sleep 1000"]);
    let job = test.status(76).stderr(loss([])).ready();
    let watched = Watched::new(&job.job());
    send(job.keeper(), Signal::SIGSTOP);
    redis.command(&["DEL", "redlock:backup"]);
    // After its connection was closed, redlock renews at once, and notices the loss.
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert!(watched.all_end(ms(3_000)), "the job outlives its lease");
    job.finish();
}

#[test]
fn a_sandbox_that_refuses_what_supervising_needs_is_reported_before_the_lock_is_taken() {
    let redis = Redis::start();
    for call in [libc::SYS_prctl, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_wait4] {
        let test = run(&redis, ["--", "true"]).refusing(call).status(78);
        let why = "\"backup\" did not run: cannot supervise the job: operation not permitted (does a sandbox";
        test.stderr(message([why])).run();
        assert_eq!(redis.keys_without_history(), [""; 0]);
    }
}

#[test]
fn a_job_is_found_and_started_though_a_sandbox_does_not_know_the_newest_calls() {
    let redis = Redis::start();
    let old = |test: Test| {
        let calls = [libc::SYS_faccessat2, libc::SYS_faccessat, libc::SYS_statx, libc::SYS_getrandom];
        calls.into_iter().chain(ACCESS).fold(test, Test::refusing)
    };
    old(run(&redis, ["--", "sh", "-c", "echo started"])).stdout("started\n").run();
    old(run(&redis, ["--", "/bin/sh", "-c", "echo started"])).stdout("started\n").run();
    for (command, status) in [("no-such-command", 127), ("/no/such/command", 127), ("/etc/passwd", 126)] {
        old(run(&redis, ["--", command])).status(status).stderr(message(["cannot start"])).run();
    }
}

/// access(2), which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const ACCESS: Option<i64> = Some(libc::SYS_access);
#[cfg(not(target_arch = "x86_64"))]
const ACCESS: Option<i64> = None;

#[test]
fn a_machine_without_memory_or_random_numbers_is_reported() {
    let redis = Redis::start();
    let mut reported = 0;
    for limit in (10_000..).step_by(50) {
        let script = format!("ulimit -v {limit}; exec redlock run -q {limit} -- true");
        let test = Test::sh(&redis, &script).any_end().stdout(any()).stderr(any());
        let Finished { ended, stderr, .. } = test.spawn().finish_whole();
        match ended {
            Ended::Status(0) => break,
            // The kernel or the loader could not load the program or its libraries.
            Ended::Signal(libc::SIGSEGV | libc::SIGKILL) | Ended::Status(126 | 127) => {}
            _ => {
                reported += 1;
                assert!(stderr.lines().all(|line| line.starts_with("redlock: ")), "{limit}: {stderr}");
                assert_eq!(ended, Ended::Status(69), "{limit}: {stderr}");
            }
        }
    }
    assert!(reported > 0);
    let Some(options) = namespace(&["--mount"]) else { return };
    let script = "mount -t tmpfs tmpfs /dev; \"$0\" status; exit $?";
    let test = Test::program(&redis, "unshare").args(&options).args(["sh", "-c", script]);
    let test = test.arg(env!("CARGO_BIN_EXE_redlock")).refusing(libc::SYS_getrandom);
    test.status(69).stderr(message(["cannot get random numbers: no such file or directory"])).run();
}

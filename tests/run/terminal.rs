//! redlock at a terminal: a real pty with an interactive shell, in which the tests type keys.

use crate::support::{
    Redis, SOON, Terminal, Watched, alive, descendants, eventually, is_renewed, name, needs, rand, redlock, send,
    sleeps, status_line, stopped,
};
use nix::fcntl::OFlag;
use nix::libc;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::Signal;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";
const ESCAPE: &str = "\x1b";

fn run(arguments: &str) -> String {
    format!("redlock run -q --name backup {arguments}")
}

#[track_caller]
fn redlock_pid(terminal: &Terminal) -> u32 {
    let find = || {
        let mut pids = terminal.others().into_iter();
        pids.find(|&pid| name(pid) == "redlock")
    };
    eventually(SOON, "a redlock", || find().is_some());
    find().unwrap()
}

/// The terminal soon has no process but the shell, and the lock is free then.
#[track_caller]
fn nothing_left(terminal: &Terminal, redis: &Redis) {
    eventually(SOON, "nobody is left", || terminal.others().is_empty());
    assert!(!redis.exists("redlock:backup"));
}

#[track_caller]
fn starts(terminal: &Terminal, line: &str) {
    terminal.enters(line);
    terminal.shows("ready\r\n");
}

/// The shell has its terminal back, the last command ended with this status, and nothing is left.
#[track_caller]
fn ends_as(terminal: &Terminal, status: i32, redis: &Redis) {
    terminal.prompts();
    assert_eq!(terminal.status(), status);
    nothing_left(terminal, redis);
}

#[test]
fn ctrl_c_reaches_the_job_once() {
    let redis = Redis::start();
    for terminal in [Terminal::bash(&redis), Terminal::sh(&redis)] {
        let job = "trap 'n=$((n+1)); echo got=$n.' INT; trap 'echo bye; exit 5' USR1; echo rea''dy; while :; do sleep 0.01; done";
        starts(&terminal, &run(&format!("-- sh -c \"{}\"", job.replace('$', "\\$"))));
        for number in 1..4 {
            terminal.types(CTRL_C);
            terminal.shows(&format!("got={number}."));
        }
        // If the last SIGINT had reached the job twice, a second `got=` would show before `bye`.
        send(redlock_pid(&terminal), Signal::SIGUSR1);
        let rest = terminal.shows("bye");
        assert!(!rest.contains("got="), "{rest:?}");
        ends_as(&terminal, 5, &redis);
    }
}

#[test]
fn kill_after_and_signal_at_a_terminal() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    starts(&terminal, &run("--kill-after 300ms -- sh -c \"trap '' INT; echo rea''dy; while :; do sleep 0.01; done\""));
    terminal.types(CTRL_C);
    ends_as(&terminal, 137, &redis);
    // redlock is in the job's group, and must not stop itself.
    let job = "trap 'echo got=\\$((n+=1)).' INT; echo rea''dy; while :; do sleep 0.01; done";
    starts(&terminal, &run(&format!("--signal INT --max-run 500ms --kill-after 500ms -- bash -c \"{job}\"")));
    terminal.shows("got=1.");
    let rest = terminal.shows("--max-run");
    assert!(!rest.contains("got="), "{rest:?}");
    ends_as(&terminal, 124, &redis);
}

#[test]
fn ctrl_c_and_ctrl_backslash_end_the_job_as_without_redlock() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    for (key, status) in [(CTRL_C, 130), (CTRL_BACKSLASH, 131)] {
        starts(&terminal, &run("-- sh -c 'ulimit -c 0; echo rea\"\"dy; exec sleep 1000'"));
        terminal.types(key);
        ends_as(&terminal, status, &redis);
    }
}

#[test]
fn ctrl_c_ends_the_script_and_the_loop_that_encloses_redlock() {
    let redis = Redis::start();
    let inner = run("-- sh -c 'echo rea\"\"dy; exec sleep 1000'");
    for terminal in [Terminal::bash(&redis), Terminal::sh(&redis)] {
        starts(&terminal, &format!("for i in 1 2 3; do {inner}; echo ne''xt; done"));
        terminal.types(CTRL_C);
        let rest = terminal.prompts();
        assert!(!rest.contains("next") && !rest.contains("ready"), "{rest:?}");
        nothing_left(&terminal, &redis);
        for shell in ["sh", "bash"] {
            let script = format!("{inner}; echo ne\"\"xt; {inner}").replace('\'', "'\\''");
            starts(&terminal, &format!("{shell} -c '{script}'"));
            terminal.types(CTRL_C);
            let rest = terminal.prompts();
            assert!(!rest.contains("next") && !rest.contains("ready"), "{rest:?}");
            assert_eq!(terminal.status(), 130);
            nothing_left(&terminal, &redis);
        }
    }
}

#[test]
fn ctrl_z_stops_both_and_fg_goes_on() {
    let redis = Redis::start();
    for terminal in [Terminal::bash(&redis), Terminal::sh(&redis)] {
        starts(&terminal, &run("-- sh -c 'echo rea\"\"dy; read x; echo go\"\"t=$x.; exit 3'"));
        let redlock = redlock_pid(&terminal);
        terminal.types(CTRL_Z);
        terminal.prompts();
        eventually(SOON, "redlock stops", || stopped(redlock));
        let job: Vec<u32> = descendants(redlock).into_iter().filter(|&pid| name(pid) == "sh").collect();
        assert_eq!(job.len(), 1);
        eventually(SOON, "the job stops", || stopped(job[0]));
        terminal.enters("jobs");
        terminal.shows("topped"); // "Stopped" here, "stopped" or "Suspended" elsewhere
        terminal.prompts();
        terminal.enters("fg");
        eventually(SOON, "they go on", || !stopped(redlock) && !stopped(job[0]));
        terminal.enters("a line");
        terminal.shows("got=a line.");
        ends_as(&terminal, 3, &redis);
    }
}

#[test]
fn a_job_that_stays_stopped_beyond_its_lease_is_ended_and_fg_shows_76() {
    let redis = Redis::start();
    for terminal in [Terminal::bash(&redis), Terminal::sh(&redis)] {
        starts(&terminal, &run("--ttl 5s --node-timeout 2s -- sh -c 'echo rea\"\"dy; while :; do sleep 0.01; done'"));
        let redlock = redlock_pid(&terminal);
        let job: Vec<u32> = descendants(redlock).into_iter().filter(|&pid| name(pid) != "redlock-keeper").collect();
        assert!(!job.is_empty());
        terminal.types(CTRL_Z);
        terminal.prompts();
        eventually(SOON, "the job is ended", || job.iter().all(|&pid| !alive(pid)));
        assert!(redis.pttl("redlock:backup") > 0, "before its lease");
        assert!(stopped(redlock));
        terminal.enters("fg");
        terminal.shows("redlock: lost \"backup\": not renewed for");
        ends_as(&terminal, 76, &redis);
    }
}

#[test]
fn a_job_that_was_stopped_for_less_than_its_lease_goes_on_under_it() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    starts(&terminal, &run("--ttl 6s -- sh -c 'echo rea\"\"dy; read x; exit 0'"));
    let token = redis.get("redlock:backup");
    for _ in 0..2 {
        terminal.types(CTRL_Z);
        terminal.prompts();
        eventually(SOON, "late", || redis.pttl("redlock:backup") < 3_900);
        terminal.enters("fg");
        eventually(SOON, "renewed", || redis.pttl("redlock:backup") > 5_000);
        // redlock must read the answer to the renewal before Ctrl-Z stops it. Otherwise, at the next fg, the last
        // renewal that it knows would be 4 s old.
        eventually(SOON, "the answer is read", || redis.pttl("redlock:backup") < 5_700);
    }
    assert_eq!(redis.get("redlock:backup"), token);
    terminal.enters("");
    ends_as(&terminal, 0, &redis);
}

#[test]
fn a_job_in_the_background_that_reads_is_stopped_and_fg_lets_it_read() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    terminal.enters(&format!("{} &", run("-- sh -c 'read x; echo go\"\"t=$x.'")));
    terminal.prompts();
    let redlock = redlock_pid(&terminal);
    let reader = || {
        let below = descendants(redlock).into_iter();
        below.filter(|&pid| name(pid) == "sh").any(stopped)
    };
    eventually(SOON, "it is stopped for reading", reader);
    terminal.enters("fg");
    terminal.enters("a line");
    terminal.shows("got=a line.");
    terminal.prompts();
    nothing_left(&terminal, &redis);
}

#[test]
fn the_shell_has_its_terminal_back_after_every_kind_of_end() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    // The job is an interactive shell: it takes the terminal, and with readline it changes the terminal's settings. A
    // signal kills the job, and redlock then dies by the same signal, so the outer shell restores the settings.
    for (number, signal) in [Signal::SIGKILL, Signal::SIGHUP].into_iter().enumerate() {
        terminal.enters(&format!("PS1='in''{number}> ' {}", run("-- bash --norc --noprofile -i")));
        terminal.shows(&format!("in{number}> "));
        let redlock = redlock_pid(&terminal);
        let shell = terminal.foreground();
        assert_ne!(shell, redlock, "the job has a foreground group of its own");
        // readline does not end by a SIGHUP that comes between its prompt and its pselect (bash 5.2).
        eventually(SOON, "the inner shell waits for keys", || sleeps(shell));
        send(shell, signal);
        ends_as(&terminal, 128 + signal as i32, &redis);
    }
    // Two jobs without readline: the first redlock loses its lease, the second is killed.
    let inner = "bash --norc --noprofile --noediting -i";
    terminal.enters(&format!("PS1='in''2> ' {}", run(&format!("--ttl 4s --node-timeout 2s -- {inner}"))));
    terminal.shows("in2> ");
    redis.command(&["DEL", "redlock:backup"]);
    terminal.shows("redlock: lost \"backup\"");
    ends_as(&terminal, 76, &redis);
    terminal.enters(&format!("PS1='in''3> ' {}", run(&format!("-- {inner}"))));
    terminal.shows("in3> ");
    send(redlock_pid(&terminal), Signal::SIGKILL);
    // The inner shell might read the next keys.
    eventually(SOON, "nobody is left", || terminal.others().is_empty());
    terminal.prompts();
    assert_eq!(terminal.status(), 137);
    redis.command(&["DEL", "redlock:backup"]);
    terminal.enters(&format!("PS1='in''4> ' {}", run(&format!("-- {inner}"))));
    terminal.shows("in4> ");
    terminal.enters("exit 9");
    ends_as(&terminal, 9, &redis);
}

#[test]
fn an_inner_shell_with_jobs_of_its_own_works() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    terminal.enters(&format!("PS1='in''> ' {}", run("-- bash --norc --noprofile --noediting -i")));
    terminal.shows("in> ");
    starts(&terminal, "sh -c 'echo rea\"\"dy; exec sleep 1000'");
    let redlock = redlock_pid(&terminal);
    let sleeper = || {
        let mut below = descendants(redlock).into_iter();
        below.rfind(|&pid| name(pid) == "sleep")
    };
    // The process is a shell until its exec. Ctrl-Z must come after the exec, so that `sleeper` finds the process.
    eventually(SOON, "it sleeps", || sleeper().is_some());
    let sleeper = sleeper().unwrap();
    terminal.types(CTRL_Z);
    terminal.shows("topped");
    terminal.shows("in> ");
    terminal.enters("fg");
    terminal.shows("sleep 1000");
    // When the sleeper goes on, it has the terminal.
    eventually(SOON, "it goes on", || !stopped(sleeper));
    terminal.types(CTRL_C);
    terminal.shows("in> ");
    assert!(redis.exists("redlock:backup"));
    terminal.enters("exit 4");
    ends_as(&terminal, 4, &redis);
}

#[test]
fn programs_that_read_single_keys_work() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    // The job reads one key without echo, as a pager or an editor does. Then it restores the terminal's settings.
    let raw = "old=$(stty -g); stty raw -echo; echo rea\"\"dy; key=$(dd bs=1 count=1 2>/dev/null); stty $old; echo \"key=<$key>\"";
    terminal.enters(&run(&format!("-- bash -c '{raw}'")));
    terminal.shows("ready");
    terminal.types("q");
    terminal.shows("key=<q>");
    terminal.prompts();
    assert_eq!(terminal.status(), 0);
    // A killed program cannot restore the terminal. The shell restores it, with or without redlock.
    terminal.enters(&run("-- bash -c 'stty raw -echo; echo rea\"\"dy; kill -KILL $$'"));
    terminal.shows("ready");
    terminal.shows("%% ");
    terminal.types("stty sane\n");
    terminal.prompts();
    nothing_left(&terminal, &redis);
}

#[test]
fn an_editor_and_a_pager_work() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    needs("vi");
    terminal.enters(&run("-- vi file"));
    terminal.shows("file\"");
    terminal.types("ihello");
    terminal.shows("hello");
    terminal.types(ESCAPE);
    terminal.types(":wq\r");
    terminal.prompts();
    assert_eq!(terminal.status(), 0);
    terminal.enters("cat file");
    terminal.shows("hello\r\n");
    terminal.prompts();
    needs("less");
    for line in [run("-- sh -c 'seq 1000 | less'"), format!("{} | less", run("-- seq 1000"))] {
        terminal.enters(&line);
        terminal.shows("1\r\n");
        terminal.types("G");
        terminal.shows("1000\r\n");
        terminal.types("q");
        terminal.prompts();
    }
    nothing_left(&terminal, &redis);
}

#[test]
fn a_pipe_behind_redlock_that_reads_keys_from_the_terminal() {
    let redis = Redis::start();
    for terminal in [Terminal::bash(&redis), Terminal::sh(&redis)] {
        // In `redlock run … | less`, the pager may read from the terminal while the job writes to the pager.
        let pager = "sh -c 'head -1; read x </dev/tty; echo key=$x.'";
        terminal.enters(&format!("{} | {pager}", run("-- seq 1000000")));
        terminal.shows("1\r\n");
        terminal.enters("k");
        terminal.shows("key=k.");
        terminal.prompts();
        nothing_left(&terminal, &redis);
    }
}

#[test]
fn signals_of_a_process_are_passed_on_at_a_terminal_too() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    for (signal, status) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        starts(&terminal, &run("-- sh -c 'setsid -f sleep 1000; echo rea\"\"dy; exec sleep 1000'"));
        send(redlock_pid(&terminal), signal);
        ends_as(&terminal, status, &redis);
    }
}

#[test]
fn ctrl_c_ends_a_waiter_and_leaves_nothing() {
    let redis = Redis::start();
    let token = crate::support::acquire(&redis, "backup");
    let before = redis.keys_without_history();
    let terminal = Terminal::bash(&redis);
    terminal.enters("redlock run --name backup --wait -- echo star''ted");
    terminal.shows("waiting for \"backup\"");
    terminal.types(CTRL_C);
    terminal.prompts();
    assert_eq!(terminal.status(), 130);
    eventually(SOON, "nothing is left", || terminal.others().is_empty());
    assert_eq!(redis.keys_without_history(), before);
    crate::support::release(&redis, "backup", &token);
}

#[test]
fn a_waiter_on_a_stopped_terminal_still_takes_care_of_its_lease() {
    let redis = Redis::start();
    let token = crate::support::acquire(&redis, "backup");
    let terminal = Terminal::bash(&redis);
    terminal.enters("redlock run --name backup --ttl 6s --wait -- sleep 1000");
    terminal.shows("waiting for \"backup\"");
    // After Ctrl-S, a process that writes to the terminal waits for Ctrl-Q.
    terminal.types("\x13");
    crate::support::release(&redis, "backup", &token);
    eventually(SOON, "it is the waiter's", || redis.get("redlock:backup").is_some_and(|now| now != token));
    let token = redis.get("redlock:backup");
    for _ in 0..2 {
        is_renewed(&redis);
        assert_eq!(redis.get("redlock:backup"), token);
    }
    terminal.types("\x11");
    terminal.types(CTRL_C);
    terminal.prompts();
    nothing_left(&terminal, &redis);
}

#[test]
fn the_timer_of_the_keeper_counts_time_asleep() {
    let redis = Redis::start();
    let terminal = Terminal::bash(&redis);
    starts(&terminal, &run("-- sh -c 'echo rea\"\"dy; read x'"));
    let below = descendants(redlock_pid(&terminal));
    let keeper = below.into_iter().find(|&pid| name(pid) == "redlock-keeper");
    let descriptors = std::fs::read_dir(format!("/proc/{}/fdinfo", keeper.unwrap())).unwrap();
    let clocks: Vec<String> = descriptors
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .filter_map(|info| Some(info.lines().find(|line| line.starts_with("clockid"))?.to_owned()))
        .collect();
    // The keeper's only timer is on CLOCK_BOOTTIME, number 7.
    assert_eq!(clocks, ["clockid: 7"]);
    assert!(status_line(keeper.unwrap(), "Threads").is_some_and(|threads| threads == "1"));
    terminal.enters("");
    terminal.prompts();
}

/// The two ends of a terminal. No other program has the first end: when the test drops it, the terminal hangs up.
#[track_caller]
fn terminal_of_its_own() -> (PtyMaster, File) {
    let keys = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&keys).unwrap();
    unlockpt(&keys).unwrap();
    let screen = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(ptsname_r(&keys).unwrap());
    (keys, screen.unwrap())
}

#[test]
fn a_terminal_that_goes_away_ends_the_job_of_the_leader_of_its_session() {
    let redis = Redis::start();
    for stop in ["", "kill -STOP $$; "] {
        let (keys, screen) = terminal_of_its_own();
        let script = format!("sleep 1000 & (setsid sleep 1000 &); echo ready; {stop}sleep 1000; echo not told");
        let test = redlock(&redis, "run -q backup -- sh -c").arg(&script);
        let job = test.at_terminal(screen).signal(Signal::SIGHUP).ready();
        eventually(SOON, "the whole tree exists", || job.job().len() == if stop.is_empty() { 4 } else { 3 });
        let tree = Watched::new(&job.job());
        drop(keys);
        assert!(tree.all_end(SOON), "the job lives on");
        job.finish();
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn a_process_that_stops_at_the_moment_at_which_its_terminal_goes_away_ends() {
    let redis = Redis::start();
    // redlock needs some time to look at so many processes. Meanwhile the test closes the pipe, and the command stops
    // itself.
    let script = "for n in $(seq 60); do sleep 1000 & done; echo ready; read line; kill -STOP $$; wait";
    for _ in 0..12 {
        let (keys, screen) = terminal_of_its_own();
        let test = redlock(&redis, "run -q backup -- sh -c").arg(script).at_terminal(screen).signal(Signal::SIGHUP);
        let (job, pipe) = test.ready_to_read();
        eventually(SOON, "the whole tree exists", || job.job().len() == 61);
        let tree = Watched::new(&job.job());
        drop(keys);
        std::thread::sleep(Duration::from_micros(rand(3_000)));
        drop(pipe);
        assert!(tree.all_end(SOON), "the job lives on");
        job.finish();
    }
}

//! What surrounds a job: file descriptors, pipes, containers, service managers. Also the options `--on-lost` and
//! `--max-run`.

use crate::support::{
    Ended, Redis, Running, SOON, Test, acquire, alive, any, at_last, descendants, eventually, like, message, ms, name,
    release, run, send,
};
use nix::sys::signal::Signal;
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn our_descriptors_are_closed_in_the_job_and_the_users_are_open() {
    let redis = Redis::start();
    for opened in ["3>file 5<file 9>>file", "", "0<&-", "1>&- 3>file", "2>&-"] {
        // Standard output may be closed, so the list goes to a file.
        let list = "for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do if [ -e /proc/$$/fd/$fd ]; then echo $fd; fi; done >list";
        let direct = Test::sh(&redis, &format!("touch file; sh -c '{list}' {opened}; cat list"));
        let direct = direct.stdout(any()).run();
        let script = format!("touch file; redlock run -q --name backup -- sh -c '{list}' {opened}; cat list");
        Test::sh(&redis, &script).stdout(direct.stdout.as_str()).run();
    }
    let script =
        "redlock run -q --name backup -- sh -c 'echo written >&3; read line <&4; echo $line' 3>file 4<<.\nread\n.\n";
    let mut job = Test::sh(&redis, script).stdout("read\n").spawn();
    job.wait(SOON);
    let file = std::fs::read_to_string(job.path().join("file")).unwrap();
    assert_eq!(file, "written\n");
    job.finish();
}

#[test]
fn standard_input_is_the_jobs_alone() {
    let redis = Redis::start();
    let script = "redlock run -q --name backup -- head -c 2; cat";
    Test::sh(&redis, script).stdin("abcdef").stdout("abcdef").run();
}

#[test]
fn pipes_on_both_sides_end_as_without_redlock() {
    let redis = Redis::start();
    let script = "yes | redlock run -q --name backup -- head -1; echo $?";
    Test::sh(&redis, script).stdout("y\n0\n").run();
    // bash has PIPESTATUS.
    let script = "yes | redlock run -q --name backup -- head -1; echo ${PIPESTATUS[*]}; redlock run -q --name backup -- yes | head -1; echo ${PIPESTATUS[*]}";
    let bash = Test::program(&redis, "bash").args(["-c", script]);
    bash.stdout("y\n141 0\ny\n141 0\n").run();
    // The command closes its output, and goes on. The reader sees the end at once.
    let (reader, writer) = std::io::pipe().unwrap();
    let job = run(&redis, ["--", "sh", "-c", "echo line; exec >&- 2>&-; read x"]);
    let job = job.stdin_from(reader).status(1).spawn();
    job.prints("line");
    assert!(job.output_closes(SOON), "somebody else has it");
    drop(writer);
    job.finish();
}

#[test]
fn a_signal_just_before_the_command_starts_releases_the_lock() {
    let redis = Redis::start();
    for number in 0..40 {
        let test = run(&redis, ["--", "sh", "-c", "echo started; exec sleep 1000"]);
        let mut job = test.spawn();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(number * 500) {
            std::hint::spin_loop();
        }
        job.send(Signal::SIGTERM);
        assert_eq!(job.wait(SOON), Ended::Signal(Signal::SIGTERM as i32));
        eventually(SOON, "nobody is left", || job.others().is_empty());
        // The server may grant redlock's last request after redlock's end. The grant must then be undone.
        eventually(SOON, "it is free", || !redis.exists("redlock:backup"));
    }
}

/// redlock as process 1 of a container; None where no pid namespace can be made.
fn container(redis: &Redis, arguments: &[&str]) -> Option<Test> {
    let mut options = vec!["--pid", "--fork", "--mount-proc", "--kill-child"];
    if !nix::unistd::geteuid().is_root() {
        options.push("-r");
    }
    let probe = std::process::Command::new("unshare").args(&options).arg("true").output().unwrap();
    if !probe.status.success() {
        // The harness would capture the line of an eprintln!.
        let text = "not tried: redlock as process 1, for this machine lets nobody make a pid namespace\n";
        std::io::stderr().write_all(text.as_bytes()).unwrap();
        return None;
    }
    let redlock = [env!("CARGO_BIN_EXE_redlock"), "run", "-q", "--name", "backup"];
    let test = Test::program(redis, "unshare").args(options);
    Some(test.args(redlock).args(arguments))
}

/// As seen from the outside.
#[track_caller]
fn inside(container: &Running) -> u32 {
    let mut below = descendants(container.pid()).into_iter();
    below.find(|&pid| name(pid) == "redlock").unwrap()
}

#[test]
fn as_process_1_it_reaps_orphans() {
    let redis = Redis::start();
    // Forty orphans end; none of them may be left as a zombie.
    let script = "test $(cut -d' ' -f4 /proc/$PPID/stat) = 1 || echo not below process 1; \
         n=0; while [ $n -lt 20 ]; do (true & ) ; (setsid true &); n=$((n+1)); done; \
         until ! grep -q '^State:.Z' /proc/[0-9]*/status 2>/dev/null; do sleep 0.01; done; echo clean; exit 6";
    if let Some(test) = container(&redis, &["--", "sh", "-c", script]) {
        test.status(6).stdout("clean\n").run();
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn as_process_1_it_forwards_signals_and_exits_with_128_and_the_signal() {
    let redis = Redis::start();
    // The shell may report on standard error that its child was terminated.
    let script = "exec 2>/dev/null; trap 'echo usr1' USR1; trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    if let Some(test) = container(&redis, &["--", "sh", "-c", script]) {
        let job = test.status(7).ready();
        send(inside(&job), Signal::SIGUSR1);
        job.prints("usr1");
        send(inside(&job), Signal::SIGTERM);
        job.prints("term");
        job.finish();
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let script = "echo $$; exec sleep 1000";
        let Some(test) = container(&redis, &["--", "sh", "-c", script]) else {
            return;
        };
        let job = test.status(128 + signal as i32).spawn();
        job.stdout_line();
        let redlock = inside(&job);
        if signal == Signal::SIGKILL {
            let mut below = descendants(redlock).into_iter();
            let sleeper = below.find(|&pid| name(pid) != "redlock-keeper");
            eventually(SOON, "it sleeps", || name(sleeper.unwrap()) == "sleep");
            send(sleeper.unwrap(), signal);
        } else {
            send(redlock, signal);
        }
        job.finish();
        assert!(!redis.exists("redlock:backup"));
    }
}

#[test]
fn as_process_1_the_whole_job_dies_with_its_lease() {
    let redis = Redis::start();
    let script = "(setsid sleep 1000 &); echo ready; sleep 1000";
    if let Some(test) = container(&redis, &["--ttl", "4s", "--node-timeout", "2s", "--", "sh", "-c", script]) {
        let job = test.status(76).stderr(at_last(message(["lost \"backup\"", "job stopped"]))).ready();
        let all = descendants(inside(&job));
        redis.command(&["DEL", "redlock:backup"]);
        job.finish();
        assert!(!all.into_iter().any(alive));
    }
}

#[test]
fn a_stop_that_signals_every_process_of_the_unit_ends_cleanly() {
    let redis = Redis::start();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let script = "exec 2>/dev/null; setsid -f sleep 1000; echo ready; sleep 1000; exit 3";
        let job = run(&redis, ["--", "bash", "-c", script]).signal(signal).ready();
        let asleep = || job.job().into_iter().filter(|&pid| name(pid) == "sleep");
        eventually(SOON, "all exist", || asleep().count() == 2);
        let keeper = job.keeper();
        // The keeper gets the signal first, which is the worst case.
        let mut all = job.others();
        all.sort_by_key(|&pid| pid != keeper);
        all.push(job.pid());
        for pid in all {
            send(pid, signal);
        }
        job.finish_whole();
        assert!(!redis.exists("redlock:backup"), "released");
    }
}

#[test]
fn what_a_service_manager_passes_on_reaches_the_command() {
    let redis = Redis::start();
    let show = "echo $LISTEN_FDS $LISTEN_FDNAMES $NOTIFY_SOCKET $WATCHDOG_USEC; read line <&3; echo $line";
    let script = format!(
        "echo passed >file; export LISTEN_FDS=1 LISTEN_FDNAMES=web NOTIFY_SOCKET=/run/notify WATCHDOG_USEC=5; \
         exec redlock run -q --name backup -- sh -c '{show}' 3<file"
    );
    Test::sh(&redis, &script).stdout("1 web /run/notify 5\npassed\n").run();
}

#[test]
fn a_notification_from_the_job_arrives() {
    let redis = Redis::start();
    let test = run(&redis, ["--", "bash", "-c", "echo READY=1 >\"$NOTIFY_SOCKET\""]);
    let path = test.directory().path().join("notify");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = std::thread::spawn({
        let path = path.clone();
        move || std::fs::read_to_string(path).unwrap()
    });
    test.env("NOTIFY_SOCKET", path).run();
    assert_eq!(reader.join().unwrap(), "READY=1\n");
}

#[test]
fn on_lost_continue_lets_the_job_go_on_in_an_outage() {
    let mut redis = Redis::start();
    let script = "trap 'echo term' TERM; echo ready; read line; echo $line";
    let options = ["--ttl", "4s", "--node-timeout", "2s", "--on-lost", "continue", "--", "sh", "-c", script];
    let job = run(&redis, options).status(76);
    let (job, mut writer) = job.stdout("done\n").ready_to_read();
    redis.kill();
    let warning = "redlock: lost \"backup\": <any>; the job continues without the lock";
    job.says(like(warning));
    // The time for SIGKILL has passed, and redlock has not even sent SIGTERM to the job.
    writer.write_all(b"done\n").unwrap();
    job.finish();
}

#[test]
fn max_run_does_not_count_the_wait() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let job = run(&redis, ["--max-run", "300ms", "--wait", "--", "echo", "in time"]);
    let job = job.stdout("in time\n").spawn();
    std::thread::sleep(ms(500)); // the wait
    release(&redis, "backup", &token);
    job.finish();
}

#[test]
fn a_file_that_is_full_behind_standard_error_ends_neither_redlock_nor_its_job() {
    let redis = Redis::start();
    // The file already has the largest permitted size, half a kilobyte. SIGXFSZ has its usual effect in the job.
    let script = "head -c 512 /dev/zero >err; ulimit -f 1; redlock run --name backup --ttl 4s --node-timeout 2s -- \
         sh -c 'sleep 2; sed -n s/SigIgn:.//p /proc/self/status >&3' 2>>err 3>&1";
    let ignored = Test::sh(&redis, script).stdout(any()).run().stdout;
    let ignored = u64::from_str_radix(ignored.trim_end(), 16).unwrap();
    assert_eq!(ignored & 1 << (Signal::SIGXFSZ as i32 - 1), 0);
    assert!(!redis.exists("redlock:backup"), "released");
}

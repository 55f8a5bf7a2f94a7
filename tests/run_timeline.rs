//! The job is dead before its lease can expire on the server, whatever happens to server, redlock and machine.
//!
//! redlock is cut off by a proxy, and the server itself is asked after the cut when the key will expire: nothing that redlock
//! sends arrives there any more, its release neither, and the last process must be seen dead before that moment.

use crate::support::{
    Mode, Proxy, Redis, Running, SOON, Test, Watched, alive, any, eventually, ms, send, stopped, when,
};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use std::io::{PipeReader, PipeWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Two threads that do nothing as fast as they can: both cores are busy. One test at a time has them.
struct Busy {
    stop: Arc<AtomicBool>,
    _alone: MutexGuard<'static, ()>,
}

impl Busy {
    fn start() -> Busy {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Busy { stop, _alone: alone }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What else goes wrong when the server is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Besides {
    Nothing,
    /// The job does not react to SIGTERM.
    Deaf,
    /// redlock is stopped at the same moment.
    Stopped,
    /// Nobody reads redlock's standard error, and there is no room in it.
    FullStderr,
}

/// Milliseconds since 1970.
fn clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// A pipe that takes nothing more, to be had in blocking mode by whoever gets its end.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    for chunk in [4096, 1] {
        while writer.write(&vec![b'x'; chunk]).is_ok() {}
    }
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    (reader, writer)
}

/// One job whose server is cut off `after` it was ready. Returns how many milliseconds of its lease were left on the server when its last
/// process was dead; none when the machine was too busy to start it in time.
fn cut_off(redis: &Redis, number: usize, besides: Besides, after: Duration) -> Option<i64> {
    let lock = format!("lock-{number}");
    let proxy = Proxy::new(redis, Mode::Pass);
    let trap = match besides {
        Besides::Deaf => "trap '' TERM; ",
        _ => "",
    };
    let script = format!("{trap}(setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000");
    let full = full_pipe();
    let mut test = Test::new(&proxy)
        .args(["run", "-v", "--name", &lock, "--ttl", "1s"])
        .args(["--", "sh", "-c", &script])
        .status(76)
        .stdout("ready\n")
        .stderr(any());
    if besides == Besides::FullStderr {
        test = test.stderr_to(full.1.try_clone().unwrap());
    }
    let key = format!("redlock:{lock}");
    let mut connection = redis.connection();
    let mut pttl = || -> i64 { redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap() };
    let job = test.spawn();
    if !ready(&job) {
        return None;
    }
    let redlock = job.pid();
    let watched = Watched::new(&job.job());
    std::thread::sleep(after); // any moment of its life will do
    proxy.set(Mode::BlackHole);
    if besides == Besides::Stopped {
        send(redlock, Signal::SIGSTOP);
    }
    // What was on its way arrives meanwhile; the job has several times that to live.
    std::thread::sleep(ms(60));
    // The server counts from some moment after the question, so that this is never too late, and seldom too early.
    let expires_at = (0..5).map(|_| clock() + pttl()).max().unwrap();
    assert!(watched.all_end(SOON), "{besides:?} after {after:?}: lives");
    let left = expires_at - clock();
    if besides == Besides::Stopped {
        assert!(stopped(redlock));
        send(redlock, Signal::SIGCONT);
    }
    // Nobody need wait for a server that will not answer.
    proxy.set(Mode::Cut);
    let tag = job.tag().to_owned();
    let finished = job.finish();
    assert!(crate::support::tagged(&tag).is_empty());
    assert!(left > 0, "{besides:?}, cut off after {after:?}: dead too late, {left} ms left; {}", finished.stderr);
    Some(left)
}

/// Whether the job came up, rather than too late for its lease on a very busy machine.
fn ready(job: &Running) -> bool {
    let is_ready = || job.all_stdout() == "ready\n";
    eventually(SOON, "it starts or fails", || is_ready() || !alive(job.pid()));
    if is_ready() {
        eventually(SOON, "all are there", || job.job().len() == 4);
    }
    is_ready()
}

/// So many jobs, six at a time, each cut off at another moment of the time between two renewals.
fn cut_off_many(all: &[Besides]) {
    let redis = Redis::with(&["--maxclients", "200"]);
    let _busy = Busy::start();
    let next = AtomicUsize::new(0);
    let lefts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(&besides) = all.get(number) else {
                        return;
                    };
                    // At least one renewal falls into this time.
                    let after = Duration::from_micros(rand(400_000));
                    let left = cut_off(&redis, number, besides, after);
                    lefts.lock().unwrap().push(left);
                }
            });
        }
    });
    let mut lefts: Vec<i64> = lefts.into_inner().unwrap().into_iter().flatten().collect();
    lefts.sort_unstable();
    eprintln!("{} jobs, least ms left: {:?}", lefts.len(), &lefts[..5.min(lefts.len())]);
    assert!(lefts.len() * 10 > all.len() * 9, "the machine is too busy");
}

/// A number below `limit`.
fn rand(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % limit
}

#[test]
fn a_job_is_dead_before_its_lease_expires_200_times_on_a_busy_machine() {
    let kinds = [Besides::Nothing, Besides::Deaf];
    cut_off_many(&kinds.repeat(100));
}

#[test]
fn so_it_is_when_redlock_is_stopped_or_its_standard_error_is_full() {
    let kinds = [Besides::Stopped, Besides::FullStderr];
    cut_off_many(&kinds.repeat(15));
}

#[test]
fn one_black_holed_request_is_survived_at_short_ttls() {
    for (ttl, rounds) in [("500ms", 4), ("1s", 3)] {
        // A machine that is so busy that further requests take too long shows nothing about this one.
        let shown = (0..10).any(|_| survives_black_holes(ttl, rounds));
        assert!(shown, "the machine is too busy for a ttl of {ttl}");
    }
}

/// Whether each of so many single requests was swallowed, and the lease survived. On a machine that is so busy that the tries
/// after one of them take longer than 50 ms too, it does not always; with too few tries it never would.
fn survives_black_holes(ttl: &str, rounds: usize) -> bool {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let (reader, writer) = std::io::pipe().unwrap();
    let test = Test::new(&proxy).args(["run", "-v", "--name", "backup", "--ttl", ttl]);
    let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
    let test = test.stdin_from(reader).stderr(any()).any_end();
    let mut job = test.spawn();
    job.prints("ready");
    let token = redis.get("redlock:backup");
    let failures = |text: &str| text.matches("cannot renew \"backup\" yet").count();
    for _ in 0..rounds {
        let before = proxy.requested();
        proxy.set(Mode::BlackHole);
        eventually(SOON, "a renewal is swallowed", || proxy.requested() > before || job.has_ended());
        let low = redis.pttl("redlock:backup");
        proxy.set(Mode::Pass);
        eventually(SOON, "it is renewed", || redis.pttl("redlock:backup") > low || job.has_ended());
        if job.has_ended() {
            return false;
        }
        assert_eq!(redis.get("redlock:backup"), token);
    }
    drop(writer);
    // Of those that were swallowed one may have got through just before.
    failures(&job.finish().stderr) >= rounds
}

#[test]
fn who_sleeps_through_the_end_of_the_lease_stops_the_job_at_once_on_waking() {
    let redis = Redis::start();
    // The machine cannot be put to sleep here. To stop everybody who is concerned is the same but for the clock, and that
    // the keeper's timer is on one that counts time asleep, another test shows.
    let script = "trap 'echo term' TERM; echo ready; while :; do sleep 0.01; done";
    let test = Test::new(&redis).args(["run", "-q", "--name", "backup", "--ttl", "1s"]);
    let test = test.args(["--", "bash", "-c", script]).status(76);
    let late = when("says that it was late", |text| {
        text.contains("; job stopped ") && text.contains(" after the lease could expire")
    });
    let job = test.stderr(late).spawn();
    job.prints("ready");
    let keeper = job.keeper();
    let (mut all, members) = (job.others(), Watched::new(&job.job()));
    all.push(job.pid());
    for &pid in &all {
        send(pid, Signal::SIGSTOP);
    }
    eventually(SOON, "expired", || !redis.exists("redlock:backup"));
    // The job first, so that it could go on if it were let.
    all.sort_by_key(|&pid| pid == keeper);
    let woken = Instant::now();
    for &pid in &all {
        send(pid, Signal::SIGCONT);
    }
    assert!(members.all_end(SOON));
    assert!(woken.elapsed() < ms(200), "{:?}", woken.elapsed());
    // No grace, for there is no lease: nothing says "term".
    job.finish();
}

#[test]
fn a_command_that_would_start_too_late_is_not_started() {
    let redis = Redis::start();
    // The answer takes longer than a third of the ttl, which is when the first renewal would be due.
    let proxy = Proxy::new(&redis, Mode::Delay(ms(110)));
    crate::support::teach_scripts(&redis);
    let test = Test::new(&proxy).args(["run", "--name", "backup", "--ttl", "500ms"]);
    let test = test.args(["--", "echo", "started"]).status(69);
    test.stderr(any()).run();
    eventually(SOON, "given back", || !redis.exists("redlock:backup"));
}

#[test]
fn a_redlock_that_hangs_for_a_while_goes_on_if_its_lease_does() {
    let redis = Redis::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let test = Test::new(&redis).args(["run", "-q", "--name", "backup", "--ttl", "3s"]);
    let test = test.args(["--", "sh", "-c", "echo ready; read line; exit 5"]);
    let job = test.stdin_from(reader).status(5).spawn();
    job.prints("ready");
    send(job.pid(), Signal::SIGSTOP);
    eventually(SOON, "a renewal is late", || redis.pttl("redlock:backup") < 1_700);
    send(job.pid(), Signal::SIGCONT);
    eventually(SOON, "made up for", || redis.pttl("redlock:backup") > 2_500);
    drop(writer);
    job.finish();
}

#[test]
fn a_job_that_says_nothing_and_hears_nothing_is_killed_while_redlock_is_stopped() {
    let redis = Redis::start();
    let script = "trap '' TERM INT HUP; setsid -f sleep 1000; echo ready; while :; do sleep 0.01; done";
    let test = Test::new(&redis).args(["run", "-q", "--name", "backup", "--ttl", "1s"]);
    let job = test.args(["--", "sh", "-c", script]).status(76);
    let job = job.stderr(any()).spawn();
    job.prints("ready");
    let mut connection = redis.connection();
    send(job.pid(), Signal::SIGSTOP);
    eventually(SOON, "the job is dead", || job.job().is_empty());
    let key: bool = redis::cmd("EXISTS").arg("redlock:backup").query(&mut connection).unwrap();
    assert!(key, "it lived longer than its lease");
    send(job.pid(), Signal::SIGCONT);
    job.finish();
}

#[test]
fn the_keeper_costs_next_to_nothing() {
    let redis = Redis::start();
    let test = Test::new(&redis).args(["run", "-q", "--name", "backup", "--", "sh", "-c"]);
    let job = test.arg("echo ready; exec sleep 1000").any_end().spawn();
    job.prints("ready");
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", job.keeper())).unwrap();
    let own = rollup.lines().filter(|line| line.starts_with("Private_"));
    let own: u64 = own.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum();
    // What it does not share with redlock. Measured with the release build: less than 300 kB.
    assert!(own <= 512, "{own} kB\n{rollup}");
}

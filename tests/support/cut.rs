//! Jobs whose server is lost: how long before the lease's end is the last process of the job dead?
//!
//! A proxy cuts redlock off: after the cut, nothing that redlock sends arrives, not even a release. The test asks the
//! server when the lock's key will expire, and the last process of the job must be dead by then. If the server is
//! stopped instead of cut off, the test asks just before the stop.

use super::{
    Mode, Proxy, Redis, Running, SOON, Test, Watched, alive, any, descendants, eventually, full_pipe, ms, rand, send,
    stopped,
};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What else goes wrong when the server is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Besides {
    Nothing,
    /// The job ignores SIGTERM.
    Deaf,
    /// redlock is stopped (SIGSTOP) right after the cut.
    Stopped,
    /// redlock's standard error is a full pipe, which nobody reads.
    FullStderr,
    /// SIGKILL follows SIGTERM at once.
    NoGrace,
    /// The keeper is stopped (SIGSTOP) as soon as the first process of the job has died.
    KeeperStopped,
}

fn clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// One job whose server is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// In milliseconds.
    pub(crate) ttl: u64,
    /// 0 stands for four processes, one of them an orphan in a session of its own.
    pub(crate) processes: usize,
    /// Each process of the job but the first is a child of the one before it, in a session of its own. Without effect
    /// if `processes` is 0.
    pub(crate) line: bool,
    pub(crate) besides: Besides,
    /// The server's process is stopped. Otherwise the server works, but the proxy cuts redlock off.
    pub(crate) server_stopped: bool,
}

impl Cut {
    /// A job of four processes. At a ttl of 10 s, the margin between KILL and the end of validity is as large as it
    /// gets: one second, within which even a slow machine kills the job.
    pub(crate) const SMALL: Cut =
        Cut { ttl: 10_000, processes: 0, line: false, besides: Besides::Nothing, server_stopped: false };

    /// Starts a job under the lock `lock-NUMBER`, and takes the server away when the job has been ready for `after`.
    /// Returns the milliseconds from the death of the job's last process to the expiry of the lock's key, negative if
    /// the key expired first. None: the machine was too busy to start the job before the lease ended.
    fn make(self, redis: &Redis, number: usize, after: Duration) -> Option<i64> {
        let lock = format!("lock-{number}");
        let proxy = Proxy::new(redis, Mode::Pass);
        let script = match (self.processes, self.besides) {
            (0, Besides::Deaf | Besides::Stopped) => {
                "trap '' TERM; (setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000".to_owned()
            }
            (0, _) => "(setsid sleep 1000 &); sleep 1000 & echo ready; sleep 1000".to_owned(),
            (count, _) if self.line => format!(
                "exec 3<&0; LINE='trap \"\" TERM; if [ $1 -gt 1 ]; then setsid sh -c \"$LINE\" sh $(($1-1)) & \
                 else echo ready; fi; read line <&3; sleep 1000'; export LINE; set -- {count}; eval \"$LINE\""
            ),
            // The processes are forks of one shell, and wait for input, because executing a program for each would take
            // too long.
            (count, _) => format!(
                "trap '' TERM; exec 3<&0; n=1; while [ $n -lt {count} ]; do read line <&3 & n=$((n+1)); done; \
                 echo ready; read line; sleep 1000"
            ),
        };
        let full = full_pipe();
        let input = std::io::pipe().unwrap();
        let mut test = Test::new(&proxy)
            .args(["run", "-v", "--name", &lock, "--ttl", &format!("{}ms", self.ttl)])
            .args(if self.besides == Besides::NoGrace { &["--kill-after", "1ms"][..] } else { &[] })
            .args(["--", "sh", "-c", &script])
            .status(76)
            .stdin_from(input.0)
            .stdout("ready\n")
            // The messages of redlock and of the job's shells depend on what is stopped, and when.
            .stderr(any());
        if self.besides == Besides::FullStderr {
            test = test.stderr_to(full.1.try_clone().unwrap());
        }
        let key = format!("redlock:{lock}");
        let mut connection = redis.connection();
        let mut pttl = || -> i64 { redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap() };
        let job = test.spawn();
        if !ready(&job, self.processes) {
            return None;
        }
        let (redlock, keeper) = (job.pid(), job.keeper());
        let watched = Watched::new(if self.processes == 0 { job.job() } else { Vec::new() }.as_slice());
        std::thread::sleep(after); // any moment of its life will do
        let expires_at = if self.server_stopped {
            // A stopped server does not answer. So the test asks for the key's time left just before the stop, while no
            // renewal is due.
            let quiet = i64::try_from(self.ttl * 3 / 4 + 30).unwrap();
            let (asked, left) = loop {
                let (asked, left) = (clock(), pttl());
                if left > quiet || left < 0 {
                    break (asked, left);
                }
                std::thread::sleep(ms(2));
            };
            redis.pause();
            asked + left
        } else {
            proxy.set(Mode::BlackHole);
            // Requests that have passed the proxy before the cut arrive at the server during this pause.
            std::thread::sleep(ms(60));
            // Each sum estimates when the key expires. The server answers after `clock()`, so a sum may be a little too
            // small, but never too large: the largest is the best.
            (0..5).map(|_| clock() + pttl()).max().unwrap()
        };
        if self.besides == Besides::Stopped {
            send(redlock, Signal::SIGSTOP);
        }
        let patience = ms(self.ttl) + SOON;
        let (ended, at) = urgently(|| {
            if self.besides == Besides::KeeperStopped {
                let command = Watched::new(&descendants(keeper)[..1]);
                assert!(command.all_end(patience), "{self:?} after {after:?}: is not killed");
                send(keeper, Signal::SIGSTOP);
            }
            let ended = match self.processes {
                0 => watched.all_end(patience),
                // The job has too many processes for a descriptor of each. But only the job reads this pipe: once the
                // pipe has no reader, all processes of the job are dead.
                _ => nobody_reads(&input.1, patience),
            };
            (ended, clock())
        });
        assert!(ended, "{self:?} after {after:?}: lives");
        let left = expires_at - at;
        eventually(SOON, "nobody else of the job is left", || job.job().is_empty());
        if self.besides == Besides::Stopped {
            assert!(stopped(redlock));
            send(redlock, Signal::SIGCONT);
        }
        // This closes redlock's connections, so that it does not wait for answers that will not come.
        proxy.set(Mode::Cut);
        if self.server_stopped {
            redis.resume();
        }
        let finished = job.finish_whole();
        eprintln!("{self:?} after {after:?}: {left} ms left");
        // redlock reports a death as late if it notices the death after the end of the validity, which is 1 % of the
        // ttl and 2 ms (the drift) before the key expires. While the keeper is stopped, redlock may need ttl/25 to
        // notice a death. So only a death more than ttl/25 before the end of the validity is surely not reported as
        // late.
        let surely_in_time =
            self.besides == Besides::KeeperStopped && left > i64::try_from(self.ttl / 100 + 2 + self.ttl / 25).unwrap();
        let reported_late = finished.stderr.contains("after the lease could expire");
        assert!(!(surely_in_time && reported_late), "{left} ms left: {}", finished.stderr);
        if left <= 0 {
            eprintln!("too late; {}", finished.stderr);
        }
        Some(left)
    }
}

/// Runs `look` with the highest priority, where permitted. With a low one, `look` might notice a death long after it.
fn urgently<T>(look: impl FnOnce() -> T) -> T {
    // SAFETY: takes three numbers and touches no memory; on Linux it is about this thread alone.
    let hurry = |nice| unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    let permitted = hurry(-20) == 0;
    let seen = look();
    if permitted {
        hurry(0);
    }
    seen
}

fn nobody_reads(writer: &PipeWriter, deadline: Duration) -> bool {
    let mut broken = [PollFd::new(writer.as_fd(), PollFlags::empty())];
    poll(&mut broken, PollTimeout::try_from(deadline).unwrap()) == Ok(1)
}

/// Waits until the job is ready. False if redlock ended first: on a very busy machine, the lease may end before.
fn ready(job: &Running, processes: usize) -> bool {
    let is_ready = || job.all_stdout() == "ready\n";
    eventually(SOON, "it starts or fails", || is_ready() || !alive(job.pid()));
    if is_ready() && processes == 0 {
        eventually(SOON, "all exist", || job.job().len() == 4);
    }
    is_ready()
}

/// Makes these cuts, each at a random moment, `at_once` of them in parallel. Every job must be dead before the lock's
/// key expires.
#[track_caller]
pub(crate) fn cut_off_many(all: &[Cut], at_once: usize) {
    let next = AtomicUsize::new(0);
    let lefts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                // A server for each thread, because a thread that stops its server must not hit the job of another
                // thread.
                let redis = Redis::with(&["--maxclients", "200"]);
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    let Some(&cut) = all.get(number) else {
                        return;
                    };
                    // From 0 to 0.4 ttl: the first renewal, at ttl/4, falls into this range.
                    let after = Duration::from_micros(rand(cut.ttl * 400));
                    let left = cut.make(&redis, number, after);
                    lefts.lock().unwrap().push(left);
                }
            });
        }
    });
    let mut lefts: Vec<i64> = lefts.into_inner().unwrap().into_iter().flatten().collect();
    lefts.sort_unstable();
    assert!(lefts.len() * 10 > all.len() * 9, "the machine is too busy: {} of {}", lefts.len(), all.len());
    let (least, median) = (lefts[0], lefts[lefts.len() / 2]);
    let line = format!("{} jobs like {:?}: least {least} ms left, median {median} ms", lefts.len(), all[0]);
    eprintln!("{line}");
    assert!(least > 0, "dead too late: {line}; {:?}", &lefts[..5.min(lefts.len())]);
}

//! One call of redlock under attack: started, perhaps killed or stopped at some moment, and waited for.

use crate::support::{Chance, alive, descendants, name, send};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The victim of a mishap. None hits both redlock and the keeper, because nothing would then stop the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Redlock,
    Keeper,
    /// The first process of the job.
    Job,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Signal(Signal),
    Stop(Duration),
}

/// `after`: from the call's start to the mishap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mishap {
    pub(super) whom: Whom,
    pub(super) how: How,
    after: Duration,
}

impl Mishap {
    /// Most calls have no mishap.
    pub(super) fn draw(chance: &mut Chance) -> Option<Mishap> {
        if chance.percent(82) {
            return None;
        }
        let stop = How::Stop(chance.time(20, 4500));
        let kill = How::Signal(Signal::SIGKILL);
        let polite = How::Signal(chance.one_of(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP]));
        let (whom, how) = chance.weighted(&[
            (5, (Whom::Redlock, stop)),
            (4, (Whom::Redlock, kill)),
            (4, (Whom::Redlock, polite)),
            (3, (Whom::Keeper, stop)),
            (3, (Whom::Keeper, kill)),
            (2, (Whom::Job, stop)),
            (2, (Whom::Job, kill)),
        ]);
        Some(Mishap { whom, how, after: chance.time(0, 900) })
    }
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// What has hit the call.
    pub(super) mishap: Option<Mishap>,
}

impl End {
    /// The status as a shell reports it: more than 128 after a signal. -1: the call was killed at the limit.
    pub(super) fn code(&self) -> i32 {
        self.status.map_or(-1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap()))
    }
}

/// Makes the call in this directory, with its output in the files `number.out` and `number.err`, and waits for its end.
/// A call that lasts longer than `limit` is killed.
pub(super) fn call(
    mut command: Command,
    environment: &BTreeMap<&'static str, String>,
    (directory, number): (&Path, usize),
    mishap: Option<Mishap>,
    limit: Duration,
) -> End {
    let files = ["out", "err"].map(|kind| directory.join(format!("{number}.{kind}")));
    let [out, err] = files.each_ref().map(|file| File::create(file).unwrap());
    command.env_clear().envs(environment).current_dir(directory).stdin(Stdio::null()).stdout(out).stderr(err);
    // SAFETY: only async-signal-safe calls.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            signal(Signal::SIGINT, SigHandler::SigDfl)?;
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let (status, mishap) = attend(&mut child, mishap, limit);
    let [stdout, stderr] = files.map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned());
    End { status, stdout, stderr, mishap }
}

/// Carries out the mishap, and waits for the end of the call. At the limit the call is killed, which leaves no status,
/// but not while the victim is stopped.
fn attend(child: &mut Child, mut mishap: Option<Mishap>, limit: Duration) -> (Option<ExitStatus>, Option<Mishap>) {
    let (start, pid) = (Instant::now(), child.id());
    let (mut happened, mut thaws): (_, Option<(u32, Instant)>) = (None, None);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            // The victim may be a keeper that has outlived redlock, and is still stopped.
            if let Some((victim, _)) = thaws {
                send(victim, Signal::SIGCONT);
            }
            return (Some(status), happened);
        }
        if let Some(due) = mishap.filter(|one| start.elapsed() >= one.after) {
            // If the victim (the keeper or the job) does not exist yet, the mishap comes in a later turn of the loop.
            if let Some(victim) = find(pid, due.whom) {
                happened = mishap.take();
                match due.how {
                    How::Signal(signal) => send(victim, signal),
                    How::Stop(lasts) => {
                        send(victim, Signal::SIGSTOP);
                        thaws = Some((victim, Instant::now() + lasts));
                    }
                }
            }
        }
        if let Some((victim, _)) = thaws.filter(|one| Instant::now() >= one.1) {
            send(victim, Signal::SIGCONT);
            thaws = None;
        }
        if start.elapsed() > limit && thaws.is_none() {
            let mut all = descendants(pid);
            let _ = child.kill();
            all.retain(|&pid| alive(pid));
            all.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
            let _ = child.wait();
            return (None, happened);
        }
        std::thread::sleep(Duration::from_millis(if start.elapsed() < Duration::from_millis(40) { 2 } else { 8 }));
    }
}

fn find(redlock: u32, whom: Whom) -> Option<u32> {
    if whom == Whom::Redlock {
        return Some(redlock);
    }
    let keeper = descendants(redlock).into_iter().find(|&pid| name(pid) == "redlock-keeper")?;
    match whom {
        Whom::Keeper => Some(keeper),
        _ => descendants(keeper).first().copied(),
    }
}

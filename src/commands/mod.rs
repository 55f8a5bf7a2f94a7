//! One file for each command of `redlock`: a task becomes calls of the lock, and their result becomes output.

mod acquire;
mod completions;
mod extend;
mod release;
mod run;
mod status;
mod wait;

use crate::exit::Exit;
use crate::plan::Task;
use crate::sys::{inherited, stdio};
use nix::sys::signal::Signal;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Carries a task out.
///
/// # Errors
/// Whatever kept it from being done; the exit status follows from it.
pub(crate) fn carry_out(task: Task) -> anyhow::Result<Exit> {
    match task {
        Task::Run(plan) => run::run(*plan),
        Task::Acquire(plan) => acquire::run(plan),
        Task::Extend(plan) => extend::run(plan),
        Task::Release(plan) => release::run(plan),
        Task::Status(plan) => status::run(plan),
        Task::Await(plan) => wait::run(plan),
        Task::Completions(shell) => completions::run(shell),
    }
}

/// Tells something that is not a result.
fn talk(text: &str) {
    stdio::say(&format!("redlock: {text}"));
}

/// Ctrl-C for the commands that hold nothing: they only have to leave the terminal as it was.
struct Watch(Receiver<()>);

impl Watch {
    fn start() -> anyhow::Result<Watch> {
        let (sender, interrupted) = mpsc::channel();
        Watch::on_interrupt(move |_| {
            // Nobody listens any more when we are about to end anyway.
            let _ = sender.send(());
        })?;
        Ok(Watch(interrupted))
    }

    /// Calls `told` on Ctrl-C, unless it was ignored when we were started (`&` in a script).
    fn on_interrupt(told: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
        if !inherited::is_ignored(Signal::SIGINT as i32) {
            ctrlc::set_handler(move || told(Signal::SIGINT as i32))?;
        }
        Ok(())
    }

    fn interrupted_within(&self, time: Duration) -> Option<Exit> {
        match self.0.recv_timeout(time) {
            Ok(()) => Some(Exit::Signal(Signal::SIGINT as i32)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(time); // Ctrl-C is ignored
                None
            }
        }
    }
}

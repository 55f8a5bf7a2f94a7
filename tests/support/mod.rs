//! The tools of the tests: real servers, calls that fail the test at any unexpected output, proxies that misbehave,
//! waits with a deadline. They know the form that all messages of redlock have, and the words of a few messages.

mod browser;
mod chance;
mod cluster;
mod command;
mod compiled;
mod cut;
mod endless;
mod expect;
mod faults;
#[cfg(test)]
mod harness;
mod lock;
mod machine;
mod monitor;
mod needs;
mod network;
mod process;
mod proxy;
mod pty;
mod queue;
mod redis;
mod running;
mod sandbox;
mod sentinel;
mod slow;
mod tls;

pub(crate) use browser::Browser;
pub(crate) use chance::Chance;
pub(crate) use cluster::Cluster;
pub(crate) use command::{Ended, Finished, Test, redlock};
pub(crate) use compiled::{compiled, static_binary};
pub(crate) use cut::{Besides, Cut, cut_off_many};
pub(crate) use endless::Endless;
pub(crate) use expect::{Pattern, any, like, regex, when};
pub(crate) use faults::{Caller, EPOLL_WAIT, Fault, Faults, Moment, POLL};
pub(crate) use lock::{
    acquire, acquire_for, acquire_on_all, at_last, eventually_on_none, fencing_token, in_the_end, is_renewed, job,
    key_is_renewed, lapsed, loss, lost, message, myself, perhaps, permit, release, restarted, run, several, status,
    teach_scripts,
};
pub(crate) use machine::{
    Busy, UNPRIVILEGED, full_pipe, full_socket, full_terminal, has_module, namespace, rand, rounds, with_etc,
};
pub(crate) use monitor::{Monitor, command_calls, reset_command_calls};
pub(crate) use needs::{cannot_start, needs};
pub(crate) use network::Network;
pub(crate) use process::{
    Watched, alive, descendants, die_with_parent, name, send, sleeps, status_line, stopped, tagged,
};
pub(crate) use proxy::{Break, Mode, Proxy};
pub(crate) use pty::Terminal;
pub(crate) use queue::{Contenders, Line, Numbered, processor_time};
pub(crate) use redis::{Redis, Where, free_port, other_clocks};
pub(crate) use running::Running;
pub(crate) use sentinel::Sentinels;
pub(crate) use slow::Slow;
pub(crate) use tls::{Authority, Certificate, Tls};

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a test waits for something that should happen at once: the machine may be busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Polls `condition`. If it is not true within `deadline`, the test fails with the text `what`.
#[track_caller]
pub(crate) fn eventually(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        let looked = Instant::now();
        if condition() {
            return;
        }
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        // `condition` may take much of the machine's time: /proc, for example, is large on a busy machine. So the pause
        // is as long as the call took, and at least 2 ms.
        std::thread::sleep(looked.elapsed().max(Duration::from_millis(2)));
    }
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// How long this machine takes now to run a command that does nothing: the longest of five measurements.
pub(crate) fn slowness() -> Duration {
    let time = |_| {
        let start = Instant::now();
        assert!(Command::new("true").status().unwrap().success());
        start.elapsed()
    };
    (0..5).map(time).max().unwrap()
}

/// A directory, deleted on drop. Its path is short, because that of a Unix socket has at most 107 bytes.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("redlock-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Directory(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn at(path: &Path) -> Directory {
        std::fs::create_dir(path).unwrap();
        Directory(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    #[track_caller]
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes a file that can be executed at once. That is impossible while any process has it open for writing, so a
    /// child writes it, whose open files the children of other tests do not inherit.
    #[track_caller]
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut install = Command::new("install");
        let mut install = install.args(["-m", "755", "/dev/stdin"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
        install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(install.wait().unwrap().success());
        path
    }

    /// A command that may be executed, but cannot start because its interpreter does not exist.
    pub(crate) fn without_interpreter(&self) -> String {
        self.program("without-interpreter", "#!/no/such/interpreter\n").to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

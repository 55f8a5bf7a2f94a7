//! One call of redlock, and what must be true of the call with any input.

use crate::support::{Directory, Redis};
use nix::sys::resource::{Resource, setrlimit};
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The statuses that README lists, without 70, those of signals, and 2 and 3 (for Nagios only).
const STATUSES: [i32; 12] = [0, 1, 64, 69, 74, 75, 76, 77, 78, 124, 126, 127];
const LIMIT: Duration = Duration::from_secs(30);
/// The address space of a call, in bytes: 16 times the longest reply that redlock reads.
const MEMORY: u64 = 64 << 20;

/// A server, a home directory and a count of calls, for trials that run one after the other.
pub(super) struct Ground {
    pub(super) redis: Redis,
    directory: Directory,
    calls: Cell<usize>,
}

pub(super) struct Output {
    pub(super) status: i32,
    pub(super) stdout: String,
}

impl Ground {
    pub(super) fn new() -> Ground {
        Ground { redis: Redis::start(), directory: Directory::new(), calls: Cell::new(0) }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.get()
    }

    pub(super) fn home(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Calls redlock with these arguments and variables, and checks status, output and time.
    #[track_caller]
    pub(super) fn call(&self, arguments: &[OsString], environment: &[(OsString, OsString)]) -> Output {
        self.calls.set(self.calls.get() + 1);
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        command.args(arguments).env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin");
        command.envs(environment.iter().map(|(name, value)| (name, value))).current_dir(self.home());
        let files = ["out", "err"].map(|name| self.home().join(name));
        let [out, err] = files.each_ref().map(|file| File::create(file).unwrap());
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        // SAFETY: only async-signal-safe calls.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                Ok(setrlimit(Resource::RLIMIT_AS, MEMORY, MEMORY)?)
            });
        }
        let (start, mut child) = (Instant::now(), command.spawn().unwrap());
        let shown = || format!("{command:?}").chars().take(600).collect::<String>();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
            }
            if start.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("hangs: {}", shown());
            }
            std::thread::sleep(Duration::from_millis(if start.elapsed().as_millis() < 20 { 1 } else { 5 }));
        };
        let [stdout, stderr] = files.map(|file| std::fs::read(file).unwrap());
        let clean = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(obeyed));
        let is_listed =
            STATUSES.contains(&status) || [2, 3].contains(&status) && arguments.iter().any(|one| one == "nagios");
        assert!(is_listed, "status {status}: {}\n{}", shown(), String::from_utf8_lossy(&stderr));
        for (what, bytes) in [("standard output", &stdout), ("standard error", &stderr)] {
            assert!(clean(bytes), "{what} is not clean: {}\n{:?}", shown(), String::from_utf8_lossy(bytes));
        }
        let says_why = !stderr.is_empty() || !stdout.is_empty() || quiet(arguments);
        assert!(status < 2 || says_why, "ends with {status} and does not say why: {}", shown());
        Output { status, stdout: String::from_utf8(stdout).unwrap() }
    }
}

/// Whether a terminal obeys this character instead of showing it.
fn obeyed(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a call with these arguments may fail in silence.
fn quiet(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "-q" || argument == "--quiet" || argument == "-E")
}

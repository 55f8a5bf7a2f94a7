//! Builds one call of redlock, or of another program such as a shell script that calls redlock, in a clean environment.
//! Unless the test says otherwise, a call with a status other than 0, or with any output, fails the test.

use super::{Directory, Faults, Network, Pattern, Running, Where, compiled};
use nix::errno::Errno;
use nix::fcntl::{self, OFlag};
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::stat::Mode;
use nix::unistd::{self, Pid};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Status(i32),
    Signal(i32),
}

/// The end and the output of a call, without the lines that the test has read while the call was running.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) ended: Ended,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Finished {
    #[track_caller]
    pub(crate) fn token(&self) -> String {
        let token = self.stdout.strip_suffix('\n').unwrap();
        assert!(!token.is_empty() && !token.contains(char::is_whitespace), "no token: {:?}", self.stdout);
        token.to_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let line = self.stdout.strip_suffix('\n').expect("a line");
        assert!(!line.contains('\n'), "more than one line: {line}");
        serde_json::from_str(line).unwrap()
    }
}

/// A call that a test makes, and what the test expects of the call.
#[derive(Debug)]
pub(crate) struct Test {
    program: OsString,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    /// The working directory, which is also the home directory.
    directory: Arc<Directory>,
    tag: String,
    stdin: Option<Vec<u8>>,
    stdin_from: Option<Stdio>,
    stdout_to: Option<Stdio>,
    stderr_to: Option<Stdio>,
    /// The call leads a session whose controlling terminal is the call's standard error.
    at_terminal: bool,
    ignored: Vec<Signal>,
    blocked: Vec<Signal>,
    /// The numbers of the system calls that fail with EPERM in the processes of the call.
    refused: Vec<i64>,
    network: Option<Arc<Network>>,
    faults: Option<Arc<Faults>>,
    pub(super) expected: Expected,
}

/// The call `redlock LINE` on these servers; blanks separate the words of the line.
pub(crate) fn redlock<W: Where + ?Sized>(servers: &W, line: impl AsRef<str>) -> Test {
    Test::new(servers).args(line.as_ref().split_whitespace())
}

#[derive(Debug)]
pub(super) struct Expected {
    pub(super) ended: Option<Ended>,
    pub(super) stdout: Pattern,
    pub(super) stderr: Pattern,
    pub(super) deadline: Duration,
    pub(super) closes_output: bool,
}

impl Test {
    pub(crate) fn new<W: Where + ?Sized>(servers: &W) -> Test {
        let urls = servers.urls();
        let mut test = Test::bare().env("REDLOCK_REDIS", urls.join(","));
        test.environment.extend(servers.environment().into_iter().map(|(name, value)| (name.into(), value.into())));
        if urls.len() > 1 {
            // With a quarantine, servers that have just been started would have no vote.
            test = test.env("REDLOCK_QUARANTINE", "0");
        }
        test
    }

    /// A call of redlock without any setting that names a server.
    pub(crate) fn bare() -> Test {
        Test::of(env!("CARGO_BIN_EXE_redlock"))
    }

    /// A shell script, which finds redlock in its PATH and the servers in its environment.
    pub(crate) fn sh<W: Where + ?Sized>(servers: &W, script: &str) -> Test {
        Test::program(servers, "/bin/sh").args(["-c", script])
    }

    /// Another program with redlock in its PATH and the servers in its environment.
    pub(crate) fn program<W: Where + ?Sized>(servers: &W, program: &str) -> Test {
        let mut test = Test::new(servers);
        test.program = program.into();
        test
    }

    /// A call of this program in a clean environment, with redlock in its PATH, and without servers.
    pub(crate) fn of(program: impl AsRef<OsStr>) -> Test {
        let directory = Arc::new(Directory::new());
        let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_redlock")).parent().unwrap();
        let tag = uuid::Uuid::new_v4().to_string();
        let mut path = binaries.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut environment = BTreeMap::new();
        environment.insert("PATH".into(), path);
        environment.insert("HOME".into(), directory.path().into());
        environment.insert("TEST_TAG".into(), tag.clone().into());
        Test {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment,
            directory,
            tag,
            stdin: None,
            stdin_from: None,
            stdout_to: None,
            stderr_to: None,
            at_terminal: false,
            ignored: Vec::new(),
            blocked: Vec::new(),
            refused: Vec::new(),
            network: None,
            faults: None,
            expected: Expected {
                ended: Some(Ended::Status(0)),
                stdout: "".into(),
                stderr: "".into(),
                deadline: Duration::from_secs(20),
                closes_output: true,
            },
        }
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Test {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Test {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Test {
        self.environment.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// The call takes `name` for the name of its host.
    pub(crate) fn on_host(self, name: &str) -> Test {
        static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| compiled("host.so", include_str!("host.c"), &["-shared", "-fPIC"]));
        self.env("LD_PRELOAD", library).env("HOST_NAME", name)
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Test {
        self.environment.remove(OsStr::new(name));
        self
    }

    /// The call's standard input, which is otherwise empty.
    pub(crate) fn stdin(mut self, input: impl AsRef<[u8]>) -> Test {
        self.stdin = Some(input.as_ref().to_owned());
        self
    }

    /// The call's standard input is `source`, for example a pipe whose other end the test keeps.
    pub(crate) fn stdin_from(mut self, source: impl Into<Stdio>) -> Test {
        self.stdin_from = Some(source.into());
        self
    }

    pub(crate) fn stdout_to(mut self, target: impl Into<Stdio>) -> Test {
        self.stdout_to = Some(target.into());
        self
    }

    pub(crate) fn stderr_to(mut self, target: impl Into<Stdio>) -> Test {
        self.stderr_to = Some(target.into());
        self
    }

    /// Standard error becomes this terminal, and the call is the terminal's foreground job.
    pub(crate) fn at_terminal(self, terminal: impl Into<Stdio>) -> Test {
        self.leads_session().stderr_to(terminal)
    }

    /// The call leads a session whose terminal is the call's standard error.
    pub(super) fn leads_session(mut self) -> Test {
        self.at_terminal = true;
        self
    }

    /// The kernel refuses this system call (EPERM) to the process of the call, and to all processes that it starts.
    pub(crate) fn refusing(mut self, call: i64) -> Test {
        self.refused.push(call);
        self
    }

    /// The call, and all that it starts, is in this network.
    pub(crate) fn in_network(mut self, network: &Arc<Network>) -> Test {
        self.network = Some(Arc::clone(network));
        self
    }

    /// These faults happen to the call, and to all that it starts.
    pub(crate) fn with_faults(mut self, faults: &Arc<Faults>) -> Test {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// The call ignores this signal from the start, as under `nohup`.
    pub(crate) fn ignoring(mut self, signal: Signal) -> Test {
        self.ignored.push(signal);
        self
    }

    pub(crate) fn blocking(mut self, signal: Signal) -> Test {
        self.blocked.push(signal);
        self
    }

    pub(crate) fn status(mut self, status: i32) -> Test {
        self.expected.ended = Some(Ended::Status(status));
        self
    }

    /// The call must end with this status. Standard error must be one message, which has each of these texts in it.
    pub(crate) fn fails<const N: usize>(self, status: i32, fragments: [&str; N]) -> Test {
        self.status(status).stderr(super::message(fragments))
    }

    /// The call must end with status 75, and with one message that names the lock `backup`.
    pub(crate) fn turned_away(self) -> Test {
        self.fails(75, ["\"backup\""])
    }

    /// The call must die of this signal. The last line of standard error must be a message with the signal's name.
    pub(crate) fn interrupted(self, signal: Signal) -> Test {
        let said = super::message([&format!("interrupted by {signal}")]);
        self.signal(signal).stderr(super::at_last(said))
    }

    /// The test looks at the end itself.
    pub(crate) fn any_end(mut self) -> Test {
        self.expected.ended = None;
        self
    }

    pub(crate) fn signal(mut self, signal: Signal) -> Test {
        self.expected.ended = Some(Ended::Signal(signal as i32));
        self
    }

    pub(crate) fn stdout(mut self, pattern: impl Into<Pattern>) -> Test {
        self.expected.stdout = pattern.into();
        self
    }

    pub(crate) fn stderr(mut self, pattern: impl Into<Pattern>) -> Test {
        self.expected.stderr = pattern.into();
        self
    }

    /// The test fails if the call takes longer than this. The default is 20 s.
    pub(crate) fn within(mut self, deadline: Duration) -> Test {
        self.expected.deadline = deadline;
        self
    }

    /// A process that outlives the call may keep the call's output open.
    pub(crate) fn leaves_output_open(mut self) -> Test {
        self.expected.closes_output = false;
        self
    }

    /// The home directory of the call, which is its working directory, too.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory)
    }

    /// Several calls can share a directory.
    pub(crate) fn in_directory(mut self, directory: &Arc<Directory>) -> Test {
        self.environment.insert("HOME".into(), directory.path().into());
        self.directory = Arc::clone(directory);
        self
    }

    /// The value of `TEST_TAG` in the environment of every process of this call.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// The call as a plain command: without a terminal and with default actions for signals, unless the test says
    /// otherwise.
    ///
    /// Only a call with a terminal gets a session of its own. With autogroups (sched(7)), Linux 6.18 gave new sessions
    /// no processor while an old session computed, so that a call could wait for seconds.
    ///
    /// A call without a terminal leads a process group of the test's session. If a process of the group is stopped when
    /// the leader ends, Linux sends SIGHUP and SIGCONT to the rest of the group (setpgid(2)). So a test that leaves a
    /// process stopped starts it by setsid, or lets it ignore SIGHUP.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.environment).current_dir(self.directory.path());
        let (ignored, refused) = (self.ignored.clone(), self.refused.clone());
        let blocked = SigSet::from_iter(self.blocked.iter().copied());
        let at_terminal = self.at_terminal;
        // SAFETY: only async-signal-safe calls, and the closure was allocated before the fork.
        unsafe {
            command.pre_exec(move || {
                if at_terminal { lead_session() } else { leave_terminal() }?;
                for number in Signal::iterator().filter(|number| !matches!(number, Signal::SIGKILL | Signal::SIGSTOP)) {
                    let handler = if ignored.contains(&number) { SigHandler::SigIgn } else { SigHandler::SigDfl };
                    signal(number, handler)?;
                }
                blocked.thread_set_mask()?;
                refused.iter().try_for_each(|&call| super::sandbox::refuse(call))
            });
        }
        if let Some(network) = &self.network {
            network.enter(&mut command);
        }
        command
    }

    #[track_caller]
    pub(crate) fn spawn(mut self) -> Running {
        let mut command = self.command();
        let input = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(self.stdin_from.take().unwrap_or(input));
        command.stdout(self.stdout_to.take().unwrap_or_else(Stdio::piped));
        command.stderr(self.stderr_to.take().unwrap_or_else(Stdio::piped));
        if let Some(faults) = &self.faults {
            faults.supervise(&mut command);
        }
        let input = self.stdin.take();
        Running::new(command, input, self)
    }

    #[track_caller]
    pub(crate) fn ready(self) -> Running {
        let running = self.spawn();
        running.prints("ready");
        running
    }

    /// As [`Test::ready`]. The job's standard input ends when the test drops the returned writer.
    #[track_caller]
    pub(crate) fn ready_to_read(self) -> (Running, PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (self.stdin_from(reader).ready(), writer)
    }

    /// Makes the call, and compares its end and output with what the test expects.
    #[track_caller]
    pub(crate) fn run(self) -> Finished {
        self.spawn().finish()
    }

    /// Makes the call, and returns its standard output, whatever that is.
    #[track_caller]
    pub(crate) fn text(self) -> String {
        self.stdout(super::any()).run().stdout
    }

    #[track_caller]
    pub(crate) fn token(self) -> String {
        self.stdout(super::any()).run().token()
    }

    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        self.stdout(super::any()).run().json()
    }
}

fn lead_session() -> nix::Result<()> {
    unistd::setsid()?;
    // SAFETY: the ioctl takes numbers, and touches no memory.
    Errno::result(unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCSCTTY, 0) }).map(drop)
}

fn leave_terminal() -> nix::Result<()> {
    unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    if let Ok(terminal) = fcntl::open("/dev/tty", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()) {
        // SAFETY: the ioctl takes numbers, and touches no memory.
        Errno::result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCNOTTY) })?;
    }
    Ok(())
}

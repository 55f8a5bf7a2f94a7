//! `local:`, a server for the locks of one user on one machine. The first call that finds none starts it; it outlives that
//! call, and has on disk what it answers for.
//!
//! All of it is in one directory: `lock`, `log`, `redis.sock` and the append-only file. The server itself has `lock` locked,
//! as its standard input, from before it is executed to the end of its last process. So there is never a second one, however
//! many calls begin at once, and whatever is killed or removed at which moment.

use crate::sys::clock::Boot;
use crate::sys::{host, process};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use redis::io::tcp::socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::net::UnixStream;

/// How long the first call waits for the server to read its file: some 10 ms, on a slow disk more.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server that has accepted a connection may take to say whether it still reads.
const SILENCE: Duration = Duration::from_secs(1);
/// How often a server that is being started is tried.
const AGAIN: Duration = Duration::from_millis(5);
/// What a Unix socket's path may have in bytes (unix(7)).
const LONGEST_PATH: usize = 107;
/// In bytes: a log that has more is begun anew with the next start, of which each takes one thousand.
const LONGEST_LOG: u64 = 1 << 20;

const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];
/// What installs one, by the tool that is there.
const INSTALLS: [(&str, &str); 6] = [
    ("apt-get", "apt-get install redis-server"),
    ("dnf", "dnf install redis"),
    ("apk", "apk add redis"),
    ("pacman", "pacman -S valkey"),
    ("zypper", "zypper install redis"),
    ("brew", "brew install redis"),
];

/// The directory of such a server.
#[derive(Debug)]
pub(crate) struct Local {
    directory: PathBuf,
}

/// Connects to the server, and starts it where there is none. May be dropped at any time.
pub(super) async fn connect(directory: Option<&Path>) -> io::Result<UnixStream> {
    let local = Local::at(directory).map_err(io::Error::other)?;
    let mut started = false;
    loop {
        match UnixStream::connect(local.socket()).await {
            Err(error) if is_down(&error) => local.start_once(&mut started)?,
            // The server accepts nothing at present.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            connected => return connected,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl Local {
    /// The server in this directory, or in the user's own of this machine.
    ///
    /// # Errors
    /// What is wrong with the directory, in words that continue its URL.
    pub(crate) fn at(directory: Option<&Path>) -> Result<Local, String> {
        let own = || {
            let state = host::absolute("XDG_STATE_HOME").or_else(|| Some(host::home()?.join(".local/state")));
            // The home may be on several machines.
            state.map(|state| state.join("redlock").join(host::machine()))
        };
        let directory = directory.map(Path::to_owned).or_else(own);
        let directory = directory.ok_or("needs a directory: HOME is not set, and /etc/passwd has none; local:/DIR?")?;
        let local = Local { directory };
        if local.socket().as_os_str().len() > LONGEST_PATH {
            let socket = local.socket();
            return Err(format!("is too deep: {} has more than {LONGEST_PATH} bytes", socket.display()));
        }
        local.check()?;
        Ok(local)
    }

    /// The Unix socket; `redis-cli -s SOCKET shutdown` stops the server.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// The server's pid, if it runs.
    pub(crate) fn pid(&self) -> Option<i32> {
        Some(getsockopt(&self.dial().ok()?, PeerCredentials).ok()?.pid())
    }

    /// Starts the server unless it runs, and waits until it serves.
    ///
    /// # Errors
    /// Why there is none. What a request would meet as well is left to that.
    pub(crate) fn start(&self) -> io::Result<()> {
        let deadline = Boot::now() + PATIENCE;
        let mut started = false;
        while !deadline.passed() {
            match self.is_loading() {
                Ok(true) => {}
                Err(error) if is_down(&error) && self.is_ours() => self.start_once(&mut started)?,
                _ => return Ok(()),
            }
            std::thread::sleep(AGAIN);
        }
        let (lock, socket) = (self.file("lock"), self.socket());
        Err(io::Error::other(format!("what has {} locked does not serve at {}", lock.display(), socket.display())))
    }

    /// A connection whose waits end.
    fn dial(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
        socket.connect(&SockAddr::unix(self.socket())?)?;
        Ok(socket)
    }

    /// Whether the server still reads its file, or has just ended over that.
    fn is_loading(&self) -> io::Result<bool> {
        let mut socket = self.dial()?;
        socket.write_all(b"PING\r\n")?;
        let mut reply = [0; 8];
        let length = socket.read(&mut reply)?;
        Ok(length == 0 || reply[..length] == *b"-LOADING")
    }

    /// Starts the server if it neither runs nor is being started, as its lock tells.
    ///
    /// # Errors
    /// Why it cannot be started. One that was `started` here, and has ended, is not started again.
    fn start_once(&self, started: &mut bool) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.check().map_err(io::Error::other)?;
        if !self.is_ours() {
            return Err(io::Error::other("it does not run, and only the owner of its directory can start it"));
        }
        let lock =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(self.file("lock"))?;
        match lock.try_lock() {
            Ok(()) if *started => {
                Err(io::Error::other(format!("it ended at once; see {}", self.file("log").display())))
            }
            Ok(()) => {
                *started = true;
                process::start_detached(&mut self.server(lock)?)
            }
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The command that runs the server with this lock, in its directory.
    fn server(&self, lock: File) -> io::Result<Command> {
        let install = || {
            let known = INSTALLS.iter().find(|(tool, _)| host::program(tool).is_some());
            let hint = known.map_or("install Redis or Valkey", |(_, command)| command);
            io::Error::other(format!("there is neither {} nor {}; {hint}", SERVERS[0], SERVERS[1]))
        };
        let program = SERVERS.iter().find_map(|name| host::program(name)).ok_or_else(install)?;
        let log = File::options().append(true).create(true).mode(0o600).open(self.file("log"))?;
        if log.metadata()?.len() > LONGEST_LOG {
            log.set_len(0)?;
        }
        // The directory says who may connect.
        let shared = fs::metadata(&self.directory)?.mode() & 0o011 != 0;
        let mut command = Command::new(program);
        command.args(["--port", "0", "--unixsocketperm", if shared { "777" } else { "700" }, "--unixsocket"]);
        command.arg(self.socket()).args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        // Small files are read quickly.
        command.args(["--auto-aof-rewrite-min-size", "1mb", "--loglevel", "warning"]);
        command.current_dir(&self.directory).env_clear().stdin(lock).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn is_ours(&self) -> bool {
        // One that is missing will be.
        fs::metadata(&self.directory).map_or(true, |found| found.uid() == geteuid().as_raw())
    }

    /// Refuses a directory in which others could put a server of their own.
    fn check(&self) -> Result<(), String> {
        let open_to_others = |directory: &Path| fs::metadata(directory).is_ok_and(|found| found.mode() & 0o022 != 0);
        // Another user's may be a trap, unless only its owner and root can have put it there.
        let depth = if self.is_ours() { 1 } else { usize::MAX };
        match self.directory.ancestors().take(depth).find(|directory| open_to_others(directory)) {
            Some(open) => Err(format!("is not safe: others may write to {}", open.display())),
            None => Ok(()),
        }
    }
}

/// Whether no server listens there, or one that has just ended.
fn is_down(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe | NotFound)
}

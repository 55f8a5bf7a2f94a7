//! `local:`, a server of one user, for locks on one machine. The first call that needs the server starts it. It
//! outlives that call, and writes to disk before it answers.
//!
//! Its files are in one directory: `lock`, `log`, `redis.sock` and the append-only file. The server itself holds two
//! file locks, one on the directory and one on `lock`, its standard input. redlock takes both before the server's exec,
//! and they last until the server's last process has ended. So there is never a second server, even if many calls begin
//! at once, processes are killed or files are removed. If `lock` is removed, the file lock on the directory remains.
//! `lock` is for file systems that cannot lock directories (NFS).

use super::file_value::{Cause, Unusable};
use crate::sys::clock::Boot;
use crate::sys::host::{self, SERVERS};
use crate::sys::trust::{Step, follow};
use crate::sys::{files, process};
use crate::text::reason;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use redis::io::tcp::socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::net::UnixStream;

/// How long a call waits for the server to start and to load its file. A start takes 10 ms, more on a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that a connected server may take to answer PING.
const SILENCE: Duration = Duration::from_secs(1);
/// The pause between two attempts to connect, while the server starts, loads its file, or has a full backlog.
const AGAIN: Duration = Duration::from_millis(5);
/// The longest path of a Unix socket, in bytes (unix(7)).
const LONGEST_PATH: usize = 107;
/// The longest log, in bytes. A longer log is emptied at the next start; each start writes about 1,000 bytes.
const LONGEST_LOG: u64 = 1 << 20;

/// The bit of a directory in which users can remove only their own files.
const STICKY: u32 = 0o1000;

/// The server's standard input.
const LOCK: &str = "lock";

#[derive(Debug)]
pub(crate) struct Local {
    directory: PathBuf,
}

/// Connects to the server, and starts it if it is not running. The future may be dropped at any time.
pub(super) async fn connect(directory: Option<&Path>) -> io::Result<UnixStream> {
    let local = Local::at(directory).map_err(|error| io::Error::other(error.why))?;
    let mut started = false;
    loop {
        match UnixStream::connect(local.socket()).await {
            Err(error) if is_down(&error) => local.start_once(&mut started)?,
            // The server's backlog is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            connected => return connected,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl Local {
    /// The server in `directory`, or else in the user's own directory for this machine.
    ///
    /// # Errors
    /// The fault of the directory, in words that continue the URL.
    pub(crate) fn at(directory: Option<&Path>) -> Result<Local, Unusable> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => own_directory()?,
        };
        let local = Local { directory };
        if local.socket().as_os_str().len() > LONGEST_PATH {
            let socket = local.socket();
            return Err(format!(
                "is in too deep a directory: {} is longer than {LONGEST_PATH} bytes",
                socket.display()
            )
            .into());
        }
        local.check(false)?;
        Ok(local)
    }

    /// The Unix socket; `redis-cli -s SOCKET shutdown` stops the server.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(process::SOCKET)
    }

    pub(crate) fn pid(&self) -> Option<i32> {
        Some(getsockopt(&self.dial().ok()?, PeerCredentials).ok()?.pid())
    }

    /// Starts the server unless it is running, and waits until it serves.
    ///
    /// # Errors
    /// The server cannot be started, or is not ready within [`PATIENCE`]. Other errors surface on the first request.
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
        let socket = self.socket();
        let what = if socket.exists() { "does not answer on" } else { "runs, but has lost its socket" };
        let socket = socket.display();
        let end = format!("pkill -f unixsocket:{socket} ends it, and the next call starts it again");
        Err(io::Error::other(format!("it {what} {socket}; {end}")))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// The free bytes on the server's disk; `None` if this user may not write there, or the disk does not report them.
    pub(crate) fn room(&self) -> Option<u64> {
        let existing = self.directory.ancestors().find(|directory| directory.exists())?;
        access(existing, AccessFlags::W_OK | AccessFlags::X_OK).ok()?;
        let disk = statvfs(existing).ok()?;
        Some(disk.blocks_available() * disk.fragment_size())
    }

    /// The installed server program, or the message that none is installed.
    pub(crate) fn program() -> Result<PathBuf, String> {
        host::servers().next().ok_or_else(|| format!("neither {} nor {} is installed", SERVERS[0], SERVERS[1]))
    }

    /// True if the directory has no files of a server: then there are no locks.
    pub(crate) fn is_unused(&self) -> bool {
        let absent =
            |name: &&str| fs::symlink_metadata(self.file(name)).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        [process::SOCKET, "appendonlydir", "appendonly.aof"].iter().all(absent)
    }

    /// A blocking connection with a timeout.
    fn dial(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
        socket.connect(&SockAddr::unix(self.socket())?)?;
        Ok(socket)
    }

    /// True if the server is still loading its file, or has just exited.
    fn is_loading(&self) -> io::Result<bool> {
        let mut socket = self.dial()?;
        socket.write_all(b"PING\r\n")?;
        let mut reply = [0; 8];
        let length = socket.read(&mut reply)?;
        Ok(length == 0 || reply[..length] == *b"-LOADING")
    }

    /// Starts the server, and sets `started`. Does nothing if a file lock shows that the server is running or starting.
    ///
    /// # Errors
    /// The server cannot be started, or has exited at once: `started` is set already, but nobody holds the file lock.
    fn start_once(&self, started: &mut bool) -> io::Result<()> {
        self.check(true).map_err(|error| io::Error::other(error.why))?;
        if !self.is_ours() {
            return Err(io::Error::other("it is not running, and only the owner of its directory can start it"));
        }
        let directory = File::open(&self.directory).map_err(|error| self.unusable(&self.directory, &error))?;
        let lock = self.open(File::options().read(true).write(true), LOCK)?;
        match lock.try_lock().and_then(|()| directory.try_lock().or_else(unless_locked)) {
            Ok(()) if *started => Err(io::Error::other(format!("it exited at once; see {}", self.log().display()))),
            Ok(()) => {
                *started = true;
                process::start_detached(&mut self.server(lock)?, &directory)
            }
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(self.unusable(&self.file(LOCK), &error)),
        }
    }

    fn open(&self, options: &mut OpenOptions, name: &str) -> io::Result<File> {
        let path = self.file(name);
        files::open_regular(&path, options).map_err(|error| self.unusable(&path, &error))
    }

    fn unusable(&self, path: &Path, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {}", path.display(), reason(error)))
    }

    /// The command that runs the server in its directory, with the file `lock` as standard input.
    fn server(&self, lock: File) -> io::Result<Command> {
        let program = Local::program().map_err(io::Error::other)?;
        let log = self.open(File::options().append(true), "log")?;
        if log.metadata()?.len() > LONGEST_LOG {
            log.set_len(0)?;
        }
        // The permissions of the directory decide who may connect. Whoever may connect can do what the server can, so
        // the socket is open only in a directory that its group may enter, and nobody else.
        let shared = fs::metadata(&self.directory)?.mode() & 0o011 == 0o010;
        let mut command = Command::new(program);
        command.args(["--port", "0", "--unixsocketperm", if shared { "777" } else { "700" }, "--unixsocket"]);
        command.arg(self.socket()).args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
        // The server rewrites its file when it has grown to 1 MB, because a small file loads quickly.
        command.args(["--auto-aof-rewrite-min-size", "1mb", "--loglevel", "warning"]);
        command.current_dir(&self.directory).env_clear().stdin(lock).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// True if this user can start the server.
    pub(crate) fn is_ours(&self) -> bool {
        // A missing directory will be created by this user.
        fs::metadata(&self.directory).map_or(true, |found| found.uid() == geteuid().as_raw())
    }

    /// Refuses a path that is no directory, a directory that another user could have made or could replace, and a
    /// socket that every user may use. With `make`, a missing directory is made.
    fn check(&self, make: bool) -> Result<(), Unusable> {
        let existing = self.directory.ancestors().find(|directory| directory.exists());
        if let Some(file) = existing.filter(|existing| !existing.is_dir()) {
            return Err(format!("cannot be used: {} is not a directory", file.display()).into());
        }
        // True if others may write to the directory of the present step, but not remove what is ours (as in /tmp).
        let mut is_among_others = false;
        let objection = follow(&self.directory, make, |step| {
            let objection = objection(&step, is_among_others);
            if step.found.is_dir() {
                is_among_others = step.open_to_others().is_some();
            }
            objection
        });
        let objection = objection.map_err(|error| Unusable {
            why: format!("cannot be used: {}: {}", self.directory.display(), reason(&error)),
            cause: if error.kind() == ErrorKind::PermissionDenied {
                Cause::Refused
            } else {
                Unusable::of(&error).cause
            },
        })?;
        match objection.or_else(|| self.open_socket()) {
            Some(why) => Err(Unusable { why: format!("is not safe: {why}"), cause: Cause::Refused }),
            None => Ok(()),
        }
    }

    /// Objects if every user may use the socket of the running server: somebody has opened the directory after its
    /// start.
    fn open_socket(&self) -> Option<String> {
        let may = |path: &Path, what: u32| fs::metadata(path).is_ok_and(|found| found.mode() & what != 0);
        let (directory, socket) = (self.directory.display(), self.socket());
        let is_open = may(&self.directory, 0o001) && may(&socket, 0o002) && self.dial().is_ok();
        is_open.then(|| format!("every user may use {}; chmod o-x {directory}", socket.display()))
    }
}

/// The objection to a directory or link on the way to the server's directory, or to that directory itself.
/// `is_among_others`: others may put files beside it. Root starts no server and asks none where another user has a say.
/// A user may use the server of another user, who owns the directory and could cheat with the locks, but only below
/// directories of these two and of root.
fn objection(step: &Step, is_among_others: bool) -> Option<String> {
    let is_chosen = step.is_end && !geteuid().is_root() && !is_among_others;
    if let Some(foreign) = step.foreign().filter(|_| !is_chosen) {
        return Some(format!("{foreign}; use local:/DIR below directories of your own (with sudo: -H)"));
    }
    let (mode, path) = (step.found.mode(), step.path.display());
    let open = match step.is_end {
        true => (mode & 0o022 != 0).then(|| format!("others may write to {path}")),
        false => step.open_to_others().filter(|_| step.found.is_dir() && mode & STICKY == 0),
    };
    open.map(|open| format!("{open}; chmod go-w {path}"))
}

/// This user's directory for this machine: several machines may share a home directory.
fn own_directory() -> Result<PathBuf, Unusable> {
    let state = host::absolute("XDG_STATE_HOME").or_else(|| Some(host::home()?.join(".local/state")));
    let state = state.ok_or("has no directory: HOME is not set, and /etc/passwd has none; use local:/DIR")?;
    let machine = host::machine().map_err(|error| Unusable::of(&error).within(|why| format!("has no path: {why}")))?;
    Ok(state.join("redlock").join(machine))
}

/// Ignores a failure to lock a file, unless another process has locked the file.
fn unless_locked(error: TryLockError) -> Result<(), TryLockError> {
    match error {
        TryLockError::WouldBlock => Err(error),
        TryLockError::Error(_) => Ok(()),
    }
}

/// True if the server is not listening, or has just exited.
fn is_down(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | BrokenPipe | NotFound)
}

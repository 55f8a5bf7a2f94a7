//! What surrounds a call: busy cores, full pipes and terminals, random numbers, Python's modules, namespaces.

use super::Test;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Keeps two cores busy. Only one test at a time has this.
pub(crate) struct Busy {
    stop: Arc<AtomicBool>,
    _alone: MutexGuard<'static, ()>,
}

impl Busy {
    pub(crate) fn start() -> Busy {
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

pub(crate) fn rand(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % limit
}

/// How many rounds a test makes: the number in this environment variable, or else the default.
#[track_caller]
pub(crate) fn rounds(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// True if this machine's Python has the module. If not, prints that the test does without it.
pub(crate) fn has_module(module: &str) -> bool {
    let asked = Command::new("python3").args(["-c", &format!("import {module}")]).output();
    let has = asked.is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("python3 has no {module}: what it sends is tested without it");
    }
    has
}

/// A pipe that takes no more bytes. Both ends are in blocking mode.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    fill(&writer);
    (reader, writer)
}

/// A pair of sockets in blocking mode, the second of which takes no more bytes.
pub(crate) fn full_socket() -> (UnixStream, UnixStream) {
    let (reader, writer) = UnixStream::pair().unwrap();
    fill(&writer);
    (reader, writer)
}

/// A terminal that takes only `room` more bytes: the master side, which nobody reads, and the slave side.
pub(crate) fn full_terminal(room: usize) -> (OwnedFd, File) {
    static CAPACITY: OnceLock<usize> = OnceLock::new();
    let fill = |most: usize| {
        let pair = openpty(None, None).unwrap();
        let mut screen = File::from(pair.slave);
        fcntl(&screen, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let (mut count, mut refused) = (0, 0);
        // Single bytes, because the terminal's capacity depends on the sizes of the written pieces. After a refusal,
        // the kernel may still make room by moving bytes to the master, which takes time on a busy machine. So the
        // terminal counts as full only after 60 refusals in a row.
        while count < most && refused < 60 {
            match screen.write_all(b"x") {
                Ok(()) => (count, refused) = (count + 1, 0),
                Err(_) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        fcntl(&screen, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        (pair.master, screen, count)
    };
    let capacity = CAPACITY.get_or_init(|| fill(usize::MAX).2);
    let (other, screen, _) = fill(if room == 0 { usize::MAX } else { capacity - room });
    (other, screen)
}

/// Writes until there is room for not even one byte, and leaves the descriptor in blocking mode.
fn fill<W: AsFd>(target: &W)
where
    for<'a> &'a W: Write,
{
    fcntl(target, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    for chunk in [4096, 1] {
        let mut target = target;
        while target.write(&vec![b'x'; chunk]).is_ok() {}
    }
    fcntl(target, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
}

/// These options of `unshare`, with `-r` unless this user is root. None if this machine does not allow the namespace.
pub(crate) fn namespace<'a>(options: &[&'a str]) -> Option<Vec<&'a str>> {
    let mut options = options.to_vec();
    if !nix::unistd::geteuid().is_root() {
        options.push("-r");
    }
    let probe = std::process::Command::new("unshare").args(&options).arg("true").output().unwrap();
    if !probe.status.success() {
        eprintln!("not tried: this machine allows no namespace");
    }
    probe.status.success().then_some(options)
}

/// This call, with redlock in its PATH and this URL of a server, in a mount namespace with these files in /etc. None if
/// this machine does not allow the namespace.
pub(crate) fn with_etc(url: &str, files: &[&Path], call: &[&str]) -> Option<Test> {
    let options = namespace(&["-m"])?;
    let mounts: String = files
        .iter()
        .map(|file| format!("mount --bind '{}' '/etc/{}' && ", file.display(), file.file_name().unwrap().display()))
        .collect();
    let script = format!("{mounts}exec \"$@\"");
    Some(Test::program(url, "unshare").args(options).args(["sh", "-c", &script, "sh"]).args(call))
}

/// Options of setpriv that give up root's privileges, so that the mode of a file counts; the user is still root.
pub(crate) const UNPRIVILEGED: [&str; 3] = ["--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot"];

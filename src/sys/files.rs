//! Opening and reading files, and finding commands.

use super::clock::Boot;
use super::uninterrupted;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, faccessat};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file of this many bytes is too long to read: the path may be an endless device.
const LONGEST: u64 = 1 << 20;
/// A pipe or a device has this long to deliver everything.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps open(2) from waiting for the other end of a pipe, and from making a terminal the controlling terminal.
const AT_ONCE: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY);

/// The contents of a file, a device, or a pipe such as the shell's `<(command)`.
///
/// # Errors
/// A timeout, too: if a pipe has no writer or no end, or if a terminal is silent.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_opened(open(path)?)
}

/// Opens a file, a device or a pipe for [`read_opened`].
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(AT_ONCE.bits()).open(path)
}

pub(super) fn read_opened(mut file: File) -> io::Result<Vec<u8>> {
    let until = (!file.metadata()?.is_file()).then(|| Boot::now() + PATIENCE);
    let mut bytes = Vec::new();
    loop {
        let timeout = until.map(|until| PollTimeout::try_from(until.left()).unwrap_or(PollTimeout::MAX));
        let mut ready = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        if uninterrupted(|| poll(&mut ready, timeout.unwrap_or(PollTimeout::NONE)))? == 0 {
            return Err(io::Error::other(format!("it did not end within {}s", PATIENCE.as_secs())));
        }
        match file.by_ref().take(LONGEST - bytes.len() as u64).read_to_end(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) if bytes.len() as u64 == LONGEST => return Err(io::Error::other("too long")),
            end => return end.map(|_| bytes),
        }
    }
}

/// Opens a regular file, creating it for this user alone if it is missing. Fails for a pipe, a directory or a device.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match options.create(true).mode(0o600).custom_flags(AT_ONCE.bits()).open(path) {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        // ENXIO: the file is a pipe without a reader, a socket, or a device that does not exist.
        Err(error) if error.raw_os_error() != Some(Errno::ENXIO as i32) => Err(error),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// The length of a file in bytes; 0 if the kernel does not report it.
pub(crate) fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |file| file.len())
}

/// True if standard error is this file.
pub(crate) fn is_standard_error(file: &File) -> bool {
    let of = |descriptor: BorrowedFd| fstat(descriptor).map(|stat| (stat.st_dev, stat.st_ino));
    of(file.as_fd()).is_ok_and(|file| of(io::stderr().as_fd()) == Ok(file))
}

/// The last bytes of a file: at most `most` bytes, and none before the offset `from`. If the file has become shorter
/// than `from`, then `from` counts as 0.
pub(crate) fn end_of(file: &File, from: u64, most: usize) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let from = if length < from { 0 } else { from };
    let begin = from.max(length.saturating_sub(most as u64));
    let mut bytes = vec![0; usize::try_from(length - begin).unwrap_or(most)];
    let read = file.read_at(&mut bytes, begin)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The file of a command, found as execvp(3) does.
///
/// # Errors
/// `ENOENT` if there is no such file, `EACCES` if this user may not execute the file, and other errors of the kernel.
pub(crate) fn find_command(command: &OsStr) -> nix::Result<PathBuf> {
    if command.is_empty() {
        return Err(Errno::ENOENT);
    }
    if command.as_encoded_bytes().contains(&b'/') {
        return executable(command.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut result = Err(Errno::ENOENT);
    for directory in std::env::split_paths(&path) {
        match executable(directory.join(command)) {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT) => {}
            Err(errno) => result = Err(errno),
            found => return found,
        }
    }
    result
}

fn executable(path: PathBuf) -> nix::Result<PathBuf> {
    match faccessat(AT_FDCWD, &path, AccessFlags::X_OK, AtFlags::AT_EACCESS) {
        // A sandbox that is older than faccessat2(2) refuses the call. (The kernel never gives this reason for X_OK.)
        // The exec will show whether this user may execute the file.
        Err(Errno::EPERM | Errno::ENOSYS) => {
            let file = path.metadata().map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
            if file.mode() & 0o111 == 0 {
                return Err(Errno::EACCES);
            }
        }
        answer => answer?,
    }
    if path.is_dir() { Err(Errno::EACCES) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_the_system_does() {
        let find = |command: &str| find_command(OsStr::new(command)).map(drop);
        assert_eq!(find("true"), Ok(()));
        assert_eq!(find("/bin/sh"), Ok(()));
        assert_eq!(find("no-such-command"), Err(Errno::ENOENT));
        assert_eq!(find("/no/such/command"), Err(Errno::ENOENT));
        assert_eq!(find(""), Err(Errno::ENOENT));
        assert_eq!(find("/etc/passwd"), Err(Errno::EACCES));
        assert_eq!(find("/etc"), Err(Errno::EACCES));
        assert_eq!(find("/etc/passwd/x"), Err(Errno::ENOTDIR));
    }
}

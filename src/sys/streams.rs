//! Standard error and output, written without blocking: a full pipe or a stopped terminal must not stall anything else.
//! Output that standard error does not accept at once is buffered and retried with the next line.

use super::clock::Boot;
use super::inherited;
use super::signals::without_ttou;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{self, getpgrp, isatty, tcgetpgrp};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// The size of the buffer for standard error, in bytes; a line that does not fit is dropped.
const KEPT: usize = 16 * 1024;
/// The interval between attempts to write to a slow reader.
const LOOK: Duration = Duration::from_millis(5);
/// Clears a terminal's line, and puts the cursor at its start.
const EMPTY_LINE: &str = "\r\x1b[K";

/// Writes `line` and a line feed to standard error, above the live line ([`draw`]) if there is one.
pub(crate) fn say(line: &str) {
    with_errors(|errors| {
        errors.look();
        let empty = if errors.live.is_empty() { "" } else { EMPTY_LINE };
        errors.add(&format!("{empty}{line}\n{}", errors.live));
    });
}

/// Writes `line` to standard error, as far as there is room, without allocating.
pub(super) fn say_without_memory(line: &str) {
    let _ = Target::Others(io::stderr().as_fd()).write(line.as_bytes());
}

/// Shows `text` as the live line, which stays the terminal's last line; an empty `text` removes the live line. Draws
/// nothing while redlock is in the background, because the last line then belongs to a shell or another job.
pub(crate) fn draw(text: &str) {
    with_errors(|errors| {
        errors.look();
        errors.flush();
        let stuck = !errors.kept.is_empty() && !text.is_empty();
        if !is_foreground() || stuck || errors.live == text {
            return;
        }
        errors.live = text.to_owned();
        errors.add(&format!("{EMPTY_LINE}{text}"));
    });
}

/// Writes the rest of the buffer, for at most `patience`.
pub(crate) fn finish(patience: Duration) {
    let until = Boot::now() + patience;
    with_errors(|errors| {
        errors.flush();
        while !errors.kept.is_empty() && !until.passed() {
            thread::sleep(LOOK);
            errors.flush();
        }
    });
}

/// True if standard error is a terminal and this process is in its foreground job.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

/// The rows and columns of the terminal that is standard output (1) or error (2): 24 and 80 if there is no terminal, or
/// if it does not report them.
pub(crate) fn size(descriptor: i32) -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, which `size` is.
    let answer = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    let reported = |value: libc::c_ushort, usual: usize| if answer == 0 && value > 0 { value.into() } else { usual };
    (reported(size.ws_row, 24), reported(size.ws_col, 80))
}

thread_local! {
    static ERRORS: RefCell<ErrorStream> = const { RefCell::new(ErrorStream { kept: Vec::new(), live: String::new() }) };
}

struct ErrorStream {
    kept: Vec<u8>,
    /// The live line as the terminal shows it.
    live: String,
}

/// Runs `action` with the stream. If `action` panics, the message of the panic is dropped.
fn with_errors(action: impl FnOnce(&mut ErrorStream)) {
    let _ = ERRORS.try_with(|errors| errors.try_borrow_mut().map(|mut errors| action(&mut errors)));
}

impl ErrorStream {
    /// Forgets the live line if redlock is in the background: the terminal's last line then belongs to another job.
    fn look(&mut self) {
        if !self.live.is_empty() && !is_foreground() {
            self.live.clear();
        }
    }

    fn add(&mut self, text: &str) {
        self.flush();
        if self.kept.len() + text.len() <= KEPT {
            self.kept.extend_from_slice(text.as_bytes());
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        // Each flush opens the pipe or terminal again, because standard error may be redirected between two flushes,
        // and an open pipe would keep its reader waiting.
        let errors = io::stderr();
        let target = Target::of(errors.as_fd());
        let mut rest = self.kept.as_slice();
        match target.write_some(&mut rest) {
            Ok(_) => drop(self.kept.drain(..self.kept.len() - rest.len())),
            // Nothing can be written, for example because the reader is gone.
            Err(_) => self.kept.clear(),
        }
    }
}

/// Standard output. Each of its writers waits for room, even if another process has made the descriptor non-blocking.
pub(crate) struct Output<'fd>(BorrowedFd<'fd>);

impl Output<'_> {
    pub(crate) fn open() -> Output<'static> {
        // SAFETY: this process never closes its standard output.
        Output(unsafe { BorrowedFd::borrow_raw(1) })
    }

    /// Writes everything, however long the reader takes. Needs a runtime, and never blocks it. After an error, part of
    /// the output may have been written.
    pub(crate) async fn write_when_read(&self, bytes: &[u8]) -> io::Result<()> {
        let target = Target::of(self.checked()?);
        let mut rest = bytes;
        while target.write_some(&mut rest)? {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Writes everything that the reader takes by `until`; else as [`Output::write_when_read`].
    pub(crate) fn write_until(&self, bytes: &[u8], until: Boot) -> io::Result<()> {
        let target = Target::of(self.checked()?);
        let mut rest = bytes;
        while target.write_some(&mut rest)? && !until.passed() {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Fails if the descriptor was closed at start.
    fn checked(&self) -> io::Result<BorrowedFd<'_>> {
        match inherited::was_closed(1) {
            true => Err(io::Error::other("standard output is closed")),
            false => Ok(self.0),
        }
    }
}

/// Blocks until the reader takes something. In the background of a terminal with `stty tostop`, stops this process, as
/// other programs do.
impl io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match unistd::write(self.checked()?, bytes) {
                // No poll, because it calls a terminal writable that has room for less than a line.
                Err(Errno::EAGAIN) => thread::sleep(LOOK),
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A descriptor, and the way to write to it without blocking. The descriptor's own flags stay unchanged, because other
/// processes share them.
enum Target<'fd> {
    /// A file, or a device that never blocks.
    File(BorrowedFd<'fd>),
    /// A pipe or a terminal, opened a second time with O_NONBLOCK.
    Reopened(OwnedFd),
    Socket(BorrowedFd<'fd>),
    /// A pipe or a terminal that cannot be opened a second time, mostly because it belongs to another user.
    Others(BorrowedFd<'fd>),
}

impl Target<'_> {
    fn of(descriptor: BorrowedFd) -> Target {
        // Only a sandbox refuses fstat(2).
        let Ok(file) = fstat(descriptor) else { return Target::Others(descriptor) };
        let kind = SFlag::from_bits_truncate(file.st_mode & SFlag::S_IFMT.bits());
        let is_terminal = kind == SFlag::S_IFCHR && isatty(descriptor).unwrap_or(false);
        if kind == SFlag::S_IFSOCK {
            return Target::Socket(descriptor);
        }
        if kind != SFlag::S_IFIFO && !is_terminal {
            return Target::File(descriptor);
        }
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_APPEND | OFlag::O_CLOEXEC;
        open(path.as_str(), flags, Mode::empty()).map_or(Target::Others(descriptor), Target::Reopened)
    }

    /// Writes as much of `rest` as the target accepts at once. True if something is left in `rest`.
    fn write_some(&self, rest: &mut &[u8]) -> nix::Result<bool> {
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(written) => *rest = &rest[written..],
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Writes as much as the target accepts at once; `EAGAIN` if it accepts nothing. Never stops this process, even in
    /// the background of a terminal with `stty tostop`.
    fn write(&self, bytes: &[u8]) -> nix::Result<usize> {
        without_ttou(|| match self {
            Target::File(fd) => unistd::write(fd, bytes),
            Target::Reopened(fd) => unistd::write(fd, bytes),
            Target::Socket(fd) => send(fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL),
            Target::Others(fd) => match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO)? {
                0 => Err(Errno::EAGAIN),
                // A pipe that is ready has room for PIPE_BUF bytes.
                _ => unistd::write(fd, &bytes[..bytes.len().min(libc::PIPE_BUF)]),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::pty::openpty;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
    use nix::unistd::{pipe, read};
    use std::io::ErrorKind;

    /// Writes until the target accepts no more.
    fn fill(target: &Target) {
        let full = (0..10_000).find_map(|_| target.write(&[b'x'; 1000]).err());
        assert_eq!(full, Some(Errno::EAGAIN));
    }

    fn is_nonblocking(fd: &OwnedFd) -> bool {
        fcntl(fd, FcntlArg::F_GETFL).is_ok_and(|flags| OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK))
    }

    #[test]
    fn a_reader_that_does_not_read_stops_nothing() {
        let (reader, writer) = pipe().expect("a pipe");
        let pty = openpty(None, None).expect("a terminal");
        let mut raw = tcgetattr(&pty.slave).expect("a terminal");
        cfmakeraw(&mut raw);
        tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).expect("a terminal");
        let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::empty()).expect("sockets");
        for (reader, writer) in [(reader, writer), (pty.master, pty.slave), pair] {
            let target = Target::of(writer.as_fd());
            fill(&target);
            assert!(!is_nonblocking(&writer), "the flags of others were changed");
            let mut bytes = vec![0; 100_000];
            while target.write(b"y") == Err(Errno::EAGAIN) {
                assert!(read(&reader, &mut bytes).expect("readable") > 0);
            }
        }
    }

    #[test]
    fn what_cannot_be_opened_again_is_written_to_as_far_as_there_is_room() {
        let (_reader, writer) = pipe().expect("a pipe");
        fill(&Target::Others(writer.as_fd()));
    }

    #[test]
    fn an_end_that_has_gone_is_an_error() {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let target = Target::of(writer.as_fd());
        assert_eq!(target.write(b"x"), Err(Errno::EPIPE));
    }

    #[test]
    fn everything_is_written_when_the_reader_comes_back() {
        let (reader, writer) = pipe().expect("a pipe");
        let reader = thread::spawn(move || {
            let (mut count, mut bytes) = (0, vec![0; 70_000]);
            loop {
                match read(&reader, &mut bytes).expect("readable") {
                    0 => return count,
                    more => count += more,
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(Output(writer.as_fd()).write_when_read(&[b'x'; 1_000_000])).expect("written");
        drop(writer);
        assert_eq!(reader.join().expect("no panic"), 1_000_000);
    }

    #[test]
    fn a_full_device_says_so() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let written = Output(full.as_fd()).write_until(b"x", Boot::NEVER);
        assert_eq!(written.map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
    }
}

//! One connection: bytes out, values in, each with a deadline that holds for all of it.
//!
//! The `redis` crate writes the requests and reads the answers' form; the socket is ours, for what its own connection
//! cannot do: a deadline over many small reads, over the addresses of a host together, and an answer that is not waited
//! for any longer when something else has to be sent at once.

use super::address::{Address, Place};
use super::fault::{Fault, FaultKind};
use crate::sys::clock::Boot;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use redis::io::tcp::socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use redis::{Cmd, Parser, RedisError, Value};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// When a silent peer is probed, and how long it may stay silent: a half-open connection is noticed within a minute.
const KEEPALIVE: Duration = Duration::from_secs(15);
const UNANSWERED: Duration = Duration::from_secs(60);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The deadline has been reached; the answer may still come.
    TimedOut,
    /// Somebody has rung the bell; the answer may still come.
    Woken,
    /// The connection is good for nothing any more.
    Broken(Fault),
    /// This is the answer: an error of the server's.
    Error(RedisError),
}

impl NoAnswer {
    pub(super) fn fault(self) -> Fault {
        match self {
            NoAnswer::TimedOut | NoAnswer::Woken => Fault::timed_out(),
            NoAnswer::Broken(fault) => fault,
            NoAnswer::Error(error) => Fault::of(&error),
        }
    }
}

/// How long to wait, and what ends the wait before.
pub(super) struct Patience<'a> {
    pub(super) deadline: Boot,
    /// Something may have happened when one of these can be read.
    pub(super) bells: [Option<BorrowedFd<'a>>; 2],
    /// Whether it has.
    pub(super) has_to_go_on: &'a mut dyn FnMut() -> bool,
}

impl Patience<'_> {
    /// Waits until a bell rings, or the deadline.
    pub(super) fn rest(&mut self) {
        let _ = self.wait_for(None);
    }

    /// Waits until the descriptor is ready for what is wanted.
    fn wait(&mut self, descriptor: BorrowedFd<'_>, wanted: PollFlags) -> Result<(), NoAnswer> {
        self.wait_for(Some(PollFd::new(descriptor, wanted)))
    }

    fn wait_for(&mut self, wanted: Option<PollFd<'_>>) -> Result<(), NoAnswer> {
        loop {
            let left = self.deadline.left();
            if left.is_zero() {
                return Err(NoAnswer::TimedOut);
            }
            // poll counts milliseconds; the deadline is not passed early.
            let millis = i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX);
            let bells = self.bells.iter().flatten();
            let bells = bells.map(|bell| PollFd::new(*bell, PollFlags::POLLIN));
            let mut ready: Vec<PollFd<'_>> = bells.chain(wanted.clone()).collect();
            match poll(&mut ready, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(NoAnswer::Broken(Fault::of_io(&errno.into()))),
            }
            let wanted = wanted.as_ref().and_then(|_| ready.pop());
            if ready.iter().any(|bell| bell.any() == Some(true)) && (self.has_to_go_on)() {
                return Err(NoAnswer::Woken);
            }
            if wanted.is_some_and(|wanted| wanted.any() == Some(true)) {
                return Ok(());
            }
        }
    }
}

/// One connection that has been logged in.
pub(super) struct Wire {
    stream: Stream,
    parser: Parser,
    /// Answers that are still to come, and that nobody waits for any more.
    pub(super) owed: usize,
}

impl Wire {
    /// Connects and logs in, with no more round trips than the server needs.
    pub(super) fn open(address: &Address, patience: &mut Patience<'_>) -> Result<Wire, NoAnswer> {
        let unreachable = |error: io::Error| NoAnswer::Broken(Fault::of_io(&error));
        let stream = match address.place() {
            Some(Place::Tcp(host, port)) => Stream::Tcp(connect(host, port, patience)?),
            Some(Place::Unix(path)) => {
                let socket = UnixStream::connect(path).map_err(unreachable)?;
                socket.set_nonblocking(true).map_err(unreachable)?;
                Stream::Unix(socket)
            }
            None => {
                return Err(NoAnswer::Broken(Fault::garbage("its address is of no kind that is supported")));
            }
        };
        let mut wire = Wire { stream, parser: Parser::new(), owed: 0 };
        if let Some(password) = &address.password {
            let mut auth = redis::cmd("AUTH");
            auth.arg(&address.username).arg(password);
            wire.call(&auth, patience)?;
        }
        if address.database != 0 {
            let mut select = redis::cmd("SELECT");
            select.arg(address.database);
            wire.call(&select, patience).map_err(|no_answer| match no_answer {
                NoAnswer::Error(error) => {
                    let fault = Fault::of(&error);
                    let text = match fault.kind {
                        FaultKind::Misconfigured => {
                            format!("has no database {} ({})", address.database, fault.text)
                        }
                        _ => fault.text,
                    };
                    NoAnswer::Broken(Fault { text, ..fault })
                }
                other => other,
            })?;
        }
        Ok(wire)
    }

    fn call(&mut self, cmd: &Cmd, patience: &mut Patience<'_>) -> Result<Value, NoAnswer> {
        self.send(&cmd.get_packed_command(), patience)?;
        self.receive(patience)
    }

    /// Writes a request.
    pub(super) fn send(&mut self, request: &[u8], patience: &mut Patience<'_>) -> Result<(), NoAnswer> {
        let mut patient = Patient { stream: &self.stream, patience, gave_up: None };
        let written = patient.write_all(request);
        let gave_up = patient.gave_up.take();
        // Half a request is of no use to those behind it.
        written.map_err(|error| NoAnswer::Broken(gave_up.map_or_else(|| Fault::of_io(&error), NoAnswer::fault)))
    }

    /// Reads the next answer that is waited for.
    pub(super) fn receive(&mut self, patience: &mut Patience<'_>) -> Result<Value, NoAnswer> {
        loop {
            let mut patient = Patient { stream: &self.stream, patience, gave_up: None };
            let read = self.parser.parse_value(&mut patient);
            let gave_up = patient.gave_up.take();
            match (read, gave_up) {
                (Ok(_), _) if self.owed > 0 => self.owed -= 1,
                (Ok(value), _) => return value.extract_error().map_err(NoAnswer::Error),
                (Err(_), Some(no_answer)) => return Err(no_answer),
                (Err(error), None) => return Err(NoAnswer::Broken(Fault::of(&error))),
            }
        }
    }
}

/// Tries all addresses of the host, within one deadline for all of them.
fn connect(host: &str, port: u16, patience: &mut Patience<'_>) -> Result<TcpStream, NoAnswer> {
    let broken = |error: io::Error| NoAnswer::Broken(Fault::of_io(&error));
    let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(broken)?.collect();
    let mut last = broken(io::Error::new(ErrorKind::NotFound, "the host has no address"));
    let deadline = patience.deadline;
    for (tried, address) in addresses.iter().enumerate() {
        // An address that swallows everything leaves its share to the others.
        let share = deadline.left() / u32::try_from(addresses.len() - tried).unwrap_or(1);
        patience.deadline = Boot::now() + share;
        let connected = connect_to(*address, patience);
        patience.deadline = deadline;
        match connected {
            Ok(stream) => return Ok(stream),
            Err(NoAnswer::Woken) => return Err(NoAnswer::Woken),
            Err(no_answer) => last = no_answer,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, patience: &mut Patience<'_>) -> Result<TcpStream, NoAnswer> {
    let broken = |error: io::Error| NoAnswer::Broken(Fault::of_io(&error));
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(broken)?;
    socket.set_nonblocking(true).map_err(broken)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {
            patience.wait(socket.as_fd(), PollFlags::POLLOUT)?;
            if let Some(error) = socket.take_error().map_err(broken)? {
                return Err(broken(error));
            }
        }
        Err(error) => return Err(broken(error)),
    }
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive)).map_err(broken)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNANSWERED)).map_err(broken)?;
    Ok(socket.into())
}

/// A stream whose reads and writes wait.
struct Patient<'a, 'b> {
    stream: &'a Stream,
    patience: &'a mut Patience<'b>,
    gave_up: Option<NoAnswer>,
}

impl Patient<'_, '_> {
    /// Repeats what would have to wait, until it need not.
    fn until_done(
        &mut self,
        wanted: PollFlags,
        mut attempt: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match attempt(self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                done => return done,
            }
            if let Err(no_answer) = self.patience.wait(self.stream.as_fd(), wanted) {
                self.gave_up = Some(no_answer);
                return Err(io::Error::from(ErrorKind::TimedOut));
            }
        }
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Patient<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_done(PollFlags::POLLIN, |stream| match stream {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
        })
    }
}

impl Write for Patient<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_done(PollFlags::POLLOUT, |stream| match stream {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! A TCP proxy in front of a server. A test can tell the proxy to misbehave, even while connections are open.

use super::Redis;
use nix::libc;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Passes requests and replies on, each after this delay.
    Delay(Duration),
    /// Passes everything on after this delay. What comes before this moment first waits for it.
    Hold(Instant, Duration),
    /// Accepts connections, and swallows all bytes.
    BlackHole,
    /// Passes requests on to the server, and swallows all replies.
    LoseReplies,
    /// Closes all open connections, and each new one at once.
    Cut,
    /// Passes requests on to the server. The client gets replies byte by byte, with this pause before each byte.
    Drip(Duration),
    /// The proxy itself answers each packet of a client with these bytes. The server gets nothing.
    Garbage(Vec<u8>),
    /// The proxy itself answers each request with this error. The server gets nothing.
    Refuse(String),
    /// The server executes the requests, but the client gets this error instead of each reply.
    Misreport(String),
    /// The client gets half of the first reply, and then the end of the connection.
    HalfReply,
    /// The client gets half of the first reply, and then a reset.
    Reset,
}

/// How a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    Reset,
    End,
    /// The client sees the end of the connection, but what it sends still arrives at the server.
    HalfEnd,
    /// No byte passes any more, but the connection stays open.
    BlackHole,
}

/// A listener on 127.0.0.1 that passes connections on to one server, or to several in turn. Dropping it closes them.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
enum Target {
    Unix(PathBuf),
    /// A port of this machine.
    Tcp(u16),
}

#[derive(Debug)]
struct Shared {
    /// New connections lead to one server after the other, in turn.
    targets: Mutex<Vec<Target>>,
    mode: Mutex<Mode>,
    ended: AtomicBool,
    /// Connections are numbered from 0. No byte goes through one with a number below this.
    half_open: AtomicUsize,
    /// Owned by the two pumps of each connection: when both have ended, it is closed.
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// After this many more bytes from clients, the connection of the last of them breaks in this way.
    breaks: Mutex<Option<(usize, Break)>>,
    connections: AtomicUsize,
    packets: AtomicUsize,
    requested: AtomicUsize,
    replied: AtomicUsize,
    resets: AtomicUsize,
}

impl super::Where for Proxy {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }
}

impl super::Where for Vec<Proxy> {
    fn urls(&self) -> Vec<String> {
        self.iter().map(Proxy::url).collect()
    }
}

impl Proxy {
    pub(crate) fn new(target: &Redis, mode: Mode) -> Proxy {
        Proxy::to(Target::Unix(target.socket()), mode)
    }

    pub(crate) fn to_port(port: u16, mode: Mode) -> Proxy {
        Proxy::to(Target::Tcp(port), mode)
    }

    fn to(target: Target, mode: Mode) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            targets: Mutex::new(vec![target]),
            mode: Mutex::new(mode),
            ended: AtomicBool::new(false),
            half_open: AtomicUsize::new(0),
            open: Mutex::new(Vec::new()),
            breaks: Mutex::new(None),
            connections: AtomicUsize::new(0),
            packets: AtomicUsize::new(0),
            requested: AtomicUsize::new(0),
            replied: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
        });
        let server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if server.ended.load(Ordering::SeqCst) {
                    return;
                }
                let number = server.connections.fetch_add(1, Ordering::SeqCst);
                if let Ok(client) = client {
                    server.serve(number, client);
                }
            }
        });
        Proxy { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode.clone();
        if mode == Mode::Cut {
            self.shared.close();
        }
    }

    /// From now on new connections lead to `target`, as if a host name had moved. Open connections stay where they are.
    pub(crate) fn move_to(&self, target: &Redis) {
        *self.shared.targets.lock().unwrap() = vec![Target::Unix(target.socket())];
    }

    /// Every second new connection leads to `target`, as behind a balancer.
    pub(crate) fn alternate_with(&self, target: &Redis) {
        self.shared.targets.lock().unwrap().push(Target::Unix(target.socket()));
    }

    /// Makes all present connections half-open: no byte passes any more, but they are not closed. New connections work.
    pub(crate) fn half_open(&self) {
        self.shared.half_open.store(self.connections(), Ordering::SeqCst);
    }

    /// Ends one direction of all open connections. `Write`: the client gets no more replies, but its requests still
    /// arrive. `Read`: no more requests arrive, and the server sees the connection end.
    pub(crate) fn half_close(&self, direction: Shutdown) {
        for stream in self.shared.open.lock().unwrap().iter().filter_map(Weak::upgrade) {
            let _ = stream.shutdown(direction);
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many chunks of bytes, of any length, have come from clients over connections that are not half-open.
    pub(crate) fn packets(&self) -> usize {
        self.shared.packets.load(Ordering::SeqCst)
    }

    /// From now on, counts the bytes that clients send. The connection that brings byte number `byte` breaks right
    /// after it. New connections work.
    pub(crate) fn break_at(&self, byte: usize, how: Break) {
        *self.shared.breaks.lock().unwrap() = Some((byte, how));
    }

    pub(crate) fn mend(&self) {
        *self.shared.breaks.lock().unwrap() = None;
    }

    /// How many bytes have come from clients over connections that are not half-open.
    pub(crate) fn requested(&self) -> usize {
        self.shared.requested.load(Ordering::SeqCst)
    }

    /// How many bytes went back to clients, except in the modes `Refuse`, `HalfReply` and `Reset`.
    pub(crate) fn replied(&self) -> usize {
        self.shared.replied.load(Ordering::SeqCst)
    }

    /// How many connections clients have reset.
    pub(crate) fn resets(&self) -> usize {
        self.shared.resets.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.close();
        // A new connection wakes the thread that listens, and the thread ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        self.mode.lock().unwrap().clone()
    }

    fn close(&self) {
        for stream in self.open.lock().unwrap().drain(..).filter_map(|stream| stream.upgrade()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn serve(self: &Arc<Shared>, number: usize, client: TcpStream) {
        client.set_nodelay(true).unwrap();
        if self.mode() == Mode::Cut {
            return;
        }
        // If the server is down, this closes the client's connection.
        let targets = self.targets.lock().unwrap().clone();
        match &targets[number % targets.len()] {
            Target::Unix(path) => {
                let Ok(server) = UnixStream::connect(path) else { return };
                self.join(number, client, server.try_clone().unwrap(), server);
            }
            Target::Tcp(port) => {
                let Ok(server) = TcpStream::connect(("127.0.0.1", *port)) else { return };
                server.set_nodelay(true).unwrap();
                self.join(number, client, server.try_clone().unwrap(), server);
            }
        }
    }

    fn join<S: Read + Close + Send + 'static>(self: &Arc<Shared>, number: usize, client: TcpStream, from: S, to: S) {
        let client_in = Client { stream: client.try_clone().unwrap(), shared: Arc::clone(self) };
        let to_client = client.try_clone().unwrap();
        let client = Arc::new(client);
        let mut open = self.open.lock().unwrap();
        open.retain(|stream| stream.strong_count() > 0);
        open.push(Arc::downgrade(&client));
        drop(open);
        let (shared, back) = (Arc::clone(self), Arc::clone(&client));
        pump(
            client_in,
            to,
            move |chunk| if shared.lets_through(number) { shared.request(chunk, &back) } else { vec![] },
        );
        let shared = Arc::clone(self);
        pump(
            from,
            to_client,
            move |chunk| if shared.lets_through(number) { shared.reply(chunk, &client) } else { vec![] },
        );
    }

    /// Breaks the client's connection if this chunk has the byte of [`Proxy::break_at`]. Returns the part of the chunk
    /// that still arrives, or None if all of it does: no break is due, or it is a [`Break::HalfEnd`].
    fn breaks_in(&self, chunk: &[u8], client: &TcpStream) -> Option<Vec<(Duration, Vec<u8>)>> {
        let mut breaks = self.breaks.lock().unwrap();
        let (left, how) = (*breaks)?;
        if left > chunk.len() {
            *breaks = Some((left - chunk.len(), how));
            return None;
        }
        *breaks = None;
        match how {
            Break::Reset => reset(client),
            Break::End => drop(client.shutdown(Shutdown::Both)),
            Break::HalfEnd => {
                let _ = client.shutdown(Shutdown::Write);
                return None;
            }
            Break::BlackHole => self.half_open.store(self.connections.load(Ordering::SeqCst), Ordering::SeqCst),
        }
        Some(vec![(Duration::ZERO, chunk[..left].to_vec())])
    }

    fn lets_through(&self, number: usize) -> bool {
        number >= self.half_open.load(Ordering::SeqCst)
    }

    /// Takes a chunk from a client. Returns the pieces that go on to the server, each behind its delay.
    fn request(&self, chunk: Vec<u8>, mut client: &TcpStream) -> Vec<(Duration, Vec<u8>)> {
        self.packets.fetch_add(1, Ordering::SeqCst);
        self.requested.fetch_add(chunk.len(), Ordering::SeqCst);
        if let Some(arrives) = self.breaks_in(&chunk, client) {
            return arrives;
        }
        match self.mode() {
            Mode::Delay(delay) => vec![(delay, chunk)],
            Mode::Hold(until, delay) => vec![(until.saturating_duration_since(Instant::now()) + delay, chunk)],
            Mode::BlackHole | Mode::Cut => vec![],
            Mode::Garbage(bytes) => {
                self.replied.fetch_add(bytes.len(), Ordering::SeqCst);
                let _ = client.write_all(&bytes);
                vec![]
            }
            Mode::Refuse(error) => {
                let _ = client.write_all(format!("-{error}\r\n").repeat(requests(&chunk)).as_bytes());
                vec![]
            }
            Mode::Pass | Mode::LoseReplies | Mode::Misreport(_) | Mode::Drip(_) | Mode::HalfReply | Mode::Reset => {
                vec![(Duration::ZERO, chunk)]
            }
        }
    }

    /// Takes a chunk from the server. Returns the pieces that go on to the client, each behind its delay.
    fn reply(&self, chunk: Vec<u8>, client: &TcpStream) -> Vec<(Duration, Vec<u8>)> {
        let pieces = match self.mode() {
            Mode::Pass => vec![(Duration::ZERO, chunk)],
            Mode::Delay(delay) => vec![(delay, chunk)],
            Mode::Hold(until, delay) => vec![(until.saturating_duration_since(Instant::now()) + delay, chunk)],
            Mode::BlackHole | Mode::LoseReplies | Mode::Cut | Mode::Garbage(_) | Mode::Refuse(_) => vec![],
            Mode::Misreport(error) => vec![(Duration::ZERO, format!("-{error}\r\n").into_bytes())],
            Mode::Drip(interval) => {
                let bytes = chunk.iter().zip(1..);
                bytes.map(|(byte, place)| (interval * place, vec![*byte])).collect()
            }
            mode @ (Mode::HalfReply | Mode::Reset) => {
                let mut client = client;
                let _ = client.write_all(&chunk[..chunk.len() / 2]);
                if mode == Mode::Reset {
                    reset(client);
                }
                let _ = client.shutdown(Shutdown::Both);
                vec![]
            }
        };
        self.replied.fetch_add(pieces.iter().map(|piece| piece.1.len()).sum(), Ordering::SeqCst);
        pieces
    }
}

/// Counts resets by the client.
struct Client {
    stream: TcpStream,
    shared: Arc<Shared>,
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer);
        if read.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {
            self.shared.resets.fetch_add(1, Ordering::SeqCst);
        }
        read
    }
}

/// How many requests begin in this chunk.
fn requests(mut chunk: &[u8]) -> usize {
    let mut count = 0;
    // Reads a line such as `*3\r\n`, with the mark `*`, at the start of the chunk. Returns the number, and the bytes
    // behind the line.
    fn number(chunk: &[u8], mark: u8) -> Option<(usize, &[u8])> {
        let end = chunk.windows(2).position(|pair| pair == b"\r\n")?;
        let digits = std::str::from_utf8(chunk[..end].strip_prefix(&[mark])?).ok()?;
        Some((digits.parse().ok()?, &chunk[end + 2..]))
    }
    while let Some((words, rest)) = number(chunk, b'*') {
        count += 1;
        chunk = rest;
        for _ in 0..words {
            let Some((length, rest)) = number(chunk, b'$') else { return count };
            chunk = rest.get(length + 2..).unwrap_or_default();
        }
    }
    count
}

/// Resets a connection at once, even if other descriptors keep it open: connect(2) with AF_UNSPEC.
fn reset(stream: &TcpStream) {
    let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    let length = size_of::<libc::sockaddr>() as u32;
    // SAFETY: `nowhere` is a valid address of this length.
    let status = unsafe { libc::connect(stream.as_raw_fd(), &nowhere, length) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

/// Where a [`pump`] writes. Once a piece has to wait, a second thread writes it and all later ones.
enum Outlet<W> {
    Direct(W),
    Delayed(mpsc::Sender<(Instant, Vec<u8>)>),
    Closed,
}

trait Close: Write {
    fn close(&self);
}

impl Close for TcpStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Close for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl<W: Close + Send + 'static> Outlet<W> {
    /// Writes the piece at the moment `due`, after all earlier pieces. Returns false once a write has found that the
    /// other end is closed.
    fn put(&mut self, due: Instant, piece: Vec<u8>) -> bool {
        if let (true, Outlet::Direct(_)) = (due > Instant::now(), &*self)
            && let Outlet::Direct(mut to) = std::mem::replace(self, Outlet::Closed)
        {
            let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
            std::thread::spawn(move || {
                for (due, piece) in receiver {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    if to.write_all(&piece).is_err() {
                        break;
                    }
                }
                to.close();
            });
            *self = Outlet::Delayed(sender);
        }
        match self {
            Outlet::Direct(to) => to.write_all(&piece).is_ok(),
            Outlet::Delayed(sender) => sender.send((due, piece)).is_ok(),
            Outlet::Closed => false,
        }
    }
}

/// Starts a thread that reads chunks, gives each to `treat`, and writes the resulting pieces. It also writes until a
/// piece has to wait, because a busy machine delays each change of threads.
fn pump(
    mut from: impl Read + Send + 'static,
    to: impl Close + Send + 'static,
    treat: impl Fn(Vec<u8>) -> Vec<(Duration, Vec<u8>)> + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut outlet = Outlet::Direct(to);
        let mut buffer = [0; 16 * 1024];
        'open: while let Ok(length @ 1..) = from.read(&mut buffer) {
            let now = Instant::now();
            for (delay, piece) in treat(buffer[..length].to_vec()) {
                if !outlet.put(now + delay, piece) {
                    break 'open;
                }
            }
        }
        if let Outlet::Direct(to) = outlet {
            to.close();
        }
    });
}

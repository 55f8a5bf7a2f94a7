//! Opening a socket to a node and logging in. Every wait here ends with the deadline that the caller puts around it.

use super::address::{Address, Place};
use super::fault::Fault;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};

/// A connection that has been silent for this long is tried by the kernel, and one whose other side has not taken
/// anything for `UNANSWERED` is closed: a peer that was switched off says nothing by itself.
const KEEPALIVE: Duration = Duration::from_secs(15);
const UNANSWERED: Duration = Duration::from_secs(60);
/// A Unix socket whose server accepts nothing refuses at once instead of queueing (connect(2), EAGAIN).
const FULL_BACKLOG: Duration = Duration::from_millis(5);

/// A stream of bytes to a server, of whatever kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Connects to the node and logs in.
///
/// # Errors
/// Why it cannot be reached, or what it answered to AUTH or SELECT.
pub(super) async fn open(address: &Address) -> Result<Box<dyn Socket>, Fault> {
    let connected: io::Result<Box<dyn Socket>> = match address.place() {
        Place::Tcp { host, port } => tcp(host, *port).await.map(|stream| Box::new(stream) as _),
        Place::Unix(path) => unix(path).await.map(|stream| Box::new(stream) as _),
    };
    let mut socket = connected.map_err(|error| Fault::of_io(&error))?;
    log_in(&mut socket, address).await?;
    Ok(socket)
}

/// Tries all addresses of the host side by side; the first that answers wins.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut tries: FuturesUnordered<_> = match host.parse() {
        Ok(ip) => FuturesUnordered::from_iter([TcpStream::connect(SocketAddr::new(ip, port))]),
        Err(_) => lookup_host((host, port)).await?.map(TcpStream::connect).collect(),
    };
    let mut last = io::Error::new(ErrorKind::NotFound, "its name has no address");
    while let Some(result) = tries.next().await {
        match result {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
                socket.set_tcp_user_timeout(Some(UNANSWERED))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(FULL_BACKLOG).await,
            connected => return connected,
        }
    }
}

/// AUTH and SELECT in one round trip, where the address asks for them.
async fn log_in(socket: &mut Box<dyn Socket>, address: &Address) -> Result<(), Fault> {
    let mut requests = Vec::new();
    if let Some(password) = address.password() {
        requests.push(redis::cmd("AUTH").arg(address.username()).arg(password).get_packed_command());
    }
    if address.database() != 0 {
        requests.push(redis::cmd("SELECT").arg(address.database()).get_packed_command());
    }
    if requests.is_empty() {
        return Ok(());
    }
    socket.write_all(&requests.concat()).await.map_err(|error| Fault::of_io(&error))?;
    for _ in requests {
        let line = reply_line(socket).await.map_err(|error| Fault::of_io(&error))?;
        let reply = redis::parse_redis_value(&line).and_then(redis::Value::extract_error);
        reply.map_err(|error| match Fault::of(&error) {
            Fault::Misconfigured(code, _) if code == "DB index" => {
                Fault::Misconfigured(String::new(), format!("has no database {}", address.database()))
            }
            fault => fault,
        })?;
    }
    Ok(())
}

/// A reply of one line, such as +OK or -WRONGPASS.
async fn reply_line(socket: &mut Box<dyn Socket>) -> io::Result<Vec<u8>> {
    const LONGEST: usize = 4096;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() == LONGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "its answer is too long"));
        }
        line.push(socket.read_u8().await?);
    }
    Ok(line)
}

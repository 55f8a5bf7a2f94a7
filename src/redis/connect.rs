//! Opening a socket to a node and logging in. Every wait here ends with the deadline that the caller puts around it.

use super::address::{Address, Host, Place};
use super::fault::Fault;
use super::local;
use super::reply::Reply;
use super::tls;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Cmd, Value};
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
    let mut socket = match address.place() {
        Place::Tcp(host) => to_host(host, address).await?,
        Place::Unix(path) => Box::new(unix(path).await.map_err(|error| Fault::of_io(&error))?),
        Place::Local(directory) => {
            let connected = local::connect(directory.as_deref()).await;
            Box::new(connected.map_err(|error| Fault::of_io(&error))?)
        }
        Place::Sentinel { .. } | Place::Cluster(_) => {
            return Err(Fault::Garbage("not a single server"));
        }
    };
    log_in(&mut socket, address).await?;
    Ok(socket)
}

/// Connects to this host in the way that the address says, and does not log in.
///
/// # Errors
/// Why it cannot be reached.
pub(super) async fn to_host(host: &Host, address: &Address) -> Result<Box<dyn Socket>, Fault> {
    let stream = tcp(host).await.map_err(|error| Fault::of_io(&error))?;
    Ok(match address.tls() {
        Some(with) => Box::new(tls::over(stream, host, with).await.map_err(|error| Fault::of_io(&error))?),
        None => Box::new(stream),
    })
}

/// Tries all addresses of the host side by side; the first that answers wins.
async fn tcp(host: &Host) -> io::Result<TcpStream> {
    let mut tries: FuturesUnordered<_> = match host.name.parse() {
        Ok(ip) => FuturesUnordered::from_iter([TcpStream::connect(SocketAddr::new(ip, host.port))]),
        Err(_) => lookup_host((host.name.as_str(), host.port)).await?.map(TcpStream::connect).collect(),
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
        let mut auth = redis::cmd("AUTH");
        auth.arg(address.username()).arg(password);
        requests.push(auth);
    }
    if address.database() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(address.database());
        requests.push(select);
    }
    if requests.is_empty() {
        return Ok(());
    }
    let answers = exchange(socket, &requests).await;
    answers.map(drop).map_err(|fault| match fault {
        Fault::Misconfigured(code, _) if code == "DB index" => {
            Fault::Misconfigured(String::new(), format!("has no database {}", address.database()))
        }
        fault => fault,
    })
}

/// Sends requests over a socket that nothing else is read from, and reads the answers to all of them.
///
/// # Errors
/// What ails the socket, or the first of the answers that is an error.
pub(super) async fn exchange(socket: &mut Box<dyn Socket>, requests: &[Cmd]) -> Result<Vec<Reply>, Fault> {
    const LONGEST: usize = 1 << 20;
    let packed: Vec<u8> = requests.iter().flat_map(Cmd::get_packed_command).collect();
    let sent = async { socket.write_all(&packed).await.and(socket.flush().await) };
    sent.await.map_err(|error| Fault::of_io(&error))?;
    // Read as one list: then all of them have come, and nothing behind them.
    let mut list = format!("*{}\r\n", requests.len()).into_bytes();
    loop {
        match socket.read_buf(&mut list).await.map_err(|error| Fault::of_io(&error))? {
            0 => return Err(Fault::Closed),
            _ if list.len() > LONGEST => return Err(Fault::Garbage("it is too long")),
            _ => {}
        }
        match redis::parse_redis_value(&list) {
            Err(error) if error.is_io_error() => {} // there is more to come
            Err(error) => return Err(Fault::of(&error)),
            Ok(Value::Array(answers)) => return answers.into_iter().map(Reply::of).collect(),
            Ok(_) => return Err(Fault::Garbage("it cannot be parsed")),
        }
    }
}

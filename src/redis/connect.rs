//! Opening a socket to a node, and logging in. Waits have no deadline here: the caller sets it.

use super::address::Address;
use super::fault::Fault;
use super::local;
use super::reply::Reply;
use super::stream::ServerStream;
use super::tls;
use super::url::{Deployment, Host};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Cmd, Value};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};

/// The silence after which the kernel probes a connection. If the peer acknowledges nothing for `UNANSWERED`, the kernel
/// closes it: a machine that was switched off sends nothing.
const KEEPALIVE: Duration = Duration::from_secs(15);
const UNANSWERED: Duration = Duration::from_secs(60);
/// A Unix socket whose server accepts nothing refuses at once instead of queueing (connect(2), EAGAIN).
const FULL_BACKLOG: Duration = Duration::from_millis(5);

/// Connects to the node and logs in.
///
/// # Errors
/// The reason why it cannot be reached, or its refusal of AUTH or SELECT.
pub(super) async fn open(address: &Address) -> Result<ServerStream, Fault> {
    let mut stream = dial(address).await.map_err(|error| Fault::of_io(&error))?;
    log_in(&mut stream, address).await?;
    Ok(stream)
}

/// The time left of the server's certificate, if it ends within `time`; none without TLS.
pub(super) async fn certificate_ends_within(time: Duration, address: &Address) -> Option<Duration> {
    let (Deployment::Tcp(host), Some(with)) = (address.deployment(), address.tls()) else { return None };
    tls::ends_within(time, tcp(host).await.ok()?, host, with).await
}

async fn dial(address: &Address) -> io::Result<ServerStream> {
    Ok(match address.deployment() {
        Deployment::Tcp(host) => {
            let stream = tcp(host).await?;
            let descriptor = stream.as_fd().try_clone_to_owned().ok();
            match address.tls() {
                Some(with) => ServerStream::new(tls::over(stream, host, with).await?, descriptor),
                None => ServerStream::new(stream, descriptor),
            }
        }
        Deployment::Unix(path) => ServerStream::new(unix(path).await?, None),
        Deployment::Local(directory) => ServerStream::new(local::connect(directory.as_deref()).await?, None),
        Deployment::Sentinel { .. } | Deployment::Cluster(_) => return Err(io::Error::other("not a single server")),
    })
}

/// Tries all addresses of the host in parallel; the first that answers wins.
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

/// AUTH and SELECT, where the address asks for them, in one round trip at most.
async fn log_in(socket: &mut ServerStream, address: &Address) -> Result<(), Fault> {
    let mut requests = Vec::new();
    if let Some(password) = address.password() {
        let mut auth = redis::cmd("AUTH");
        auth.arg(address.username()).arg(password);
        requests.push(auth);
    }
    if address.url.database != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(address.url.database);
        requests.push(select);
    }
    if requests.is_empty() {
        return Ok(());
    }
    exchange(socket, &requests).await.map(drop)
}

/// Sends requests, and reads the answers to all of them. The socket has no other reader.
///
/// # Errors
/// The error of the socket, or the first answer that is an error.
pub(super) async fn exchange(socket: &mut ServerStream, requests: &[Cmd]) -> Result<Vec<Reply>, Fault> {
    let packed: Vec<u8> = requests.iter().flat_map(Cmd::get_packed_command).collect();
    let sent = async { socket.write_all(&packed).await.and(socket.flush().await) };
    sent.await.map_err(|error| Fault::of_io(&error))?;
    // The answers are parsed as one list, which is complete once all of them are there.
    let mut list = format!("*{}\r\n", requests.len()).into_bytes();
    loop {
        if socket.read_buf(&mut list).await.map_err(|error| Fault::of_io(&error))? == 0 {
            return Err(Fault::Closed);
        }
        match redis::parse_redis_value(&list) {
            Err(error) if error.is_io_error() => {} // there is more to come
            Err(error) => return Err(Fault::of(&error)),
            Ok(Value::Array(answers)) => return answers.into_iter().map(Reply::of).collect(),
            Ok(_) => return Err(Fault::Garbage("it cannot be parsed")),
        }
    }
}

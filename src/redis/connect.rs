//! Opening a socket to a node, and logging in. No wait here has a deadline of its own: the caller sets one.

use super::address::Address;
use super::fault::Fault;
use super::local;
use super::reply::Reply;
use super::stream::ServerStream;
use super::tls;
use super::url::{Deployment, Host};
use crate::sys::clock::Boot;
use crate::sys::wait::within;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use nix::errno::Errno;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{Cmd, Value};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// The kernel probes a connection that has been silent for `KEEPALIVE`, and goes on at this interval. If the peer
/// acknowledges nothing for `UNANSWERED`, the kernel closes the connection: the machine may be switched off.
const KEEPALIVE: Duration = Duration::from_secs(15);
const UNANSWERED: Duration = Duration::from_secs(60);
/// The number of connections that find out whether an address leads to several servers. If a balancer picks one of two
/// servers at random, all connections reach the same server once in 128 times.
const LOOKS: usize = 8;
/// The pause before another attempt at a Unix socket whose backlog is full: there connect(2) fails at once (EAGAIN).
const FULL_BACKLOG: Duration = Duration::from_millis(5);

/// Connects to the node and logs in.
pub(super) async fn open(address: &Address) -> Result<ServerStream, Fault> {
    let mut stream = dial(address).await?;
    log_in(&mut stream, address).await?;
    Ok(stream)
}

/// The `run_id`s of the servers at all IP addresses of the host. All connections are open at the same time, because a
/// balancer may give each one to the least busy server. Empty if the address is no TCP host, or if no server reports
/// its `run_id` by the deadline.
pub(super) async fn run_ids(address: &Address, deadline: Boot) -> BTreeSet<String> {
    let Deployment::Tcp(host) = address.deployment() else { return BTreeSet::new() };
    let Some(Ok(targets)) = within(deadline, address.look_ups().find(host)).await else { return BTreeSet::new() };
    let looks = targets.iter().flat_map(|&target| [target; LOOKS]);
    let met = join_all(looks.map(|target| within(deadline, run_id(address, host, target)))).await;
    met.into_iter().flatten().flatten().map(|(_, run_id)| run_id).collect()
}

/// The `run_id` of the server that answers at the address `target`, and the connection, which the caller keeps open.
/// None if the connection fails, or if INFO is refused.
async fn run_id(address: &Address, host: &Host, target: SocketAddr) -> Option<(ServerStream, String)> {
    let mut stream = secured(TcpStream::connect(target).await.ok()?, address, host).await.ok()?;
    log_in(&mut stream, address).await.ok()?;
    let info = exchange(&mut stream, &[redis::cmd("INFO").arg("server").to_owned()]).await.ok()?;
    let run_id = info.first()?.as_text()?.lines().find_map(|line| line.strip_prefix("run_id:"))?.to_owned();
    Some((stream, run_id))
}

async fn dial(address: &Address) -> Result<ServerStream, Fault> {
    let unix = match address.deployment() {
        Deployment::Tcp(host) => {
            let secured = secured(tcp(address, host).await?, address, host).await;
            return secured.map_err(|error| Fault::of_io(&error));
        }
        Deployment::Unix(path) => unix(path).await,
        Deployment::Local(directory) => local::connect(directory.as_deref()).await,
        Deployment::Sentinel { .. } | Deployment::Cluster(_) => Err(io::Error::other("not a single server")),
    };
    unix.map(|stream| ServerStream::new(stream, None)).map_err(|error| Fault::of_connect(&error))
}

async fn secured(stream: TcpStream, address: &Address, host: &Host) -> io::Result<ServerStream> {
    let descriptor = stream.as_fd().try_clone_to_owned().ok();
    Ok(match address.tls() {
        Some(with) => ServerStream::new(tls::over(stream, host, with).await?, descriptor),
        None => ServerStream::new(stream, descriptor),
    })
}

/// Tries all addresses of the host in parallel; the first that answers wins.
async fn tcp(address: &Address, host: &Host) -> Result<TcpStream, Fault> {
    let found = address.look_ups().find(host).await?;
    let mut tries: FuturesUnordered<_> = found.into_iter().map(tcp_at).collect();
    let mut faults = Vec::new();
    while let Some(result) = tries.next().await {
        match result {
            Ok(stream) => return Ok(stream),
            Err(error) => faults.push(Fault::of_connect(&error)),
        }
    }
    // An address that may work later counts more than one that never will.
    let fault = faults.into_iter().min_by_key(Fault::is_final);
    Err(fault.unwrap_or_else(|| Fault::Unreachable("its name has no address".to_owned())))
}

async fn tcp_at(target: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    socket.set_tcp_user_timeout(Some(UNANSWERED))?;
    Ok(stream)
}

async fn unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(FULL_BACKLOG).await,
            // The kernel reports a file that is no socket like a socket without a server.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_other_file(path) => {
                return Err(Errno::ENOTSOCK.into());
            }
            connected => return connected,
        }
    }
}

fn is_other_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.file_type().is_socket())
}

/// AUTH and SELECT, if the address asks for them, in at most one round trip.
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
    exchange(socket, &requests).await.map(drop).map_err(|fault| fault.of_login(&address.password_from()))
}

/// Sends requests, and reads the answers to all of them. The first answer that is an error is the result. The socket
/// must have no other reader.
pub(super) async fn exchange(socket: &mut ServerStream, requests: &[Cmd]) -> Result<Vec<Reply>, Fault> {
    let packed: Vec<u8> = requests.iter().flat_map(Cmd::get_packed_command).collect();
    let sent = async { socket.write_all(&packed).await.and(socket.flush().await) };
    sent.await.map_err(|error| Fault::of_io(&error))?;
    // The answers are parsed as one list, which is complete once all of them have arrived.
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

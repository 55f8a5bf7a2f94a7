//! The addresses of hosts, from /etc/hosts and name servers.

use super::fault::Fault;
use super::url::Host;
use crate::sys::clock::Boot;
use crate::sys::host;
use crate::sys::wait::within;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// A result that nobody has waited for is used if its look-up began at most this long ago.
const FRESH: Duration = Duration::from_secs(30);

/// The look-ups of one node, by name. A look-up goes on when its caller gives up: the C library asks the name server
/// again only 5 s after a lost packet, and most callers wait less. The next caller joins the same look-up.
#[derive(Default)]
pub(super) struct LookUps(RefCell<BTreeMap<String, LookUp>>);

#[derive(Clone)]
struct LookUp {
    begun: Boot,
    found: Shared<LocalBoxFuture<'static, Result<Vec<IpAddr>, Fault>>>,
}

impl LookUps {
    pub(super) async fn find(&self, host: &Host) -> Result<Vec<SocketAddr>, Fault> {
        if let Ok(ip) = host.name.parse() {
            return Ok(vec![SocketAddr::new(ip, host.port)]);
        }
        let look_up = self.join(&host.name);
        let found = look_up.found.clone().await;
        self.0.borrow_mut().retain(|_, other| !other.found.ptr_eq(&look_up.found));
        Ok(found?.into_iter().map(|ip| SocketAddr::new(ip, host.port)).collect())
    }

    /// The look-up of this name that is under way, or a new one.
    fn join(&self, name: &str) -> LookUp {
        let mut all = self.0.borrow_mut();
        all.retain(|_, look_up| look_up.begun.elapsed() <= FRESH);
        all.entry(name.to_owned()).or_insert_with(|| LookUp::begin(name.to_owned())).clone()
    }

    /// The outcome of a request; [`LookUps::timed_out`] if there is none by the deadline.
    pub(super) async fn within<T>(
        &self,
        deadline: Boot,
        request: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut request = pin!(request);
        within(deadline, request.as_mut()).await.unwrap_or_else(|| Err(self.timed_out()))
    }

    /// The fault of a request that times out now, while its future still exists.
    pub(super) fn timed_out(&self) -> Fault {
        let all = self.0.borrow();
        let awaited = all.iter().find(|(_, look_up)| look_up.found.strong_count() > Some(1));
        awaited.map_or(Fault::TimedOut, |(name, _)| Fault::LookUpTimedOut(name.clone()))
    }
}

impl LookUp {
    fn begin(name: String) -> LookUp {
        let found = async move {
            let (result, found) = oneshot::channel();
            let look_up = move || drop(result.send(look_up(&name)));
            // tokio's own threads would end the whole process if this user may not have another thread.
            if let Err(error) = thread::Builder::new().spawn(look_up) {
                return Err(host::shortage(&error).map_or_else(|| Fault::of_io(&error), Fault::Shortage));
            }
            let found = found.await.unwrap_or_else(|_| Err(io::Error::other("its look-up has failed")));
            found.map_err(|error| Fault::of_io(&error))
        };
        LookUp { begun: Boot::now(), found: found.boxed_local().shared() }
    }
}

/// Blocks until the name servers have answered, or the C library gives up.
fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    host::look_up_names_alone()?;
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

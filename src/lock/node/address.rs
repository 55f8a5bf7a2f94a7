//! Where one node is, and how to log in there.

use redis::{ConnectionAddr, IntoConnectionInfo};
use std::fmt;
use std::path::Path;

/// Where one node is, and how to log in there.
#[derive(Clone)]
pub(crate) struct Address {
    place: ConnectionAddr,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

/// What there is to connect to.
pub(super) enum Place<'a> {
    Tcp(&'a str, u16),
    Unix(&'a Path),
}

impl Address {
    /// Reads `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=n]`; a password that is not in it is
    /// `password`.
    ///
    /// # Errors
    /// What is wrong with it, without the password.
    pub(crate) fn parse(url: &str, password: Option<&str>) -> Result<Address, String> {
        let info = url.into_connection_info().map_err(|error| {
            let reason = error.detail().map_or_else(|| error.to_string(), str::to_owned);
            reason.replace(" - InvalidClientConfig", "")
        })?;
        let login = info.redis_settings();
        let address = Address {
            place: info.addr().clone(),
            username: login.username().map(str::to_owned),
            password: login.password().or(password).map(str::to_owned),
            database: login.db(),
        };
        match address.place() {
            Some(_) => Ok(address),
            None => Err("only redis:// and unix:// are supported yet".to_owned()),
        }
    }

    /// Whether the host has a name, which somebody has to be asked about.
    pub(super) fn needs_look_up(&self) -> bool {
        match self.place() {
            Some(Place::Tcp(host, _)) => host.parse::<std::net::IpAddr>().is_err(),
            _ => false,
        }
    }

    pub(super) fn place(&self) -> Option<Place<'_>> {
        match &self.place {
            // Of an IPv6 address the brackets belong to the URL.
            ConnectionAddr::Tcp(host, port) => {
                Some(Place::Tcp(host.trim_start_matches('[').trim_end_matches(']'), *port))
            }
            ConnectionAddr::Unix(path) => Some(Place::Unix(path)),
            _ => None,
        }
    }
}

/// What messages call the node: `10.0.0.1:6379` or the socket's path. Never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(Place::Tcp(host, port)) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(Place::Tcp(host, port)) => write!(f, "{host}:{port}"),
            Some(Place::Unix(path)) => write!(f, "{}", path.display()),
            None => write!(f, "{}", self.place),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

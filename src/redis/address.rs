//! The address of a node, and the login there.

use super::file_value::FileValue;
use super::local::Local;
use super::look_up::LookUps;
use super::url::{Deployment, Host, Url};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;

#[derive(Clone)]
pub(crate) struct Address {
    pub(super) url: Url,
    access: Rc<Access>,
    /// Shared by all servers of the node.
    look_ups: Rc<LookUps>,
}

/// The options that apply to all nodes.
#[derive(Default)]
pub(crate) struct Access {
    /// The password for URLs without a password. It is not used for `local:` or for Sentinels.
    pub(crate) password: Option<FileValue<String>>,
    /// Where that password and the URLs come from, in words for messages.
    pub(crate) password_from: String,
    pub(crate) urls_from: String,
    /// The certificates to trust and to show; none unless a URL asks for TLS.
    pub(crate) tls: Option<FileValue<Arc<ClientConfig>>>,
    /// The number of replicas that have to confirm a lease.
    pub(crate) replicas: u32,
    /// True for the default node, which no option, variable or file has named.
    pub(crate) is_default: bool,
}

impl Address {
    /// Parses `redis://[user:password@]host[:port][/db]`, the same with `rediss` for TLS, `unix:///path.sock[?db=n]`,
    /// `redis+sentinel://h1,h2/SERVICE[/db]`, `redis+cluster://h1,h2` (with `rediss+` for TLS) or `local:[/DIR]`.
    ///
    /// # Errors
    /// The fault of the URL, without the password.
    pub(crate) fn parse(url: &str, access: &Rc<Access>) -> Result<Address, String> {
        Ok(Address { url: Url::parse(url)?, access: Rc::clone(access), look_ups: Rc::default() })
    }

    /// A server of the same service or Cluster, with the same login.
    pub(super) fn at(&self, server: &Host) -> Address {
        Address { url: Url { deployment: Deployment::Tcp(server.clone()), ..self.url.clone() }, ..self.clone() }
    }

    /// A Sentinel of the service, with the Sentinels' login.
    pub(super) fn of_sentinel(&self, sentinel: &Host) -> Address {
        let Deployment::Sentinel { login, .. } = &self.url.deployment else { return self.at(sentinel) };
        let Address { url, .. } = self.at(sentinel);
        Address { url: Url { login: login.clone(), own_login: true, database: 0, ..url }, ..self.clone() }
    }

    pub(super) fn look_ups(&self) -> &Rc<LookUps> {
        &self.look_ups
    }

    pub(crate) fn deployment(&self) -> &Deployment {
        &self.url.deployment
    }

    /// The server of a `local:` address; none for any other address, or if the directory cannot be used.
    pub(crate) fn local(&self) -> Option<Local> {
        let Deployment::Local(directory) = &self.url.deployment else { return None };
        Local::at(directory.as_deref()).ok()
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.url.tls
    }

    pub(super) fn is_default(&self) -> bool {
        self.access.is_default
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.access.replicas
    }

    /// The TLS configuration; none unless the URL asks for TLS.
    pub(super) fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.access.tls.as_ref().filter(|_| self.url.tls).map(FileValue::get)
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.url.login.username.as_deref()
    }

    /// The password of the settings; none if the URL has its own, or belongs to a `local:` server or to a Sentinel.
    fn common_password(&self) -> Option<&FileValue<String>> {
        let has_own = self.url.own_login || self.url.login.password.is_some();
        self.access.password.as_ref().filter(|_| !has_own)
    }

    /// The current password; the file may have changed.
    pub(crate) fn password(&self) -> Option<String> {
        self.url.login.password.clone().or_else(|| self.common_password().map(FileValue::get))
    }

    pub(super) fn password_from(&self) -> String {
        match self.common_password() {
            Some(_) => self.access.password_from.clone(),
            None => format!("the URL in {}", self.access.urls_from),
        }
    }

    /// True if both are the same node, judged by their spelling.
    pub(crate) fn is_same_node(&self, other: &Address) -> bool {
        match (&self.url.deployment, &other.url.deployment) {
            (Deployment::Tcp(one), Deployment::Tcp(another)) => one.is_same(another),
            // Paths are compared by component: `//` and `/./` make no difference.
            (Deployment::Unix(one), Deployment::Unix(another)) => one == another,
            (
                Deployment::Sentinel { sentinels: ours, service: one, .. },
                Deployment::Sentinel { sentinels: others, service: another, .. },
            ) => one == another && share_a_host(ours, others),
            (Deployment::Cluster(ours), Deployment::Cluster(others)) => share_a_host(ours, others),
            _ => false,
        }
    }
}

fn share_a_host(ours: &[Host], others: &[Host]) -> bool {
    ours.iter().any(|host| others.iter().any(|other| host.is_same(other)))
}

/// The name of the node in messages, such as `[::1]:6379` or `mymaster@10.0.0.1:26379`; never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url.deployment {
            Deployment::Tcp(host) => host.fmt(f),
            Deployment::Unix(path) => path.display().fmt(f),
            Deployment::Sentinel { sentinels, service, .. } => write!(f, "{service}@{}", sentinels[0]),
            Deployment::Cluster(hosts) => write!(f, "cluster@{}", hosts[0]),
            Deployment::Local(None) => f.write_str("local:"),
            Deployment::Local(Some(directory)) => write!(f, "local:{}", directory.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url, &Rc::default()).expect(url)
    }

    #[test]
    fn a_password_is_filled_in_where_the_url_has_none() {
        let other = FileValue::new(Vec::new(), || Ok("other".to_owned())).expect("no file");
        let access = Rc::new(Access { password: Some(other), ..Access::default() });
        let with = |url| Address::parse(url, &access).expect(url).password();
        assert_eq!(with("redis://u@h").as_deref(), Some("other"));
        assert_eq!(with("redis://u:s@h").as_deref(), Some("s"));
        assert_eq!(parsed("redis://u:s@h").password().as_deref(), Some("s"));
    }

    #[test]
    fn a_node_is_called_by_its_place() {
        for (url, name) in [
            ("redis://10.0.0.1", "10.0.0.1:6379"),
            ("redis://u:secret@Host:1/2", "Host:1"),
            ("redis://[0::1]", "[::1]:6379"),
            ("rediss://h", "h:6379"),
            ("unix:///run/a.sock?pass=secret", "/run/a.sock"),
            ("redis+sentinel://u:secret@a,b/m?sentinel-password=secret", "m@a:26379"),
            ("redis+cluster://a:1,b:2", "cluster@a:1"),
            ("local:/d", "local:/d"),
        ] {
            assert_eq!(parsed(url).to_string(), name);
            assert_eq!(format!("{:?}", parsed(url)), name);
        }
    }

    #[test]
    fn the_same_node_is_recognised() {
        let same = |one, another| parsed(one).is_same_node(&parsed(another));
        for url in ["redis://Host", "redis://host:6379", "redis://u:p@HOST:6379/3", "REDIS://host./?protocol=3"] {
            assert!(same(url, "redis://host"), "{url}");
        }
        assert!(same("redis://[::1]", "redis://[0:0:0:0:0:0:0:1]:6379/1"));
        assert!(same("unix:///a/b.sock", "unix:///a//./b.sock?db=2"));
        assert!(!same("redis://host:6379", "redis://host:6380"));
        assert!(!same("redis://host", "unix:///host"));
        assert!(same("redis+sentinel://a,b/m", "redis+sentinel://B:26379,c/m"));
        assert!(!same("redis+sentinel://a/m", "redis+sentinel://a/n"));
        assert!(same("redis+cluster://a:1,b:1", "redis+cluster://c:1,b:1"));
    }
}

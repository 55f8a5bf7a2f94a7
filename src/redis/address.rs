//! Where a node is and how to log in there: the forms of a Redis URL, each parsed once, here. What is said about a URL
//! never shows its password.

use super::rotated::Rotated;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::rc::Rc;
use tokio_rustls::TlsConnector;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Where a node is, and how to log in there.
#[derive(Clone)]
pub(crate) struct Address {
    place: Place,
    login: Login,
    /// The password of the options is for other servers.
    own_login: bool,
    database: i64,
    /// Over TCP: by TLS.
    tls: bool,
    access: Rc<Access>,
}

/// What there is to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(Host),
    Unix(PathBuf),
    /// The primary of this service, which any of these Sentinels knows.
    Sentinel {
        sentinels: Vec<Host>,
        service: String,
        login: Login,
    },
    /// The primary of a lock's slot, which any of these nodes of the Cluster knows.
    Cluster(Vec<Host>),
    /// A server of this machine's own, in this directory or in the user's.
    Local(Option<PathBuf>),
}

/// A host's name or address, an IPv6 address without its brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A user and a password; what the URL does not give is empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

/// What the options say for all nodes alike.
#[derive(Default)]
pub(crate) struct Access {
    /// The password where a URL has none.
    pub(crate) password: Option<Rotated<String>>,
    /// Which certificates to trust and to show; there where a URL asks for TLS.
    pub(crate) tls: Option<Rotated<TlsConnector>>,
    /// How many replicas have to confirm what the primary confirms.
    pub(crate) replicas: u32,
}

/// Takes `a,b` apart where a comma is followed by another URL.
pub(crate) fn split(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split(',') {
        match urls.last_mut() {
            Some(last) if scheme(part.trim_start()).is_none() => {
                last.push(',');
                last.push_str(part);
            }
            _ => urls.push(part.to_owned()),
        }
    }
    urls.into_iter().map(|url| url.trim().to_owned()).collect()
}

impl Address {
    /// Reads `redis://[user:password@]host[:port][/db]`, the same with `rediss` for TLS, `unix:///path.sock[?db=n]`,
    /// `redis+sentinel://h1,h2/SERVICE[/db]`, `redis+cluster://h1,h2` (with `rediss+` for TLS) or `local:[/DIR]`.
    ///
    /// # Errors
    /// What is wrong with it, without the password.
    pub(crate) fn parse(url: &str, access: &Rc<Access>) -> Result<Address, String> {
        if url.is_empty() {
            return Err("empty Redis URL; one looks like redis://127.0.0.1:6379".to_owned());
        }
        let shown = without_secret(url);
        let bad = |why: String| format!("cannot use {shown:?}: {why}");
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(bad("white space or a control character in a URL".to_owned()));
        }
        let Some(scheme) = scheme(url) else {
            let path = shown.strip_prefix("unix:").unwrap_or(&shown);
            return Err(bad(match path.starts_with('/') {
                true => format!("not a URL; unix://{path}?"),
                false if shown == "local" => "not a URL; local: or redis://local?".to_owned(),
                false => format!("not a URL; redis://{shown}?"),
            }));
        };
        let rest = &url[scheme.len() + 1..];
        let kind = scheme.to_ascii_lowercase();
        let address = match kind.as_str() {
            "redis" | "rediss" => server(&rest[2..]),
            "redis+sentinel" | "rediss+sentinel" => sentinel(&rest[2..]),
            "redis+cluster" | "rediss+cluster" => cluster(&rest[2..]),
            "unix" => socket(&rest[2..]),
            "local" => local(rest),
            _ => Err("unknown scheme; use redis, rediss, unix, redis+sentinel, redis+cluster or local".to_owned()),
        };
        let address = address.map_err(bad)?;
        Ok(Address { tls: is_tls(url), access: Rc::clone(access), ..address })
    }

    /// An address without a login, of database 0.
    fn of(place: Place) -> Address {
        Address { place, login: Login::default(), own_login: false, database: 0, tls: false, access: Rc::default() }
    }

    /// One of the servers of a service or a Cluster, with the same login.
    pub(super) fn at(&self, server: &Host) -> Address {
        Address { place: Place::Tcp(server.clone()), ..self.clone() }
    }

    /// One of the Sentinels, which have a login of their own.
    pub(super) fn of_sentinel(&self, sentinel: &Host) -> Address {
        let Place::Sentinel { login, .. } = &self.place else { return self.at(sentinel) };
        Address { login: login.clone(), own_login: true, database: 0, ..self.at(sentinel) }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls
    }

    /// How many replicas have to confirm what the primary confirms.
    pub(crate) fn replicas(&self) -> u32 {
        self.access.replicas
    }

    /// What TLS to the node takes; none where the URL does not ask for it.
    pub(crate) fn tls(&self) -> Option<TlsConnector> {
        self.access.tls.as_ref().filter(|_| self.tls).map(Rotated::get)
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.login.username.as_deref()
    }

    /// As it is now: the file that it comes from may have changed.
    pub(crate) fn password(&self) -> Option<String> {
        let others = self.access.password.as_ref().filter(|_| !self.own_login);
        self.login.password.clone().or_else(|| others.map(Rotated::get))
    }

    pub(crate) fn database(&self) -> i64 {
        self.database
    }

    /// Whether both name one node, as far as their spelling tells.
    pub(crate) fn is_same_node(&self, other: &Address) -> bool {
        let shared = |ours: &[Host], others: &[Host]| ours.iter().any(|host| others.iter().any(|o| host.is_same(o)));
        match (&self.place, &other.place) {
            (Place::Tcp(one), Place::Tcp(another)) => one.is_same(another),
            // Paths compare by their parts: `//` and `/./` make no difference.
            (Place::Unix(one), Place::Unix(another)) => one == another,
            (
                Place::Sentinel { sentinels: ours, service: one, .. },
                Place::Sentinel { sentinels: others, service: another, .. },
            ) => one == another && shared(ours, others),
            (Place::Cluster(ours), Place::Cluster(others)) => shared(ours, others),
            _ => false,
        }
    }
}

impl Host {
    fn is_same(&self, other: &Host) -> bool {
        let plain = |host: &Host| host.name.strip_suffix('.').unwrap_or(&host.name).to_ascii_lowercase();
        self.port == other.port && plain(self) == plain(other)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// What messages call the node: `10.0.0.1:6379`, `[::1]:6379`, the socket's path, `mymaster@10.0.0.1:26379`. Never a
/// password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(host) => host.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
            Place::Sentinel { sentinels, service, .. } => write!(f, "{service}@{}", sentinels[0]),
            Place::Cluster(hosts) => write!(f, "cluster@{}", hosts[0]),
            Place::Local(None) => f.write_str("local:"),
            Place::Local(Some(directory)) => write!(f, "local:{}", directory.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Whether a URL asks for TLS.
pub(crate) fn is_tls(url: &str) -> bool {
    scheme(url).is_some_and(|scheme| scheme.to_ascii_lowercase().starts_with("rediss"))
}

/// What stands before `://`, or `local` before a colon.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain);
    (fits && (rest.starts_with("//") || scheme.eq_ignore_ascii_case("local"))).then_some(scheme)
}

/// The parts of `[user:password@]authority[/path][?query]`.
struct Parts<'a> {
    login: Login,
    authority: &'a str,
    path: &'a str,
    query: &'a str,
}

fn parts(rest: &str) -> Result<Parts<'_>, String> {
    if rest.contains('#') {
        return Err("write a # in a password as %23".to_owned());
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if tail.contains('@') {
        return Err("write a / or ? in a password as %2F or %3F".to_owned());
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let (login, authority) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (username, password) = login.split_once(':').unwrap_or((login, ""));
    let login = Login { username: decoded(username, "user name")?, password: decoded(password, "password")? };
    Ok(Parts { login, authority, path: path.trim_matches('/'), query })
}

/// `[user:password@]host[:port][/db]`
fn server(rest: &str) -> Result<Address, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    for (name, value) in parameters(query) {
        match name {
            "protocol" => check_protocol(value)?,
            "db" => return Err("the database number is the path of the URL: redis://host/0".to_owned()),
            _ => return Err(unknown(name, "protocol")),
        }
    }
    let place = Place::Tcp(host_and_port(authority, DEFAULT_PORT)?);
    let database = match path {
        "" => 0,
        number => database(number).ok_or("the path of the URL must be a database number: redis://host/0")?,
    };
    Ok(Address { login, database, ..Address::of(place) })
}

/// `[user:password@]h1[:port],h2[:port]/SERVICE[/db][?sentinel-user=U&sentinel-password=P]`
fn sentinel(rest: &str) -> Result<Address, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    let mut of_sentinels = Login::default();
    for (name, value) in parameters(query) {
        match name {
            "protocol" => check_protocol(value)?,
            "sentinel-user" => of_sentinels.username = decoded(value, "user name")?,
            "sentinel-password" => of_sentinels.password = decoded(value, "password")?,
            _ => return Err(unknown(name, "sentinel-user, sentinel-password and protocol")),
        }
    }
    let (service, number) = path.split_once('/').unwrap_or((path, "0"));
    let place = Place::Sentinel {
        sentinels: hosts(authority, DEFAULT_SENTINEL_PORT)?,
        service: decoded(service, "service")?
            .ok_or("the name of the service is missing: redis+sentinel://h1,h2,h3/mymaster")?,
        login: of_sentinels,
    };
    let database = database(number).ok_or("after the service, only a database number may follow")?;
    Ok(Address { login, database, ..Address::of(place) })
}

/// `[user:password@]h1[:port],h2[:port]`
fn cluster(rest: &str) -> Result<Address, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    for (name, value) in parameters(query) {
        match name {
            "protocol" => check_protocol(value)?,
            _ => return Err(unknown(name, "protocol")),
        }
    }
    match path {
        "" | "0" => Ok(Address { login, ..Address::of(Place::Cluster(hosts(authority, DEFAULT_PORT)?)) }),
        _ => Err("a Cluster has no databases but 0".to_owned()),
    }
}

/// `[/DIR]`
fn local(rest: &str) -> Result<Address, String> {
    let directory = decoded(rest.strip_prefix("//").unwrap_or(rest), "directory")?.map(PathBuf::from);
    if directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
        return Err("the directory is absolute: local:/var/lib/redlock".to_owned());
    }
    // Its directory says who may connect.
    Ok(Address { own_login: true, ..Address::of(Place::Local(directory)) })
}

/// `h1[:port],h2[:port]`
fn hosts(list: &str, default_port: u16) -> Result<Vec<Host>, String> {
    list.split(',').map(|host| host_and_port(host, default_port)).collect()
}

/// `host[:port]`, an IPv6 address in brackets
fn host_and_port(address: &str, default_port: u16) -> Result<Host, String> {
    let (name, port) = match address.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((host, after))) => {
            let ip: Ipv6Addr = host.parse().map_err(|_| "there is no IPv6 address in the brackets")?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').unwrap_or_default()),
            };
            (ip.to_string(), port)
        }
        Some(None) => return Err("unclosed [".to_owned()),
        None if address.contains(',') => {
            return Err("after a comma, the next node needs its scheme, too: redis://a,redis://b".to_owned());
        }
        None => match address.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("write an IPv6 address in brackets: redis://[::1]:6379".to_owned());
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (address.to_owned(), None),
        },
    };
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        None => default_port,
        Some(port) => {
            let number = port.parse().ok().filter(|&port| port > 0);
            number.ok_or("the port must be a number from 1 to 65535")?
        }
    };
    Ok(Host { name, port })
}

/// `/path.sock[?db=n]`, or more of `db`, `user`, `pass` and `protocol`, separated by `&`
fn socket(rest: &str) -> Result<Address, String> {
    if rest.contains('#') {
        return Err("write a # in a path or password as %23".to_owned());
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = decoded(path, "path")?.unwrap_or_default();
    if !path.starts_with('/') || path == "/" {
        return Err("the path of a socket must be absolute: unix:///run/redis.sock".to_owned());
    }
    if path.chars().any(char::is_control) {
        return Err("a control character in the path".to_owned());
    }
    let mut address = Address::of(Place::Unix(path.into()));
    let mut with_password = false;
    // As in the query of any URL, + is a space there.
    let text = |value: &str, what| decoded(&value.replace('+', " "), what);
    for (name, value) in parameters(query) {
        match name {
            "db" => address.database = database(value).ok_or("db must be a database number")?,
            "user" => address.login.username = text(value, "user name")?,
            "pass" => {
                address.login.password = text(value, "password")?;
                with_password = true;
            }
            "protocol" => check_protocol(value)?,
            // It may be the rest of the password.
            _ if with_password => return Err("write a & in a password as %26".to_owned()),
            _ => return Err(unknown(name, "db, user, pass and protocol")),
        }
    }
    Ok(address)
}

/// A part of a URL without its percent signs; none when it is empty.
fn decoded(part: &str, what: &str) -> Result<Option<String>, String> {
    let text = percent_decode_str(part).decode_utf8().map_err(|_| format!("the {what} is not UTF-8"))?;
    Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
}

fn database(number: &str) -> Option<i64> {
    number.parse::<u32>().ok().map(i64::from)
}

/// The parts of what stands behind the `?` of a URL.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The version of the protocol that an application wants; redlock works the same with both.
fn check_protocol(value: &str) -> Result<(), String> {
    match value {
        "2" | "3" | "resp2" | "resp3" => Ok(()),
        _ => Err("protocol must be 2 or 3".to_owned()),
    }
}

/// An unknown parameter is not passed over: it might say which database.
fn unknown(name: &str, known: &str) -> String {
    let name: String = name.chars().take(40).collect();
    format!("no parameter {name:?}; there is {known}")
}

/// The URL with whatever may be a secret left out.
pub(crate) fn without_secret(url: &str) -> String {
    let start = scheme(url).map_or(0, |scheme| scheme.len() + 3).min(url.len());
    let (scheme, rest) = url.split_at_checked(start).unwrap_or(("", url));
    let plain = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    match rest.rsplit_once('@') {
        Some((_, address)) => format!("{scheme}…@{}", plain(address)),
        None => format!("{scheme}{}", plain(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url, &Rc::default()).expect(url)
    }

    fn refused(url: &str) -> String {
        Address::parse(url, &Rc::default()).expect_err(url)
    }

    #[test]
    fn a_comma_separates_where_a_scheme_follows() {
        assert_eq!(split("redis://a, redis://b,unix:///c,d"), ["redis://a", "redis://b", "unix:///c,d"]);
        assert_eq!(split("redis+sentinel://a:1,b:2/x,local:"), ["redis+sentinel://a:1,b:2/x", "local:"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn every_part_is_read() {
        let login = |url| {
            let Address { login, database, .. } = parsed(url);
            (login.username.unwrap_or_default(), login.password.unwrap_or_default(), database)
        };
        let is = |user: &str, password: &str, database| (user.to_owned(), password.to_owned(), database);
        assert_eq!(login("redis://h"), is("", "", 0));
        assert_eq!(login("redis://u@h/"), is("u", "", 0));
        assert_eq!(login("redis://:s@h:1/2"), is("", "s", 2));
        assert_eq!(login("redis://u:s@s@h/15?protocol=3"), is("u", "s@s", 15));
        assert_eq!(login("redis://u%40:%2F%3a%25+%C3%BC:@h"), is("u@", "/:%+ü:", 0));
        assert_eq!(login("unix:///s?db=3&user=u&pass=p%26q+r%2b"), is("u", "p&q r+", 3));
        assert_eq!(login("unix:///s?"), is("", "", 0));
        assert_eq!(parsed("unix:///a%20b%23.sock").place, Place::Unix("/a b#.sock".into()));
        assert_eq!(parsed("redis://[::0:1]").place, Place::Tcp(Host { name: "::1".to_owned(), port: 6379 }));
    }

    #[test]
    fn a_password_is_filled_in_where_the_url_has_none() {
        let other = Rotated::new(Vec::new(), || Ok("other".to_owned())).expect("no file");
        let access = Rc::new(Access { password: Some(other), ..Access::default() });
        let with = |url| Address::parse(url, &access).expect(url).password();
        assert_eq!(with("redis://u@h").as_deref(), Some("other"));
        assert_eq!(with("redis://u:s@h").as_deref(), Some("s"));
        assert_eq!(parsed("redis://u:s@h").password().as_deref(), Some("s"));
    }

    #[test]
    fn several_hosts_stand_for_one_node() {
        let host = |name: &str, port| Host { name: name.to_owned(), port };
        let of = |text: &str| Some(text.to_owned());
        let address = parsed("rediss+sentinel://u:s@a,[::1]:7/my%20master/2?sentinel-user=v&sentinel-password=t");
        assert!(address.tls && !parsed("redis+sentinel://a/m").tls);
        assert_eq!((address.username(), address.password().as_deref(), address.database()), (Some("u"), Some("s"), 2));
        let login = Login { username: of("v"), password: of("t") };
        let sentinels = vec![host("a", 26379), host("::1", 7)];
        assert_eq!(address.place, Place::Sentinel { sentinels, service: "my master".to_owned(), login });
        assert_eq!(parsed("redis+cluster://a:7000,b").place, Place::Cluster(vec![host("a", 7000), host("b", 6379)]));
        assert_eq!(parsed("local:/a%20b").place, Place::Local(Some("/a b".into())));
        assert_eq!(parsed("local:").place, Place::Local(None));
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

    #[test]
    fn what_is_not_understood_is_refused_without_its_secret() {
        let bad = [
            "",
            "h:6379",
            "127.0.0.1",
            "http://h",
            "redis://",
            "redis://:6379",
            "redis://h:",
            "redis://h:0",
            "redis://h:65536",
            "redis://h:x",
            "redis://h/x",
            "redis://h/-1",
            "redis://a,b",
            "redis://::1",
            "redis://[::1",
            "redis://[x]",
            "redis://[::1]6379",
            "redis://[::1]:",
            "redis://h h",
            "redis://:%ff@h",
            "unix://",
            "unix://a",
            "unix:///",
            "unix:///a%00",
            "unix:///a?db=x",
            "unix:///a?db=",
            "unix:///a?db=1&db=x",
            "unix:///a#b",
            "unix:///a?protocol=4",
            "redis://h?protocol=x",
            "unix:///a?pass=se&secret=x",
            "unix:///a?pass=se&secret",
            "redis://:se/cret@h",
            "redis://:se#cret@h",
            "redis://u:secret@",
            "redis://u:secret@h:99999",
            "unix:///s?pass=secret&db=x",
            "u:secret@h",
            "redis://\u{7}",
            "é://",
            "éa@éa",
            "redis:/h",
            "redis+sentinel://a,b",
            "redis+sentinel://a,b/",
            "redis+sentinel://a,/m",
            "redis+sentinel://a/m/x",
            "redis+sentinel://:secret@a/m?password=secret",
            "redis+cluster://",
            "redis+cluster://a/1",
            "redis+local://a",
            "local:d",
            "local://d",
        ];
        for url in bad {
            let message = refused(url);
            assert!(!message.contains("secret") && !message.contains("cret@"), "{url}: {message}");
            assert!(!message.chars().any(char::is_control), "{url}: {message}");
        }
        assert_eq!(refused("h:6379"), r#"cannot use "h:6379": not a URL; redis://h:6379?"#);
        assert_eq!(refused("local"), r#"cannot use "local": not a URL; local: or redis://local?"#);
        assert_eq!(refused("/run/redis.sock"), r#"cannot use "/run/redis.sock": not a URL; unix:///run/redis.sock?"#);
    }

    #[test]
    fn a_parameter_that_is_not_known_is_refused() {
        assert_eq!(
            refused("unix:///s?database=1"),
            r#"cannot use "unix:///s": no parameter "database"; there is db, user, pass and protocol"#
        );
        assert_eq!(
            refused("redis://h?ssl_cert_reqs=none"),
            r#"cannot use "redis://h": no parameter "ssl_cert_reqs"; there is protocol"#
        );
        assert_eq!(
            refused("redis://h?db=2"),
            r#"cannot use "redis://h": the database number is the path of the URL: redis://host/0"#
        );
        assert!(refused("unix:///s?%64b=1").contains("%64b"));
    }
}

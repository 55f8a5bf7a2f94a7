//! The text of a Redis URL, taken apart. No message about a URL shows its password.

use crate::text::unprintable;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// A URL in its parts. To add a parameter, change the function of each scheme that has it: list the name as known, and
/// read the value. Add a default to [`Url::of`], an accessor to address.rs, and the name to redlock.man. If the node
/// must fail when its server refuses the parameter, send it in connect.rs, otherwise in connection.rs and listen.rs. If
/// Sentinels do not take it, reset it in `Address::of_sentinel`.
#[derive(Clone)]
pub(super) struct Url {
    pub(super) deployment: Deployment,
    pub(super) login: Login,
    /// True if the password of the settings does not apply: for Sentinels and for `local:`.
    pub(super) own_login: bool,
    pub(super) database: u32,
    pub(super) tls: bool,
}

/// The kind of server to connect to. To add a kind, read the scheme in [`Url::parse`], and compare two addresses in
/// `Address::is_same_node`. Put the look-up of the server into a file of its own, and call it in route.rs, which
/// otherwise takes the new kind for a single server. Extend doctor's checks `kind` and `replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Tcp(Host),
    Unix(PathBuf),
    /// The primary of this service, which any of these Sentinels can name.
    Sentinel {
        sentinels: Vec<Host>,
        service: String,
        login: Login,
    },
    /// The primary for a lock's hash slot, which any of these servers of the Cluster can name.
    Cluster(Vec<Host>),
    /// The server of `local:`, in this directory, or in the user's default directory.
    Local(Option<PathBuf>),
}

/// The name or address of a host; an IPv6 address has no brackets here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

/// Splits a list of URLs at each comma that is followed by another URL.
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

impl Url {
    /// Parses a URL of the forms that [`super::Address::parse`] lists. The error never shows the password.
    pub(super) fn parse(url: &str) -> Result<Url, String> {
        if url.is_empty() {
            return Err("empty Redis URL; one looks like redis://127.0.0.1:6379".to_owned());
        }
        let shown = without_secret(url);
        let bad = |why: String| format!("cannot use {shown:?}: {why}");
        if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(bad("whitespace or a control character in a URL".to_owned()));
        }
        let Some(scheme) = scheme(url) else {
            return Err(bad("not a URL; write redis://HOST:PORT, unix:///PATH or local:".to_owned()));
        };
        let rest = &url[scheme.len() + 1..];
        let kind = scheme.to_ascii_lowercase();
        let parsed = match kind.as_str() {
            "redis" | "rediss" => server(&rest[2..]),
            "redis+sentinel" | "rediss+sentinel" => sentinel(&rest[2..]),
            "redis+cluster" | "rediss+cluster" => cluster(&rest[2..]),
            "unix" => socket(&rest[2..]),
            "local" => local(rest),
            _ => Err("unknown scheme; use redis, rediss, unix, redis+sentinel, redis+cluster or local".to_owned()),
        };
        Ok(Url { tls: is_tls(url), ..parsed.map_err(bad)? })
    }

    fn of(deployment: Deployment) -> Url {
        Url { deployment, login: Login::default(), own_login: false, database: 0, tls: false }
    }
}

impl Host {
    /// A host named by a server; none if the name is not valid.
    pub(super) fn named(name: &str, port: u16) -> Option<Host> {
        let fits = !name.is_empty() && !name.chars().any(|c| unprintable(c) || c.is_whitespace());
        fits.then(|| Host { name: name.to_owned(), port })
    }

    pub(super) fn is_same(&self, other: &Host) -> bool {
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

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

pub(crate) fn is_tls(url: &str) -> bool {
    scheme(url).is_some_and(|scheme| scheme.to_ascii_lowercase().starts_with("rediss"))
}

/// The scheme: the text before `://`, or `local` before a colon.
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
fn server(rest: &str) -> Result<Url, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    parameters(query, &["protocol"])?;
    let deployment = Deployment::Tcp(host_and_port(authority, DEFAULT_PORT)?);
    let database = match path {
        "" => 0,
        number => number.parse().map_err(|_| "the path of the URL must be a database number: redis://host/0")?,
    };
    Ok(Url { login, database, ..Url::of(deployment) })
}

/// `[user:password@]h1[:port],h2[:port]/SERVICE[/db][?sentinel-user=U&sentinel-password=P]`
fn sentinel(rest: &str) -> Result<Url, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    let mut of_sentinels = Login::default();
    for (name, value) in parameters(query, &["sentinel-user", "sentinel-password", "protocol"])? {
        match name {
            "sentinel-user" => of_sentinels.username = decoded(value, "user name")?,
            "sentinel-password" => of_sentinels.password = decoded(value, "password")?,
            _ => {}
        }
    }
    let (service, number) = path.split_once('/').unwrap_or((path, "0"));
    let deployment = Deployment::Sentinel {
        sentinels: hosts(authority, DEFAULT_SENTINEL_PORT)?,
        service: decoded(service, "service")?
            .ok_or("the name of the service is missing: redis+sentinel://h1,h2,h3/mymaster")?,
        login: of_sentinels,
    };
    let database = number.parse().map_err(|_| "after the service, only a database number may follow")?;
    Ok(Url { login, database, ..Url::of(deployment) })
}

/// `[user:password@]h1[:port],h2[:port][/0]`
fn cluster(rest: &str) -> Result<Url, String> {
    let Parts { login, authority, path, query } = parts(rest)?;
    parameters(query, &["protocol"])?;
    match path {
        "" | "0" => Ok(Url { login, ..Url::of(Deployment::Cluster(hosts(authority, DEFAULT_PORT)?)) }),
        _ => Err("a Cluster has only database 0".to_owned()),
    }
}

/// `[/DIR]`
fn local(rest: &str) -> Result<Url, String> {
    let directory = decoded(rest.strip_prefix("//").unwrap_or(rest), "directory")?.map(PathBuf::from);
    if directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
        return Err("the directory must be absolute: local:/var/lib/redlock".to_owned());
    }
    // The password of the settings does not apply: the permissions of the directory decide who may connect.
    Ok(Url { own_login: true, ..Url::of(Deployment::Local(directory)) })
}

/// `h1[:port],h2[:port]`
fn hosts(list: &str, default_port: u16) -> Result<Vec<Host>, String> {
    list.split(',').map(|host| host_and_port(host, default_port)).collect()
}

/// `host[:port]`, with brackets around an IPv6 address
fn host_and_port(address: &str, default_port: u16) -> Result<Host, String> {
    let (name, port) = match address.strip_prefix('[') {
        Some(inner) => {
            let (ip, port) = inner.split_once(']').ok_or("missing ]")?;
            let ip: Ipv6Addr = ip.parse().map_err(|_| "not an IPv6 address in the brackets")?;
            (ip.to_string(), port)
        }
        None if address.contains(',') => {
            return Err("after a comma, the next node needs its scheme, too: redis://a,redis://b".to_owned());
        }
        None => {
            let (name, port) = address.split_at(address.find(':').unwrap_or(address.len()));
            (name.to_owned(), port)
        }
    };
    if port.rfind(':').is_some_and(|at| at > 0) {
        return Err("write an IPv6 address in brackets: redis://[::1]:6379".to_owned());
    }
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        "" => default_port,
        port => {
            let number = port.strip_prefix(':').and_then(|digits| digits.parse().ok()).filter(|&port| port > 0);
            number.ok_or("the port must be a number from 1 to 65535")?
        }
    };
    Ok(Host { name, port })
}

/// `/path.sock[?db=n]`, with `db`, `user`, `pass` and `protocol` as parameters
fn socket(rest: &str) -> Result<Url, String> {
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
    let mut url = Url::of(Deployment::Unix(path.into()));
    // In the query of a URL, + means a space.
    let text = |value: &str, what| decoded(&value.replace('+', " "), what);
    for (name, value) in parameters(query, &["db", "user", "pass", "protocol"])? {
        match name {
            "db" => url.database = value.parse().map_err(|_| "db must be a database number")?,
            "user" => url.login.username = text(value, "user name")?,
            "pass" => url.login.password = text(value, "password")?,
            _ => {}
        }
    }
    Ok(url)
}

/// A part of a URL, percent-decoded; none if the part is empty.
fn decoded(part: &str, what: &str) -> Result<Option<String>, String> {
    let text = percent_decode_str(part).decode_utf8().map_err(|_| format!("the {what} is not UTF-8"))?;
    Ok(Some(text.into_owned()).filter(|text| !text.is_empty()))
}

/// The parameters after the `?` of a URL. A parameter that is not `known` is refused, because it might name the
/// database. The refusal does not show it, because it may be the rest of a password. `protocol` is for other clients,
/// and changes nothing here.
fn parameters<'a>(query: &'a str, known: &[&str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    match pairs.iter().all(|(name, _)| known.contains(name)) {
        true => Ok(pairs),
        false => Err(format!("unknown parameter; known: {} (in a password write & as %26)", known.join(", "))),
    }
}

/// The URL without anything that may be a secret.
pub(crate) fn without_secret(url: &str) -> String {
    let start = scheme(url).map_or(0, |scheme| scheme.len() + 3).min(url.len());
    let (scheme, rest) = url.split_at_checked(start).unwrap_or(("", url));
    let plain = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    match rest.rsplit_once('@') {
        Some((_, address)) => format!("{scheme}…@{}", plain(address)),
        None => format!("{scheme}{}", plain(rest)),
    }
}

/// True if the URL may have a password in it.
pub(crate) fn has_password(url: &str) -> bool {
    let start = scheme(url).map_or(0, |scheme| scheme.len() + 3).min(url.len());
    let rest = url.get(start..).unwrap_or(url);
    rest.rsplit_once('@').is_some_and(|(login, _)| login.contains(':')) || rest.contains("pass=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Url {
        Url::parse(url).expect(url)
    }

    fn refused(url: &str) -> String {
        Url::parse(url).err().expect(url)
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
            let Url { login, database, .. } = parsed(url);
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
        assert_eq!(parsed("unix:///a%20b%23.sock").deployment, Deployment::Unix("/a b#.sock".into()));
        assert_eq!(parsed("redis://[::0:1]").deployment, Deployment::Tcp(Host { name: "::1".to_owned(), port: 6379 }));
    }

    #[test]
    fn several_hosts_stand_for_one_node() {
        let host = |name: &str, port| Host { name: name.to_owned(), port };
        let of = |text: &str| Some(text.to_owned());
        let url = parsed("rediss+sentinel://u:s@a,[::1]:7/my%20master/2?sentinel-user=v&sentinel-password=t");
        assert!(url.tls && !parsed("redis+sentinel://a/m").tls);
        assert_eq!((url.login, url.database), (Login { username: of("u"), password: of("s") }, 2));
        let login = Login { username: of("v"), password: of("t") };
        let sentinels = vec![host("a", 26379), host("::1", 7)];
        assert_eq!(url.deployment, Deployment::Sentinel { sentinels, service: "my master".to_owned(), login });
        assert_eq!(
            parsed("redis+cluster://a:7000,b").deployment,
            Deployment::Cluster(vec![host("a", 7000), host("b", 6379)])
        );
        assert_eq!(parsed("local:/a%20b").deployment, Deployment::Local(Some("/a b".into())));
        assert_eq!(parsed("local:").deployment, Deployment::Local(None));
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
        let advice = "not a URL; write redis://HOST:PORT, unix:///PATH or local:";
        assert_eq!(refused("h:6379"), format!("cannot use \"h:6379\": {advice}"));
    }

    #[test]
    fn a_parameter_that_is_not_known_is_refused() {
        assert_eq!(
            refused("unix:///s?database=1"),
            r#"cannot use "unix:///s": unknown parameter; known: db, user, pass, protocol (in a password write & as %26)"#
        );
        for url in ["redis://h?ssl_cert_reqs=none", "unix:///s?%64b=1"] {
            assert!(refused(url).contains("unknown parameter"), "{url}");
        }
    }
}

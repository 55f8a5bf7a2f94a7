//! Where a node is and how to log in there: the forms of a Redis URL, each parsed once, here. What is said about a URL
//! never shows its password.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

const DEFAULT_PORT: u16 = 6379;

/// Where a node is, and how to log in there.
#[derive(Clone)]
pub(crate) struct Address {
    place: Place,
    username: Option<String>,
    password: Option<String>,
    database: i64,
}

/// What there is to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The host is a name or an address, an IPv6 address without its brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
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
    /// Reads `redis://[user:password@]host[:port][/db]` or `unix:///path.sock[?db=n]`.
    ///
    /// # Errors
    /// What is wrong with it, without the password.
    pub(crate) fn parse(url: &str) -> Result<Address, String> {
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
                false => format!("not a URL; redis://{shown}?"),
            }));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "redis" => over_tcp(&url[scheme.len() + 3..]).map_err(bad),
            "unix" => over_socket(&url[scheme.len() + 3..]).map_err(bad),
            "rediss" | "redis+sentinel" | "redis+cluster" => {
                Err(format!("{scheme}:// is not supported yet; redis:// and unix:// are"))
            }
            "local" => Err("local: is not supported yet; redis:// and unix:// are".to_owned()),
            _ => Err(bad("no such scheme; there are redis:// and unix://".to_owned())),
        }
    }

    /// The same with a password where the URL has none.
    pub(crate) fn with_password(self, password: Option<String>) -> Address {
        Address { password: self.password.or(password), ..self }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn database(&self) -> i64 {
        self.database
    }

    /// Whether both name one server, as far as their spelling tells.
    pub(crate) fn is_same_node(&self, other: &Address) -> bool {
        match (&self.place, &other.place) {
            (Place::Tcp { host: one, port }, Place::Tcp { host: another, port: other_port }) => {
                let plain = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
                port == other_port && plain(one) == plain(another)
            }
            // Paths compare by their parts: `//` and `/./` make no difference.
            (Place::Unix(one), Place::Unix(another)) => one == another,
            _ => false,
        }
    }
}

/// What messages call the node: `10.0.0.1:6379`, `[::1]:6379` or the socket's path. Never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What stands before `://`, or `local` before a colon.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain);
    (fits && (rest.starts_with("//") || scheme.eq_ignore_ascii_case("local"))).then_some(scheme)
}

/// `[user:password@]host[:port][/db]`
fn over_tcp(rest: &str) -> Result<Address, String> {
    if rest.contains('#') {
        return Err("write a # in a password as %23".to_owned());
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if tail.contains('@') {
        return Err("write a / or ? in a password as %2F or %3F".to_owned());
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    for (name, value) in parameters(query) {
        match name {
            "protocol" => check_protocol(value)?,
            "db" => return Err("the database number is the path of the URL: redis://host/0".to_owned()),
            _ => return Err(unknown(name, "protocol")),
        }
    }
    let (login, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = host_and_port(address)?;
    let (username, password) = login.split_once(':').unwrap_or((login, ""));
    Ok(Address {
        place: Place::Tcp { host, port },
        username: decoded(username, "user name")?,
        password: decoded(password, "password")?,
        database: match path.trim_matches('/') {
            "" => 0,
            number => database(number).ok_or("the path of the URL must be a database number: redis://host/0")?,
        },
    })
}

/// `host[:port]`, an IPv6 address in brackets
fn host_and_port(address: &str) -> Result<(String, u16), String> {
    let (host, port) = match address.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((host, after))) => {
            let ip: Ipv6Addr = host.parse().map_err(|_| "there is no IPv6 address in the brackets")?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').unwrap_or_default()),
            };
            (ip.to_string(), port)
        }
        Some(None) => return Err("a [ without its ]".to_owned()),
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
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => {
            let number = port.parse().ok().filter(|&port| port > 0);
            number.ok_or("the port must be a number from 1 to 65535")?
        }
    };
    Ok((host, port))
}

/// `/path.sock[?db=n]`, or more of `db`, `user`, `pass` and `protocol`, separated by `&`
fn over_socket(rest: &str) -> Result<Address, String> {
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
    let mut address = Address { place: Place::Unix(path.into()), username: None, password: None, database: 0 };
    let mut with_password = false;
    // As in the query of any URL, + is a space there.
    let text = |value: &str, what| decoded(&value.replace('+', " "), what);
    for (name, value) in parameters(query) {
        match name {
            "db" => address.database = database(value).ok_or("db must be a database number")?,
            "user" => address.username = text(value, "user name")?,
            "pass" => {
                address.password = text(value, "password")?;
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
fn without_secret(url: &str) -> String {
    let start = scheme(url).map_or(0, |scheme| scheme.len() + 3).min(url.len());
    let (scheme, rest) = url.split_at_checked(start).unwrap_or(("", url));
    match rest.rsplit_once('@') {
        Some((_, address)) => format!("{scheme}…@{address}"),
        None => format!("{scheme}{}", rest.split('?').next().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).expect(url)
    }

    fn refused(url: &str) -> String {
        Address::parse(url).expect_err(url)
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
            let Address { username, password, database, .. } = parsed(url);
            (username.unwrap_or_default(), password.unwrap_or_default(), database)
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
        assert_eq!(parsed("redis://[::0:1]").place, Place::Tcp { host: "::1".to_owned(), port: 6379 });
    }

    #[test]
    fn a_password_is_filled_in_where_the_url_has_none() {
        let with = |url| parsed(url).with_password(Some("other".to_owned())).password;
        assert_eq!(with("redis://u@h").as_deref(), Some("other"));
        assert_eq!(with("redis://u:s@h").as_deref(), Some("s"));
        assert_eq!(parsed("redis://u:s@h").with_password(None).password.as_deref(), Some("s"));
    }

    #[test]
    fn a_node_is_called_by_its_place() {
        for (url, name) in [
            ("redis://10.0.0.1", "10.0.0.1:6379"),
            ("redis://u:secret@Host:1/2", "Host:1"),
            ("redis://[0::1]", "[::1]:6379"),
            ("unix:///run/a.sock?pass=secret", "/run/a.sock"),
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
        ];
        for url in bad {
            let message = refused(url);
            assert!(!message.contains("secret") && !message.contains("cret@"), "{url}: {message}");
            assert!(!message.chars().any(char::is_control), "{url}: {message}");
        }
        assert_eq!(refused("h:6379"), r#"cannot use "h:6379": not a URL; redis://h:6379?"#);
        assert_eq!(refused("/run/redis.sock"), r#"cannot use "/run/redis.sock": not a URL; unix:///run/redis.sock?"#);
        assert_eq!(refused("rediss://h"), "rediss:// is not supported yet; redis:// and unix:// are");
        assert_eq!(refused("local:"), "local: is not supported yet; redis:// and unix:// are");
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

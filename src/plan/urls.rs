//! Where a node is: the forms of a Redis URL that are understood, and which two of them mean the same node. What is said
//! about a URL never shows its password.

use crate::error::Error;
use std::net::Ipv6Addr;

/// What is to be known about a URL before anybody connects to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The same for two URLs of one server.
    pub(super) identity: String,
    /// The URL without its password; none when it has none.
    pub(super) without_password: Option<String>,
}

/// Takes `a,b` apart where a comma is followed by another URL.
pub(super) fn split(list: &str) -> Vec<String> {
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

/// What stands before `://`, or `local` before a colon.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain);
    (fits && (rest.starts_with("//") || scheme.eq_ignore_ascii_case("local"))).then_some(scheme)
}

/// Checks the form of a URL.
///
/// # Errors
/// [`Error::Usage`] when it has none that is understood.
pub(super) fn check(url: &str) -> Result<Node, Error> {
    let shown = without_secret(url);
    let bad = |why: &str| Error::Usage(format!("cannot use {shown:?}: {why}"));
    if url.is_empty() {
        return Err(Error::Usage("empty Redis URL; one looks like redis://127.0.0.1:6379".to_owned()));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(bad("white space or a control character in a URL"));
    }
    let Some(scheme) = scheme(url) else {
        let path = shown.strip_prefix("unix:").unwrap_or(&shown);
        let meant = match path.starts_with('/') {
            true => format!("unix://{path}"),
            false => format!("redis://{shown}"),
        };
        return Err(bad(&format!("not a URL; {meant}?")));
    };
    let refused = |why: String| bad(&why);
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => over_tcp(scheme, &url[scheme.len() + 3..]).map_err(refused),
        "unix" => over_socket(&url[scheme.len() + 3..]).map_err(refused),
        "rediss" | "redis+sentinel" | "redis+cluster" => {
            Err(Error::Usage(format!("{scheme}:// is not supported yet; redis:// and unix:// are")))
        }
        "local" => Err(Error::Usage("local: is not supported yet; redis:// and unix:// are".to_owned())),
        _ => Err(bad("no such scheme; there are redis:// and unix://")),
    }
}

/// `[user:password@]host[:port][/db]`
fn over_tcp(scheme: &str, rest: &str) -> Result<Node, String> {
    if rest.contains('#') {
        return Err("a # in a password is written %23".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    if tail.contains('@') {
        return Err("a / or ? in a password is written %2F or %3F".to_owned());
    }
    for (name, value) in parameters(query) {
        match name {
            "protocol" => check_protocol(value)?,
            "db" => return Err("the number of the database is its path: redis://host/0".to_owned()),
            _ => return Err(unknown(name, "protocol")),
        }
    }
    let (user_info, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match address.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some((host, after))) => {
            let ip: Ipv6Addr = host.parse().map_err(|_| "not an IPv6 address between the brackets")?;
            (format!("[{ip}]"), after.strip_prefix(':').or(after.is_empty().then_some("6379")))
        }
        Some(None) => return Err("a [ without its ]".to_owned()),
        None => match address.split_once(':') {
            _ if address.contains(',') => {
                return Err("after a comma the next node needs its scheme too: redis://a,redis://b".to_owned());
            }
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address is written in brackets: redis://[::1]:6379".to_owned());
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (address.to_owned(), Some("6379")),
        },
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port: u16 = port
        .and_then(|port| port.parse().ok())
        .filter(|&port| port > 0)
        .ok_or("the port is a number from 1 to 65535")?;
    let db = path.trim_matches('/');
    if !db.is_empty() && db.parse::<u32>().is_err() {
        return Err("the path is the number of a database: redis://host/0".to_owned());
    }
    let host = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
    let without_password = user_info.split_once(':').map(|(user, _)| match user {
        "" => format!("{scheme}://{address}{tail}"),
        user => format!("{scheme}://{user}@{address}{tail}"),
    });
    Ok(Node { identity: format!("{host}:{port}"), without_password })
}

/// `/path.sock[?db=n]`, or more of `db`, `user`, `pass` and `protocol`, separated by `&`
fn over_socket(rest: &str) -> Result<Node, String> {
    if rest.contains('#') {
        return Err("a # in a path or password is written %23".to_owned());
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') || path == "/" {
        return Err("the path of a socket is absolute: unix:///run/redis.sock".to_owned());
    }
    let mut with_password = false;
    for (name, value) in parameters(query) {
        match name {
            "db" if value.parse::<u32>().is_ok() => {}
            "db" => return Err("db is the number of a database".to_owned()),
            "user" => {}
            "pass" => with_password = true,
            "protocol" => check_protocol(value)?,
            // It may be the rest of the password.
            _ if with_password => return Err("a & in a password is written %26".to_owned()),
            _ => return Err(unknown(name, "db, user, pass and protocol")),
        }
    }
    let kept: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("pass=")).collect();
    let separator = if kept.is_empty() { "" } else { "?" };
    let without_password = query.contains("pass=").then(|| format!("unix://{path}{separator}{}", kept.join("&")));
    let steps: Vec<_> = path.split('/').filter(|step| !step.is_empty() && *step != ".").collect();
    Ok(Node { identity: format!("/{}", steps.join("/")), without_password })
}

/// The parts of what stands behind the `?` of a URL.
fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The version of the protocol that an application wants; ours is the same with both.
fn check_protocol(value: &str) -> Result<(), String> {
    match value {
        "2" | "3" | "resp2" | "resp3" => Ok(()),
        _ => Err("protocol is 2 or 3".to_owned()),
    }
}

/// What cannot be heeded is not passed over: it might say which database.
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

    fn identity(url: &str) -> String {
        check(url).expect("a good URL").identity
    }

    fn refused(url: &str) -> String {
        check(url).expect_err("a bad URL").to_string()
    }

    #[test]
    fn a_comma_separates_where_a_scheme_follows() {
        assert_eq!(split("redis://a, redis://b,unix:///c,d"), ["redis://a", "redis://b", "unix:///c,d"]);
        assert_eq!(split("redis+sentinel://a:1,b:2/x,local:"), ["redis+sentinel://a:1,b:2/x", "local:"]);
        assert_eq!(split(""), [""]);
    }

    #[test]
    fn the_same_node_is_recognised() {
        for url in ["redis://Host", "redis://host:6379", "redis://u:p@HOST:6379/3", "REDIS://host./?protocol=3"] {
            assert_eq!(identity(url), "host:6379");
        }
        assert_eq!(identity("redis://[::1]"), identity("redis://[0:0:0:0:0:0:0:1]:6379/1"));
        assert_eq!(identity("unix:///a/b.sock"), identity("unix:///a//./b.sock?db=2"));
        assert_ne!(identity("redis://host:6379"), identity("redis://host:6380"));
    }

    #[test]
    fn passwords_are_taken_out() {
        let clean = |url| check(url).expect("a good URL").without_password;
        assert_eq!(clean("redis://h"), None);
        assert_eq!(clean("redis://u@h"), None);
        assert_eq!(clean("redis://:s@h:1/2").as_deref(), Some("redis://h:1/2"));
        assert_eq!(clean("redis://u:s@s@h").as_deref(), Some("redis://u@h"));
        assert_eq!(clean("unix:///s?db=1&pass=s").as_deref(), Some("unix:///s?db=1"));
        assert_eq!(clean("unix:///s?pass=s").as_deref(), Some("unix:///s"));
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
            "redis://h:0",
            "redis://h:65536",
            "redis://h:x",
            "redis://h/x",
            "redis://a,b",
            "redis://::1",
            "redis://[::1",
            "redis://[x]",
            "redis://[::1]6379",
            "redis://h h",
            "unix://",
            "unix://a",
            "unix:///",
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
    fn parameters_that_nobody_heeds_are_refused() {
        for url in [
            "unix:///s?db=1",
            "unix:///s?db=1&user=u&pass=p%26q&protocol=resp3",
            "unix:///s?",
            "redis://h?protocol=3",
            "redis://h/1?protocol=resp2",
            "redis://h/?",
        ] {
            assert!(check(url).is_ok(), "{url}");
        }
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
            r#"cannot use "redis://h": the number of the database is its path: redis://host/0"#
        );
        assert!(refused("unix:///s?%64b=1").contains("%64b"));
    }
}

//! The server and the key of a lock: URLs, prefixes, and the order of flags and variables.

use crate::support::{Redis, Test, acquire, like, redlock, release};
use std::net::TcpListener;

#[test]
fn the_key_is_prefix_and_name() {
    let redis = Redis::start();
    let long = "x".repeat(512);
    for (arguments, prefix_variable, key) in [
        (vec!["--name", "a"], None, "redlock:a"),
        (vec!["--name", "a", "--prefix", "app:"], None, "app:a"),
        (vec!["--name", "a", "--prefix", ""], None, "a"),
        (vec!["--name", "a"], Some("env:"), "env:a"),
        (vec!["--name", "b"], Some(""), "b"),
        (vec!["--name", "a", "--prefix", "flag:"], Some("env:"), "flag:a"),
        (vec!["--name", "two words, ü and 🔒"], None, "redlock:two words, ü and 🔒"),
        (vec!["--name", "{tag}x"], None, "redlock:{tag}x"),
        (vec!["--name", &long, "--prefix", "p"], None, &format!("p{long}")),
    ] {
        let mut test = redlock(&redis, "acquire").args(&arguments).stdout(like("<token>\n"));
        if let Some(prefix) = prefix_variable {
            test = test.env("REDLOCK_PREFIX", prefix);
        }
        let token = test.run().token();
        assert_eq!(redis.get(key), Some(token), "{arguments:?} {prefix_variable:?}");
    }
}

#[test]
fn a_flag_replaces_its_variable_and_an_empty_variable_is_unset() {
    let (here, elsewhere) = (Redis::start(), Redis::start());
    let (url, other) = (here.url(), elsewhere.url());
    let empty = "";
    for (number, (arguments, variables)) in [
        (vec!["--redis", &url], vec![("REDLOCK_REDIS", &*other), ("REDIS_URL", &other)]),
        (vec![], vec![("REDLOCK_REDIS", &*url), ("REDIS_URL", &other)]),
        (vec![], vec![("REDLOCK_REDIS", empty), ("REDIS_URL", &url)]),
        (vec![], vec![("REDIS_URL", &*url)]),
        (vec![], vec![("REDLOCK_REDIS", &*url), ("REDLOCK_NODE_TIMEOUT", empty), ("REDLOCK_LABEL", empty)]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("lock-{number}");
        let mut test = Test::bare().args(["acquire", "--name", &name]).args(&arguments).stdout(like("<token>\n"));
        for (variable, value) in &variables {
            test = test.env(variable, value);
        }
        test.run();
        assert!(here.exists(&format!("redlock:{name}")), "{arguments:?} {variables:?}");
    }
    assert!(elsewhere.keys_without_history().is_empty());
}

#[test]
fn options_of_every_command_go_before_or_after_its_name() {
    let (redis, name) = (Redis::start(), "a");
    let url = redis.url();
    Test::bare().args(["--redis", &url, "--prefix", "p:", "acquire", "--name", name]).stdout(like("<token>\n")).run();
    assert!(redis.exists("p:a"));
    let test = Test::bare().args(["-q", "acquire", "--prefix", "p:", "--name", name, "--redis", &url]);
    test.fails(75, ["is held by"]).run();
}

#[test]
fn a_url_may_be_a_socket_a_port_and_a_database() {
    let redis = Redis::with_tcp(&[]);
    for (url, database) in [
        (redis.url(), 0),
        (format!("{}?db=3", redis.url()), 3),
        (redis.tcp_url(), 0),
        (format!("{}/5", redis.tcp_url()), 5),
        (redis.tcp_url().replace("127.0.0.1", "localhost"), 0),
    ] {
        let token = acquire(url.as_str(), "backup");
        let mut connection = redis.connection();
        redis::cmd("SELECT").arg(database).exec(&mut connection).unwrap();
        let value: Option<String> = redis::cmd("GET").arg("redlock:backup").query(&mut connection).unwrap();
        assert_eq!(value.as_ref(), Some(&token), "{url}");
        release(url.as_str(), "backup", &token);
    }
}

#[test]
fn an_ipv6_address_is_written_in_brackets() {
    let Ok(probe) = TcpListener::bind("[::1]:0") else {
        return eprintln!("not tried: this machine has no IPv6");
    };
    drop(probe);
    let redis = Redis::with_tcp(&["--bind", "::1"]);
    let url = format!("redis://[::1]:{}/2", redis.address().rsplit_once(':').unwrap().1);
    let token = acquire(url.as_str(), "backup");
    release(url.as_str(), "backup", &token);
}

//! The server and the key of a lock: URLs, host names, prefixes, and the order of flags and variables.

use crate::support::{Directory, Redis, SOON, Test, acquire, eventually, like, redlock, release};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;

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
    assert!(elsewhere.keys_without_the_memory().is_empty());
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

/// A call of redlock in a mount namespace that has this file in /etc. None if the machine allows no mount namespace.
fn with_file_of_etc(file: &Path, url: &str, arguments: &[&str]) -> Option<Test> {
    let options = if nix::unistd::geteuid().is_root() { "-m" } else { "-rm" };
    let mount = "mount --bind \"$0\" /etc/$(basename \"$0\")";
    let script = format!("{mount} && exec redlock \"$@\"");
    let program = |script| [options, "sh", "-c", script, file.to_str().unwrap()];
    let probe = Command::new("unshare").args(program(mount)).output().unwrap();
    if !probe.status.success() {
        eprintln!("not tried: this machine lets nobody make a namespace of mounts");
        return None;
    }
    Some(Test::program(url, "unshare").args(program(&script)).args(arguments))
}

#[test]
fn a_host_with_several_addresses_is_reached_by_any_of_them() {
    let (redis, directory) = (Redis::with_tcp(&[]), Directory::new());
    let hosts = directory.path().join("hosts");
    let port = redis.address().rsplit_once(':').unwrap().1.to_owned();
    for addresses in [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "::1"]] {
        std::fs::write(&hosts, addresses.map(|address| format!("{address} several\n")).concat()).unwrap();
        let url = format!("redis://several:{port}");
        let Some(test) = with_file_of_etc(&hosts, &url, &["run", "-q", "--name", "backup", "--", "true"]) else {
            return;
        };
        test.run();
    }
}

#[test]
fn doctor_finds_a_host_whose_addresses_are_several_servers() {
    let (one, directory) = (Redis::with_tcp(&[]), Directory::new());
    let port = one.port().to_string();
    let _other = Redis::with(&["--bind", "127.0.0.2", "--port", &port]);
    let hosts = directory.path().join("hosts");
    for addresses in [&["127.0.0.1"][..], &["127.0.0.1", "127.0.0.2"]] {
        std::fs::write(&hosts, addresses.iter().map(|address| format!("{address} several\n")).collect::<String>())
            .unwrap();
        let url = format!("redis://several:{port}");
        let Some(test) = with_file_of_etc(&hosts, &url, &["doctor", "-v"]) else { return };
        let said = test.any_end().text();
        assert_eq!(
            said.contains("identity: connections to this address reach different servers"),
            addresses.len() > 1,
            "{said}"
        );
    }
}

#[test]
fn a_name_is_looked_up_again_for_each_connection() {
    let (redis, directory) = (Redis::with_tcp(&[]), Directory::new());
    let hosts = directory.file("hosts", "127.0.0.1 moving\n");
    let url = format!("redis://moving:{}", redis.address().rsplit_once(':').unwrap().1);
    let arguments = ["run", "-q", "--name", "backup", "--ttl", "4s", "--", "sleep", "5"];
    let Some(test) = with_file_of_etc(&hosts, &url, &arguments) else { return };
    let job = test.spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    std::fs::write(&hosts, "127.0.0.3 moving\n").unwrap();
    redis.command(&["CONFIG", "SET", "bind", "127.0.0.3"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

#[test]
fn a_name_server_that_hangs_is_not_waited_for() {
    let Ok(silent) = UdpSocket::bind("127.0.0.77:53") else {
        return eprintln!("not tried: this user may not stand in for a name server");
    };
    let directory = Directory::new();
    let file = directory.file("resolv.conf", "nameserver 127.0.0.77\noptions timeout:30\n");
    let url = "redis://slow.example.com";
    for arguments in [&["acquire", "--name", "backup"][..], &["run", "--name", "backup", "--", "echo", "started"]] {
        let arguments = [&["--node-timeout", "300ms"], arguments].concat();
        let Some(test) = with_file_of_etc(&file, url, &arguments) else { return };
        let finished = test.fails(69, ["slow.example.com:6379 timed out"]).run();
        assert!(finished.elapsed < SOON, "{:?}", finished.elapsed);
    }
    let Some(test) = with_file_of_etc(&file, url, &["doctor", "--node-timeout", "300ms"]) else { return };
    let said = test.status(69).text();
    assert!(said.contains("no name server tells the address of slow.example.com:6379"), "{said}");
    silent.set_nonblocking(true).unwrap();
    assert!(silent.recv(&mut [0; 512]).is_ok(), "it was asked");
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

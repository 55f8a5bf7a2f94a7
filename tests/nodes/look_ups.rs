//! Host names: several addresses, new addresses, name servers that hang or lose packets, and hosts with other look-ups.

use crate::support::{Directory, Redis, SOON, any, at_last, eventually, message, needs, static_binary, with_etc};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::PathBuf;

#[test]
fn a_host_with_several_addresses_is_reached_by_any_of_them() {
    let (redis, directory) = (Redis::with_tcp(&[]), Directory::new());
    let hosts = directory.path().join("hosts");
    let port = redis.address().rsplit_once(':').unwrap().1.to_owned();
    for addresses in [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "::1"]] {
        std::fs::write(&hosts, addresses.map(|address| format!("{address} several\n")).concat()).unwrap();
        let url = format!("redis://several:{port}");
        let call = ["redlock", "run", "-q", "--name", "backup", "--", "true"];
        let Some(test) = with_etc(&url, &[&hosts], &call) else { return };
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
        let Some(test) = with_etc(&url, &[&hosts], &["redlock", "doctor", "-v"]) else { return };
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
    let call = ["redlock", "run", "-q", "--name", "backup", "--ttl", "4s", "--", "sleep", "5"];
    let Some(test) = with_etc(&url, &[&hosts], &call) else { return };
    let job = test.spawn();
    eventually(SOON, "acquired", || redis.exists("redlock:backup"));
    std::fs::write(&hosts, "127.0.0.3 moving\n").unwrap();
    redis.command(&["CONFIG", "SET", "bind", "127.0.0.3"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

/// A file resolv.conf with a name server of the test, at this address, and the socket of that server. None if this user
/// may not open the port of name servers.
fn name_server(address: &str, options: &str, directory: &Directory) -> Option<(PathBuf, UdpSocket)> {
    let Ok(socket) = UdpSocket::bind((address, 53)) else {
        eprintln!("not tried: this user may not stand in for a name server");
        return None;
    };
    Some((directory.file("resolv.conf", format!("nameserver {address}\noptions {options}\n")), socket))
}

#[test]
fn a_name_server_that_hangs_is_not_waited_for() {
    let directory = Directory::new();
    let Some((file, silent)) = name_server("127.0.0.77", "timeout:30", &directory) else { return };
    let url = "redis://slow.example.com";
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        with_etc(url, &[&file], &words).map(|test| test.env("REDLOCK_NODE_TIMEOUT", "300ms"))
    };
    let said = ["slow.example.com:6379 timed out looking up slow.example.com", "/etc/resolv.conf"];
    for line in ["acquire backup", "run backup -- echo started", "log backup"] {
        let Some(test) = call(&format!("redlock {line}")) else { return };
        let finished = test.fails(69, said).run();
        assert!(finished.elapsed < SOON, "{:?}", finished.elapsed);
    }
    let waiter = call("redlock run backup --wait 1s -- echo started").unwrap().status(69);
    waiter.stderr(at_last(message(said))).run();
    let doctor = call("redlock doctor").unwrap().status(69).text();
    assert!(said.iter().all(|part| doctor.contains(part)), "{doctor}");
    silent.set_nonblocking(true).unwrap();
    assert!(silent.recv(&mut [0; 512]).is_ok(), "it was asked");
}

/// Answers a question that comes a second time: 127.0.0.1, and no IPv6 address. The first packet counts as lost.
fn answer_what_is_repeated(server: &UdpSocket) {
    let (mut lost, mut packet) = (BTreeSet::new(), [0; 512]);
    while let Ok((length, client)) = server.recv_from(&mut packet) {
        let question = packet[..length].to_vec();
        if lost.insert((client, question.clone())) {
            continue;
        }
        let end = 12 + question[12..].iter().position(|&byte| byte == 0).unwrap() + 5;
        let is_ipv4 = question[end - 3] == 1;
        let mut reply = question[..end].to_vec();
        reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, is_ipv4.into(), 0, 0, 0, 0]);
        if is_ipv4 {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        server.send_to(&reply, client).unwrap();
    }
}

#[test]
fn a_look_up_goes_on_when_a_try_ends() {
    let (redis, directory) = (Redis::with_tcp(&[]), Directory::new());
    // The C library repeats a question after 2 s; a try of redlock ends after 500 ms.
    let Some((file, server)) = name_server("127.0.0.78", "timeout:2", &directory) else { return };
    std::thread::spawn(move || answer_what_is_repeated(&server));
    let url = format!("redis://slow.example.com:{}", redis.port());
    for line in ["run -q backup --wait 10s -- true", "acquire -q other --wait 10s", "wait -q backup --timeout 10s"] {
        let call: Vec<&str> = ["redlock"].into_iter().chain(line.split(' ')).collect();
        let Some(test) = with_etc(&url, &[&file], &call) else { return };
        test.env("REDLOCK_NODE_TIMEOUT", "500ms").stdout(any()).run();
    }
}

/// A host whose nsswitch.conf names shared libraries, and a name that neither file nor name server knows. A static
/// program that loaded a library of a host with another C library would crash.
#[test]
fn the_static_program_loads_no_library_of_the_host() {
    needs("strace");
    let directory = Directory::new();
    let switch = "myhostname mdns4_minimal [NOTFOUND=return] resolve files dns ldap";
    let switch = ["passwd", "group", "hosts", "services", "networks"].map(|name| format!("{name}: {switch}\n"));
    let switch = directory.file("nsswitch.conf", switch.concat());
    // Nobody listens there, so each question fails at once.
    let name_server = directory.file("resolv.conf", "nameserver 127.0.0.79\n");
    let (binary, url) = (static_binary(), "redis://nowhere.example.com");
    let binary = binary.to_str().unwrap();
    for line in [
        "run backup -- BINARY --version",
        "acquire backup",
        "extend backup --token 0123456789abcdef",
        "release backup --token 0123456789abcdef",
        "release backup --force",
        "wait backup --timeout 0s",
        "status",
        "check backup --within 1d",
        "log backup",
        "doctor",
        "--redis redis+sentinel://nowhere.example.com/service status",
        "--redis redis+cluster://nowhere.example.com status",
        "--redis rediss://nowhere.example.com status",
    ] {
        let trace = directory.path().join("trace");
        let strace = ["strace", "-f", "-e", "trace=open,openat", "-o", trace.to_str().unwrap(), binary];
        let line = line.replace("BINARY", binary);
        let call: Vec<&str> = strace.into_iter().chain(line.split(' ')).collect();
        let Some(test) = with_etc(url, &[&switch, &name_server], &call) else { return };
        test.env("LANG", "de_DE.ISO-8859-1").any_end().stdout(any()).stderr(any()).run();
        let opened = std::fs::read_to_string(&trace).unwrap();
        assert!(opened.contains("\"/etc/hosts\""), "{line}: {opened}");
        let libraries: Vec<&str> = opened.lines().filter(|line| line.contains(".so")).collect();
        assert!(libraries.is_empty(), "{line}: {libraries:#?}");
    }
}

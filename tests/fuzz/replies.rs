//! Replies of servers: garbage that looks like Redis' protocol, and real replies that were changed on their way.

use super::call::Ground;
use crate::support::{Chance, Endless};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a server treats each connection.
#[derive(Clone, Debug)]
pub(super) enum Manner {
    /// In a real server's replies, the second text replaces the first.
    Replace(PathBuf, &'static str, &'static str),
    /// Each request is answered by invented values.
    Invent,
    /// Of a real server's replies, on average one in this many is changed.
    Change(PathBuf, u64),
}

/// A server that treats its clients in this manner. Each connection has a chance of its own.
pub(super) fn server(manner: Manner, chance: &Chance) -> Endless {
    let chance = chance.clone();
    Endless::serve(move |client, number, _| serve(client, &manner, chance.of(number)))
}

fn serve(mut client: TcpStream, manner: &Manner, mut chance: Chance) {
    // No call takes longer than 30 s, so no thread has to wait longer for its client.
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
    match manner {
        Manner::Invent => {
            let mut request = [0; 64 << 10];
            while let Ok(1..) = client.read(&mut request) {
                let mut reply = Vec::new();
                for _ in 0..=chance.below(3) {
                    value(&mut chance, 0, &mut reply);
                }
                if !put(&client, &mut chance, &reply) {
                    return;
                }
            }
        }
        Manner::Change(socket, rarity) => pass(&client, socket, |mut reply| {
            if chance.below(*rarity) == 0 {
                change(&mut chance, &mut reply);
            }
            put(&client, &mut chance, &reply)
        }),
        Manner::Replace(socket, from, to) => pass(&client, socket, |reply| {
            let reply = String::from_utf8(reply).unwrap().replace(from, to);
            (&client).write_all(reply.as_bytes()).is_ok()
        }),
    }
}

/// Passes each request of the client to a real server, and each reply to `give`. Ends once `give` returns false.
fn pass(mut client: &TcpStream, socket: &Path, mut give: impl FnMut(Vec<u8>) -> bool) {
    let Ok(mut server) = UnixStream::connect(socket) else { return };
    server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (mut request, mut reply) = (vec![0; 64 << 10], vec![0; 256 << 10]);
    while let Ok(length @ 1..) = client.read(&mut request) {
        if server.write_all(&request[..length]).is_err() {
            return;
        }
        let Ok(length @ 1..) = server.read(&mut reply) else { continue };
        if !give(reply[..length].to_vec()) {
            return;
        }
    }
}

/// Usually writes the whole reply, sometimes the first 200 bytes one by one, or only half of it, and then closes the
/// connection. Returns whether the connection stays open.
fn put(mut client: &TcpStream, chance: &mut Chance, reply: &[u8]) -> bool {
    match chance.below(12) {
        0 => reply.iter().take(200).all(|byte| {
            std::thread::sleep(Duration::from_millis(1));
            client.write_all(&[*byte]).is_ok()
        }),
        1 => {
            let _ = client.write_all(&reply[..reply.len() / 2]);
            let _ = client.shutdown(Shutdown::Both);
            false
        }
        _ => client.write_all(reply).is_ok(),
    }
}

fn value(chance: &mut Chance, depth: usize, out: &mut Vec<u8>) {
    let number = |chance: &mut Chance| {
        chance.word("0|1|2|5|-1|-2|+3||x|99999999|4294967296|9223372036854775808|-9223372036854775808|1e9")
    };
    let text: String = match chance.below(8) {
        0 => "OK".to_owned(),
        1 => chance.word("granted|held|quarantined|reserved|gone|other|ran|node|holders|free").to_owned(),
        2 => "x".repeat(usize::try_from(chance.below(100_000)).unwrap()),
        3 => "\u{1b}[31m\u{7}\u{202e}\u{61c}\u{85}".to_owned(),
        4 => "NOSCRIPT No matching script.".to_owned(),
        5 => chance.word("MOVED 1 127.0.0.1:1|MOVED 99999 :0|ASK 5 [|LOADING|ERR \u{1b}]0;x\u{7}|NOAUTH|").to_owned(),
        6 => number(chance).to_owned(),
        7 if chance.percent(3) => "z".repeat(5 << 20),
        _ => super::words::text(chance).to_string_lossy().replace(['\r', '\n'], "\u{1b}"),
    };
    match chance.below(if depth > 6 { 5 } else { 12 }) {
        0 => out.extend(format!("+{text}\r\n").bytes()),
        1 => out.extend(format!("-{text}\r\n").bytes()),
        2 => out.extend(format!(":{}\r\n", number(chance)).bytes()),
        3 => out.extend(format!("${}\r\n{text}\r\n", text.len()).bytes()),
        4 => {
            let odd = "$-1|*-1|_|#t|,nan|(123456789012345678901234567890|!3\r\nabc|=5\r\ntxt:x|";
            out.extend(format!("{}\r\n", chance.word(odd)).bytes());
        }
        5 => out.extend(format!("${}\r\n{text}\r\n", number(chance)).bytes()),
        6 => out.extend(format!("*{}\r\n", number(chance)).bytes()),
        7 => out.extend(
            chance
                .one_of(&["*1\r\n", "%1\r\n+x\r\n", "~1\r\n", ">2\r\n", "|1\r\n+a\r\n+b\r\n"])
                .repeat(usize::try_from(chance.below(20_000)).unwrap())
                .bytes(),
        ),
        8 => out.extend((0..chance.below(300)).map(|_| u8::try_from(chance.below(256)).unwrap()).collect::<Vec<u8>>()),
        _ => {
            let count = chance.below(6);
            out.extend(format!("{}{count}\r\n", chance.one_of(&["*", "*", "*", "%", "~", ">"])).bytes());
            (0..count).for_each(|_| value(chance, depth + 1, out));
        }
    }
}

fn change(chance: &mut Chance, reply: &mut Vec<u8>) {
    let place = |chance: &mut Chance, reply: &[u8]| usize::try_from(chance.below(reply.len() as u64)).unwrap();
    for _ in 0..=chance.below(3) {
        let (at, other) = (place(chance, reply), place(chance, reply));
        match chance.below(7) {
            0 => reply[at] = u8::try_from(chance.below(256)).unwrap(),
            // A digit of a length, a count or a time changes.
            1 | 2 => {
                if let Some(digit) = (at..reply.len()).find(|&at| reply[at].is_ascii_digit()) {
                    reply[digit] = chance.one_of(b"0123456789-");
                }
            }
            3 => reply.truncate(at.max(1)),
            4 => {
                drop(reply.splice(at..at, chance.one_of(&["\u{1b}[2J", "999999999999", "-", "\r\n", "\u{85}"]).bytes()))
            }
            5 => drop(reply.drain(at.min(other)..at.max(other).min(reply.len() - 1))),
            _ => {
                let copy = reply[at.min(other)..at.max(other)].to_vec();
                reply.splice(at..at, copy);
            }
        }
    }
}

pub(super) fn trial(chance: &mut Chance, ground: &Ground) {
    let manner = match chance.below(3) {
        0 => Manner::Invent,
        _ => Manner::Change(ground.redis.socket(), 1 + chance.below(6)),
    };
    let servers: Vec<Endless> =
        (0..chance.one_of(&[1, 1, 1, 3])).map(|n| server(manner.clone(), &chance.of(n))).collect();
    let scheme = if servers.len() > 1 { 0 } else { chance.below(10) };
    let urls: Vec<String> = servers
        .iter()
        .map(|server| match scheme {
            8 => format!("redis+sentinel://{}/mymaster", server.address()),
            9 => format!("redis+cluster://{}", server.address()),
            _ => server.url(),
        })
        .collect();
    let token = "0123456789abcdef0123456789abcdef";
    let lines = [
        "run x --ttl 1s -- true",
        "run x --ttl 500ms --wait 300ms -- sleep 0.3",
        "run x -s --wait 100ms -- true",
        "run x --slots 2 -- true",
        "run x -n --once-per 1h --tries 2 -- true",
        "run x --newest 5 -- true",
        "run --name x --name y -- true",
        "acquire x --ttl 1s",
        "acquire x --format json --wait 200ms",
        "extend x --token TOKEN",
        "release x --token TOKEN",
        "release x --revoke",
        "release x --force",
        "status x",
        "status x --format json",
        "status",
        "status --format prometheus",
        "check x --within 1h",
        "log x",
        "log",
        "log --format json",
        "wait x --timeout 300ms",
        "status --all",
        "check x --within 1h --format nagios",
        "log x --failed",
        "doctor",
        "doctor -v",
        "doctor --format json",
    ];
    let line = chance.one_of(&lines).replace("TOKEN", token);
    let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let quarantine = if servers.len() > 1 { "0" } else { "" };
    let mut environment = vec![("REDLOCK_REDIS", urls.join(",")), ("REDLOCK_QUARANTINE", quarantine.to_owned())];
    if line.starts_with("doctor") {
        environment.push(("REDLOCK_NODE_TIMEOUT", "500ms".to_owned()));
    }
    let environment: Vec<(OsString, OsString)> =
        environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let output = ground.call(&arguments, &environment);
    // With invented replies only, no call gets the lock.
    if matches!(manner, Manner::Invent) && line.starts_with("acquire") {
        assert_ne!(output.status, 0, "{}", output.stdout);
    }
}

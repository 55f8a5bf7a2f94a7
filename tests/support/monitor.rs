//! The requests to a server: MONITOR, line by line, and the counters of INFO commandstats.

use super::{Redis, SOON};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Monitor {
    lines: Arc<Mutex<Vec<String>>>,
    stream: UnixStream,
}

impl Monitor {
    pub(crate) fn new(redis: &Redis) -> Monitor {
        let mut stream = UnixStream::connect(redis.socket()).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "+OK\r\n");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in reader.split(b'\n').map_while(Result::ok) {
                sink.lock().unwrap().push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        });
        Monitor { lines, stream }
    }

    /// All requests since `new`, and all calls of commands from inside scripts (`[0 lua]`). To miss none, a marker is
    /// sent to the server, and awaited in MONITOR.
    pub(crate) fn lines(&self, redis: &Redis) -> Vec<String> {
        let marker = format!("marker-{}", uuid::Uuid::new_v4());
        redis.command(&["ECHO", &marker]);
        let mut found = Vec::new();
        super::eventually(SOON, "MONITOR has shown the marker", || {
            found.clone_from(&self.lines.lock().unwrap());
            found.iter().any(|line| line.contains(&marker))
        });
        found.retain(|line| !line.contains("\"ECHO\" \"marker-"));
        found
    }

    /// The commands that clients sent, in upper case, without arguments and without calls from inside scripts.
    pub(crate) fn commands(&self, redis: &Redis) -> Vec<String> {
        let lines = self.lines(redis);
        let outer = lines.iter().filter(|line| !line.contains(" lua] "));
        outer.map(|line| line.split('"').nth(1).unwrap_or_default().to_uppercase()).collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// How often clients and scripts have called each command since [`reset_command_calls`], without INFO and CONFIG
/// RESETSTAT, which these two functions call themselves.
pub(crate) fn command_calls(redis: &Redis) -> BTreeMap<String, u64> {
    let info: String = redis.query(&["INFO", "commandstats"]);
    let entries = info.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    entries.filter(|(name, _)| name != "info" && name != "config|resetstat").collect()
}

pub(crate) fn reset_command_calls(redis: &Redis) {
    redis.command(&["CONFIG", "RESETSTAT"]);
}

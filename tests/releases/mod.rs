//! Releases of redlock beside the redlock under test: clients of both exclude each other, wait in one line, revoke each
//! other's leases, and read each other's runs. A folder for each version has the requests of the release: each script
//! as it goes over the wire, and a call of each kind in calls.json. `make keep-release` writes the folder of the
//! version in Cargo.toml. This is done once for each release; afterwards the folder does not change.

mod record;

use crate::support::{Line, Redis, Running, SOON, Test, acquire, any, eventually, job, redlock, release, status};
use redis::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/releases");
const REWRITE: &str = "WRITE_RELEASE";

/// A call of a script. The words are the number of keys, keys and arguments. `<token>` and the like stand for values
/// that differ from call to call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    script: String,
    words: Vec<String>,
}

/// The requests of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Release {
    /// The body of each script, by the script's name.
    scripts: BTreeMap<String, String>,
    calls: BTreeMap<String, Call>,
    /// The channel on which a waiter is called.
    channel: String,
}

impl Release {
    fn read(folder: &Path) -> Release {
        let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let kept: serde_json::Value = serde_json::from_str(&file("calls.json")).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let call = |(name, call): (&String, &serde_json::Value)| {
            let words = call["words"].as_array().unwrap().iter().map(text).collect();
            (name.clone(), Call { script: text(&call["script"]), words })
        };
        let calls: BTreeMap<String, Call> = kept["calls"].as_object().unwrap().iter().map(call).collect();
        let scripts = calls.values().map(|call| (call.script.clone(), file(&format!("{}.lua", call.script)))).collect();
        Release { scripts, calls, channel: text(&kept["channel"]) }
    }

    fn write(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap();
        for (name, body) in &self.scripts {
            fs::write(folder.join(format!("{name}.lua")), body).unwrap();
        }
        let call = |call: &Call| serde_json::json!({"script": call.script, "words": call.words});
        let calls = self.calls.iter().map(|(name, one)| format!("    \"{name}\": {}", call(one)));
        let calls = calls.collect::<Vec<_>>().join(",\n");
        let channel = serde_json::json!(self.channel);
        let kept = format!("{{\n  \"channel\": {channel},\n  \"calls\": {{\n{calls}\n  }}\n}}\n");
        fs::write(folder.join("calls.json"), kept).unwrap();
    }
}

fn id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// All kept releases, and the redlock under test: what it sends must work, too, before it is kept.
fn all() -> Vec<Release> {
    let folders = fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    folders.map(|folder| Release::read(&folder)).chain([record::recorded()]).collect()
}

/// A client that uses the lock `backup` of this server as a release does.
struct Peer {
    release: Release,
    redis: Redis,
    token: String,
    waiter: String,
}

impl Peer {
    /// A client of each release, with a server of its own.
    fn of_each_release() -> impl Iterator<Item = Peer> {
        all().into_iter().map(|release| Peer { release, redis: Redis::start(), token: id(), waiter: id() })
    }

    /// Becomes another client of the same release, on the same server.
    fn another(&mut self) {
        (self.token, self.waiter) = (id(), id());
    }

    /// A call of the redlock under test.
    fn redlock(&self, line: &str) -> Test {
        redlock(&self.redis, line).stdout(any()).stderr(any())
    }

    fn filled(&self, word: &str) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let holder = self.redis.get(Line::KEY).unwrap_or_default();
        word.replace("<token>", &self.token)
            .replace("<waiter>", &self.waiter)
            .replace("<holder>", &holder)
            .replace("<run>", &self.redis.info("run_id"))
            .replace("<now>", &now.to_string())
    }

    /// Returns the server's answer.
    #[track_caller]
    fn call(&self, name: &str) -> Value {
        let call = &self.release.calls[name];
        let words: Vec<String> = call.words.iter().map(|word| self.filled(word)).collect();
        let mut request = redis::cmd("EVAL");
        request.arg(&self.release.scripts[&call.script]).arg(words);
        request.query(&mut self.redis.connection()).unwrap()
    }

    /// Checks that this call has this outcome.
    #[track_caller]
    fn is(&self, name: &str, outcome: &str) {
        let answer = self.call(name);
        let Value::Array(fields) = &answer else { panic!("{answer:?}") };
        let text = |word: &str| Value::BulkString(word.into());
        let found = fields.chunks(2).find(|pair| pair[0] == text("outcome")).map(|pair| &pair[1]);
        assert_eq!(found, Some(&text(outcome)), "{name}: {answer:?}");
    }
}

/// Records the requests of this redlock, and checks that they can be written and read. If WRITE_RELEASE is set, writes
/// them into the folder of this version.
#[test]
fn what_this_version_sends_can_be_kept() {
    let made = record::recorded();
    let directory = crate::support::Directory::new();
    let folder = directory.path().join("release");
    made.write(&folder);
    assert_eq!(Release::read(&folder), made);
    if std::env::var_os(REWRITE).is_some() {
        made.write(&Path::new(FOLDER).join(env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn releases_exclude_each_other() {
    for mut peer in Peer::of_each_release() {
        peer.is("take", "granted");
        peer.redlock("run backup -- true").status(75).run();
        peer.is("extend", "extended");
        peer.is("release", "released");
        let token = acquire(&peer.redis, "backup");
        peer.is("take", "held");
        release(&peer.redis, "backup", &token);

        // Readers hold the lock beside each other, and no writer gets it.
        peer.is("take-shared", "granted");
        let reader = peer.redlock("acquire backup --shared").run().token();
        peer.redlock("run backup -- true").status(75).run();
        peer.is("give", "released");
        peer.is("take", "held");
        release(&peer.redis, "backup", &reader);

        // Two slots go to two holders, and a third gets none.
        peer.is("take-slot", "granted");
        let other = peer.redlock("acquire backup --slots 2").run().token();
        peer.redlock("run backup --slots 2 -- true").status(75).run();
        let mine = peer.token.clone();
        peer.another();
        peer.is("take-slot", "held");
        release(&peer.redis, "backup", &other);
        peer.is("take-slot", "granted");
        peer.is("give", "released");
        peer.token = mine;
        peer.is("give", "released");
        peer.redlock("run backup -- true").run();
    }
}

/// Starts a job of the redlock under test, which holds the lock until the job's input ends.
fn run_job(peer: &Peer) -> (Running, std::io::PipeWriter) {
    job(&peer.redis, &["--wait"], 0)
}

#[test]
fn releases_wait_in_one_line() {
    for mut peer in Peer::of_each_release() {
        let (first, input) = run_job(&peer);
        let mut connection = peer.redis.connection();
        let mut channel = connection.as_pubsub();
        channel.subscribe(peer.filled(&peer.release.channel)).unwrap();
        peer.is("wait", "held");
        let second = Line::join(&peer.redis, Line::waiter(&peer.redis));
        assert_eq!(status(&peer.redis, "backup")["waiting"], 2);

        // The release's waiter came first, and is called first; that of this redlock is called next.
        drop(input);
        first.finish();
        channel.get_message().unwrap();
        peer.is("wait", "granted");
        assert_eq!(Line::length(&peer.redis), 1);
        peer.is("give", "released");
        let token = second.finish().token();

        // A waiter that leaves is not called.
        peer.another();
        channel.subscribe(peer.filled(&peer.release.channel)).unwrap();
        peer.is("wait", "held");
        let third = Line::join(&peer.redis, Line::waiter(&peer.redis));
        peer.call("leave");
        release(&peer.redis, "backup", &token);
        let token = third.finish().token();
        release(&peer.redis, "backup", &token);
        assert!(Line::is_clean(&peer.redis));
    }
}

#[test]
fn releases_revoke_each_others_leases() {
    for peer in Peer::of_each_release() {
        peer.is("take", "granted");
        let stop = peer.redlock("stop backup").spawn();
        let lease = ["HEXISTS", "{redlock:backup}:\u{1f}lease", "revoked"];
        eventually(SOON, "it is asked", || peer.redis.query::<bool>(&lease));
        peer.is("extend", "revoked");
        peer.is("release", "released");
        stop.finish();

        let (job, input) = job(&peer.redis, &["--ttl", "1s"], 76);
        peer.is("revoke", "revoked");
        job.finish();
        drop(input);
        eventually(SOON, "it is free", || !peer.redis.exists(Line::KEY));
    }
}

#[test]
fn releases_read_each_others_runs() {
    for peer in Peer::of_each_release() {
        peer.is("take-once", "granted");
        peer.is("release-once", "released");
        let run = peer.redlock("log backup --format json").run().json();
        assert_eq!(
            (&run["outcome"], &run["status"], &run["label"]),
            (&"exited".into(), &0.into(), &"kept".into()),
            "{run}"
        );
        peer.redlock("check backup --within 1h").run();
        peer.redlock("run backup --once-per 1h --label kept -E 9 -- true").status(9).run();
    }
    for peer in Peer::of_each_release() {
        peer.redlock("run backup --once-per 1h --label present -- true").run();
        peer.is("take-once", "ran");
        let runs = format!("{:?}", peer.call("runs"));
        let words: Vec<String> = "present".bytes().map(|byte| byte.to_string()).collect();
        assert!(runs.contains("present") || runs.contains(&words.join(", ")), "{runs}");
    }
}

//! A name or an address that moves from an old primary to a new one: managed services, load balancers, keepalived. Open
//! connections stay with the old primary.

use crate::support::{Mode, Proxy, Redis, Running, SOON, Test, eventually, is_renewed};

const KEY: &str = "redlock:backup";

/// A primary, its replica, and the name that leads to the primary.
fn pair() -> (Redis, Redis, Proxy) {
    let primary = Redis::with_tcp(&[]);
    let replica = Redis::replica_of(&primary, &[]);
    let name = Proxy::new(&primary, Mode::Pass);
    (primary, replica, name)
}

/// The two servers exchange their roles, and then the name leads to the new primary.
fn fail_over(old: &Redis, new: &Redis, name: &Proxy) {
    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    name.move_to(new);
}

fn ready(test: Test) -> Running {
    let job = test.args(["--", "sh", "-c", "echo ready; read line || :"]).spawn();
    job.prints("ready");
    job
}

#[test]
fn a_job_goes_on_with_the_new_primary() {
    let (old, new, name) = pair();
    let (reader, writer) = std::io::pipe().unwrap();
    let test = Test::new(&name).args(["run", "-q", "backup", "--ttl", "6s"]).stdin_from(reader);
    let mut job = ready(test);
    eventually(SOON, "replicated", || new.exists(KEY));
    fail_over(&old, &new, &name);
    is_renewed(&new);
    is_renewed(&new);
    assert!(!job.has_ended(), "{}", job.all_stderr());
    drop(writer);
    job.finish();
    assert!(!new.exists(KEY));
}

#[test]
fn a_waiter_goes_on_with_the_new_primary() {
    let (old, new, name) = pair();
    old.command(&["SET", KEY, "another", "PX", "60000"]);
    let test = Test::new(&name).args(["run", "-q", "backup", "--wait", "--", "echo", "started"]);
    let waiter = test.stdout("started\n").spawn();
    let listens = |redis: &Redis| {
        redis.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).iter().any(|channel| channel.contains("backup"))
    };
    eventually(SOON, "in line", || listens(&old));
    eventually(SOON, "replicated", || new.exists(KEY));
    fail_over(&old, &new, &name);
    eventually(SOON, "it can be called there", || listens(&new));
    new.command(&["DEL", KEY]);
    waiter.finish();
}

//! A service with Sentinels: one node, whose server changes. And `--replicas`.

use crate::support::{
    Authority, Contenders, Directory, Ended, Line, Numbered, SOON, Sentinels, Test, acquire, any, eventually,
    fencing_token, in_the_end, is_renewed, job, like, message, ms, perhaps, permit, redlock, release, status,
};
use nix::sys::signal::Signal;

const KEY: &str = Line::KEY;

#[test]
fn every_command_finds_the_primary_with_a_sentinel_down_and_one_that_hangs() {
    let mut service = Sentinels::start(1);
    let test = redlock(&service, "run backup -- true");
    test.stderr(like("redlock: acquired \"backup\" on mymaster@127.0.0.1:<n>, token <token>, <any>\n")).run();
    service.kill(0);
    let token = acquire(&service, "backup");
    assert_eq!(service.servers[0].get(KEY).as_ref(), Some(&token));
    redlock(&service, "acquire backup").turned_away().run();
    let (url, unknown) = (service.url(), "no-such-service");
    let test = Test::bare().args(["acquire", "backup", "--redis", &url.replace(Sentinels::SERVICE, unknown)]);
    test.fails(78, ["\"backup\"", unknown, "is not a service that this Sentinel knows"]).run();
    service.pause(1);
    redlock(&service, format!("extend -q backup --token {token}")).run();
    assert_eq!(status(&service, "backup")["state"], "held");
    redlock(&service, "status").stdout(like("<lines>backup<lines>")).run();
    release(&service, "backup", &token);
    assert!(!service.servers[0].exists(KEY));
    service.kill(1);
    service.kill(2);
    redlock(&service, "acquire backup").fails(69, ["\"backup\"", Sentinels::SERVICE]).run();
}

#[test]
fn the_documented_permissions_suffice() {
    let service = Sentinels::start(1);
    service.servers.iter().for_each(|server| permit(server, "+role +wait"));
    let url = service.url().replace("://", "://locks:secret@");
    redlock(url.as_str(), "run -q --replicas 1 backup -- redlock status").stdout(like("<lines>backup<lines>")).run();
    assert!(!service.servers[0].exists(KEY));
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let arguments = ["--requirepass", "of-the-server", "--masterauth", "of-the-server"];
    let lines = format!("requirepass of-the-sentinel\nsentinel auth-pass mymaster of-the-server\n{}", Sentinels::CALM);
    let directory = Directory::new();
    let file = directory.file("password", "of-the-server\n");
    let service = Sentinels::with(1, &arguments, &lines);
    let acquire = |url: &str| {
        let test = Test::bare().args(["acquire", "backup", "--redis", url]).env("REDLOCK_PASSWORD_FILE", &file);
        test.any_end().stdout(any()).stderr(perhaps(["AUTH", "WRONGPASS"])).run()
    };
    let url = service.url();
    assert_eq!(acquire(&format!("{url}?sentinel-password=of-the-sentinel")).ended, Ended::Status(0));
    for query in ["", "?sentinel-password=wrong"] {
        let finished = acquire(&format!("{url}{query}"));
        assert_eq!(finished.ended, Ended::Status(78), "{finished:?}");
        assert!(finished.stderr.contains("AUTH") || finished.stderr.contains("WRONGPASS"), "{finished:?}");
    }
}

#[test]
fn a_job_and_the_line_survive_a_fail_over() {
    let mut service = Sentinels::failing_over(2);
    let (mut holder, writer) = job(&service, &["--ttl", "30s"], 0);
    let token = service.servers[0].get(KEY).unwrap();
    let fence = fencing_token(&service);
    let waiters = Numbered::join(&service, 3, || Line::length(&service.servers[0]));
    service.servers[0].kill();
    let new = service.fails_over_from(0);
    let new = &service.servers[new];
    // The next renewal is due only after 7.5 s, but redlock renews at once when its connection is closed.
    eventually(SOON, "confirmed by the new primary", || {
        new.get(KEY).as_ref() == Some(&token) && new.pttl(KEY) > 28_500
    });
    eventually(SOON, "in line again", || Line::length(new) == 3);
    assert!(!holder.has_ended(), "{}", holder.all_stderr());
    redlock(&service, "acquire backup").turned_away().run();
    eventually(SOON, "each hears the new primary", || Line::listeners(new) == 3);
    drop(writer);
    holder.finish();
    assert!(waiters.are_served_in_order() > fence);
    assert!(Line::is_clean(new));
}

#[test]
fn there_is_one_holder_through_a_fail_over_with_replicas() {
    for frozen in [false, true] {
        let mut service = Sentinels::failing_over(2);
        let contenders = Contenders::start(&service, 4, 30, "--ttl 4s --replicas 1");
        contenders.go_on(20);
        if frozen {
            service.servers[0].pause()
        } else {
            service.servers[0].kill()
        }
        service.fails_over_from(0);
        contenders.go_on(10);
        if frozen {
            service.servers[0].resume();
        }
        // The failover may keep at most eight jobs from beginning.
        contenders.finish(4 * 30 - 8);
    }
}

#[test]
fn a_primary_of_yesterday_that_still_answers_is_left() {
    let service = Sentinels::failing_over(1);
    let old = &service.servers[0];
    let (holder, writer) = job(&service, &["--ttl", "30s"], 0);
    let token = old.get(KEY).unwrap();
    // The old primary refuses to become a replica, whatever the Sentinels tell it.
    old.command(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]);
    let waiter = Line::join(old, Line::waiter(&service));
    // One Sentinel sleeps as long as the old primary, and still names it when both wake up.
    service.pause(0);
    old.pause();
    let new = service.fails_over_from(0);
    let new = &service.servers[new];
    service.resume(0);
    old.resume();
    is_renewed(new);
    assert_eq!(new.get(KEY), Some(token));
    // The waiter does not stay with the old primary, either.
    eventually(SOON, "in line on the new primary", || Line::length(new) == 1 && Line::listeners(new) == 1);
    assert_eq!(old.info("role"), "master");
    drop(writer);
    holder.finish();
    let next = waiter.finish().token();
    assert_eq!(new.get(KEY), Some(next));
}

#[test]
fn a_lease_that_the_new_primary_has_never_seen_is_taken_again_unless_another_came_first() {
    for rival in [false, true] {
        let mut service = Sentinels::failing_over(1);
        // From now on the replica learns nothing.
        service.servers[1].pause();
        service.servers[0].command(&["CLIENT", "KILL", "TYPE", "replica"]);
        let (mut holder, writer) = job(&service, &["--ttl", "30s"], if rival { 76 } else { 0 });
        let token = service.servers[0].get(KEY);
        if rival {
            holder.send(Signal::SIGSTOP);
        }
        service.servers[0].kill();
        service.servers[1].resume();
        let new = service.fails_over_from(0);
        let new = &service.servers[new];
        if rival {
            let theirs = acquire(&service, "backup");
            holder.send(Signal::SIGCONT);
            holder.finish();
            assert_eq!(new.get(KEY), Some(theirs));
        } else {
            eventually(SOON, "taken again", || new.get(KEY) == token);
            assert!(!holder.has_ended(), "{}", holder.all_stderr());
            drop(writer);
            holder.finish();
            assert!(!new.exists(KEY));
        }
    }
}

#[test]
fn a_lease_counts_when_the_replicas_have_it() {
    let mut service = Sentinels::start(1);
    let acquire = |ended: i32| {
        let test = redlock(&service, "acquire backup --replicas 1 --ttl 20s");
        test.args(["--node-timeout", "2s"]).status(ended).stdout(any())
    };
    let token = acquire(0).run().token();
    assert_eq!(service.servers[1].get(KEY).as_ref(), Some(&token));
    release(&service, "backup", &token);
    let (holder, _writer) = job(&service, &["--replicas", "1", "--ttl", "6s"], 76);
    service.servers[1].kill();
    // A renewal without the replica does not count.
    let said = holder.finish().stderr;
    eventually(SOON, "given back or run out", || !service.servers[0].exists(KEY));
    assert!(said.contains("lost \"backup\"") && said.contains("0 of 1 replicas"), "{said}");
    let acquire = |arguments: &'static [&'static str]| {
        let test = redlock(&service, "acquire backup --replicas 1 --node-timeout 800ms");
        test.args(arguments).status(69)
    };
    for arguments in [&[][..], &["-q", "--wait", "2s"]] {
        acquire(arguments)
            .stderr(in_the_end(arguments, message(["\"backup\"", Sentinels::SERVICE, "0 of 1 replicas"])))
            .run();
        eventually(SOON, "nothing left behind", || {
            !service.servers[0].exists(KEY) && Line::is_clean(&service.servers[0])
        });
    }
    // A signal ends the wait for a replica, and also the lease.
    let waiting = redlock(&service, "acquire backup --replicas 1 --ttl 40s").interrupted(Signal::SIGTERM).spawn();
    eventually(SOON, "taken", || service.servers[0].exists(KEY));
    waiting.send(Signal::SIGTERM);
    waiting.finish();
    eventually(ms(1_000), "nothing left behind", || !service.servers[0].exists(KEY));
}

#[test]
fn a_server_that_does_not_say_it_is_primary_is_not_used() {
    let service = Sentinels::start(1);
    let [named, other] = [&service.servers[0], &service.servers[1]];
    other.command(&["REPLICAOF", "NO", "ONE"]);
    named.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    redlock(&service, "acquire backup").fails(69, ["\"backup\"", &named.address(), "not a primary"]).run();
}

#[test]
fn a_url_of_one_server_is_not_led_to_another() {
    let service = Sentinels::start(1);
    let replica = service.servers[1].tcp_url();
    let test = Test::bare().args(["acquire", "backup", "--redis", &replica]);
    test.fails(69, ["\"backup\"", &service.servers[1].address(), "READONLY"]).run();
}

#[test]
fn a_job_survives_a_fail_over_by_tls() {
    let authority = Authority::new();
    let mut service = Sentinels::by_tls(1, &authority);
    let url = service.url().replace("redis+", "rediss+");
    let test = |url: &str| Test::new(url).env("REDLOCK_TLS_CA", authority.certificate());
    let (reader, writer) = std::io::pipe().unwrap();
    let job = test(&url).args(["run", "-q", "backup", "--", "sh", "-c", "echo ready; cat"]).stdin_from(reader).spawn();
    job.prints("ready");
    let token = service.servers[0].get(KEY);
    service.servers[0].kill();
    let new = service.fails_over_from(0);
    let new = &service.servers[new];
    eventually(SOON, "confirmed by the new primary", || new.get(KEY) == token && new.pttl(KEY) > 28_500);
    drop(writer);
    job.finish();
    let refused = |url: &str, text: &str| {
        redlock(url, "acquire backup --node-timeout 1s").any_end().stderr(message([text])).run();
    };
    refused(&url, "has issued its certificate");
    refused(&service.url(), "TLS");
}

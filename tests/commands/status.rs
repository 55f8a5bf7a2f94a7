//! `redlock status` of one lock and of all locks, as text, as JSON, as an exit status. The command changes nothing.

use crate::support::{
    Monitor, Redis, SOON, Terminal, Test, acquire, acquire_for, acquire_on_all, any, eventually, like, message, myself,
    redlock, release, status, when,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// A lock's JSON, in which the values that differ from test to test are replaced: in a holder such a value becomes true
/// if it is null, else false, and each node gets the name `socket`.
fn steady(mut object: Value) -> Value {
    for holder in object["holders"].as_array_mut().unwrap() {
        for field in ["pid", "acquired_at", "held_ms", "fencing_token", "lease_ms"] {
            holder[field] = json!(holder[field].is_null());
        }
    }
    for node in object["nodes"].as_array_mut().unwrap() {
        assert!(node["node"].as_str().unwrap().contains('/'), "a socket's path: {node}");
        node["node"] = json!("socket");
    }
    object
}

#[test]
fn a_free_lock() {
    let redis = Redis::start();
    redlock(&redis, "status backup").stdout(when("free", |text| text.contains("free"))).run();
    let expected = json!({
        "name": "backup", "key": "redlock:backup", "state": "free", "closed_until": null, "closed_by": null, "mode": null, "limit": null, "holders": [],
        "holder_count": 0, "waiting": 0, "waiters": [], "last": null, "last_success": null, "last_failure": null,
        "usual_ms": null, "nodes": [{"node": "socket", "answer": "free"}],
    });
    let mut object = steady(status(&redis, "backup"));
    // The mode of a free lock may be null, or exclusive.
    assert!(object["mode"].is_null() || object["mode"] == "exclusive", "{object}");
    object["mode"] = Value::Null;
    assert_eq!(object, expected);
    assert!(redis.keys_without_history().is_empty());
}

#[test]
fn a_held_lock_in_the_exact_shape() {
    let redis = Redis::start();
    let token = redlock(&redis, "acquire backup --ttl 25s --label nightly").token();
    let (user, host) = myself();
    let shape = format!(
        "{{\"name\":\"backup\",\"key\":\"redlock:backup\",\"state\":\"held\",\"closed_until\":null,\"closed_by\":null,\"mode\":\"exclusive\",\"limit\":null,\"holders\":[{{\
         \"token_prefix\":\"{}\",\"slot\":null,\"host\":\"{host}\",\"pid\":<n>,\"user\":\"{user}\",\"label\":\"nightly\",\
         \"acquired_at\":\"<time>\",\"held_ms\":<n>,\"fencing_token\":<n>,\"holds\":1,\"ttl_ms\":25000,\
         \"lease_ms\":<n>,\"renewal_ms\":0}}],\"holder_count\":1,\"waiting\":0,\"waiters\":[],\"last\":null,\"last_success\":null,\"last_failure\":null,\"usual_ms\":null,\
         \"nodes\":[{{\"node\":\"<word>\",\"answer\":\"held\"}}]}}\n",
        &token[..8]
    );
    let object = redlock(&redis, "status backup --format json").stdout(like(shape)).run().json();
    let holder = &object["holders"][0];
    assert!(holder["lease_ms"].as_u64().unwrap() <= 25_000 && holder["lease_ms"].as_u64().unwrap() > 20_000);
    assert!(holder["held_ms"].as_u64().unwrap() < 5_000);
}

#[test]
fn text_names_the_holder_and_never_shows_a_whole_token() {
    let redis = Redis::start();
    let token = redlock(&redis, "acquire backup --label nightly").token();
    let (user, host) = myself();
    let one = redlock(&redis, "status backup").text();
    let all = redlock(&redis, "status").text();
    let json = redlock(&redis, "status --format json").text();
    for (what, text) in [("one", &one), ("all", &all), ("json", &json)] {
        assert!(text.contains("backup") && text.contains(&host) && text.contains("nightly"), "{what}: {text}");
        assert!(!text.contains(&token), "{what}: {text}");
        assert!(!text.contains('\u{1b}'), "no colours into a pipe: {text:?}");
    }
    assert!(one.contains(&user) && one.contains("held") && one.contains(&token[..8]), "{one}");
    assert!(!one.contains(&token[..9]), "{one}");
}

#[test]
fn with_q_the_status_tells_free_from_held() {
    let redis = Redis::start();
    // Nothing is printed, as by grep -q: the exit status is the answer.
    let test = || redlock(&redis, "status -q backup");
    test().run();
    let token = acquire(&redis, "backup");
    test().status(75).run();
    release(&redis, "backup", &token);
    redis.command(&["SET", "redlock:backup", "theirs"]);
    test().status(75).run();
    redis.command(&["DEL", "redlock:backup"]);
    acquire(&redis, "backup");
    redlock(&redis, "status backup").stdout(any()).run();
}

#[test]
fn with_a_token_the_status_says_whether_it_holds_the_lock() {
    let redis = Redis::start();
    let token = acquire(&redis, "backup");
    let asks = |token: &str| redlock(&redis, format!("status backup --token {token}")).stdout(any());
    asks(&token).run();
    asks(&token).arg("-q").stdout("").run();
    asks("nonsense").arg("-q").stdout("").status(77).run();
    asks(&token).args(["-q", "--format", "json"]).stdout("").run();
    let said = || message(["the token does not hold \"backup\""]);
    asks("nonsense").status(77).stderr(said()).run();
    asks(&token[..8]).status(77).stderr(said()).run();
    release(&redis, "backup", &token);
    asks(&token).status(77).stderr(said()).run();
}

#[test]
fn a_foreign_lock() {
    let redis = Redis::start();
    redis.command(&["SET", "redlock:backup", "0123456789abcdef", "PX", "60000"]);
    let object = status(&redis, "backup");
    assert_eq!(object["state"], "foreign");
    assert_eq!(object["nodes"][0]["answer"], "foreign");
    let holder = &object["holders"][0];
    assert_eq!(holder["token_prefix"], "01234567");
    for unknown in ["host", "pid", "user", "label", "acquired_at", "held_ms", "fencing_token", "ttl_ms", "renewal_ms"] {
        assert!(holder[unknown].is_null(), "{unknown}: {holder}");
    }
    let left = holder["lease_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
    redis.command(&["PERSIST", "redlock:backup"]);
    assert!(status(&redis, "backup")["holders"][0]["lease_ms"].is_null());
    redlock(&redis, "status backup").stdout(when("never expires", |text| text.contains("never expires"))).run();
}

#[test]
fn a_lock_of_ours_that_somebody_made_endless_is_said_to_never_expire() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    redis.command(&["PERSIST", "redlock:backup"]);
    for arguments in [&["status", "backup"][..], &["status"]] {
        Test::new(&redis).args(arguments).stdout(when("never", |text| text.contains("never"))).run();
    }
}

#[test]
fn without_an_answer_it_is_unknown() {
    let mut redis = Redis::start();
    redis.kill();
    redlock(&redis, "status backup").fails(69, ["\"backup\""]).stdout(any()).run();
    redlock(&redis, "status backup -q").fails(69, ["\"backup\""]).stdout(any()).run();
    let object = redlock(&redis, "status backup --format json").fails(69, ["\"backup\""]).json();
    // Even if the command fails, its object is the usual one.
    assert_eq!(object["state"], "unknown", "{object}");
    redlock(&redis, "status").fails(69, []).stdout(any()).run();
}

#[test]
fn a_node_that_fails_is_reported_with_its_reason() {
    let mut nodes = Redis::several(3);
    acquire_on_all(&nodes, "backup");
    nodes[2].kill();
    let object = status(&nodes, "backup");
    assert_eq!(object["state"], "held");
    let answers: Vec<&str> =
        object["nodes"].as_array().unwrap().iter().map(|node| node["answer"].as_str().unwrap()).collect();
    assert_eq!(answers, ["held", "held", "error"]);
    assert!(!object["nodes"][2]["detail"].as_str().unwrap().is_empty());
    assert!(object["nodes"][0].get("detail").is_none_or(Value::is_null));
}

#[test]
fn the_list_shows_every_lock_under_the_prefix() {
    let redis = Redis::start();
    let list = |prefix: &str| {
        let object = redlock(&redis, "status --format json --prefix").arg(prefix).json();
        let locks = object["locks"].as_array().unwrap().clone();
        locks.iter().map(|lock| lock["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(list("redlock:").is_empty());
    for name in ["b", "a", "with space", "{tag}c"] {
        acquire(&redis, name);
    }
    redlock(&redis, "acquire x --prefix").arg("").stdout(any()).run();
    redlock(&redis, "acquire y --prefix glob[a]*?:").stdout(any()).run();
    let gone = acquire(&redis, "gone");
    release(&redis, "gone", &gone);
    redis.command(&["SET", "redlock:foreign", "1"]);
    redis.command(&["SET", "session:1", "not a lock"]);
    redis.command(&["SET", "globa:z", "not a lock"]);
    // What never ends is the worst of these.
    assert_eq!(list("redlock:"), ["foreign", "a", "b", "with space", "{tag}c"]);
    assert_eq!(list("glob[a]*?:"), ["y"]);
    // Without a prefix the list has only keys with an owner record, which are surely locks.
    assert_eq!(list(""), ["glob[a]*?:y", "redlock:a", "redlock:b", "redlock:with space", "redlock:{tag}c", "x"]);
}

#[test]
fn the_list_copes_with_a_hundred_thousand_other_keys_and_never_uses_keys() {
    let redis = Redis::start();
    redis.command(&["EVAL", "for i = 1, 100000 do redis.call('SET', 'other:' .. i, i) end", "0"]);
    for name in ["a", "b"] {
        acquire(&redis, name);
    }
    let monitor = Monitor::new(&redis);
    let finished = redlock(&redis, "status --format json").stdout(any()).run();
    assert_eq!(finished.json()["locks"].as_array().unwrap().len(), 2);
    let commands = monitor.commands(&redis);
    assert!(commands.contains(&"SCAN".to_owned()), "{commands:?}");
    assert!(!monitor.lines(&redis).iter().any(|line| line.to_uppercase().contains("\"KEYS\"")));
    assert!(finished.elapsed < SOON, "{:?}", finished.elapsed);
}

#[test]
fn looking_changes_nothing_and_works_where_nothing_can_be_written() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let dirty = redis.info("rdb_changes_since_last_save");
    let look = || {
        assert_eq!(status(&redis, "backup")["state"], "held");
        redlock(&redis, "status").stdout(any()).run();
        redlock(&redis, "wait backup --timeout 1s -q").turned_away().run();
    };
    look();
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    look();
    assert_eq!(redis.info("rdb_changes_since_last_save"), dirty);
}

#[test]
fn watch_prints_one_object_a_line_while_the_lock_changes_hands_and_the_server_restarts() {
    let mut redis = Redis::start();
    let watch = redlock(&redis, "status backup --watch 100ms --format json").spawn();
    let until = |state: &str| {
        eventually(SOON, state, || {
            let object: Value = serde_json::from_str(&watch.stdout_line()).unwrap();
            if let Some(holders) = object["holders"].as_array() {
                assert_eq!(holders.len(), usize::from(object["state"] == "held"), "{object}");
            }
            object["state"] == state || (state == "unknown" && object["status"] == 69)
        });
    };
    until("free");
    acquire_for(&redis, "backup", "1h");
    until("held");
    redis.kill();
    until("unknown");
    redis.restart();
    until("free");
}

#[test]
fn watch_of_all_locks_prints_one_list_a_line() {
    let redis = Redis::start();
    let watch = redlock(&redis, "status --watch 100ms --format json").spawn();
    watch.prints("{\"locks\":[]}");
    acquire(&redis, "backup");
    eventually(SOON, "listed", || {
        let object: Value = serde_json::from_str(&watch.stdout_line()).unwrap();
        object["locks"].as_array().unwrap().iter().any(|lock| lock["name"] == "backup")
    });
}

#[test]
fn a_list_that_no_quorum_has_been_looked_through_for_is_no_list() {
    let mut nodes = Redis::several(3);
    nodes[1..].iter_mut().for_each(Redis::kill);
    for format in ["text", "json"] {
        let test = redlock(&nodes, "status --format").arg(format);
        let finished = test.fails(69, ["1 of 3 nodes answered"]).stdout(any()).run();
        assert!(!finished.stdout.contains("locks\":["), "{}", finished.stdout);
    }
}

#[test]
fn a_list_without_a_minority_of_the_nodes_says_which_and_why() {
    let mut nodes = Redis::several(3);
    acquire_on_all(&nodes, "backup");
    nodes[2].kill();
    let socket = nodes[2].socket();
    let said = format!("redlock: {} is unreachable (<any>); the list is from the other nodes\n", socket.display());
    for format in ["text", "json"] {
        let finished = redlock(&nodes, "status --format").arg(format).stdout(any()).stderr(like(&said)).run();
        assert!(finished.stdout.contains("backup"), "{}", finished.stdout);
    }
    let watch = redlock(&nodes, "status --watch 100ms").spawn();
    eventually(SOON, "each page says so too", || watch.stdout_line().contains("the list is from the other nodes"));
}

#[test]
fn several_names_and_patterns_list_what_matches() {
    let redis = Redis::start();
    for name in ["job-1", "job-10", "job-2", "job?", "other", "\u{5099}\u{4efd}"] {
        acquire(&redis, name);
    }
    let names = |arguments: &[&str]| {
        let text = redlock(&redis, "status").args(arguments).stdout(any()).stderr(any()).run().stdout;
        let json = redlock(&redis, "status").args(arguments).args(["--format", "json"]).json();
        let names = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let rows: Vec<String> = text.lines().skip(1).map(names).collect();
        let locks = json["locks"].as_array().unwrap().iter();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(rows, locks.map(|lock| word(&lock["name"]) + " " + &word(&lock["state"])).collect::<Vec<_>>());
        rows.join(", ")
    };
    assert_eq!(names(&["job-*"]), "job-1 held, job-2 held, job-10 held");
    // In a pattern, only the * is special.
    assert_eq!(names(&["job?*"]), "job? held");
    assert_eq!(names(&["other", "no-such", "*-2", "other"]), "job-2 held, other held, no-such free");
    assert_eq!(names(&["--name", "other", "job-1"]), "job-1 held, other held");
    let none =
        "redlock: no lock that is held matches \"x*\" or \"y*\" (-a shows free ones) under \"redlock:\" on <node>\n";
    redlock(&redis, "status x* y*").stderr(like(none)).run();
    redlock(&redis, "status x* -a")
        .stderr(like("redlock: no lock matches \"x*\" under \"redlock:\" on <node>\n"))
        .run();
    for how in [&["-q"][..], &["--token", "t"]] {
        for names in [&["job-*"][..], &["job-1", "job-2"]] {
            redlock(&redis, "status").args(names).args(how).fails(64, ["ask about one lock"]).run();
        }
    }
}

#[test]
fn the_table_shows_whole_names_in_straight_columns() {
    let redis = Redis::start();
    let long = "x".repeat(38);
    let names = [format!("{long}-1"), format!("{long}-2"), "\u{5099}\u{4efd}".repeat(10)];
    names.iter().for_each(|name| drop(acquire(&redis, name)));
    let table = redlock(&redis, "status").text();
    for name in &names {
        assert!(table.contains(name.as_str()), "{table}");
    }
    let column = |line: &str, word| line.find(word).map(|at| line[..at].width());
    let header = table.lines().next().and_then(|line| column(line, "STATE"));
    assert!(header == Some(42) && table.lines().skip(1).all(|line| column(line, "held") == header), "{table}");
}

#[test]
fn a_long_name_makes_its_own_line_longer_and_no_other() {
    let redis = Redis::start();
    let long = "x".repeat(200);
    for name in ["backup", &long] {
        let token = acquire(&redis, name);
        release(&redis, name, &token);
    }
    let table = redlock(&redis, "status -a").text();
    let log = redlock(&redis, "log").text();
    // After the short name, the next column begins at its usual place. The long name is followed by two spaces.
    for name in [format!("backup{:36}", ""), format!("{long}  ")] {
        for text in [&table, &log] {
            assert!(text.split_once(&name).is_some_and(|(_, rest)| !rest.starts_with([' ', '\n'])), "{text}");
        }
    }
}

#[test]
fn text_has_local_times_with_their_zone_and_json_utc() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    let status = |format: &str| {
        let test = redlock(&redis, format!("status backup --format {format}")).env("TZ", "XYZ-5:30");
        test.text()
    };
    let (text, json) = (status("text"), status("json"));
    let since = text.lines().find_map(|line| line.split_once(", since ")).unwrap().1;
    let json: Value = serde_json::from_str(&json).unwrap();
    let utc = humantime::parse_rfc3339(json["holders"][0]["acquired_at"].as_str().unwrap()).unwrap();
    let local = humantime::format_rfc3339_seconds(utc + Duration::from_secs(19_800)).to_string();
    assert_eq!(since, local.replace('T', " ").replace('Z', " +0530"));
}

#[test]
fn watch_has_a_screen_of_its_own_cut_to_its_size_the_worst_first() {
    let redis = Redis::start();
    for number in 1..=8 {
        acquire(&redis, &format!("lock-{number}"));
    }
    redis.command(&["SET", "redlock:theirs", "x"]);
    let terminal = Terminal::bash(&redis);
    terminal.resize(7, 30);
    terminal.enters("TERM=xterm redlock status --watch 100ms");
    terminal.shows("\u{1b}[?1049h");
    let page = terminal.shows("… 6 more");
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 7, "{page:?}");
    assert!(lines[3].starts_with("theirs"), "what never ends comes first: {page:?}");
    for line in lines {
        let shown = line.trim_end().replace("\u{1b}[H", "").replace("\u{1b}[K", "").replace("\u{1b}[?25l", "");
        assert!(shown.chars().count() <= 30, "{shown:?}");
    }
    terminal.resize(9, 30);
    terminal.shows("… 4 more");
    terminal.types("\u{3}");
    terminal.shows("\u{1b}[?1049l");
    terminal.prompts();
    assert_eq!(terminal.status(), 130);
}

#[test]
fn watch_has_failed_last_runs_above_what_is_held() {
    let redis = Redis::start();
    redlock(&redis, "run -q a-done -- true").run();
    redlock(&redis, "run -q b-failed -- false").status(1).run();
    acquire(&redis, "c-held");
    let token = acquire(&redis, "d-released");
    release(&redis, "d-released", &token);
    let watcher = redlock(&redis, "status -a --watch").signal(Signal::SIGTERM).stdout(any()).stderr(any()).spawn();
    watcher.prints(like("<date>  NAME<any>"));
    for name in ["b-failed", "c-held", "a-done", "d-released"] {
        watcher.prints(like(format!("<date>  {name} <any>")));
    }
    watcher.send(Signal::SIGTERM);
    watcher.finish();
}

#[test]
fn q_leaves_the_watch_and_the_terminal_as_it_was() {
    let redis = Redis::start();
    acquire_for(&redis, "backup", "1h");
    let terminal = Terminal::bash(&redis);
    let watch = || {
        terminal.enters("TERM=xterm redlock status --watch 100ms");
        terminal.shows("q quits");
        terminal.shows("backup");
    };
    let leaves = |keys: &str| {
        terminal.types(keys);
        terminal.shows("\u{1b}[?1049l");
        terminal.prompts(); // The shell reads whole lines, which are echoed.
    };
    watch();
    leaves("xQq");
    assert_eq!(terminal.status(), 0);
    watch();
    leaves("\u{3}");
    watch();
    leaves("\u{1a}");
    terminal.enters("fg");
    terminal.shows("q quits");
    leaves("q");
    assert_eq!(terminal.status(), 0);
}

#[test]
fn watch_shortens_a_long_name_so_that_the_rest_of_its_line_is_seen() {
    let redis = Redis::start();
    let name = format!("{}-end", "nightly".repeat(20));
    acquire_for(&redis, &name, "1h");
    let terminal = Terminal::bash(&redis);
    for columns in [80, 100] {
        terminal.resize(24, columns);
        terminal.enters("TERM=xterm redlock status --watch 100ms");
        terminal.shows("NAME ");
        let header = terminal.shows("LAST RUN");
        assert!(["STATE", "HELD BY", "FOR", "LEASE"].iter().all(|column| header.contains(column)), "{header:?}");
        terminal.shows("nightly");
        let row = terminal.shows("\u{1b}[J");
        assert!(row.contains("…  held ") && (row.contains("59m") || row.contains("1h")), "{row:?}");
        terminal.types("\u{3}");
        terminal.prompts();
    }
    // Without --watch the name is whole.
    let finished = redlock(&redis, "status").stdout(any()).run();
    assert!(finished.stdout.contains(&format!("{name}  held")), "{}", finished.stdout);
}

#[test]
fn watch_leaves_out_empty_columns_before_it_cuts_the_last_run() {
    let redis = Redis::start();
    let name = "nightly-backup-of-all-databases";
    redlock(&redis, "run -q").args([name, "--", "true"]).run();
    let terminal = Terminal::bash(&redis);
    // With all its columns, the table of a free lock is 68 characters wide.
    terminal.resize(24, 60);
    terminal.enters("TERM=xterm redlock status --all --watch 100ms");
    terminal.shows("NAME ");
    let header = terminal.shows("LAST RUN");
    assert!(!["HELD BY", "FOR", "LEASE", "WAIT"].iter().any(|column| header.contains(column)), "{header:?}");
    terminal.shows("exit 0, ");
    terminal.shows(" ago");
    acquire_for(&redis, name, "1h");
    terminal.shows("HELD BY");
    terminal.types("q");
}

#[test]
fn watch_has_the_name_before_it_and_its_lines_carry_the_time_where_there_is_no_terminal() {
    let redis = Redis::start();
    redlock(&redis, "status --watch backup").fails(64, ["30s or 1m 30s; the default: [NAME] --watch"]).run();
    let watcher = redlock(&redis, "status backup --watch").interrupted(Signal::SIGTERM).spawn();
    watcher.prints(like("<date>  backup  free; no run is known<any>"));
    watcher.send(Signal::SIGTERM);
    watcher.finish();
    let watcher = redlock(&redis, "status --watch 0.1").interrupted(Signal::SIGTERM).stdout(any()).spawn();
    watcher.prints(like("<date>  NAME<any>"));
    watcher.prints(like("<date>  NAME<any>"));
    watcher.send(Signal::SIGTERM);
    watcher.finish();
}

#[test]
fn a_question_mark_is_no_pattern() {
    let redis = Redis::start();
    acquire(&redis, "m1");
    Test::new(&redis)
        .args(["status", "m?"])
        .stdout(like("m?  free; no run is known<any>\n"))
        .stderr("redlock: did you mean \"m1\"?\n")
        .run();
    acquire(&redis, "m?");
    Test::new(&redis).args(["status", "m?"]).stdout(like("m?  held\n<lines>")).run();
}

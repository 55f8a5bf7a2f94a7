//! Locks with several holders, as users see them: `status`, its list, and the messages about a busy lock, a wait and a
//! grant.

use crate::support::{Pattern, Redis, SOON, any, eventually, like, myself, redlock, regex, release, status};

/// Returns the token.
#[track_caller]
fn take(redis: &Redis, line: &str) -> String {
    redlock(redis, format!("acquire {line}")).token()
}

/// User and host, as a message has them.
fn who() -> String {
    let (user, host) = myself();
    format!("{user}@{host}")
}

/// The lines of `status` about a holder. `slot`: the line about its slot, or "".
fn block(slot: &str) -> String {
    format!(
        "{slot}  by      {}, pid <n> (<word>)\n  for     <duration>, since <date>\n  \
         lease   <duration> of 30s left\n          taken by acquire: nothing renews it; if the script is dead: redlock release <word> \
         --force --token <prefix>\n  token   <prefix>…, fencing token <n>\n",
        who()
    )
}

#[test]
fn holders_of_slots_are_shown_with_their_slots() {
    let redis = Redis::start();
    for label in ["one", "two", "three"] {
        take(&redis, &format!("dl --slots 3 --label {label}"));
    }
    let blocks: String = (0..3).map(|slot| block(&format!("  slot    {slot}\n"))).collect();
    redlock(&redis, "status dl").stdout(like(format!("dl  3 of 3 slots taken\n{blocks}"))).run();
    let token = status(&redis, "dl")["holders"][1]["token_prefix"].clone();
    redlock(&redis, "release dl --force --token").arg(token.as_str().unwrap()).stdout(any()).run();
    let blocks: String = [0, 2].map(|slot| block(&format!("  slot    {slot}\n"))).concat();
    redlock(&redis, "status dl")
        .stdout(like(format!("dl  2 of 3 slots taken\n{blocks}  last    <any>, revoked by <any>\n")))
        .run();
    let object = status(&redis, "dl");
    assert_eq!((&object["mode"], &object["limit"], &object["state"]), (&"slots".into(), &3.into(), &"held".into()));
    redlock(&redis, "status -q dl").status(75).run();
}

#[test]
fn holders_that_share_are_all_shown() {
    let redis = Redis::start();
    for label in ["one", "two"] {
        take(&redis, &format!("db -s --label {label}"));
    }
    redlock(&redis, "status db").stdout(like(format!("db  shared by 2\n{}{}", block(""), block("")))).run();
    let object = status(&redis, "db");
    assert_eq!((&object["mode"], object["limit"].is_null()), (&"shared".into(), true));
    assert!(object["holders"].as_array().unwrap().iter().all(|holder| holder["slot"].is_null()));
    take(&redis, "dl --slots 3 --label three");
    let (_, host) = myself();
    let by = |label: &str| format!("{host} {label}");
    let table = format!(
        "NAME +STATE +HELD BY .*\ndb +shared by 2 +{} and 1 more +[0-9]+s +[0-9]+s +0 +nothing renews it\n\
         dl +1 of 3 slots taken +{} +[0-9]+s +[0-9]+s +0 +nothing renews it\n",
        by("\\((one|two)\\)"),
        by("\\(three\\)")
    );
    redlock(&redis, "status").stdout(regex(&table)).run();
}

#[test]
fn a_busy_one_names_ten_holders_at_most() {
    let redis = Redis::start();
    let all = |count: usize| vec![format!("{} (job)", who()); count].join(", ");
    let busy = |line: &str, said: String| {
        redlock(&redis, format!("run {line} -- true")).status(75).stderr(said).run();
    };
    let mut tokens: Vec<String> = (0..2).map(|_| take(&redis, "dl --slots 2 --label job")).collect();
    let advice = "; use --wait to queue for it\n";
    busy("dl --slots 2", format!("redlock: \"dl\" has all 2 slots taken: {}{advice}", all(2)));
    tokens.drain(..).for_each(|token| release(&redis, "dl", &token));
    for count in 1..=12 {
        let token = take(&redis, "db -s --label job");
        if ![2, 9].contains(&(count % 10)) || count == 12 {
            let more = if count > 10 { format!(" and {} more", count - 10) } else { String::new() };
            let named = all(count.min(10));
            busy("db", format!("redlock: \"db\" is shared by {count}: {named}{more}{advice}"));
        }
        tokens.push(token);
    }
    // `status` finds each holder by its token. (A message names only ten holders.)
    for token in tokens {
        redlock(&redis, format!("status -q db --token {token}")).run();
    }
}

#[test]
fn a_waiter_and_a_job_are_told_how_it_is_shared() {
    let redis = Redis::start();
    let token = take(&redis, "dl --slots 1 --label job");
    let said = format!("redlock: waiting for \"dl\", 1st in line; all 1 slots taken: {} (job)", who());
    let waiter = redlock(&redis, "run dl --slots 1 --wait -- sh -c").arg("echo $REDLOCK_SLOT").stdout("0\n");
    let acquired =
        "redlock: acquired \"dl\" on <node> after <duration> in line, slot 0 (0 to 0), token <token>, <any>\n";
    let waiter = waiter.stderr(like(acquired)).spawn();
    waiter.says(Pattern::from(said));
    release(&redis, "dl", &token);
    waiter.finish();
    eventually(SOON, "free", || !redis.exists("redlock:dl"));
    // The job of an inner lease does not see the slot of the outer lease.
    let job = "redlock run -q --name inner -- sh -c 'echo ${REDLOCK_SLOT-none}'";
    redlock(&redis, "run -q dl --slots 3 -c").arg(job).stdout("none\n").run();
    let shared = like("redlock: acquired \"db\" on <node>, shared, token <any>\n");
    redlock(&redis, "run db -s -- sh -c").arg("echo ${REDLOCK_SLOT-none}").stdout("none\n").stderr(shared).run();
    redlock(&redis, "acquire db -s -v")
        .stdout(any())
        .stderr(like("redlock: <any>\nredlock: acquired \"db\" on <node>, shared, <any>\n"))
        .run();
    let json = redlock(&redis, "acquire db -s --format json").json();
    assert!(json["slot"].is_null());
    redlock(&redis, "acquire db").fails(75, ["\"db\" is shared by 2: "]).run();
}

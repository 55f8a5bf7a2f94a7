//! Records that others have left in Redis: keys of every type under the names that redlock uses, with any content.

use super::call::Ground;
use crate::support::Chance;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The ends of the keys' names; `-` is the lock itself.
const KEYS: &str = "-|-|lease|lease|fence|queue|reserved|holds|members|slots|fences|log|log:open|open|runs|open|ends|log|log|\
    runs|newest|visits|errors";
const FIELDS: &str = "token|fence|ttl|since|host|pid|user|label|renewal|revoked|kept|longest|all|0|1|success|failure|once|\
    succeeded|failed|forced|0123456789abcdef0123456789abcdef";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(super) fn trial(chance: &mut Chance, ground: &Ground) {
    let mut connection = ground.redis.connection();
    let _: () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
    // In most trials, redlock itself writes the keys that the trial then changes.
    if chance.percent(60) {
        let made = "run x -- true|acquire x|acquire x -s|acquire x --slots 2|run x -- false";
        let made = chance.word(made);
        let words: Vec<OsString> = made.split(' ').map(OsString::from).collect();
        ground.call(&words, &environment(ground));
    }
    for _ in 0..=chance.below(6) {
        let end = chance.word(KEYS);
        let key = if end == "-" { "redlock:x".to_owned() } else { format!("{{redlock:x}}:\u{1f}{end}") };
        let key = if chance.percent(5) { format!("{{redlock:x}}:\u{1f}member:{TOKEN}") } else { key };
        if chance.percent(25) {
            let _: redis::Value = redis::cmd("DEL").arg(&key).query(&mut connection).unwrap();
        }
        // If the key has another type, any command but SET fails, and the key stays as it is.
        let _ = write(chance, &key).query::<redis::Value>(&mut connection);
        if chance.percent(30) {
            let ttl = chance.one_of(&[1_u64, 500, 60_000, 1 << 45]);
            let _ = redis::cmd("PEXPIRE").arg(&key).arg(ttl).query::<redis::Value>(&mut connection);
        }
    }
    for _ in 0..3 {
        look(chance, ground);
    }
}

fn write(chance: &mut Chance, key: &str) -> redis::Cmd {
    let name = match chance.below(6) {
        0 => "SET",
        1 | 2 => "HSET",
        3 => "ZADD",
        4 => chance.one_of(&["RPUSH", "LPUSH"]),
        _ => chance.one_of(&["SADD", "APPEND"]),
    };
    let mut command = redis::cmd(name);
    command.arg(key);
    let pairs = if chance.percent(5) { chance.below(2000) } else { chance.below(4) };
    for _ in 0..=pairs {
        match name {
            "HSET" => drop(command.arg(field(chance)).arg(text(chance))),
            "ZADD" => {
                let score = chance.word("0|1|-1|inf|-inf|1.5|1e300|9007199254740993|1795398370089");
                command.arg(score).arg(text(chance));
            }
            "SET" | "APPEND" => {
                command.arg(text(chance));
                break;
            }
            _ => drop(command.arg(text(chance))),
        }
    }
    command
}

fn field(chance: &mut Chance) -> Vec<u8> {
    if chance.percent(80) { chance.word(FIELDS).as_bytes().to_vec() } else { text(chance) }
}

fn text(chance: &mut Chance) -> Vec<u8> {
    match chance.below(10) {
        0 => TOKEN.as_bytes().to_vec(),
        1 => {
            chance.word("shared.0123456789abcdef|slots:2.0123456789abcdef|slots:99999999999.x|slots:.x|shared.").into()
        }
        2 => chance.word("0|-1|1795398370089|99999999999999999999|1e400|nan|1.5").into(),
        3 => chance.word(r#"{}|[]|{"token":1}|{"ended":"x","began":{}}|[[[[[[[[|"\ud800"|null"#).into(),
        4 => b"p\xff\xfe\x00\x1b[2J".to_vec(),
        5 => "\t1\t2\u{1f}3\n4\u{1b}]0;x\u{7}".repeat(usize::try_from(chance.below(50)).unwrap()).into_bytes(),
        6 | 7 => run(chance),
        _ => super::words::text(chance).into_vec(),
    }
}

/// A run as another version, or another program, may have written it.
fn run(chance: &mut Chance) -> Vec<u8> {
    let mut fields = Vec::new();
    for name in ["t", "h", "p", "u", "l", "b", "w", "f", "i", "q", "n", "d", "x", "s", "o", "y"] {
        let value = match chance.below(12) {
            0 => continue,
            1 => chance.word(r#"-1|1e308|9007199254740993|null|true|[]|{"a":[1]}|0.5"#).to_owned(),
            2 => "\"\\u001b[2J\\u0007\\u202e\\n\"".to_owned(),
            3 => format!("\"{}\"", "\u{1F600}\u{301}x".repeat(usize::try_from(chance.below(3_000)).unwrap())),
            4 => chance.word(r#""-5"|"99999999999999999999"|"1e9"|""|"256"|"nan""#).to_owned(),
            5 => chance.word(r#""lost"|"expired"|"released"|"revoked"|"strange""#).to_owned(),
            6 | 7 => format!("\"{}\"", chance.below(300)),
            _ if name == "t" => format!("\"{TOKEN}\""),
            _ => format!("\"{}\"", 1_795_398_370_089 + chance.below(1 << 42)),
        };
        fields.push(format!("\"{name}\":{value}"));
    }
    let text = format!("{{{}}}", fields.join(","));
    let cut = if chance.percent(10) { text.len() / 2 } else { text.len() };
    text.into_bytes()[..cut].to_vec()
}

fn environment(ground: &Ground) -> Vec<(OsString, OsString)> {
    vec![("REDLOCK_REDIS".into(), ground.redis.url().into())]
}

/// Makes a random call. If it prints JSON, each line must be valid.
fn look(chance: &mut Chance, ground: &Ground) {
    let lines = [
        "status x",
        "status x --format json",
        "status",
        "status --format json",
        "status --format prometheus",
        "status -v",
        "log x",
        "log x --format json",
        "log",
        "log --format json",
        "log x --since 1d",
        "log x --failed",
        "check x --within 1h",
        "check x --within 1h --format nagios",
        "status --all",
        "log -n 1",
        "wait x --timeout 50ms",
        "run x -- true",
        "run x -s -- true",
        "run x --slots 2 -- true",
        "run x --wait 50ms -- true",
        "run x -n --once-per 1h --tries 2 -- true",
        "run x --newest 5 -- true",
        "acquire x --ttl 200ms --format json",
        "extend x --token TOKEN --format json",
        "release x --token TOKEN --format json",
        "release x --revoke",
        "release x --force",
        "doctor",
        "acquire x --reentrant --token TOKEN",
    ];
    let line = chance.one_of(&lines).replace("TOKEN", TOKEN);
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let output = ground.call(&words, &environment(ground));
    if line.contains("json") {
        for object in output.stdout.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(object).is_ok(), "{line}: {object:?}");
        }
    }
}

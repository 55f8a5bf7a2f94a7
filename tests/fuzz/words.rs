//! Words of users: arguments, variables, redlock.conf.

use super::call::Ground;
use crate::support::Chance;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

const COMMANDS: &str = "run|acquire|extend|release|status|log|wait|doctor|completions";
/// Options with a value, without `--wait`, `--once-per` and `--watch`, because a call could last for hours, and without
/// `--while-pid`, because it leaves a process. (`-w` is `--wait`, but its value is always 10ms.)
const OPTIONS: &str = "--name|--ttl|--signal|--kill-after|--max-run|--tries|--newest|--node-timeout|--quarantine|\
    --since|--within|--due|--redis|--prefix|--token|--slots|--label|--log|--format|-n|-E|--conflict-exit-code|\
    --on-lost|--replicas|--password-file|--tls-ca|--tls-cert|--tls-key|-c|-w|--status|--lines";
const FLAGS: &str = "-s|-x|-e|-q|-v|-n|--nb|--reentrant|--whole|--revoke|--force|--failed|--all|--";
const VARIABLES: &str = "REDLOCK_REDIS|REDIS_URL|REDLOCK_PREFIX|REDLOCK_NODE_TIMEOUT|REDLOCK_QUARANTINE|REDLOCK_PASSWORD_FILE|\
    REDLOCK_PASSWORD|REDLOCK_TLS_CA|REDLOCK_REPLICAS|REDLOCK_LABEL|REDLOCK_LOG|REDLOCK_NAME|REDLOCK_TOKEN|\
    REDLOCK_FENCING_TOKEN|REDLOCK_HELD|REDLOCK_SLOT|REDLOCK_URL|COLUMNS";
/// Texts that have broken other programs. None makes a call wait, and none is `local:`, which would start a server.
const TEXTS: &str = "| |\t|\n|\r\n|x|backup|a b|-|--|=|,|a,b|*|a*b|\\|{}|}{|a{b}c|\
    -1|0|1|00|1e309|1e-309|NaN|inf|0x10|９|18446744073709551616|-9223372036854775809|4294967296|0.0000000000001|.5|5.|1.5.2|\
    1s|1 s|1s1s|1d 1h|5M|1month|99999999999999999999d|500ms|30d|31d|-5s|1ns|\
    \u{1b}[31m|\u{1b}]0;x\u{7}|\u{85}|\u{9b}31m|\u{202e}txt.exe|\u{2028}|\u{61c}|\u{feff}|e\u{301}\u{301}\u{301}|😀|\u{1f}|\
    %s%n|$(touch pwned)|`touch pwned`|../../etc/passwd|'\"'\"|REDLOCK_X=y";
const URLS: &str = "redis://|redis://h|redis:///|redis://:@:/|redis://user:pa%ss@h:1/2|redis://h:0|redis://h:65536|\
    redis://[::1]:1|redis://[::1|redis://h:1/99999999999|redis://h:1/-1|rediss://127.0.0.1:1|unix://|unix:///|\
    unix:///nowhere.sock?db=x|unix:///nowhere.sock|unix://relative|redis+sentinel://|\
    redis+sentinel://127.0.0.1:1/|redis+sentinel://127.0.0.1:1,127.0.0.1:2/m?sentinel-password=%zz|\
    redis+cluster://|redis+cluster://127.0.0.1:1,,127.0.0.1:2|http://127.0.0.1:1|redis:/127.0.0.1:1|127.0.0.1:1|\
    redis://127.0.0.1:1,redis://127.0.0.1:1|redis://127.0.0.1:1?a=b&c|redis://%00@127.0.0.1:1|\
    redis://\u{1b}[2J:1|redis://127.0.0.1:1#x";

/// One or more texts that have broken other programs, perhaps with random bytes.
pub(super) fn text(chance: &mut Chance) -> OsString {
    let url = chance.percent(12);
    let mut bytes = if url { chance.word(URLS) } else { chance.word(TEXTS) }.as_bytes().to_vec();
    match chance.below(10) {
        0 => bytes.extend(chance.word(TEXTS).as_bytes()),
        1 => bytes = bytes.repeat(usize::try_from(chance.below(3000)).unwrap()),
        2 => bytes
            .extend((0..chance.below(20)).map(|_| u8::try_from(1 + chance.below(255)).unwrap()).collect::<Vec<u8>>()),
        3 if !bytes.is_empty() => {
            let at = usize::try_from(chance.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(1 + chance.below(255)).unwrap();
        }
        _ => {}
    }
    bytes.truncate(20_000);
    OsString::from_vec(bytes)
}

pub(super) fn trial(chance: &mut Chance, ground: &Ground) {
    let configuration = ground.home().join(".config/redlock");
    fs::create_dir_all(&configuration).unwrap();
    let file = configuration.join("redlock.conf");
    let _ = fs::remove_file(&file);
    if chance.percent(20) {
        fs::write(&file, conf(chance)).unwrap();
    }
    let mut arguments: Vec<OsString> = vec![chance.word(COMMANDS).into()];
    if arguments[0] == "wait" {
        // `wait` waits for an unreachable server, too.
        arguments.extend(["--timeout".into(), "300ms".into()]);
    }
    for _ in 0..chance.below(5) {
        match chance.below(4) {
            0 => arguments.push(chance.word(FLAGS).into()),
            1 => arguments.push(text(chance)),
            _ => {
                let option = chance.word(OPTIONS);
                let value = if option == "-w" { "10ms".into() } else { text(chance) };
                // A random shell line could do anything.
                arguments.extend([option.into(), if option == "-c" { "true".into() } else { value }]);
            }
        }
    }
    if arguments[0] == "run" && chance.percent(70) {
        arguments.extend(["--".into(), "true".into()]);
    }
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    if chance.percent(60) {
        environment.push(("REDLOCK_REDIS".into(), ground.redis.url().into()));
    }
    for _ in 0..chance.below(3) {
        environment.push((chance.word(VARIABLES).into(), text(chance)));
    }
    ground.call(&arguments, &environment);
    assert!(!ground.home().join("pwned").exists(), "{arguments:?} {environment:?}");
    let _ = fs::remove_file(&file);
}

fn conf(chance: &mut Chance) -> Vec<u8> {
    let mut file = Vec::new();
    for _ in 0..chance.below(6) {
        if chance.percent(70) {
            file.extend(chance.word(VARIABLES).as_bytes());
            file.push(b'=');
        }
        file.extend(text(chance).into_vec());
        file.push(chance.one_of(b"\n\n\n\0\r"));
    }
    file
}

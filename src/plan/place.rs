//! Where the lock lives: nodes, prefix, time-outs and password, for us and for the job.

use super::sources::{Sources, Value};
use super::{LONGEST_TTL, refuse, urls, usage};
use crate::cli::{self, Common};
use crate::error::Error;
use crate::lock::Settings;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const DEFAULT_REDIS: &str = "redis://127.0.0.1:6379";
const DEFAULT_PREFIX: &str = "redlock:";
const LONGEST_PASSWORD: u64 = 4096;

/// Puts the settings together, a flag before its variable before redlock.conf.
pub(super) fn settings(common: &Common, sources: &Sources) -> Result<Settings, Error> {
    let given = match common.redis.as_slice() {
        [] => {
            if sources.variable("REDLOCK_REDIS")?.is_none() {
                sources.must_be_complete()?;
            }
            match sources.setting(&["REDLOCK_REDIS"])? {
                Some(value) => Some(value),
                None => sources.variable("REDIS_URL")?,
            }
        }
        urls => Some(Value { text: urls.join(","), from: "--redis".to_owned() }),
    };
    let given = given.unwrap_or_else(|| Value { text: DEFAULT_REDIS.to_owned(), from: String::new() });
    let urls = urls::split(&given.text);
    let mut identities: Vec<String> = Vec::new();
    for url in &urls {
        let node = urls::check(url).map_err(|error| usage(format!("in {}: {error}", given.from)))?;
        if identities.contains(&node.identity) {
            return refuse(format!(
                "in {}: the node {} is given twice, and may have one vote only",
                given.from, node.identity
            ));
        }
        identities.push(node.identity);
    }
    let prefix = match &common.prefix {
        Some(prefix) => prefix.clone(),
        None => {
            sources.setting_or_empty("REDLOCK_PREFIX")?.map_or_else(|| DEFAULT_PREFIX.to_owned(), |value| value.text)
        }
    };
    if prefix.chars().any(char::is_control) {
        return refuse("the prefix has a control character in it");
    }
    let node_timeout = duration_setting(common.node_timeout, "REDLOCK_NODE_TIMEOUT", sources)?;
    if node_timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
        return refuse("the node time-out is 1ms at least");
    }
    let quarantine = duration_setting(common.quarantine, "REDLOCK_QUARANTINE", sources)?;
    if quarantine.is_some_and(|time| time > LONGEST_TTL) {
        // It has to cover the longest ttl, and no longer.
        return refuse("the quarantine is 30 days at most");
    }
    Ok(Settings { urls, prefix, node_timeout, quarantine, password: password(common, sources)? })
}

fn duration_setting(flag: Option<Duration>, name: &str, sources: &Sources) -> Result<Option<Duration>, Error> {
    if flag.is_some() {
        return Ok(flag);
    }
    let Some(value) = sources.setting(&[name])? else {
        return Ok(None);
    };
    cli::duration(&value.text).map(Some).map_err(|why| usage(format!("in {}: {why}", value.from)))
}

/// Where the password's file is, the flag before the nearest setting.
fn password_file(common: &Common, sources: &Sources) -> Result<Option<PathBuf>, Error> {
    if let Some(path) = &common.password_file {
        return Ok(Some(path.clone()));
    }
    let nearest = sources.setting(&["REDLOCK_PASSWORD_FILE", "REDLOCK_PASSWORD"])?;
    Ok(nearest.filter(|value| value.from.ends_with("REDLOCK_PASSWORD_FILE")).map(|value| PathBuf::from(value.text)))
}

fn password(common: &Common, sources: &Sources) -> Result<Option<String>, Error> {
    let Some(path) = password_file(common, sources)? else {
        return Ok(sources.setting(&["REDLOCK_PASSWORD"])?.map(|value| value.text));
    };
    let cannot = |why: &str| usage(format!("cannot read the password from {}: {why}", path.display()));
    let mut bytes = Vec::new();
    // Bounded, since the path may be a device.
    let read = std::fs::File::open(&path).and_then(|file| file.take(LONGEST_PASSWORD).read_to_end(&mut bytes));
    read.map_err(|error| cannot(&reason(&error)))?;
    if bytes.len() as u64 == LONGEST_PASSWORD {
        return Err(cannot("too long"));
    }
    let text = String::from_utf8(bytes).map_err(|_| cannot("not UTF-8"))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(Some(password.to_owned())),
        _ => Err(cannot("its first line is empty")),
    }
}

/// What lets a bare `redlock extend` in the job find our nodes: everything but the password, of which only its file is told.
pub(super) fn environment(
    common: &Common,
    settings: &Settings,
    ancestors: &[String],
    sources: &Sources,
) -> Result<Vec<(String, String)>, Error> {
    let mut environment = vec![("REDLOCK_PREFIX".to_owned(), settings.prefix.clone())];
    let mut put = |name: &str, value: String| environment.push((name.to_owned(), value));
    let nodes = settings.urls.iter().map(|url| urls::check(url)).collect::<Result<Vec<_>, _>>()?;
    // A password is told by its file only. Where redlock.conf has it, or the application's own variable, the job finds it
    // there as we did.
    let ours = !common.redis.is_empty() || sources.variable("REDLOCK_REDIS")?.is_some();
    if ours || nodes.iter().all(|node| node.without_password.is_none()) {
        let clean =
            settings.urls.iter().zip(nodes).map(|(url, node)| node.without_password.unwrap_or_else(|| url.clone()));
        put("REDLOCK_REDIS", clean.collect::<Vec<_>>().join(","));
    }
    if let Some(path) = password_file(common, sources)? {
        // The job may change its directory.
        let path = std::path::absolute(&path).unwrap_or(path);
        put("REDLOCK_PASSWORD_FILE", path.to_string_lossy().into_owned());
    }
    if let Some(timeout) = settings.node_timeout {
        put("REDLOCK_NODE_TIMEOUT", humantime::format_duration(timeout).to_string());
    }
    if let Some(quarantine) = settings.quarantine {
        put("REDLOCK_QUARANTINE", humantime::format_duration(quarantine).to_string());
    }
    if !ancestors.is_empty() {
        put("REDLOCK_HELD", ancestors.join(" "));
    }
    Ok(environment)
}

/// What the system says about a failed call, as it reads within a sentence of ours.
pub(super) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

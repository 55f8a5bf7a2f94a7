//! The settings, such as the nodes and the prefix. Each comes from its flag, else its variable, else redlock.conf, else
//! the default. If none of the first three names the nodes, REDIS_URL may name them.

use crate::cli::Common;
use crate::cli::values::{LONGEST_LABEL, duration, hold_time, whole};
use crate::error::Error;
use crate::redis::url;
use crate::redis::{Access, Address, Deployment, FileValue, Unusable, read, tls};
use crate::sys::trust;
use crate::text::unprintable;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The most runs that the log of a lock can keep. (While runs go on, it may have some more: begin.lua.)
const MOST_RUNS: u64 = 200;

/// Decides whether a value may be empty, which parts of it may be shown, and in which form the job gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    EvenEmpty,
    /// The job gets an absolute path, because it may change its directory.
    Path,
    /// Redis URLs, shown without their passwords.
    Urls,
    /// Never shown.
    Secret,
}

type Variable = (&'static str, Kind, fn(&Common) -> Option<String>);

/// All variables that are settings. A flag is named like its variable: `--tls-ca`. REDLOCK_PASSWORD has no flag.
const VARIABLES: [Variable; 12] = [
    (REDIS, Kind::Urls, |flags| (!flags.redis.is_empty()).then(|| flags.redis.join(","))),
    ("REDLOCK_PREFIX", Kind::EvenEmpty, |flags| flags.prefix.clone()),
    ("REDLOCK_NODE_TIMEOUT", Kind::Text, |flags| flags.node_timeout.clone()),
    ("REDLOCK_QUARANTINE", Kind::Text, |flags| flags.quarantine.clone()),
    ("REDLOCK_PASSWORD_FILE", Kind::Path, |flags| flags.password_file.clone()),
    ("REDLOCK_PASSWORD", Kind::Secret, |_| None),
    ("REDLOCK_TLS_CA", Kind::Path, |flags| flags.tls_ca.clone()),
    ("REDLOCK_TLS_CERT", Kind::Path, |flags| flags.tls_cert.clone()),
    ("REDLOCK_TLS_KEY", Kind::Path, |flags| flags.tls_key.clone()),
    ("REDLOCK_REPLICAS", Kind::Text, |flags| flags.replicas.clone()),
    (LABEL, Kind::Text, |flags| flags.label.clone()),
    (LOG, Kind::Text, |flags| flags.log.clone()),
];
const OURS: &str = "REDLOCK_";
const REDIS: &str = "REDLOCK_REDIS";
const LABEL: &str = "REDLOCK_LABEL";
const LOG: &str = "REDLOCK_LOG";

/// A variable of other programs, which names the nodes if no setting does. It is not read from redlock.conf.
const REDIS_URL: &str = "REDIS_URL";

/// The variables that `run` sets for its job, apart from settings.
const OF_THE_JOB: [&str; 6] =
    ["REDLOCK_NAME", "REDLOCK_TOKEN", "REDLOCK_FENCING_TOKEN", "REDLOCK_SLOT", "REDLOCK_HELD", ON_DEFAULT];

/// Tells the job that its lock is on the default address, and that redlock has warned of this. The variable names no
/// node: if the job sets REDIS_URL, its nodes count.
const ON_DEFAULT: &str = "REDLOCK_ON_DEFAULT";

/// A variable means the address if one of these words follows REDLOCK_ or REDLOCK_REDIS_.
const ADDRESS: [&str; 7] = ["URL", "URI", "HOST", "SERVER", "NODES", "ADDR", "ADDRESS"];

/// A variable that `make` sets for a build; redlock does not warn of it.
const VERSION: &str = "REDLOCK_VERSION";

/// The input of a command apart from its own arguments.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) nodes: Vec<Address>,
    pub(crate) prefix: String,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) quarantine: Option<Duration>,
    pub(crate) label: Option<String>,
    /// How many runs the log of a lock keeps.
    pub(crate) log: u64,
    /// Variables for the job, with the settings from this call's flags: see [`environment_of_job`]. A redlock in the
    /// job finds the other settings itself, in the caller's variables and in the files.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The tokens of all enclosing jobs' leases, the outermost first: REDLOCK_HELD, then REDLOCK_TOKEN. Lock names are
    /// not needed, because tokens are unique.
    pub(crate) ancestors: Vec<String>,
    /// REDLOCK_NAME and REDLOCK_TOKEN, if both are set: the lease of the enclosing job, or a lease that the user names.
    pub(crate) enclosing: Option<(String, String)>,
    /// Warnings about unknown variables whose names begin like redlock's own, and about configuration files that others
    /// may have written.
    pub(crate) warnings: Vec<String>,
    /// True if no source names the nodes, and no enclosing `run` has warned of this.
    pub(crate) is_unconfigured: bool,
    /// About skipped configuration files: this user may not read them, and the call works without them.
    pub(crate) skipped: Vec<String>,
    /// The settings with their sources, for -v and doctor.
    pub(crate) origins: Vec<Setting>,
    /// The files with a password or a key, for doctor.
    pub(crate) secrets: BTreeSet<PathBuf>,
}

/// A setting without secrets, and its source: flag, variable, file and line, or "the default".
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    #[serde(rename = "name", serialize_with = "as_setting")]
    pub(crate) variable: &'static str,
    pub(crate) value: Cow<'static, str>,
    pub(crate) from: Cow<'static, str>,
    #[serde(skip)]
    pub(crate) is_default: bool,
}

/// `redis redis://10.0.0.1 (REDLOCK_REDIS)`
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = setting(self.variable);
        match !self.is_default && (self.value.is_empty() || self.value.contains(' ')) {
            true => write!(f, "{name} {:?} ({})", self.value, self.from),
            false => write!(f, "{name} {} ({})", self.value, self.from),
        }
    }
}

fn as_setting<S: Serializer>(variable: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&setting(variable))
}

/// # Errors
/// [`Error::Usage`] for a bad value, with its source. [`Error::Unavailable`] if a file cannot be read for lack of
/// memory, descriptors or processes.
pub(crate) fn settings(common: &Common) -> Result<Settings, Error> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let users = home.map(|home| PathBuf::from(home).join(".config/redlock/redlock.conf"));
    let paths = users.into_iter().chain(["/etc/redlock.conf".into()]);
    let files: Result<_, Unusable> = paths.map(|path| file(&path)).collect();
    let settings = files.and_then(|files| settings_from(common, &environment()?, files));
    settings.map_err(Error::from)
}

/// The variables of this process that may concern redlock, as texts.
type Environment = BTreeMap<String, String>;

fn environment() -> Result<Environment, String> {
    let is_ours = |name: &OsString| name == REDIS_URL || name.as_encoded_bytes().starts_with(OURS.as_bytes());
    let ours = std::env::vars_os().filter(|(name, _)| is_ours(name));
    let texts = ours.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    texts
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(format!("{name} is not UTF-8")),
        })
        .collect()
}

/// The unknown variables whose names begin like redlock's own. Empty variables do not count, nor do variables that
/// Kubernetes sets.
fn unknown(environment: &Environment) -> impl Iterator<Item = &str> {
    let set = environment.iter().filter(|(_, text)| !text.is_empty()).map(|(name, _)| name.as_str());
    set.filter(|name| name.starts_with(OURS) && !is_known(name) && !is_of_service(name))
}

fn is_known(name: &str) -> bool {
    name == VERSION || OF_THE_JOB.contains(&name) || VARIABLES.iter().any(|(known, ..)| *known == name)
}

/// True for the variables that Kubernetes sets for a service whose name begins with redlock.
fn is_of_service(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    words.ends_with(&["SERVICE", "HOST"])
        || words.ends_with(&["PORT"])
        || words.windows(2).any(|pair| pair == ["SERVICE", "PORT"] || (pair[0] == "PORT" && is_number(pair[1])))
}

/// True for a variable that was probably meant to be REDLOCK_REDIS, such as REDLOCK_URL or REDLOCK_REDIS_HOST.
fn means_address(name: &str) -> bool {
    let word = name.trim_start_matches(OURS);
    ADDRESS.contains(&word.trim_start_matches("REDIS_"))
}

/// Refuses an unknown variable that may name the nodes, unless redlock's own settings name them. If it were only
/// ignored, redlock would take the lock on another server, unnoticed.
fn refuse_other_address(redis: &SettingValue, environment: &Environment) -> Result<(), String> {
    let is_named = !redis.is_default && redis.from != REDIS_URL;
    match unknown(environment).find(|name| means_address(name)) {
        Some(name) if !is_named => Err(format!(
            "unknown variable {} ({REDIS}?): the lock would be on {} ({}); set {REDIS} or --redis",
            name.replace(unprintable, "?"),
            redis.shown(),
            redis.from
        )),
        _ => Ok(()),
    }
}

fn warning(name: &str) -> String {
    let name = name.replace(unprintable, "?");
    match means_address(&name) {
        true => format!("ignoring unknown variable {name} ({REDIS}?)"),
        false => format!("ignoring unknown variable {name}; redlock --help names the known ones"),
    }
}

/// `tls-ca` for REDLOCK_TLS_CA. The setting's flag is `--` and this name.
fn setting(variable: &str) -> String {
    variable.trim_start_matches("REDLOCK_").replace('_', "-").to_lowercase()
}

/// All sources, the nearest first.
fn sources(common: &Common, environment: &Environment, files: Vec<Source>) -> Vec<Source> {
    // A value that comes from a file, such as a secret of Kubernetes, often ends in a line feed.
    let entry_of = |name, text: &str, from| entry(name, text.trim_end_matches(['\r', '\n']), from);
    let variables = environment.iter().filter_map(|(name, text)| entry_of(name, text, None)).collect();
    let apps = environment.get(REDIS_URL).and_then(|text| entry_of(REDIS, text, Some(REDIS_URL.into())));
    let mut sources = vec![Ok(flags(common)), Ok(variables)];
    sources.extend(files);
    sources.push(Ok(apps.into_iter().collect()));
    sources
}

fn settings_from(common: &Common, environment: &Environment, files: Vec<Source>) -> Result<Settings, Unusable> {
    let sources = sources(common, environment, files);
    let mut origins = Vec::new();
    // -v and doctor list the values in this order.
    let mut find = |variables: &[&'static str], default| {
        let value = find(&sources, variables)?.unwrap_or_else(|| SettingValue::default(default));
        let (from, is_default) = (value.from.clone(), value.is_default);
        origins.push(Setting { variable: variables[variables.len() - 1], value: value.shown(), from, is_default });
        Ok::<_, String>(value)
    };
    let path = |text: &str| Ok(PathBuf::from(text));
    let redis = find(&[REDIS], "redis://127.0.0.1:6379")?;
    let prefix = find(&["REDLOCK_PREFIX"], "redlock:")?.parse(plain_text)?;
    let node_timeout = find(&["REDLOCK_NODE_TIMEOUT"], "from the ttl")?.parse_if_set(node_timeout)?;
    let quarantine = find(&["REDLOCK_QUARANTINE"], "from the ttl; with a single node 0")?.parse_if_set(hold_time)?;
    let password = find(&["REDLOCK_PASSWORD_FILE", "REDLOCK_PASSWORD"], "none")?;
    let ca = find(&["REDLOCK_TLS_CA"], "the system's")?.parse_if_set(path)?;
    let certificate = find(&["REDLOCK_TLS_CERT"], "none")?.parse_if_set(path)?;
    let key = find(&["REDLOCK_TLS_KEY"], "none")?.parse_if_set(path)?;
    let replicas = find(&["REDLOCK_REPLICAS"], "0")?.parse(whole(0, u32::MAX))?;
    let label = find(&[LABEL], "the name of the script or command")?.parse_if_set(label)?;
    let log = find(&[LOG], "20")?.parse(whole(0, MOST_RUNS))?;

    refuse_other_address(&redis, environment)?;
    let urls = url::split(&redis.text);
    let with_tls = urls.iter().any(|url| url::is_tls(url));
    if !with_tls && (common.tls_ca.is_some() || common.tls_cert.is_some()) {
        return Err("--tls-ca and --tls-cert are for rediss://; no URL asks for TLS".into());
    }
    if certificate.is_some() != key.is_some() {
        return Err("--tls-cert and --tls-key go together".into());
    }
    // Certificates are read only if a URL asks for TLS.
    let tls = with_tls.then(|| tls::client(ca, certificate.zip(key))).transpose()?;
    let password_from = match password.kind {
        Kind::Path => format!("{} ({})", password.text, password.from),
        _ => password.from.to_string(),
    };
    let password = (!password.is_default).then(|| secret(&password)).transpose()?;
    let urls_from = redis.from.to_string();
    let access = Access { password, password_from, urls_from, tls, replicas, is_default: redis.is_default };
    let skipped = |is_foreign| {
        let skipped = sources.iter().filter_map(|source| source.as_ref().err());
        skipped.filter(move |skipped| skipped.is_foreign == is_foreign)
    };
    let warnings = skipped(true).map(|skipped| skipped.why.clone());
    Ok(Settings {
        nodes: nodes(&urls, &redis.from, access)?,
        prefix,
        node_timeout,
        quarantine,
        label,
        log,
        environment: environment_of_job(common, &redis),
        ancestors: ancestors(environment),
        enclosing: text(environment, "REDLOCK_NAME").zip(text(environment, "REDLOCK_TOKEN")),
        warnings: unknown(environment).map(warning).chain(warnings).collect(),
        is_unconfigured: redis.is_default && text(environment, ON_DEFAULT).is_none(),
        skipped: skipped(false).map(|skipped| format!("{}; going on without it", skipped.why)).collect(),
        secrets: secrets(&sources),
        origins,
    })
}

fn plain_text(text: &str) -> Result<String, String> {
    match text.chars().any(char::is_control) {
        true => Err("control characters are not allowed".to_owned()),
        false => Ok(text.to_owned()),
    }
}

fn label(text: &str) -> Result<String, String> {
    match text.len() > LONGEST_LABEL {
        true => Err(format!("longer than {LONGEST_LABEL} bytes")),
        false => plain_text(text),
    }
}

fn node_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    if timeout < Duration::from_millis(1) { Err("must be at least 1ms".to_owned()) } else { Ok(timeout) }
}

/// The value of a variable that is no setting. An empty value counts as unset.
fn text(environment: &Environment, name: &str) -> Option<String> {
    environment.get(name).filter(|text| !text.is_empty()).cloned()
}

fn ancestors(environment: &Environment) -> Vec<String> {
    let held = text(environment, "REDLOCK_HELD").unwrap_or_default();
    let mut ancestors: Vec<String> = held.split_whitespace().map(str::to_owned).collect();
    let innermost = text(environment, "REDLOCK_TOKEN");
    ancestors.extend(innermost.filter(|token| !held.split_whitespace().any(|known| known == token)));
    ancestors
}

fn nodes(urls: &[String], from: &str, access: Access) -> Result<Vec<Address>, String> {
    let access = Rc::new(access);
    let mut nodes: Vec<Address> = Vec::new();
    for url in urls {
        let bad = |why: String| format!("in {from}: {why}");
        let node = Address::parse(url, &access).map_err(bad)?;
        if node.username().is_some() && node.password().is_none() {
            let why = "has a user but no password; a password alone is written redis://:PASSWORD@HOST";
            return Err(bad(format!("{node} {why}")));
        }
        if nodes.iter().any(|known| known.is_same_node(&node)) {
            return Err(bad(format!("the node {node} is given twice")));
        }
        nodes.push(node);
    }
    if nodes.len() > 1 && nodes.iter().any(|node| matches!(node.deployment(), Deployment::Local(_))) {
        return Err(format!("in {from}: one of several nodes cannot be 'local:', this machine's own server"));
    }
    Ok(nodes)
}

/// The password for nodes whose URL has none.
fn secret(value: &SettingValue) -> Result<FileValue<String>, Unusable> {
    let text = value.text.to_string();
    if value.kind == Kind::Secret {
        return FileValue::new(Vec::new(), move || Ok(text.clone()));
    }
    let path = PathBuf::from(text);
    FileValue::new(vec![path.clone()], move || {
        let words = |why| format!("cannot read the password from {}: {why}", path.display());
        first_line(&path).map_err(|error| error.within(words))
    })
}

fn first_line(path: &Path) -> Result<String, Unusable> {
    let text = String::from_utf8(read(path)?).map_err(|_| "not UTF-8")?;
    let line = text.lines().next().filter(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| "its first line is empty".into())
}

/// `from`: the source of the value, in words for messages.
#[derive(Clone)]
struct SettingValue {
    text: Cow<'static, str>,
    kind: Kind,
    from: Cow<'static, str>,
    /// True if the text is the default, or describes the default in words.
    is_default: bool,
    file: Option<PathBuf>,
}

impl SettingValue {
    fn default(text: &'static str) -> SettingValue {
        SettingValue { text: text.into(), kind: Kind::Text, from: "the default".into(), is_default: true, file: None }
    }

    fn parse<T>(&self, parser: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        parser(&self.text).map_err(|why| format!("in {}: {why}", self.from))
    }

    fn parse_if_set<T>(&self, parser: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        (!self.is_default).then(|| self.parse(parser)).transpose()
    }

    fn for_job(&self) -> OsString {
        let path = (self.kind == Kind::Path).then(|| std::path::absolute(&*self.text).ok()).flatten();
        path.map_or_else(|| OsString::from(&*self.text), PathBuf::into_os_string)
    }

    /// The value without secrets.
    fn shown(&self) -> Cow<'static, str> {
        match self.kind {
            Kind::Text | Kind::EvenEmpty | Kind::Path => self.text.clone(),
            Kind::Urls => {
                url::split(&self.text).iter().map(|url| url::without_secret(url)).collect::<Vec<_>>().join(",").into()
            }
            Kind::Secret => "not shown".into(),
        }
    }
}

type Entry = (&'static str, SettingValue);

/// The entries of a source, or the reason why its file is skipped.
type Source = Result<Vec<Entry>, Skipped>;

struct Skipped {
    file: PathBuf,
    why: String,
    /// True if another user may have written the file; false if this user may not read it.
    is_foreign: bool,
}

/// The files with a password or a key, as far as is known: a file that is skipped may have a password.
fn secrets(sources: &[Source]) -> BTreeSet<PathBuf> {
    let of_entry = |(name, value): &Entry| match value.kind {
        Kind::Secret => value.file.clone(),
        Kind::Urls => value.file.clone().filter(|_| url::split(&value.text).iter().any(|url| url::has_password(url))),
        Kind::Path if name.ends_with("_FILE") || name.ends_with("_KEY") => Some(PathBuf::from(&*value.text)),
        _ => None,
    };
    let of_source = |source: &Source| match source {
        Ok(entries) => entries.iter().filter_map(of_entry).collect(),
        Err(skipped) => vec![skipped.file.clone()],
    };
    sources.iter().flat_map(of_source).collect()
}

/// The value from the nearest source that sets any of these variables. If it sets several, the first of `variables`
/// counts.
///
/// # Errors
/// If REDLOCK_REDIS is asked for, and this user may not read a file: it may name the nodes, and a later source may name
/// others. A file that another user may have written does not count, unless no source names the nodes, because the lock
/// would then be on the default address.
fn find(sources: &[Source], variables: &[&str]) -> Result<Option<SettingValue>, String> {
    let needed = |skipped: &Skipped| format!("{}; it may name the Redis to use; give --redis instead", skipped.why);
    for source in sources {
        match source {
            Err(skipped) if variables == [REDIS] && !skipped.is_foreign => return Err(needed(skipped)),
            Err(_) => {}
            Ok(entries) => {
                // If a file sets a variable twice, the last line counts.
                let last = |name| entries.iter().rev().find(|(known, _)| known == name);
                if let Some((_, value)) = variables.iter().find_map(last) {
                    return Ok(Some(value.clone()));
                }
            }
        }
    }
    let foreign = sources.iter().find_map(|source| source.as_ref().err());
    foreign.filter(|_| variables == [REDIS]).map_or(Ok(None), |skipped| Err(needed(skipped)))
}

fn flags(common: &Common) -> Vec<Entry> {
    let flag = |&(name, kind, given): &Variable| {
        let (text, from) = (given(common)?.into(), format!("--{}", setting(name)).into());
        Some((name, SettingValue { text, kind, from, is_default: false, file: None }))
    };
    VARIABLES.iter().filter_map(flag).collect()
}

/// One variable for each flag of this call, except `--label` and `--log`, and [`ON_DEFAULT`] if the address is the
/// default.
fn environment_of_job(common: &Common, redis: &SettingValue) -> Vec<(OsString, OsString)> {
    let on_default = redis.is_default.then(|| (ON_DEFAULT.into(), "1".into()));
    let flags = flags(common).into_iter().filter(|(name, _)| ![LABEL, LOG].contains(name));
    flags.map(|(name, value)| (name.into(), value.for_job())).chain(on_default).collect()
}

/// The source is `from`, or else the variable itself. An empty value counts as unset, except for [`Kind::EvenEmpty`].
/// None if the variable is no setting.
fn entry(name: &str, text: &str, from: Option<Cow<'static, str>>) -> Option<Entry> {
    let &(name, kind, _) = VARIABLES.iter().find(|(known, ..)| *known == name)?;
    let from = from.unwrap_or(name.into());
    let value = SettingValue { text: text.to_owned().into(), kind, from, is_default: false, file: None };
    (!text.is_empty() || kind == Kind::EvenEmpty).then_some((name, value))
}

/// The entries of a file redlock.conf; none if it does not exist.
///
/// # Errors
/// The file cannot be read or parsed: if redlock ignored this, it might use another Redis than the file names. A
/// missing permission, and a file that others may have written, are no errors here: [`find`] decides whether it is
/// needed.
fn file(path: &Path) -> Result<Source, Unusable> {
    let skipped = |why, is_foreign| Ok(Err(Skipped { file: path.to_owned(), why, is_foreign }));
    let error = match trust::read(path) {
        Ok(Ok(bytes)) => {
            let text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()))?;
            return Ok(Ok(entries(path, &text)?));
        }
        Ok(Err(objection)) => return skipped(format!("ignoring {}: {objection}", path.display()), true),
        Err(error) => error,
    };
    let unusable = Unusable::of(&error).within(|why| format!("cannot read {}: {why}", path.display()));
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(Ok(Vec::new())),
        // The system's file may be for some users only; and after sudo, HOME may be another user's directory.
        ErrorKind::PermissionDenied => skipped(unusable.why, false),
        _ => Err(unusable),
    }
}

/// Reads lines `REDLOCK_X=value`. Skips empty lines, and lines that begin with `#`.
fn entries(path: &Path, text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}, line {}", path.display(), index + 1);
        let (name, value) = line.split_once('=').ok_or_else(|| format!("{place}: not of the form REDLOCK_X=value"))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        if VARIABLES.iter().all(|(known, ..)| *known != name) {
            return Err(format!("{place}: unknown setting {name:?}"));
        }
        let text = match value.as_bytes() {
            [quote @ (b'"' | b'\''), .., last] if quote == last => &value[1..value.len() - 1],
            [b'"' | b'\'', ..] => return Err(format!("{place}: a quote is not closed")),
            _ => value,
        };
        let entry = entry(name, text, Some(format!("{place}: {name}").into()));
        entries.extend(entry.map(|(name, value)| (name, SettingValue { file: Some(path.to_owned()), ..value })));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings from this environment and from files with these texts; None stands for a file that may not be read.
    fn with(common: &Common, variables: &[(&str, &str)], files: &[Option<&str>]) -> Result<Settings, Unusable> {
        let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let read = |(index, text): (usize, &Option<&str>)| match text {
            Some(text) => entries(Path::new(&format!("f{index}")), text).map(Ok),
            None => {
                let why = format!("cannot read f{index}: permission denied");
                Ok(Err(Skipped { file: PathBuf::new(), why, is_foreign: false }))
            }
        };
        let files = files.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        settings_from(common, &environment, files)
    }

    fn of(variables: &[(&str, &str)]) -> Settings {
        with(&Common::default(), variables, &[]).expect("good settings")
    }

    fn refused(variables: &[(&str, &str)], files: &[Option<&str>]) -> String {
        with(&Common::default(), variables, files).expect_err("bad settings").why
    }

    fn redis(urls: &[&str]) -> Common {
        Common { redis: urls.iter().map(|&url| url.to_owned()).collect(), ..Common::default() }
    }

    fn names(settings: &Settings) -> String {
        settings.nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_flag_comes_before_its_variable_before_the_nearest_file() {
        let (ours, apps) = (("REDLOCK_REDIS", "redis://a,redis://b"), ("REDIS_URL", "redis://c"));
        let files = [Some("# mine\n\n REDLOCK_REDIS = redis://d \nREDLOCK_LABEL=\n"), Some("REDLOCK_LABEL='d e'\n")];
        let flag = with(&redis(&["redis://e", "redis://f,redis://g"]), &[ours, apps], &files);
        assert_eq!(names(&flag.expect("fine")), "e:6379 f:6379 g:6379");
        assert_eq!(names(&of(&[ours, apps])), "a:6379 b:6379");
        assert_eq!(names(&of(&[("REDLOCK_REDIS", ""), apps])), "c:6379");
        assert_eq!(names(&of(&[("REDIS_URL", "")])), "127.0.0.1:6379");
        let file = with(&Common::default(), &[apps], &files).expect("fine");
        assert_eq!((names(&file).as_str(), file.label.as_deref()), ("d:6379", Some("d e")));
        assert_eq!(of(&[]).prefix, "redlock:");
        assert_eq!(of(&[("REDLOCK_PREFIX", "")]).prefix, "");
        assert_eq!(of(&[("REDLOCK_NODE_TIMEOUT", "1ms")]).node_timeout, Some(Duration::from_millis(1)));
    }

    #[test]
    fn each_setting_is_shown_with_its_source_and_without_a_secret() {
        let variables = [("REDLOCK_PREFIX", ""), ("REDLOCK_PASSWORD", "s3cret"), ("REDIS_URL", "redis://:s3cret@c/1")];
        let files = [Some("\nREDLOCK_QUARANTINE=5m\nREDLOCK_PREFIX=x"), Some("REDLOCK_QUARANTINE=1h")];
        let common = Common { label: Some("d e".to_owned()), ..Common::default() };
        let shown = with(&common, &variables, &files).expect("fine").origins;
        let shown: Vec<String> = shown.iter().filter(|one| !one.is_default).map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "redis redis://…@c/1 (REDIS_URL)",
                "prefix \"\" (REDLOCK_PREFIX)",
                "quarantine 5m (f0, line 2: REDLOCK_QUARANTINE)",
                "password \"not shown\" (REDLOCK_PASSWORD)",
                "label \"d e\" (--label)",
            ]
        );
        let shown =
            with(&redis(&["redis://u:s3cret@e", "unix:///s?pass=s3cret"]), &variables, &[]).expect("fine").origins;
        assert_eq!(shown[0].to_string(), "redis redis://…@e,unix:///s (--redis)");
        assert_eq!(of(&[]).origins[1].to_string(), "prefix redlock: (the default)");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_source() {
        let said = |variables: &[(&str, &str)], why: &str| assert_eq!(refused(variables, &[]), why);
        said(&[("REDLOCK_QUARANTINE", "30M")], "in REDLOCK_QUARANTINE: 30M is 30 months; 30m?");
        said(&[("REDLOCK_QUARANTINE", "31d")], "in REDLOCK_QUARANTINE: the longest is 30 days");
        said(&[("REDLOCK_NODE_TIMEOUT", "0")], "in REDLOCK_NODE_TIMEOUT: must be at least 1ms");
        said(&[("REDLOCK_PREFIX", "\t")], "in REDLOCK_PREFIX: control characters are not allowed");
        said(&[("REDLOCK_LABEL", "\u{1b}[2J")], "in REDLOCK_LABEL: control characters are not allowed");
        said(
            &[("REDIS_URL", "h:1")],
            "in REDIS_URL: cannot use \"h:1\": not a URL; write redis://HOST:PORT, unix:///PATH or local:",
        );
        let twice = with(&redis(&["redis://h", "redis://H:6379/1"]), &[], &[]);
        assert_eq!(twice.expect_err("twice").why, "in --redis: the node H:6379 is given twice");
        let user = with(&redis(&["redis://s3cret@h"]), &[], &[]).expect_err("a user only");
        assert_eq!(
            user.why,
            "in --redis: h:6379 has a user but no password; a password alone is written redis://:PASSWORD@HOST"
        );
        assert!(with(&redis(&["redis://user@h"]), &[("REDLOCK_PASSWORD", "p")], &[]).is_ok());
        let file = |text, why: &str| assert_eq!(refused(&[], &[Some(text)]), why);
        file("#\nREDLOCK_REDIS", "f0, line 2: not of the form REDLOCK_X=value");
        file("REDLOCK_LABEL=\"x", "f0, line 1: a quote is not closed");
        let long = format!("REDLOCK_LABEL={}", "x".repeat(LONGEST_LABEL + 1));
        file(&long, "in f0, line 1: REDLOCK_LABEL: longer than 256 bytes");
        file("REDLOCK_QUARANTINE=5M", "in f0, line 1: REDLOCK_QUARANTINE: 5M is 5 months; 5m?");
        file("REDLOCK_PREFX=x", "f0, line 1: unknown setting \"REDLOCK_PREFX\"");
        assert!(refused(&[], &[Some("REDLOCK_TOKEN=x")]).starts_with("f0, line 1: unknown setting \"REDLOCK_TOKEN\""));
    }

    #[test]
    fn the_packaged_file_explains_every_setting_and_sets_none() {
        let packaged = include_str!("../man/package/redlock.conf");
        assert!(packaged.lines().all(|line| line.is_empty() || line.starts_with('#')));
        let paragraphs = packaged.split("\n\n").filter(|paragraph| paragraph.contains("\n#REDLOCK_"));
        let explained: Vec<&str> = paragraphs.filter(|paragraph| paragraph.starts_with("# ")).collect();
        let lines = explained.iter().flat_map(|paragraph| paragraph.lines());
        let lines = lines.filter(|line| line.starts_with("#REDLOCK_"));
        let mut examples: Vec<&str> = lines.filter_map(|line| Some(line[1..].split_once('=')?.0)).collect();
        examples.sort_unstable();
        let mut known = VARIABLES.map(|(name, ..)| name);
        known.sort_unstable();
        assert_eq!(examples, known);
        // Each example can be set. The file of REDLOCK_PASSWORD_FILE does not exist, so this sets REDLOCK_PASSWORD.
        let set = packaged.replace("\n#REDLOCK_", "\nREDLOCK_").replace("_FILE=", "=");
        assert!(with(&Common::default(), &[], &[Some(&set)]).is_ok());
    }

    #[test]
    fn a_file_that_may_not_be_read_matters_where_it_may_say_which_redis() {
        let no = "cannot read f1: permission denied; it may name the Redis to use; give --redis instead";
        let label = Some("REDLOCK_LABEL=l");
        assert_eq!(refused(&[], &[label, None]), no);
        assert_eq!(refused(&[("REDIS_URL", "redis://a")], &[label, None]), no);
        let settings = |common: &Common, variables: &[(&str, &str)], files: &[Option<&str>]| {
            names(&with(common, variables, files).expect("settings"))
        };
        let near = Some("REDLOCK_REDIS=redis://a");
        let plain = &Common::default();
        assert_eq!(settings(plain, &[], &[near, None]), "a:6379");
        assert!(refused(&[], &[None, near]).starts_with("cannot read f0"));
        assert_eq!(settings(plain, &[("REDLOCK_REDIS", "redis://b")], &[None, near]), "b:6379");
        assert_eq!(settings(&redis(&["redis://c"]), &[], &[None, None]), "c:6379");
    }

    #[test]
    fn the_job_gets_what_came_by_flags_and_nothing_else() {
        let variables = [("REDLOCK_REDIS", "redis://:s@h"), ("REDLOCK_PASSWORD", "s"), ("REDLOCK_HELD", "t")];
        assert_eq!(of(&variables).environment, []);
        assert_eq!(of(&[("REDIS_URL", "redis://h")]).environment, []);
        assert_eq!(of(&[]).environment, [("REDLOCK_ON_DEFAULT".into(), OsString::from("1"))]);
        let common = Common {
            prefix: Some(String::new()),
            node_timeout: Some("1.5".to_owned()),
            quarantine: Some("0".to_owned()),
            label: Some("l".to_owned()),
            ..redis(&["redis://u:s@h", "unix:///s"])
        };
        let passed = with(&common, &[], &[]).expect("fine").environment;
        let passed = passed.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
        assert_eq!(
            passed.collect::<Vec<_>>(),
            [
                "REDLOCK_REDIS=redis://u:s@h,unix:///s",
                "REDLOCK_PREFIX=",
                "REDLOCK_NODE_TIMEOUT=1.5",
                "REDLOCK_QUARANTINE=0",
            ]
        );
    }

    #[test]
    fn passwords_come_from_files_before_variables() {
        let path = std::env::temp_dir().join(format!("redlock-password-{}", std::process::id()));
        std::fs::write(&path, "s3 cret \r\nrest\n").expect("a temporary directory");
        let text = path.to_str().expect("UTF-8").to_owned();
        let password = |common: &Common, variables: &[(&str, &str)]| {
            let settings = with(common, variables, &[]).map_err(|error| error.why)?;
            Ok::<_, String>(settings.nodes[0].password().unwrap_or_default().to_owned())
        };
        let flag = Common { password_file: Some(text.clone()), ..Common::default() };
        let other = ("REDLOCK_PASSWORD", "other");
        assert_eq!(password(&flag, &[other]).as_deref(), Ok("s3 cret "));
        let passed = with(&flag, &[], &[]).expect("fine").environment;
        assert_eq!(passed[0], ("REDLOCK_PASSWORD_FILE".into(), OsString::from(&text)));
        let plain = Common::default();
        assert_eq!(password(&plain, &[("REDLOCK_PASSWORD_FILE", &text), other]).as_deref(), Ok("s3 cret "));
        assert_eq!(password(&plain, &[other]).as_deref(), Ok("other"));
        assert_eq!(password(&plain, &[other, ("REDIS_URL", "redis://:own@h")]).as_deref(), Ok("own"));
        std::fs::write(&path, "\n").expect("a temporary directory");
        assert!(password(&flag, &[]).is_err_and(|why| why.ends_with("its first line is empty")));
        std::fs::remove_file(&path).expect("just written");
        assert!(password(&flag, &[]).is_err_and(|why| why.ends_with(": no such file or directory")));
        let endless = Common { password_file: Some("/dev/zero".to_owned()), ..Common::default() };
        assert!(password(&endless, &[]).is_err_and(|why| why.ends_with("too long")));
    }

    #[test]
    fn the_tokens_of_all_enclosing_jobs_are_known_once_each() {
        let ancestors = |variables: &[(&str, &str)]| of(variables).ancestors.join(" ");
        assert_eq!(ancestors(&[("REDLOCK_HELD", "a b"), ("REDLOCK_TOKEN", "c")]), "a b c");
        assert_eq!(ancestors(&[("REDLOCK_HELD", "a b"), ("REDLOCK_TOKEN", "b")]), "a b");
        assert_eq!(ancestors(&[("REDLOCK_NAME", "n")]), "");
    }

    /// The warnings about the variable REDLOCK_`name`, if REDLOCK_REDIS names the nodes.
    fn warned(name: &str) -> String {
        let variable = format!("REDLOCK_{name}");
        of(&[("REDLOCK_REDIS", "redis://h"), (&variable, "redis://x")]).warnings.join("; ")
    }

    #[test]
    fn an_unknown_variable_is_reported() {
        for name in ["REDSI", "TIMEOUT", "TTL", "URLS"] {
            let said = format!("ignoring unknown variable REDLOCK_{name}; redlock --help names the known ones");
            assert_eq!(warned(name), said);
        }
        assert_eq!(warned("URL"), "ignoring unknown variable REDLOCK_URL (REDLOCK_REDIS?)");
        assert_eq!(of(&[("REDLOCK_REDIS", "redis://h"), ("REDLOCK_TTL", "")]).warnings, [""; 0]);
    }

    #[test]
    fn a_variable_that_means_the_address_is_refused_unless_the_nodes_are_named() {
        for name in ADDRESS.map(|word| format!("REDLOCK_{word}")).into_iter().chain(["REDLOCK_REDIS_URL".to_owned()]) {
            let name = name.as_str();
            let why = format!("unknown variable {name} (REDLOCK_REDIS?): the lock would be on ");
            let rest = "redis://127.0.0.1:6379 (the default); set REDLOCK_REDIS or --redis";
            assert_eq!(refused(&[(name, "redis://h")], &[]), format!("{why}{rest}"));
            let beside = [(name, "redis://h"), ("REDIS_URL", "redis://:s3cret@a")];
            let rest = "redis://…@a (REDIS_URL); set REDLOCK_REDIS or --redis";
            assert_eq!(refused(&beside, &[]), format!("{why}{rest}"));
            let warned = |found: Result<Settings, Unusable>| found.expect("named").warnings.len();
            let plain = Common::default();
            assert_eq!(warned(with(&redis(&["redis://b"]), &beside, &[])), 1, "{name}");
            assert_eq!(warned(with(&plain, &[beside[0], ("REDLOCK_REDIS", "redis://b")], &[])), 1, "{name}");
            assert_eq!(warned(with(&plain, &beside, &[Some("REDLOCK_REDIS=redis://b")])), 1, "{name}");
            assert_eq!(warned(with(&plain, &[(name, "")], &[])), 0, "{name}");
        }
    }

    #[test]
    fn variables_that_kubernetes_and_builds_set_are_left_alone() {
        for name in [
            "REDLOCK_SERVICE_HOST",
            "REDLOCK_SERVICE_PORT",
            "REDLOCK_SERVICE_PORT_HTTP",
            "REDLOCK_PORT",
            "REDLOCK_PORT_6379_TCP",
            "REDLOCK_PORT_6379_TCP_ADDR",
            "REDLOCK_REDIS_SERVICE_HOST",
            "REDLOCK_REDIS_SERVICE_PORT",
            "REDLOCK_REDIS_PORT",
            "REDLOCK_REDIS_PORT_6379_TCP_ADDR",
            "REDLOCK_NODES_SERVICE_HOST",
            "REDLOCK_VERSION",
            "REDLOCK_HELD",
            "REDLOCK_LOG",
            "REDIS_TTL",
            "REDIS_HOST",
        ] {
            assert_eq!(of(&[(name, "1")]).warnings, [""; 0], "{name}");
        }
    }

    #[test]
    fn the_default_address_is_reported_once() {
        let is_reported = |variables: &[(&str, &str)]| of(variables).is_unconfigured;
        assert!(is_reported(&[]) && is_reported(&[("REDLOCK_REDIS", "")]));
        assert!(!is_reported(&[("REDIS_URL", "redis://127.0.0.1:6379")]));
        assert!(!is_reported(&[("REDLOCK_ON_DEFAULT", "1")]));
    }
}

//! The settings: where the locks are, and who asks. Each comes from its flag, else its variable, else redlock.conf.

use crate::cli::Common;
use crate::cli::values::{LONGEST_LABEL, LONGEST_TTL, duration};
use crate::error::Error;
use crate::redis::url;
use crate::redis::{Access, Address, Deployment, FileValue, read, tls};
use crate::sys::clock::Boot;
use crate::sys::files;
use crate::text::{nearest, reason, unprintable};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

/// The longest password, in bytes.
const LONGEST_PASSWORD: usize = 4096;
/// Each release writes the whole log of its lock.
const MOST_RUNS: u64 = 1000;
/// The pause before files that do not match are read again.
const AGAIN: Duration = Duration::from_millis(100);

/// The definition of a setting: its sources and its default.
struct Definition {
    name: &'static str,
    flag: &'static str,
    /// Reads the flag.
    given: fn(&Common) -> Option<String>,
    /// The variables that replace the flag; the job gets the flag's value in the first.
    variables: &'static [(&'static str, Kind)],
    default: &'static str,
}

/// The kind of a value. It decides which parts may be shown, and in which form the job gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    /// An empty value counts as well.
    EvenEmpty,
    /// The job gets it as an absolute path, since it may change its directory.
    Path,
    /// It is shown without passwords.
    Urls,
    /// It is not shown.
    Secret,
}

const REDIS: Definition =
    define("redis", "--redis", |c| joined(&c.redis), &[("REDLOCK_REDIS", Kind::Urls)], "redis://127.0.0.1:6379");
const PREFIX: Definition =
    define("prefix", "--prefix", |c| c.prefix.clone(), &[("REDLOCK_PREFIX", Kind::EvenEmpty)], "redlock:");
const NODE_TIMEOUT: Definition = define(
    "node-timeout",
    "--node-timeout",
    |c| c.node_timeout.clone(),
    &[("REDLOCK_NODE_TIMEOUT", Kind::Text)],
    "from the ttl",
);
const QUARANTINE: Definition = define(
    "quarantine",
    "--quarantine",
    |c| c.quarantine.clone(),
    &[("REDLOCK_QUARANTINE", Kind::Text)],
    "from the ttl; with a single node 0",
);
const PASSWORD: Definition = define(
    "password",
    "--password-file",
    |c| c.password_file.clone(),
    &[("REDLOCK_PASSWORD_FILE", Kind::Path), ("REDLOCK_PASSWORD", Kind::Secret)],
    "none",
);
const TLS_CA: Definition =
    define("tls-ca", "--tls-ca", |c| c.tls_ca.clone(), &[("REDLOCK_TLS_CA", Kind::Path)], "the system's");
const TLS_CERT: Definition =
    define("tls-cert", "--tls-cert", |c| c.tls_cert.clone(), &[("REDLOCK_TLS_CERT", Kind::Path)], "none");
const TLS_KEY: Definition =
    define("tls-key", "--tls-key", |c| c.tls_key.clone(), &[("REDLOCK_TLS_KEY", Kind::Path)], "none");
const REPLICAS: Definition =
    define("replicas", "--replicas", |c| c.replicas.clone(), &[("REDLOCK_REPLICAS", Kind::Text)], "0");
const LABEL: Definition =
    define("label", "--label", |c| c.label.clone(), &[("REDLOCK_LABEL", Kind::Text)], "the command's base name");

const LOG: Definition = define("log", "--log", |c| c.log.clone(), &[("REDLOCK_LOG", Kind::Text)], "20");

/// All settings: where the locks are, and who asks. The job gets those that say where as variables.
const WHERE: [&Definition; 9] =
    [&REDIS, &PREFIX, &NODE_TIMEOUT, &QUARANTINE, &PASSWORD, &TLS_CA, &TLS_CERT, &TLS_KEY, &REPLICAS];
const WHO: [&Definition; 2] = [&LABEL, &LOG];

/// The variable of other programs. It names the nodes if nothing else does, from the environment only.
const REDIS_URL: &str = "REDIS_URL";

const fn define(
    name: &'static str,
    flag: &'static str,
    given: fn(&Common) -> Option<String>,
    variables: &'static [(&'static str, Kind)],
    default: &'static str,
) -> Definition {
    Definition { name, flag, given, variables, default }
}

fn joined(urls: &[String]) -> Option<String> {
    (!urls.is_empty()).then(|| urls.join(","))
}

fn known_variables() -> impl Iterator<Item = (&'static str, Kind)> {
    WHERE.iter().chain(&WHO).flat_map(|definition| definition.variables).copied()
}

/// The other variables that `run` sets for its job.
const OF_THE_JOB: [&str; 5] =
    ["REDLOCK_NAME", "REDLOCK_TOKEN", "REDLOCK_FENCING_TOKEN", "REDLOCK_SLOT", "REDLOCK_HELD"];

/// The input of a command apart from its own arguments.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) nodes: Vec<Address>,
    pub(crate) prefix: String,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) quarantine: Option<Duration>,
    pub(crate) label: Option<String>,
    /// The number of runs that the log of a lock keeps.
    pub(crate) log: u64,
    /// The flags that say where the locks are, as variables for the job. The job finds the other settings as redlock does.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The tokens of all leases that the enclosing jobs hold, outermost first. Lock names are not stored: tokens are unique.
    pub(crate) ancestors: Vec<String>,
    /// Name and token of the lease that the enclosing job runs under.
    pub(crate) enclosing: Option<(String, String)>,
    /// A warning about unknown variables whose names begin like redlock's own.
    pub(crate) unknown: Option<String>,
    /// Warnings about configuration files that this user may not read, and that are not needed.
    pub(crate) skipped: Vec<String>,
    /// The settings with their sources, for -v and doctor.
    pub(crate) origins: Vec<Setting>,
}

/// A setting without secrets, and its source: flag, variable, or file and line.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) from: String,
    #[serde(skip)]
    pub(crate) is_default: bool,
}

/// `redis redis://10.0.0.1 (REDLOCK_REDIS)`
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match !self.is_default && (self.value.is_empty() || self.value.contains(' ')) {
            true => write!(f, "{} {:?} ({})", self.name, self.value, self.from),
            false => write!(f, "{} {} ({})", self.name, self.value, self.from),
        }
    }
}

/// Reads the settings of this process. Unusable files (certificate, key, password) are read again for as long as `patience` lasts:
/// they may be in the middle of a rotation.
///
/// # Errors
/// [`Error::Usage`] for a bad value, with its source.
pub(crate) fn settings(common: &Common, patience: Duration) -> Result<Settings, Error> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let users = home.map(|home| PathBuf::from(home).join(".config/redlock/redlock.conf"));
    let system = PathBuf::from("/etc/redlock.conf");
    let sources = Sources::new(common, |name| std::env::var_os(name), users.into_iter().chain([system]));
    let mut settings = sources.and_then(|sources| settings_from(&sources, patience)).map_err(Error::Usage)?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    settings.unknown = unknown_variables(&names.filter(|name| is_unknown(name)).collect::<Vec<_>>());
    Ok(settings)
}

/// True for a variable that begins like redlock's own, but is neither one of them nor one that Kubernetes sets for a service
/// named redlock.
fn is_unknown(name: &str) -> bool {
    let is_of_service = |rest: &str| {
        ["SERVICE_HOST", "PORT"].contains(&rest)
            || ["SERVICE_PORT", "PORT_"].iter().any(|start| rest.starts_with(start))
    };
    name.strip_prefix("REDLOCK_").is_some_and(|rest| !is_of_service(rest))
        && !OF_THE_JOB.contains(&name)
        && known_variables().all(|(known, _)| known != name)
}

/// The warning about these variables, in one line.
fn unknown_variables(names: &[String]) -> Option<String> {
    let hint = |name: &String| match name.as_str() {
        "REDLOCK_TTL" => format!("{name} (use --ttl)"),
        "REDLOCK_WAIT" => format!("{name} (use --wait)"),
        _ => match meant(name) {
            Some(meant) => format!("{} ({meant}?)", name.replace(unprintable, "?")),
            None => name.replace(unprintable, "?"),
        },
    };
    let all = names.iter().map(hint).collect::<Vec<_>>().join(", ");
    let variables = if names.len() == 1 { "variable" } else { "variables" };
    (!names.is_empty()).then(|| format!("ignoring unknown {variables} {all}"))
}

/// The variable that this name may stand for.
fn meant(name: &str) -> Option<String> {
    let word = name.trim_start_matches("REDLOCK_");
    let cores = || known_variables().map(|(known, _)| known.trim_start_matches("REDLOCK_"));
    let contained = cores().find(|core| word.contains(core) || word.len() > 2 && core.contains(word));
    contained.or_else(|| nearest(word, cores())).map(|core| format!("REDLOCK_{core}"))
}

/// A hint at the variable that this name may stand for, else the list of all.
fn similar(name: &str) -> String {
    match meant(name) {
        Some(meant) => format!("{meant}?"),
        None => format!("known: {}", known_variables().map(|(known, _)| known).collect::<Vec<_>>().join(", ")),
    }
}

fn settings_from(sources: &Sources, patience: Duration) -> Result<Settings, String> {
    let mut origins = Vec::new();
    // -v and doctor list the values in this order.
    let mut find = |definition: &Definition| {
        let value = sources.find(definition)?;
        origins.push(definition.origin(value.as_ref()));
        Ok::<_, String>(value)
    };
    let redis = find(&REDIS)?.unwrap_or_else(|| REDIS.default());
    let prefix = find(&PREFIX)?.unwrap_or_else(|| PREFIX.default()).parse(plain_text)?;
    let node_timeout = find(&NODE_TIMEOUT)?.map(|value| value.parse(node_timeout)).transpose()?;
    let quarantine = find(&QUARANTINE)?.map(|value| value.parse(quarantine)).transpose()?;
    let password = find(&PASSWORD)?;
    let (ca, certificate, key) = (find(&TLS_CA)?, find(&TLS_CERT)?, find(&TLS_KEY)?);
    let number = |text: &str| text.parse::<u32>().map_err(|_| "not a number of replicas".to_owned());
    let replicas = find(&REPLICAS)?.map_or(Ok(0), |value| value.parse(number))?;
    let label = find(&LABEL)?.map(|value| value.parse(label)).transpose()?;
    let log = find(&LOG)?.unwrap_or_else(|| LOG.default()).parse(runs)?;

    let urls = url::split(&redis.text);
    let with_tls = urls.iter().any(|url| url::is_tls(url));
    let identity = identity(certificate, key)?;
    if !with_tls && (sources.common.tls_ca.is_some() || sources.common.tls_cert.is_some()) {
        return Err("--tls-ca and --tls-cert are for rediss://; no URL asks for TLS".to_owned());
    }
    // Certificates are read only if a URL asks for TLS.
    let ca: Option<PathBuf> = ca.map(|value| value.text.into());
    let files: Vec<&Path> =
        ca.iter().chain(identity.iter().flat_map(|(one, other)| [one, other])).map(PathBuf::as_path).collect();
    let client = || tls::client(ca.clone(), identity.clone());
    let tls = if with_tls { Some(in_time(patience, &files, client)?) } else { None };
    let password = password.map(|value| {
        let file = (value.kind != Kind::Secret).then(|| PathBuf::from(&value.text));
        in_time(patience, &file.iter().map(PathBuf::as_path).collect::<Vec<_>>(), || secret(&value))
    });
    let access = Access { password: password.transpose()?, tls, replicas };
    Ok(Settings {
        nodes: nodes(&urls, &redis.from, access)?,
        prefix,
        node_timeout,
        quarantine,
        label,
        log,
        environment: environment(sources.common),
        ancestors: ancestors(sources)?,
        enclosing: sources.text("REDLOCK_NAME")?.zip(sources.text("REDLOCK_TOKEN")?),
        unknown: None,
        skipped: sources.skipped(),
        origins,
    })
}

/// A text that a terminal can show.
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

fn runs(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(runs) if runs <= MOST_RUNS => Ok(runs),
        _ => Err(format!("not a number of runs, which is at most {MOST_RUNS}")),
    }
}

fn node_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    if timeout < Duration::from_millis(1) { Err("must be at least 1ms".to_owned()) } else { Ok(timeout) }
}

/// The quarantine has to cover the longest lease, and no longer.
fn quarantine(text: &str) -> Result<Duration, String> {
    let quarantine = duration(text)?;
    if quarantine > LONGEST_TTL { Err("must be at most 30 days".to_owned()) } else { Ok(quarantine) }
}

fn ancestors(sources: &Sources) -> Result<Vec<String>, String> {
    let mut ancestors = Vec::new();
    for name in ["REDLOCK_HELD", "REDLOCK_TOKEN"] {
        for token in sources.text(name)?.iter().flat_map(|text| text.split_whitespace()) {
            if !ancestors.iter().any(|known| known == token) {
                ancestors.push(token.to_owned());
            }
        }
    }
    Ok(ancestors)
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
        return Err(format!("in {from}: local: is this machine's own server, and cannot be one of several"));
    }
    Ok(nodes)
}

/// The files of the client's own certificate and key.
fn identity(
    certificate: Option<SettingValue>,
    key: Option<SettingValue>,
) -> Result<Option<(PathBuf, PathBuf)>, String> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.text.into(), key.text.into()))),
        _ => Err("--tls-cert and --tls-key go together".to_owned()),
    }
}

/// The value that `make` reads from these files. While all of them exist, a failure is retried until the time is over.
fn in_time<T>(time: Duration, files: &[&Path], make: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let end = Boot::now() + time;
    loop {
        match make() {
            Err(_) if !files.is_empty() && files.iter().all(|file| file.is_file()) && !end.passed() => sleep(AGAIN),
            result => return result,
        }
    }
}

/// The password for nodes whose URL has none.
fn secret(value: &SettingValue) -> Result<FileValue<String>, String> {
    let text = value.text.clone();
    if value.kind == Kind::Secret {
        return FileValue::new(Vec::new(), move || Ok(text.clone()));
    }
    let path = PathBuf::from(text);
    let first_line = |path: &Path| {
        let text = String::from_utf8(read(path)?).map_err(|_| "not UTF-8")?;
        match text.lines().next() {
            Some(password) if password.len() > LONGEST_PASSWORD => Err("too long".to_owned()),
            Some(password) if !password.is_empty() => Ok(password.to_owned()),
            _ => Err("its first line is empty".to_owned()),
        }
    };
    FileValue::new(vec![path.clone()], move || {
        first_line(&path).map_err(|why| format!("cannot read the password from {}: {why}", path.display()))
    })
}

/// The flags that say where the locks are, as variables.
fn environment(common: &Common) -> Vec<(OsString, OsString)> {
    let variable = |definition: &&Definition| {
        let (name, kind) = definition.variables[0];
        let text = (definition.given)(common)?;
        let text = match kind {
            Kind::Path => std::path::absolute(&text).map_or_else(|_| text.into(), PathBuf::into_os_string),
            _ => text.into(),
        };
        Some((name.into(), text))
    };
    WHERE.iter().filter_map(variable).collect()
}

/// A value, and the words for its source in a message.
#[derive(Clone, PartialEq, Eq)]
struct SettingValue {
    text: String,
    kind: Kind,
    from: String,
}

impl SettingValue {
    fn parse<T>(&self, parser: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        parser(&self.text).map_err(|why| format!("in {}: {why}", self.from))
    }

    /// The value without secrets.
    fn shown(&self) -> String {
        match self.kind {
            Kind::Text | Kind::EvenEmpty | Kind::Path => self.text.clone(),
            Kind::Urls => {
                url::split(&self.text).iter().map(|url| url::without_secret(url)).collect::<Vec<_>>().join(",")
            }
            Kind::Secret => "not shown".to_owned(),
        }
    }
}

impl Definition {
    fn default(&self) -> SettingValue {
        SettingValue { text: self.default.to_owned(), kind: self.variables[0].1, from: "the default".to_owned() }
    }

    fn origin(&self, value: Option<&SettingValue>) -> Setting {
        let is_default = value.is_none();
        let value = value.cloned().unwrap_or_else(|| self.default());
        Setting { name: self.name, value: value.shown(), from: value.from, is_default }
    }
}

/// A function that looks up an environment variable.
type Environment<'a> = Box<dyn Fn(&str) -> Option<OsString> + 'a>;

/// The sources of settings: the flags, then the environment, then the files, the nearest first.
struct Sources<'a> {
    common: &'a Common,
    environment: Environment<'a>,
    files: Vec<File>,
}

/// A file redlock.conf.
enum File {
    Read(Vec<(String, SettingValue)>),
    /// This user may not read it, for this reason.
    Denied(String),
}

impl<'a> Sources<'a> {
    /// # Errors
    /// A file that cannot be read or parsed: without it redlock might lock elsewhere. A file without permission is an error only
    /// for a setting that it might contain.
    fn new(
        common: &'a Common,
        environment: impl Fn(&str) -> Option<OsString> + 'a,
        paths: impl Iterator<Item = PathBuf>,
    ) -> Result<Sources<'a>, String> {
        let mut files = Vec::new();
        for path in paths {
            match files::read(&path) {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()))?;
                    files.push(File::Read(entries(&path, &text)?));
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let why = format!("cannot read {}: {}", path.display(), reason(&error));
                    // The system's file may be for some users only; after sudo, HOME is another user's.
                    match error.kind() {
                        ErrorKind::PermissionDenied => files.push(File::Denied(why)),
                        _ => return Err(why),
                    }
                }
            }
        }
        Ok(Sources { common, environment: Box::new(environment), files })
    }

    fn skipped(&self) -> Vec<String> {
        let why = |file: &File| match file {
            File::Denied(why) => Some(format!("{why}; going on without it")),
            File::Read(_) => None,
        };
        self.files.iter().filter_map(why).collect()
    }

    /// An environment variable. An empty value counts as unset unless the kind says otherwise.
    fn variable(&self, name: &str, kind: Kind) -> Result<Option<SettingValue>, String> {
        let Some(value) = (self.environment)(name) else { return Ok(None) };
        let text = value.into_string().map_err(|_| format!("{name} is not UTF-8"))?;
        let counts = !text.is_empty() || kind == Kind::EvenEmpty;
        Ok(counts.then(|| SettingValue { text, kind, from: name.to_owned() }))
    }

    /// The text of a variable that is not a setting.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.variable(name, Kind::Text)?.map(|value| value.text))
    }

    /// The value of a setting in the nearest source that has it.
    ///
    /// # Errors
    /// A variable that is not UTF-8; an unreadable file that might name other nodes than the sources behind it.
    fn find(&self, definition: &Definition) -> Result<Option<SettingValue>, String> {
        let Definition { flag, given, variables, .. } = definition;
        if let Some(text) = given(self.common) {
            return Ok(Some(SettingValue { text, kind: variables[0].1, from: (*flag).to_owned() }));
        }
        for &(name, kind) in *variables {
            if let Some(value) = self.variable(name, kind)? {
                return Ok(Some(value));
            }
        }
        let names_nodes = definition.name == REDIS.name;
        for file in &self.files {
            match file {
                File::Denied(why) if names_nodes => {
                    return Err(format!("{why}; it may name the Redis to use; give --redis instead"));
                }
                File::Denied(_) => {}
                File::Read(entries) => {
                    // The last line of a name counts.
                    let last = |(name, _): &&(&str, Kind)| entries.iter().rev().find(|(known, _)| known == name);
                    if let Some((_, value)) = variables.iter().find_map(|variable| last(&variable)) {
                        return Ok(Some(value.clone()));
                    }
                }
            }
        }
        if names_nodes { self.variable(REDIS_URL, Kind::Urls) } else { Ok(None) }
    }
}

/// Reads lines `REDLOCK_X=value`. Empty lines and those that begin with `#` are skipped, and so is an empty value unless its kind
/// says otherwise.
fn entries(path: &Path, text: &str) -> Result<Vec<(String, SettingValue)>, String> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}, line {}", path.display(), index + 1);
        let (name, value) = line.split_once('=').ok_or_else(|| format!("{place}: not of the form REDLOCK_X=value"))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        let Some((_, kind)) = known_variables().find(|(known, _)| *known == name) else {
            return Err(format!("{place}: unknown setting {name:?}; {}", similar(name)));
        };
        let text = match value.as_bytes() {
            [quote @ (b'"' | b'\''), .., last] if quote == last => &value[1..value.len() - 1],
            [b'"' | b'\'', ..] => return Err(format!("{place}: a quote is not closed")),
            _ => value,
        };
        if !text.is_empty() || kind == Kind::EvenEmpty {
            let from = format!("{place}: {name}");
            entries.push((name.to_owned(), SettingValue { text: text.to_owned(), kind, from }));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment, and files that say this, or may not be read.
    fn sources<'a>(
        common: &'a Common,
        variables: &'a [(&str, &str)],
        files: &[Option<&str>],
    ) -> Result<Sources<'a>, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let read = |(index, text): (usize, &Option<&str>)| match text {
            Some(text) => entries(Path::new(&format!("f{index}")), text).map(File::Read),
            None => Ok(File::Denied(format!("cannot read f{index}: permission denied"))),
        };
        let files = files.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Sources { common, environment: Box::new(find), files })
    }

    fn with(common: &Common, variables: &[(&str, &str)], files: &[Option<&str>]) -> Result<Settings, String> {
        sources(common, variables, files).and_then(|sources| settings_from(&sources, Duration::ZERO))
    }

    fn of(variables: &[(&str, &str)]) -> Settings {
        with(&Common::default(), variables, &[]).expect("good settings")
    }

    fn refused(variables: &[(&str, &str)], files: &[Option<&str>]) -> String {
        with(&Common::default(), variables, files).expect_err("bad settings")
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
        assert_eq!(of(&[("REDLOCK_NODE_TIMEOUT", "2s")]).node_timeout, Some(Duration::from_secs(2)));
    }

    #[test]
    fn each_setting_is_told_with_its_source_and_without_a_secret() {
        let variables = [("REDLOCK_PREFIX", ""), ("REDLOCK_PASSWORD", "s3cret"), ("REDIS_URL", "redis://:s3cret@c/1")];
        let files = [Some("\nREDLOCK_QUARANTINE=5m\nREDLOCK_PREFIX=x"), Some("REDLOCK_QUARANTINE=1h")];
        let common = Common { label: Some("d e".to_owned()), ..Common::default() };
        let told = with(&common, &variables, &files).expect("fine").origins;
        let told: Vec<String> = told.iter().filter(|one| !one.is_default).map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "redis redis://…@c/1 (REDIS_URL)",
                "prefix \"\" (REDLOCK_PREFIX)",
                "quarantine 5m (f0, line 2: REDLOCK_QUARANTINE)",
                "password \"not shown\" (REDLOCK_PASSWORD)",
                "label \"d e\" (--label)",
            ]
        );
        let told =
            with(&redis(&["redis://u:s3cret@e", "unix:///s?pass=s3cret"]), &variables, &[]).expect("fine").origins;
        assert_eq!(told[0].to_string(), "redis redis://…@e,unix:///s (--redis)");
        assert_eq!(of(&[]).origins[1].to_string(), "prefix redlock: (the default)");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_source() {
        let said = |variables: &[(&str, &str)], why: &str| assert_eq!(refused(variables, &[]), why);
        said(&[("REDLOCK_QUARANTINE", "30M")], "in REDLOCK_QUARANTINE: 30M is 30 months; 30m?");
        said(&[("REDLOCK_QUARANTINE", "31d")], "in REDLOCK_QUARANTINE: must be at most 30 days");
        said(&[("REDLOCK_NODE_TIMEOUT", "0")], "in REDLOCK_NODE_TIMEOUT: must be at least 1ms");
        said(&[("REDLOCK_PREFIX", "\t")], "in REDLOCK_PREFIX: control characters are not allowed");
        said(&[("REDLOCK_LABEL", "\u{1b}[2J")], "in REDLOCK_LABEL: control characters are not allowed");
        said(&[("REDIS_URL", "h:1")], "in REDIS_URL: cannot use \"h:1\": not a URL; redis://h:1?");
        let twice = with(&redis(&["redis://h", "redis://H:6379/1"]), &[], &[]);
        assert_eq!(twice.expect_err("twice"), "in --redis: the node H:6379 is given twice");
        let user = with(&redis(&["redis://s3cret@h"]), &[], &[]).expect_err("a user only");
        assert_eq!(
            user,
            "in --redis: h:6379 has a user but no password; a password alone is written redis://:PASSWORD@HOST"
        );
        assert!(with(&redis(&["redis://user@h"]), &[("REDLOCK_PASSWORD", "p")], &[]).is_ok());
        let file = |text, why: &str| assert_eq!(refused(&[], &[Some(text)]), why);
        file("#\nREDLOCK_REDIS", "f0, line 2: not of the form REDLOCK_X=value");
        file("REDLOCK_LABEL=\"x", "f0, line 1: a quote is not closed");
        let long = format!("REDLOCK_LABEL={}", "x".repeat(LONGEST_LABEL + 1));
        file(&long, "in f0, line 1: REDLOCK_LABEL: longer than 256 bytes");
        file("REDLOCK_QUARANTINE=5M", "in f0, line 1: REDLOCK_QUARANTINE: 5M is 5 months; 5m?");
        file("REDLOCK_PREFX=x", "f0, line 1: unknown setting \"REDLOCK_PREFX\"; REDLOCK_PREFIX?");
        assert!(refused(&[], &[Some("REDLOCK_TOKEN=x")]).starts_with("f0, line 1: unknown setting \"REDLOCK_TOKEN\""));
    }

    #[test]
    fn a_file_that_may_not_be_read_matters_where_it_may_say_which_redis() {
        let no = "cannot read f1: permission denied; it may name the Redis to use; give --redis instead";
        let label = Some("REDLOCK_LABEL=l");
        assert_eq!(refused(&[], &[label, None]), no);
        assert_eq!(refused(&[("REDIS_URL", "redis://a")], &[label, None]), no);
        let settings = |common: &Common, variables: &[(&str, &str)], files: &[Option<&str>]| {
            with(common, variables, files).map(|found| names(&found))
        };
        let near = Some("REDLOCK_REDIS=redis://a");
        let plain = &Common::default();
        assert_eq!(settings(plain, &[], &[near, None]), Ok("a:6379".to_owned()));
        assert!(refused(&[], &[None, near]).starts_with("cannot read f0"));
        assert_eq!(settings(plain, &[("REDLOCK_REDIS", "redis://b")], &[None, near]), Ok("b:6379".to_owned()));
        assert_eq!(settings(&redis(&["redis://c"]), &[], &[None, None]), Ok("c:6379".to_owned()));
    }

    #[test]
    fn the_job_is_told_what_came_by_flags_and_nothing_else() {
        let variables = [("REDLOCK_REDIS", "redis://:s@h"), ("REDLOCK_PASSWORD", "s"), ("REDLOCK_HELD", "t")];
        assert_eq!(of(&variables).environment, []);
        let common = Common {
            prefix: Some(String::new()),
            node_timeout: Some("1.5".to_owned()),
            quarantine: Some("0".to_owned()),
            label: Some("l".to_owned()),
            ..redis(&["redis://u:s@h", "unix:///s"])
        };
        let told = with(&common, &[], &[]).expect("fine").environment;
        let told = told.iter().map(|(name, value)| format!("{}={}", name.display(), value.display()));
        assert_eq!(
            told.collect::<Vec<_>>(),
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
            let settings = with(common, variables, &[])?;
            Ok::<_, String>(settings.nodes[0].password().unwrap_or_default().to_owned())
        };
        let flag = Common { password_file: Some(text.clone()), ..Common::default() };
        let other = ("REDLOCK_PASSWORD", "other");
        assert_eq!(password(&flag, &[other]).as_deref(), Ok("s3 cret "));
        let told = with(&flag, &[], &[]).expect("fine").environment;
        assert_eq!(told, [("REDLOCK_PASSWORD_FILE".into(), OsString::from(&text))]);
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

    #[test]
    fn unknown_variables_are_told_in_one_line_with_the_nearest_names() {
        let names: Vec<String> = ["TTL", "WAIT", "REDIS_URL", "REDSI", "TIMEOUT", "PASSWROD", "URL"]
            .map(|name| format!("REDLOCK_{name}"))
            .into();
        assert_eq!(
            unknown_variables(&names).as_deref(),
            Some(
                "ignoring unknown variables REDLOCK_TTL (use --ttl), REDLOCK_WAIT (use --wait), \
                 REDLOCK_REDIS_URL (REDLOCK_REDIS?), REDLOCK_REDSI (REDLOCK_REDIS?), \
                 REDLOCK_TIMEOUT (REDLOCK_NODE_TIMEOUT?), REDLOCK_PASSWROD (REDLOCK_PASSWORD?), REDLOCK_URL"
            )
        );
        assert_eq!(unknown_variables(&[]), None);
        assert!(is_unknown("REDLOCK_TTL") && !is_unknown("REDLOCK_HELD") && !is_unknown("REDIS_TTL"));
        for name in ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_6379_TCP_ADDR"] {
            assert!(!is_unknown(&format!("REDLOCK_{name}")), "{name}");
        }
    }
}

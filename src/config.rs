//! Where the locks are and who asks: each setting from its flag, else its variable, else redlock.conf.

use crate::cli::{self, Common, LONGEST_LABEL, LONGEST_TTL};
use crate::error::Error;
use crate::lock::Lock;
use crate::lock::keys::fits_one_slot;
use crate::redis::address;
use crate::redis::{Access, Address, Place, Rotated, read, tls};
use crate::text::reason;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

const DEFAULT_REDIS: &str = "redis://127.0.0.1:6379";
const DEFAULT_PREFIX: &str = "redlock:";
/// In bytes.
const LONGEST_PASSWORD: usize = 4096;

/// Every setting: its option, the variables that replace it, and what it is otherwise. They say where and who, never what.
const SETTINGS: [(&str, &[&str], &str); 10] = [
    (REDIS, &["REDLOCK_REDIS"], DEFAULT_REDIS),
    (PREFIX, &["REDLOCK_PREFIX"], DEFAULT_PREFIX),
    ("--node-timeout", &["REDLOCK_NODE_TIMEOUT"], "from the ttl"),
    ("--quarantine", &["REDLOCK_QUARANTINE"], "from the ttl; with a single node 0"),
    ("--password-file", &["REDLOCK_PASSWORD_FILE", "REDLOCK_PASSWORD"], "none"),
    ("--tls-ca", &["REDLOCK_TLS_CA"], "the system's"),
    ("--tls-cert", &["REDLOCK_TLS_CERT"], "none"),
    ("--tls-key", &["REDLOCK_TLS_KEY"], "none"),
    ("--replicas", &["REDLOCK_REPLICAS"], "0"),
    ("--label", &["REDLOCK_LABEL"], "the command's base name"),
];
const REDIS: &str = "--redis";
const PREFIX: &str = "--prefix";
const BY_DEFAULT: &str = "the default";

/// What `run` sets for its job besides.
const OF_THE_JOB: [&str; 5] =
    ["REDLOCK_NAME", "REDLOCK_TOKEN", "REDLOCK_FENCING_TOKEN", "REDLOCK_HELD", "REDLOCK_SLOT"];

/// Everything that a command has to know besides its own arguments.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) nodes: Vec<Address>,
    pub(crate) prefix: String,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) quarantine: Option<Duration>,
    pub(crate) label: Option<String>,
    /// The flags that say where, as variables for the job: it finds the rest as redlock did.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The tokens of all leases that the enclosing jobs hold, outermost first. A token is random, so that it need not be
    /// said of which lock.
    pub(crate) ancestors: Vec<String>,
    /// Name and token of the lease that the enclosing job runs under.
    pub(crate) around: Option<(String, String)>,
    /// Why a configuration file or a variable was left out: this user may not read it, and what it could say is not needed; or
    /// there is no such variable.
    pub(crate) left_out: Vec<String>,
    /// Where each setting came from.
    pub(crate) told: Vec<Setting>,
}

/// A setting, in words without a password, and where it came from: flag, variable, file and line.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) from: String,
}

impl Setting {
    pub(crate) fn is_default(&self) -> bool {
        self.from == BY_DEFAULT
    }
}

/// `redis redis://10.0.0.1 (REDLOCK_REDIS)`
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match !self.is_default() && (self.value.is_empty() || self.value.contains(' ')) {
            true => write!(f, "{} {:?} ({})", self.name, self.value, self.from),
            false => write!(f, "{} {} ({})", self.name, self.value, self.from),
        }
    }
}

impl Settings {
    /// The lock's key in Redis.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The lock of this name and key. Time-outs that are not set are derived from `ttl`.
    pub(crate) fn lock(&self, name: &str, key: &str, ttl: Duration) -> Lock {
        Lock::new(name, key, &self.nodes, self.node_timeout, self.quarantine, ttl)
    }

    /// The same, if all other keys of the lock can lie beside it in a Cluster.
    ///
    /// # Errors
    /// [`Error::Usage`] when they cannot.
    pub(crate) fn checked_name(&self, name: &str) -> Result<String, Error> {
        let key = self.key(name);
        match fits_one_slot(&key) {
            true => Ok(key),
            false => Err(Error::Usage(format!(
                "the key {key:?} has a }} but no hash tag like {{this}}, so its parts could not share a slot in a Cluster"
            ))),
        }
    }

    /// Name and token of extend and release. Those of the enclosing job are a pair: for another name they mean nothing, and
    /// a token that was given does not belong to their name.
    ///
    /// # Errors
    /// [`Error::Usage`] when neither the argument nor the enclosing job says which lock.
    pub(crate) fn name_and_token(
        &self,
        name: Option<&str>,
        token: Option<&str>,
    ) -> Result<(String, Option<String>), Error> {
        let token = token.map(str::to_owned);
        match (name, token, &self.around) {
            (None, None, Some((name, token))) => Ok((name.clone(), Some(token.clone()))),
            (Some(given), None, Some((name, token))) if given == name => Ok((given.to_owned(), Some(token.clone()))),
            (Some(given), token, _) => Ok((given.to_owned(), token)),
            (None, _, _) => Err(Error::Usage("which lock? give its name".to_owned())),
        }
    }
}

/// Reads the settings of this process.
///
/// # Errors
/// [`Error::Usage`] for what is wrong, with the source that says it.
pub(crate) fn settings(common: &Common) -> Result<Settings, Error> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let users = home.map(|home| PathBuf::from(home).join(".config/redlock/redlock.conf"));
    let system = PathBuf::from("/etc/redlock.conf");
    let sources = Sources::new(|name| std::env::var_os(name), users.into_iter().chain([system]));
    let mut settings = sources.and_then(|sources| settings_from(common, &sources)).map_err(Error::Usage)?;
    let ours =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok().filter(|name| name.starts_with("REDLOCK_")));
    let unknown =
        ours.filter(|name| !known_variables().any(|known| known == name) && !OF_THE_JOB.contains(&name.as_str()));
    settings.left_out.extend(unknown.map(|name| format!("ignoring unknown variable {name}")));
    Ok(settings)
}

fn settings_from(common: &Common, sources: &Sources) -> Result<Settings, String> {
    let prefix = match &common.prefix {
        Some(prefix) => prefix.clone(),
        None => sources.prefix()?.text,
    };
    if prefix.chars().any(char::is_control) {
        return Err("the prefix has a control character in it".to_owned());
    }
    let label = match &common.label {
        Some(label) => Some(label.clone()),
        None => sources.setting(&["REDLOCK_LABEL"])?.map(|value| value.text),
    };
    match &label {
        Some(label) if label.len() > LONGEST_LABEL => {
            return Err(format!("the label is longer than {LONGEST_LABEL} bytes"));
        }
        Some(label) if label.chars().any(char::is_control) => {
            return Err("the label has a control character in it".to_owned());
        }
        _ => {}
    }
    let node_timeout = time(common.node_timeout, "REDLOCK_NODE_TIMEOUT", sources)?;
    if node_timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
        return Err("the node time-out must be at least 1ms".to_owned());
    }
    let quarantine = time(common.quarantine, "REDLOCK_QUARANTINE", sources)?;
    if quarantine.is_some_and(|time| time > LONGEST_TTL) {
        // It has to cover the longest lease, and no longer.
        return Err("the quarantine must be at most 30 days".to_owned());
    }
    let mut ancestors = Vec::new();
    for name in ["REDLOCK_HELD", "REDLOCK_TOKEN"] {
        for token in sources.variable(name)?.iter().flat_map(|value| value.text.split_whitespace()) {
            if !ancestors.iter().any(|known| known == token) {
                ancestors.push(token.to_owned());
            }
        }
    }
    let around = sources.variable("REDLOCK_NAME")?.zip(sources.variable("REDLOCK_TOKEN")?);
    Ok(Settings {
        nodes: nodes(common, sources)?,
        prefix,
        node_timeout,
        quarantine,
        label,
        environment: environment(common),
        ancestors,
        around: around.map(|(name, token)| (name.text, token.text)),
        left_out: sources.left_out(),
        told: told(common, sources)?,
    })
}

fn told(common: &Common, sources: &Sources) -> Result<Vec<Setting>, String> {
    let mut flags = environment(common);
    flags.extend(common.label.as_ref().map(|label| ("REDLOCK_LABEL".into(), label.into())));
    let setting = |&(option, variables, default): &(&'static str, &[&str], &str)| {
        let value = match (flags.iter().find(|(variable, _)| variable == variables[0]), option) {
            (Some((_, text)), _) => Some(Value { text: text.to_string_lossy().into_owned(), from: option.to_owned() }),
            (None, REDIS) => Some(sources.redis()?),
            (None, PREFIX) => Some(sources.prefix()?),
            (None, _) => sources.setting(variables)?,
        };
        let Value { text, from } = value.unwrap_or_else(|| Value::default_of(default));
        let value = match option {
            REDIS => address::split(&text).iter().map(|url| address::without_secret(url)).collect::<Vec<_>>().join(","),
            _ if from.ends_with("REDLOCK_PASSWORD") => "not shown".to_owned(),
            _ => text,
        };
        Ok(Setting { name: option.trim_start_matches('-').trim_end_matches("-file"), value, from })
    };
    SETTINGS.iter().map(setting).collect()
}

fn nodes(common: &Common, sources: &Sources) -> Result<Vec<Address>, String> {
    let given = match common.redis.as_slice() {
        [] => sources.redis()?,
        urls => Value { text: urls.join(","), from: REDIS.to_owned() },
    };
    let urls = address::split(&given.text);
    let access = Rc::new(access(common, sources, urls.iter().any(|url| address::is_tls(url)))?);
    let mut nodes: Vec<Address> = Vec::new();
    for url in urls {
        let bad = |why: String| format!("in {}: {why}", given.from);
        let node = Address::parse(&url, &access).map_err(bad)?;
        if nodes.iter().any(|known| known.is_same_node(&node)) {
            return Err(bad(format!("the node {node} is given twice")));
        }
        nodes.push(node);
    }
    if nodes.len() > 1 && nodes.iter().any(|node| matches!(node.place(), Place::Local(_))) {
        return Err(format!("in {}: local: is this machine's own server, and cannot be one of several", given.from));
    }
    Ok(nodes)
}

/// What the options say for all nodes alike. Certificates are looked at only where there is TLS.
fn access(common: &Common, sources: &Sources, with_tls: bool) -> Result<Access, String> {
    let path = |flag: &Option<PathBuf>, name: &str| match flag {
        Some(path) => Ok(Some(path.clone())),
        None => Ok::<_, String>(sources.setting(&[name])?.map(|value| value.text.into())),
    };
    let certificate = path(&common.tls_cert, "REDLOCK_TLS_CERT")?;
    let key = path(&common.tls_key, "REDLOCK_TLS_KEY")?;
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => return Err("--tls-cert and --tls-key go together".to_owned()),
    };
    let replicas = match (common.replicas, sources.setting(&["REDLOCK_REPLICAS"])?) {
        (Some(number), _) => number,
        (None, None) => 0,
        (None, Some(value)) => {
            let number = value.text.parse().map_err(|_| format!("in {}: not a number of replicas", value.from));
            number?
        }
    };
    let ca = path(&common.tls_ca, "REDLOCK_TLS_CA")?;
    if !with_tls && (common.tls_ca.is_some() || common.tls_cert.is_some()) {
        return Err("--tls-ca and --tls-cert are for rediss://; no URL asks for TLS".to_owned());
    }
    let tls = if with_tls { Some(tls::client(ca, identity)?) } else { None };
    Ok(Access { password: password(common, sources)?, tls, replicas })
}

fn time(flag: Option<Duration>, name: &str, sources: &Sources) -> Result<Option<Duration>, String> {
    match (flag, sources.setting(&[name])) {
        (Some(time), _) => Ok(Some(time)),
        (None, Ok(None)) => Ok(None),
        (None, Ok(Some(value))) => {
            cli::duration(&value.text).map(Some).map_err(|why| format!("in {}: {why}", value.from))
        }
        (None, Err(why)) => Err(why),
    }
}

/// The password for nodes whose URL has none.
fn password(common: &Common, sources: &Sources) -> Result<Option<Rotated<String>>, String> {
    let path = match &common.password_file {
        Some(path) => path.clone(),
        None => match sources.setting(&["REDLOCK_PASSWORD_FILE", "REDLOCK_PASSWORD"])? {
            Some(value) if value.from.ends_with("REDLOCK_PASSWORD_FILE") => value.text.into(),
            Some(value) => return Rotated::new(Vec::new(), move || Ok(value.text.clone())).map(Some),
            None => return Ok(None),
        },
    };
    let first_line = |path: &Path| {
        let text = String::from_utf8(read(path)?).map_err(|_| "not UTF-8")?;
        match text.lines().next() {
            Some(password) if password.len() > LONGEST_PASSWORD => Err("too long".to_owned()),
            Some(password) if !password.is_empty() => Ok(password.to_owned()),
            _ => Err("its first line is empty".to_owned()),
        }
    };
    Rotated::new(vec![path.clone()], move || {
        first_line(&path).map_err(|why| format!("cannot read the password from {}: {why}", path.display()))
    })
    .map(Some)
}

fn environment(common: &Common) -> Vec<(OsString, OsString)> {
    let urls = (!common.redis.is_empty()).then(|| common.redis.join(",").into());
    let time = |time: Option<Duration>| time.map(|time| humantime::format_duration(time).to_string().into());
    // The job may change its directory.
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone()).into_os_string();
    let flags = [
        ("REDLOCK_REDIS", urls),
        ("REDLOCK_PREFIX", common.prefix.clone().map(OsString::from)),
        ("REDLOCK_NODE_TIMEOUT", time(common.node_timeout)),
        ("REDLOCK_QUARANTINE", time(common.quarantine)),
        ("REDLOCK_PASSWORD_FILE", common.password_file.as_ref().map(absolute)),
        ("REDLOCK_TLS_CA", common.tls_ca.as_ref().map(absolute)),
        ("REDLOCK_TLS_CERT", common.tls_cert.as_ref().map(absolute)),
        ("REDLOCK_TLS_KEY", common.tls_key.as_ref().map(absolute)),
        ("REDLOCK_REPLICAS", common.replicas.map(|number| number.to_string().into())),
    ];
    flags.into_iter().filter_map(|(name, value)| Some((name.into(), value?))).collect()
}

/// A value, and the words that name its source in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    text: String,
    from: String,
}

impl Value {
    fn default_of(text: &str) -> Value {
        Value { text: text.to_owned(), from: BY_DEFAULT.to_owned() }
    }
}

/// Looks a variable of the environment up.
type Environment<'a> = Box<dyn Fn(&str) -> Option<OsString> + 'a>;

/// The environment, and behind it the files, the nearest first.
struct Sources<'a> {
    environment: Environment<'a>,
    files: Vec<File>,
}

/// One redlock.conf.
enum File {
    Read(Vec<(String, Value)>),
    /// This user may not read it, for this reason.
    Denied(String),
}

impl<'a> Sources<'a> {
    /// # Errors
    /// A file that is there and cannot be read or understood: without it redlock might lock elsewhere. Where only
    /// permission is missing, that depends on what is looked up.
    fn new(
        environment: impl Fn(&str) -> Option<OsString> + 'a,
        paths: impl Iterator<Item = PathBuf>,
    ) -> Result<Sources<'a>, String> {
        let mut files = Vec::new();
        for path in paths {
            match std::fs::read_to_string(&path) {
                Ok(text) => files.push(File::Read(entries(&path, &text)?)),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let why = format!("cannot read {}: {}", path.display(), reason(&error));
                    // The system's may be for some users only; HOME is another's after sudo.
                    match error.kind() {
                        ErrorKind::PermissionDenied => files.push(File::Denied(why)),
                        _ => return Err(why),
                    }
                }
            }
        }
        Ok(Sources { environment: Box::new(environment), files })
    }

    fn left_out(&self) -> Vec<String> {
        let why = |file: &File| match file {
            File::Denied(why) => Some(format!("{why}; going on without it")),
            File::Read(_) => None,
        };
        self.files.iter().filter_map(why).collect()
    }

    /// An environment variable as it is, empty or not.
    fn raw(&self, name: &str) -> Result<Option<Value>, String> {
        let Some(value) = (self.environment)(name) else { return Ok(None) };
        let text = value.into_string().map_err(|_| format!("{name} is not UTF-8"))?;
        Ok(Some(Value { text, from: name.to_owned() }))
    }

    /// An environment variable; an empty one counts as unset.
    fn variable(&self, name: &str) -> Result<Option<Value>, String> {
        Ok(self.raw(name)?.filter(|value| !value.text.is_empty()))
    }

    /// The first of `names` that is set, in the environment before the nearest file.
    fn setting(&self, names: &[&str]) -> Result<Option<Value>, String> {
        for name in names {
            if let Some(value) = self.variable(name)? {
                return Ok(Some(value));
            }
        }
        let find = |file: &File| names.iter().find_map(|name| file.find(name, false));
        Ok(self.files.iter().find_map(find))
    }

    /// The prefix alone may be empty.
    fn prefix(&self) -> Result<Value, String> {
        let given = self.raw("REDLOCK_PREFIX")?;
        let given = given.or_else(|| self.files.iter().find_map(|file| file.find("REDLOCK_PREFIX", true)));
        Ok(given.unwrap_or_else(|| Value::default_of(DEFAULT_PREFIX)))
    }

    /// The nodes where no flag gives them.
    ///
    /// # Errors
    /// A file that cannot be read might name others than what is found behind it.
    fn redis(&self) -> Result<Value, String> {
        if let Some(value) = self.variable("REDLOCK_REDIS")? {
            return Ok(value);
        }
        for file in &self.files {
            match file {
                File::Denied(why) => {
                    return Err(format!("{why}; it may say which Redis to use; --redis can say so, too"));
                }
                File::Read(_) => {
                    if let Some(value) = file.find("REDLOCK_REDIS", false) {
                        return Ok(value);
                    }
                }
            }
        }
        Ok(self.variable("REDIS_URL")?.unwrap_or_else(|| Value::default_of(DEFAULT_REDIS)))
    }
}

impl File {
    /// What it says last about this setting.
    fn find(&self, wanted: &str, empty: bool) -> Option<Value> {
        let File::Read(entries) = self else { return None };
        let mut entries = entries.iter().rev();
        let found = entries.find(|(name, value)| name == wanted && (empty || !value.text.is_empty()));
        found.map(|(_, value)| value.clone())
    }
}

/// The variables of all settings.
fn known_variables() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(|(_, variables, _)| *variables).copied()
}

/// Reads lines `REDLOCK_X=value`; empty ones and those that begin with `#` say nothing.
fn entries(path: &Path, text: &str) -> Result<Vec<(String, Value)>, String> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{}, line {}", path.display(), index + 1);
        let (name, value) = line.split_once('=').ok_or_else(|| format!("{place}: not of the form REDLOCK_X=value"))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        let known: Vec<&str> = known_variables().collect();
        if !known.contains(&name) {
            return Err(format!("{place}: no setting {name:?}; there are {}", known.join(", ")));
        }
        let text = match value.as_bytes() {
            [quote @ (b'"' | b'\''), .., last] if quote == last => &value[1..value.len() - 1],
            [b'"' | b'\'', ..] => return Err(format!("{place}: a quote is not closed")),
            _ => value,
        };
        entries.push((name.to_owned(), Value { text: text.to_owned(), from: format!("{place}: {name}") }));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment, and files that say this, or may not be read.
    fn sources<'a>(variables: &'a [(&str, &str)], files: &[Option<&str>]) -> Result<Sources<'a>, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let read = |(index, text): (usize, &Option<&str>)| match text {
            Some(text) => entries(Path::new(&format!("f{index}")), text).map(File::Read),
            None => Ok(File::Denied(format!("cannot read f{index}: permission denied"))),
        };
        let files = files.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Sources { environment: Box::new(find), files })
    }

    fn with(common: &Common, variables: &[(&str, &str)], files: &[Option<&str>]) -> Result<Settings, String> {
        sources(variables, files).and_then(|sources| settings_from(common, &sources))
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
        let told = with(&common, &variables, &files).expect("fine").told;
        let told: Vec<String> = told.iter().filter(|one| !one.is_default()).map(ToString::to_string).collect();
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
        let told = with(&redis(&["redis://u:s3cret@e", "unix:///s?pass=s3cret"]), &variables, &[]).expect("fine").told;
        assert_eq!(told[0].to_string(), "redis redis://…@e,unix:///s (--redis)");
        assert_eq!(of(&[]).told[1].to_string(), "prefix redlock: (the default)");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_source() {
        let said = |variables: &[(&str, &str)], why: &str| assert_eq!(refused(variables, &[]), why);
        said(&[("REDLOCK_QUARANTINE", "30")], "in REDLOCK_QUARANTINE: a number needs a unit: 30s?");
        said(&[("REDLOCK_QUARANTINE", "31d")], "the quarantine must be at most 30 days");
        said(&[("REDLOCK_NODE_TIMEOUT", "0")], "the node time-out must be at least 1ms");
        said(&[("REDLOCK_PREFIX", "\t")], "the prefix has a control character in it");
        said(&[("REDLOCK_LABEL", "\u{1b}[2J")], "the label has a control character in it");
        said(&[("REDIS_URL", "h:1")], "in REDIS_URL: cannot use \"h:1\": not a URL; redis://h:1?");
        let twice = with(&redis(&["redis://h", "redis://H:6379/1"]), &[], &[]);
        assert_eq!(twice.expect_err("twice"), "in --redis: the node H:6379 is given twice");
        let file = |text, why: &str| assert_eq!(refused(&[], &[Some(text)]), why);
        file("#\nREDLOCK_REDIS", "f0, line 2: not of the form REDLOCK_X=value");
        file("REDLOCK_LABEL=\"x", "f0, line 1: a quote is not closed");
        file("REDLOCK_QUARANTINE=5", "in f0, line 1: REDLOCK_QUARANTINE: a number needs a unit: 5s?");
        assert!(refused(&[], &[Some("REDLOCK_TOKEN=x")]).starts_with("f0, line 1: no setting \"REDLOCK_TOKEN\""));
    }

    #[test]
    fn a_file_that_may_not_be_read_matters_where_it_may_say_which_redis() {
        let no = "cannot read f1: permission denied; it may say which Redis to use; --redis can say so, too";
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
            node_timeout: Some(Duration::from_millis(1500)),
            quarantine: Some(Duration::ZERO),
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
                "REDLOCK_NODE_TIMEOUT=1s 500ms",
                "REDLOCK_QUARANTINE=0s",
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
        let flag = Common { password_file: Some(path.clone()), ..Common::default() };
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
        let endless = Common { password_file: Some("/dev/zero".into()), ..Common::default() };
        assert!(password(&endless, &[]).is_err_and(|why| why.ends_with("too long")));
    }

    #[test]
    fn name_and_token_of_the_enclosing_job_are_a_pair() {
        let job = [("REDLOCK_NAME", "n"), ("REDLOCK_TOKEN", "t")];
        let lease = |name, token, variables: &[(&str, &str)]| {
            let found = of(variables).name_and_token(name, token).map_err(|error| error.to_string());
            found.map(|(name, token)| format!("{name} {}", token.unwrap_or_default()))
        };
        let missing = Err("which lock? give its name".to_owned());
        assert_eq!(lease(None, None, &job), Ok("n t".to_owned()));
        assert_eq!(lease(Some("n"), None, &job), Ok("n t".to_owned()));
        assert_eq!(lease(Some("n"), Some("u"), &job), Ok("n u".to_owned()));
        assert_eq!(lease(Some("m"), None, &job), Ok("m ".to_owned()));
        assert_eq!(lease(None, Some("u"), &job), missing);
        assert_eq!(lease(None, None, &job[..1]), missing);
        assert_eq!(lease(Some("n"), None, &[job[0], ("REDLOCK_TOKEN", "")]), Ok("n ".to_owned()));
    }

    #[test]
    fn the_tokens_of_all_enclosing_jobs_are_known_once_each() {
        let ancestors = |variables: &[(&str, &str)]| of(variables).ancestors.join(" ");
        assert_eq!(ancestors(&[("REDLOCK_HELD", "a b"), ("REDLOCK_TOKEN", "c")]), "a b c");
        assert_eq!(ancestors(&[("REDLOCK_HELD", "a b"), ("REDLOCK_TOKEN", "b")]), "a b");
        assert_eq!(ancestors(&[("REDLOCK_NAME", "n")]), "");
    }

    #[test]
    fn a_key_needs_a_hash_tag_that_works() {
        let fits = |prefix: &str, name| of(&[("REDLOCK_PREFIX", prefix)]).checked_name(name).is_ok();
        for (name, prefix) in
            [("x", ""), ("ü ö", "p"), ("a{b}c", ""), ("{", "x"), ("{{}", ""), ("x", "{tag}:"), ("a}b{c}", "{p}")]
        {
            assert!(fits(prefix, name), "{prefix:?} {name:?}");
        }
        for (name, prefix) in [("a}", ""), ("{}x", ""), ("}{a", ""), ("{}{a}", ""), ("x", "{}")] {
            assert!(!fits(prefix, name), "{prefix:?} {name:?}");
        }
        assert_eq!(of(&[]).key("x"), "redlock:x");
    }
}

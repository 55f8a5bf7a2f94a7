//! Where settings come from besides the command line: the environment, then redlock.conf. Knows their form, not their
//! meaning.

use crate::error::Error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;

/// What redlock.conf may say: where and who, never what.
const SETTINGS: [&str; 7] = [
    "REDLOCK_REDIS",
    "REDLOCK_PREFIX",
    "REDLOCK_NODE_TIMEOUT",
    "REDLOCK_QUARANTINE",
    "REDLOCK_PASSWORD_FILE",
    "REDLOCK_PASSWORD",
    "REDLOCK_LABEL",
];

/// A value, and the words that name its source in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) from: String,
}

/// Looks an environment variable up.
type Lookup = Box<dyn Fn(&str) -> Option<OsString>>;

/// One place after the other that a setting is looked up in.
pub(crate) struct Sources {
    variable: Lookup,
    files: Vec<Vec<(String, Value)>>,
    /// Why the user's file could not be read, if it is there and we are not allowed to.
    kept_from_us: Option<String>,
}

impl Sources {
    /// This process's environment, `~/.config/redlock/redlock.conf` and `/etc/redlock.conf`.
    ///
    /// # Errors
    /// A file that is there and cannot be read or understood: going on without it might lock elsewhere. Only what the
    /// user's file is kept from us with waits until somebody asks: [`Sources::must_be_complete`].
    pub(crate) fn of_process() -> Result<Sources, Error> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        let users = home.map(|home| PathBuf::from(home).join(".config/redlock/redlock.conf"));
        let mut files = Vec::new();
        let mut kept_from_us = None;
        for path in users.iter().cloned().chain([PathBuf::from("/etc/redlock.conf")]) {
            let shown = path.display().to_string();
            match std::fs::read_to_string(&path) {
                Ok(text) => files.push(parse(&shown, &text)?),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let why = format!("cannot read {shown}: {}", super::place::reason(&error));
                    // HOME is often somebody else's: sudo and daemons that give privileges up leave it as it was.
                    if error.kind() != ErrorKind::PermissionDenied || users.as_ref() != Some(&path) {
                        return Err(Error::Usage(why));
                    }
                    kept_from_us = Some(why);
                }
            }
        }
        Ok(Sources { variable: Box::new(|name| std::env::var_os(name)), files, kept_from_us })
    }

    /// For a setting that nothing nearer than the files has, and that must not be guessed.
    ///
    /// # Errors
    /// The user's file is there, and we may not read it.
    pub(super) fn must_be_complete(&self) -> Result<(), Error> {
        self.kept_from_us.as_ref().map_or(Ok(()), |why| Err(Error::Usage(why.clone())))
    }

    /// An environment and files made of text.
    #[cfg(test)]
    pub(super) fn of(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Sources, Error> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), OsString::from(value));
        let variables: std::collections::HashMap<_, _> = variables.iter().map(owned).collect();
        let files = files.iter().map(|(path, text)| parse(path, text)).collect::<Result<_, _>>()?;
        Ok(Sources { variable: Box::new(move |name| variables.get(name).cloned()), files, kept_from_us: None })
    }

    /// The same with a user's file that we may not read.
    #[cfg(test)]
    pub(super) fn kept_from_us(self, why: &str) -> Sources {
        Sources { kept_from_us: Some(why.to_owned()), ..self }
    }

    /// An environment variable as it is, empty or not.
    fn raw(&self, name: &str) -> Result<Option<Value>, Error> {
        let Some(value) = (self.variable)(name) else {
            return Ok(None);
        };
        let text = value.into_string().map_err(|_| Error::Usage(format!("{name} is not UTF-8")))?;
        Ok(Some(Value { text, from: name.to_owned() }))
    }

    /// An environment variable; an empty one counts as unset.
    pub(super) fn variable(&self, name: &str) -> Result<Option<Value>, Error> {
        Ok(self.raw(name)?.filter(|value| !value.text.is_empty()))
    }

    /// The first of `names` that is set, in the environment before the user's file before the system's.
    pub(super) fn setting(&self, names: &[&str]) -> Result<Option<Value>, Error> {
        for name in names {
            if let Some(value) = self.variable(name)? {
                return Ok(Some(value));
            }
        }
        Ok(self.in_files(names, false))
    }

    /// Like [`Sources::setting`] for a value that may be empty.
    pub(super) fn setting_or_empty(&self, name: &str) -> Result<Option<Value>, Error> {
        Ok(self.raw(name)?.or_else(|| self.in_files(&[name], true)))
    }

    fn in_files(&self, names: &[&str], empty: bool) -> Option<Value> {
        let in_file = |file: &Vec<(String, Value)>| {
            names.iter().find_map(|wanted| {
                let mut entries = file.iter().rev();
                entries
                    .find(|(name, value)| name == wanted && (empty || !value.text.is_empty()))
                    .map(|(_, value)| value.clone())
            })
        };
        self.files.iter().find_map(in_file)
    }
}

/// Reads lines `REDLOCK_X=value`; empty ones and those that begin with `#` say nothing.
fn parse(path: &str, text: &str) -> Result<Vec<(String, Value)>, Error> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), index + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |why: &str| Error::Usage(format!("{path}, line {number}: {why}"));
        let (name, value) = line.split_once('=').ok_or_else(|| bad("not of the form REDLOCK_X=value"))?;
        let (name, value) = (name.trim_end(), value.trim_start());
        if !SETTINGS.contains(&name) {
            return Err(bad(&format!("no setting {name:?}; there are {}", SETTINGS.join(", "))));
        }
        let text = match value.as_bytes() {
            [quote @ (b'"' | b'\''), .., last] if quote == last => &value[1..value.len() - 1],
            [b'"' | b'\'', ..] => return Err(bad("a quote is not closed")),
            _ => value,
        };
        entries
            .push((name.to_owned(), Value { text: text.to_owned(), from: format!("{path}, line {number}: {name}") }));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(result: Result<Sources, Error>) -> String {
        result.err().map(|error| error.to_string()).expect("refused")
    }

    #[test]
    fn the_environment_comes_before_the_users_file_before_the_systems() {
        let files = [
            ("user", "# mine\n\n REDLOCK_REDIS = b \nREDLOCK_LABEL=\n"),
            ("system", "REDLOCK_REDIS=c\nREDLOCK_LABEL='d e'\n"),
        ];
        let text = |variables: &[(&str, &str)], name| {
            let sources = Sources::of(variables, &files).expect("fine");
            sources.setting(&[name]).expect("UTF-8").map(|value| (value.text, value.from))
        };
        let is = |text: &str, from: &str| Some((text.to_owned(), from.to_owned()));
        assert_eq!(text(&[("REDLOCK_REDIS", "a")], "REDLOCK_REDIS"), is("a", "REDLOCK_REDIS"));
        assert_eq!(text(&[("REDLOCK_REDIS", "")], "REDLOCK_REDIS"), is("b", "user, line 3: REDLOCK_REDIS"));
        assert_eq!(text(&[], "REDLOCK_LABEL"), is("d e", "system, line 2: REDLOCK_LABEL"));
        assert_eq!(text(&[], "REDLOCK_PREFIX"), None);
    }

    #[test]
    fn only_the_prefix_may_be_empty() {
        let sources = Sources::of(&[("REDLOCK_PREFIX", "")], &[("f", "REDLOCK_PREFIX=x")]).expect("fine");
        assert_eq!(
            sources.setting_or_empty("REDLOCK_PREFIX").expect("UTF-8").map(|value| value.text),
            Some(String::new())
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let form = "f, line 2: not of the form REDLOCK_X=value";
        assert_eq!(said(Sources::of(&[], &[("f", "#\nREDLOCK_REDIS")])), form);
        assert!(
            said(Sources::of(&[], &[("f", "REDLOCK_TOKEN=x")]))
                .starts_with("f, line 1: no setting \"REDLOCK_TOKEN\"; there are")
        );
        assert_eq!(said(Sources::of(&[], &[("f", "REDLOCK_LABEL=\"x")])), "f, line 1: a quote is not closed");
    }
}

//! Who and where this process is, and what it has run out of.

use nix::errno::Errno;
use nix::unistd::{Uid, gethostname};
use std::path::PathBuf;

/// The name of this machine.
pub(crate) fn name() -> String {
    gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What tells this machine apart from others that see the same files: the id in /etc/machine-id, which a new network
/// does not change, else its name.
pub(crate) fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(id.trim_end()).filter(is_id).map_or_else(|| name().replace('/', "_"), str::to_owned)
}

/// The name that /etc/passwd has for the user that this process belongs to, else the number: a look-up by libnss crashes a
/// static program, and may go over the network.
pub(crate) fn user() -> String {
    passwd(0).unwrap_or_else(|| Uid::effective().to_string())
}

/// The home directory of that user: HOME, else what /etc/passwd has.
pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME").or_else(|| passwd(5).map(PathBuf::from))
}

/// The absolute path in this environment variable.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The file of this program, in the directories of PATH, or where there is none in the usual ones, or in /usr/local/bin, which
/// cron's PATH leaves out.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin:/usr/sbin".into());
    let directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/local/bin")]);
    directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// A field of the line that /etc/passwd has for this user; none when it is empty.
fn passwd(field: usize) -> Option<String> {
    let uid = Uid::effective().to_string();
    // A name need not be UTF-8.
    let all = std::fs::read("/etc/passwd").ok()?;
    String::from_utf8_lossy(&all).lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let found = fields.get(2).filter(|number| **number == uid).and_then(|_| fields.get(field));
        found.filter(|text| !text.is_empty()).map(|&text| text.to_owned())
    })
}

/// What this process or this machine has run out of, if that is why a call has failed.
pub(crate) fn shortage(error: &std::io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE => "this process has too many files open (ulimit -n)",
        Errno::ENFILE => "this machine has too many files open",
        Errno::ENOMEM | Errno::ENOBUFS => "this machine is out of memory",
        Errno::EAGAIN => "this user has too many processes (ulimit -u)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::User;

    #[test]
    fn etc_passwd_has_the_name_that_a_look_up_finds() {
        let found = User::from_uid(Uid::effective()).ok().flatten();
        // Whom only a directory service knows has no line there.
        if let Some(name) = passwd(0) {
            assert_eq!(Some(name), found.map(|user| user.name));
        }
    }
}

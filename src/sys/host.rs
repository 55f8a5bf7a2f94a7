//! Who and where this process is, and what it has run out of, for people to read.

use nix::errno::Errno;
use nix::unistd::{Uid, User, gethostname};

/// The name of this machine.
pub(crate) fn name() -> String {
    gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The name of the user that this process belongs to: what the environment says, which cron sets too, or /etc/passwd, before
/// a look-up that may go over the network.
pub(crate) fn user() -> String {
    ["LOGNAME", "USER"]
        .iter()
        .find_map(|variable| std::env::var(variable).ok().filter(|name| !name.is_empty()))
        .or_else(local_user)
        .or_else(|| User::from_uid(Uid::effective()).ok().flatten().map(|user| user.name))
        .unwrap_or_else(|| Uid::effective().to_string())
}

/// The name that /etc/passwd has for this user.
fn local_user() -> Option<String> {
    let uid = Uid::effective().to_string();
    let all = std::fs::read_to_string("/etc/passwd").ok()?;
    all.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid && !name.is_empty()).then(|| name.to_owned())
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

    #[test]
    fn etc_passwd_has_the_name_that_a_look_up_finds() {
        let found = User::from_uid(Uid::effective()).ok().flatten();
        // Whom only a directory service knows has no line there.
        if let Some(name) = local_user() {
            assert_eq!(Some(name), found.map(|user| user.name));
        }
    }
}

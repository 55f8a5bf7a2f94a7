//! Who and where this process is, and what it has run out of, for people to read.

use nix::errno::Errno;
use nix::unistd::{Uid, gethostname};

/// The name of this machine.
pub(crate) fn name() -> String {
    gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The name that /etc/passwd has for the user that this process belongs to, else the number: a look-up by libnss crashes a
/// static program, and may go over the network.
pub(crate) fn user() -> String {
    local_user().unwrap_or_else(|| Uid::effective().to_string())
}

fn local_user() -> Option<String> {
    let uid = Uid::effective().to_string();
    // A name need not be UTF-8.
    let all = std::fs::read("/etc/passwd").ok()?;
    String::from_utf8_lossy(&all).lines().find_map(|line| {
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
    use nix::unistd::User;

    #[test]
    fn etc_passwd_has_the_name_that_a_look_up_finds() {
        let found = User::from_uid(Uid::effective()).ok().flatten();
        // Whom only a directory service knows has no line there.
        if let Some(name) = local_user() {
            assert_eq!(Some(name), found.map(|user| user.name));
        }
    }
}

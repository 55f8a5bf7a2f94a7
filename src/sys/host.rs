//! The machine and the user of this process, the paths of programs, and shortages.

use super::files::find_command;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Uid, gethostname};
use std::ffi::{c_char, c_int};
use std::io;
use std::path::{Path, PathBuf};

/// The names of the programs that serve Redis' protocol.
pub(crate) const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

pub(crate) fn name() -> String {
    gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The identity of this machine, unique among machines that share files: the id in /etc/machine-id, which does not
/// change with the network, else the host name.
///
/// # Errors
/// A shortage, for example of memory: with the host name in place of the id, the machine would have two identities.
pub(crate) fn machine() -> io::Result<String> {
    let id = match std::fs::read_to_string("/etc/machine-id") {
        Err(error) if shortage(&error).is_some() => return Err(error),
        id => id.unwrap_or_default(),
    };
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(Some(id.trim_end()).filter(is_id).map_or_else(|| name().replace('/', "_"), str::to_owned))
}

/// In a static program, makes the C library look up host names only in /etc/hosts and by DNS, which are built in.
/// Everything else that /etc/nsswitch.conf may name is a shared library made for this machine's own C library, and
/// often crashes a static program as soon as it is loaded. Fails only for lack of memory.
#[cfg(target_env = "gnu")]
pub(crate) fn look_up_names_alone() -> io::Result<()> {
    unsafe extern "C" {
        /// From nss.h of glibc.
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }
    // SAFETY: getauxval reads plain data. The C library copies the two strings, and takes a lock for the change.
    let done = unsafe {
        let has_loader = libc::getauxval(libc::AT_BASE) != 0;
        if has_loader { 0 } else { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) }
    };
    Errno::result(done).map_or_else(|errno| Err(errno.into()), |_| Ok(()))
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn look_up_names_alone() -> io::Result<()> {
    Ok(())
}

/// The user's name from /etc/passwd, else the number. A lookup by libnss would crash a static program, and may use the
/// network.
pub(crate) fn user() -> String {
    passwd(0).unwrap_or_else(|| Uid::effective().to_string())
}

/// The home directory: HOME, else the entry in /etc/passwd.
pub(crate) fn home() -> Option<PathBuf> {
    absolute("HOME").or_else(|| passwd(5).map(PathBuf::from))
}

/// The path in this environment variable; none if the variable is not set, or the path is not absolute.
pub(crate) fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The absolute path of a program, from PATH, or else from /usr/local/bin, which cron's PATH lacks.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let usual = Path::new("/usr/local/bin").join(name);
    let found = find_command(name.as_ref()).or_else(|_| find_command(usual.as_os_str()));
    found.ok().filter(|file| file.is_absolute())
}

pub(crate) fn servers() -> impl Iterator<Item = PathBuf> {
    SERVERS.into_iter().filter_map(program)
}

/// A field of this user's line in /etc/passwd; none if the field is empty, or if there is no line.
fn passwd(field: usize) -> Option<String> {
    let uid = Uid::effective().to_string();
    let all = std::fs::read("/etc/passwd").ok()?;
    all.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let is_ours = fields.clone().nth(2) == Some(uid.as_bytes());
        let found = fields.nth(field).filter(|text| is_ours && !text.is_empty())?;
        // A name need not be UTF-8.
        Some(String::from_utf8_lossy(found).into_owned())
    })
}

/// The shortage that made a call fail, if a shortage is the reason.
pub(crate) fn shortage(error: &io::Error) -> Option<&'static str> {
    Some(match Errno::from_raw(error.raw_os_error()?) {
        Errno::EMFILE => "this process has too many files open (ulimit -n)",
        Errno::ENFILE => "this machine has too many files open",
        Errno::ENOMEM | Errno::ENOBUFS => "this machine is out of memory",
        Errno::EAGAIN => "this user has too many processes (ulimit -u)",
        _ => return None,
    })
}

/// True if the system refuses a call for good. The kernel refuses redlock none of its calls; a sandbox may.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EPERM | Errno::EACCES | Errno::ENOSYS))
}

/// True if a path, or the file behind it, is the reason why a call failed, and not the system.
pub(crate) fn is_of_path(error: &io::Error) -> bool {
    use Errno::{EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENODEV, ENOENT, ENOTDIR, ENXIO, EROFS, ETXTBSY};
    let of_paths =
        [EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENODEV, ENOENT, ENOTDIR, ENXIO, EROFS, ETXTBSY];
    error.raw_os_error().is_none_or(|number| of_paths.contains(&Errno::from_raw(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::User;

    #[test]
    fn etc_passwd_has_the_name_that_a_look_up_finds() {
        let found = User::from_uid(Uid::effective()).ok().flatten();
        // Users from LDAP or NIS have no line in /etc/passwd.
        if let Some(name) = passwd(0) {
            assert_eq!(Some(name), found.map(|user| user.name));
        }
    }
}

//! Whether other users could have made what a path leads to, or could replace it. Root and this user are trusted.

use super::files;
use nix::errno::Errno;
use nix::unistd::geteuid;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A path has at most this many links, as in the kernel.
const LINKS: usize = 40;

/// A directory or link on the way to the end of a path, or the end itself.
pub(crate) struct Step<'a> {
    pub(crate) path: &'a Path,
    pub(crate) found: Metadata,
    pub(crate) is_end: bool,
}

impl Step<'_> {
    pub(crate) fn foreign(&self) -> Option<String> {
        let (path, owner) = (self.path.display(), self.found.uid());
        is_foreign(&self.found).then(|| format!("{path} belongs to another user (uid {owner})"))
    }

    pub(crate) fn open_to_others(&self) -> Option<String> {
        may_others_write(&self.found).then(|| format!("others may write to {}", self.path.display()))
    }
}

/// True if the file belongs to neither root nor this user. In a user namespace root may have another number, so the
/// owner of the root directory is trusted in any case.
pub(crate) fn is_foreign(file: &Metadata) -> bool {
    let owner = file.uid();
    owner != geteuid().as_raw() && owner != 0 && fs::metadata("/").map_or(true, |root| root.uid() != owner)
}

/// True if users other than the file's owner may write to the file. Many systems give each user a group of the same
/// number, which has no other members, and let this group write. Root's group may have other members.
pub(crate) fn may_others_write(file: &Metadata) -> bool {
    let is_own_group = file.uid() == file.gid() && !geteuid().is_root();
    file.mode() & 0o002 != 0 || file.mode() & 0o020 != 0 && !is_own_group
}

/// Follows a path through all links, step by step, until `judge` returns an objection. With `make`, a missing directory
/// is made, for this user alone; else the walk ends before the first step that is missing.
pub(crate) fn follow(
    path: &Path,
    make: bool,
    mut judge: impl FnMut(Step) -> Option<String>,
) -> io::Result<Option<String>> {
    let (mut reached, mut links, mut ahead) = (PathBuf::new(), 0, steps(path));
    while let Some(next) = ahead.pop() {
        match next == ".." {
            true => _ = reached.pop(),
            false => reached.push(next),
        }
        let found = match fs::symlink_metadata(&reached) {
            Err(error) if error.kind() == ErrorKind::NotFound && make => made(&reached)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let target = if found.is_symlink() { Some(fs::read_link(&reached)?) } else { None };
        let step = Step { path: &reached, found, is_end: ahead.is_empty() && target.is_none() };
        if let Some(objection) = judge(step) {
            return Ok(Some(objection));
        }
        if let Some(target) = target {
            links += 1;
            if links > LINKS {
                return Err(Errno::ELOOP.into());
            }
            reached.pop();
            ahead.extend(steps(&target));
        }
    }
    Ok(None)
}

/// The parts of the path, the last one in front. The root directory is a part, which begins the path anew.
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Makes this directory. If another process is faster, the result may be something else.
fn made(directory: &Path) -> io::Result<Metadata> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => fs::symlink_metadata(directory),
    }
}

/// The contents of a file that only root and this user can have written, or the objection to this file. (Directories on
/// the way may belong to others: others can put no file there that is root's or this user's, but they can put a link.)
pub(crate) fn read(path: &Path) -> io::Result<Result<Vec<u8>, String>> {
    let file = files::open(path)?;
    let (opened, mut is_same) = (file.metadata()?, false);
    let objection = follow(path, false, |step| {
        is_same = step.is_end && (step.found.dev(), step.found.ino()) == (opened.dev(), opened.ino());
        let is_judged = step.is_end || step.found.is_symlink();
        is_judged.then(|| step.foreign().or_else(|| step.open_to_others().filter(|_| step.is_end))).flatten()
    })?;
    match objection {
        Some(objection) => Ok(Err(objection)),
        None if !is_same => Ok(Err("it is being replaced".to_owned())),
        None => files::read_opened(file).map(Ok),
    }
}

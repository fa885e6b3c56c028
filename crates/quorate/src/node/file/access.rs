//! Checks that no other user of the host can reach a node's files.
//!
//! The node's own directories and files must belong to the effective user and be closed to all others. For
//! the directories above them, the rules are those of OpenSSH's `StrictModes`. Each of these directories must
//! belong to root or to the effective user. Other users must not be able to write to it, unless it is sticky
//! (like `/tmp`). So no other user except root can replace the node's directory, and a path leads to the same
//! file when it is checked and when it is used.

use rustix::io::Errno;
use std::{
    collections::VecDeque,
    fmt,
    fs::{DirBuilder, File, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

/// The maximum number of symbolic links in one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// The role of a path, which decides the rules for its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A directory above the node's directory.
    Above,
    /// A symbolic link on the path to the node's directory.
    Link,
    /// The node's directory, or one inside it.
    Directory,
    /// A file of the node.
    File,
}

/// The kind of a file, as far as the checks distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Regular,
    Link,
    Other(&'static str),
}

/// The facts about a path that the checks use.
#[derive(Clone, Copy, Debug)]
struct Facts {
    kind: Kind,
    uid: u32,
    mode: u32,
}

impl Facts {
    fn of(meta: &Metadata) -> Self {
        let kind = match meta.file_type() {
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_file() => Kind::Regular,
            kind if kind.is_symlink() => Kind::Link,
            kind if kind.is_fifo() => Kind::Other("a pipe"),
            kind if kind.is_socket() => Kind::Other("a socket"),
            _ => Kind::Other("a device"),
        };
        Self { kind, uid: meta.uid(), mode: meta.mode() & 0o7777 }
    }
}

/// The reason why a path is not safe to use, with the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessError(String);

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AccessError {}

impl From<AccessError> for io::Error {
    fn from(fault: AccessError) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, fault)
    }
}

/// Checks that `path`, which has the role `part`, is safe to use for the effective user `me`.
fn check(path: &Path, part: Part, Facts { kind, uid, mode }: Facts, me: u32) -> Result<(), AccessError> {
    let at = shell_word(path);
    let fault = |text: String| Err(AccessError(format!("{at} {text}")));
    let is_trusted = uid == me || (uid == 0 && matches!(part, Part::Above | Part::Link));
    match (part, kind) {
        (Part::Above | Part::Directory, Kind::Directory)
        | (Part::File, Kind::Regular)
        | (Part::Link, Kind::Link) => {}
        (_, Kind::Link) => return fault(format!("is a symbolic link; remove it: `rm {at}`")),
        (Part::File, Kind::Directory) => {
            return fault("is a directory, not a regular file; move it away".into());
        }
        (Part::File, Kind::Other(kind)) => {
            return fault(format!("is {kind}, not a regular file; remove it: `rm {at}`"));
        }
        _ => return fault("is not a directory; move it away, or name another directory for the node".into()),
    }
    if !is_trusted {
        let who = format!("belongs to user {uid}, and this process runs as user {me}");
        return match part {
            Part::Above => fault(format!(
                "{who}: its owner could put another directory in the node's place; put the node below \
                 directories of root or of user {me}"
            )),
            Part::Link => fault(format!(
                "{who}: its owner could turn this symbolic link elsewhere; name the directory to which it leads, \
                 or remove it"
            )),
            Part::Directory => fault(format!(
                "{who}; run as user {uid}, or, if no program of user {uid} uses it, `chown -R {me} {at}`"
            )),
            Part::File => {
                fault(format!("{who}; run `chown {me} {at}` if you trust its content, else remove it"))
            }
        };
    }
    match part {
        Part::Above if mode & 0o022 != 0 && mode & 0o1000 == 0 => fault(format!(
            "is writable by other users (mode {mode:04o}), who could put another directory in the node's place; run \
             `chmod go-w {at}`, or put the node elsewhere"
        )),
        Part::Directory if mode & 0o077 != 0 => fault(format!(
            "is open to other users (mode {mode:04o}), who could read the node's files or hold its lock; stop the \
             programs that use it, then run `chmod -R go= {at}`"
        )),
        Part::File if mode & 0o077 != 0 => {
            fault(format!("is open to other users (mode {mode:04o}); run `chmod go= {at}`"))
        }
        _ => Ok(()),
    }
}

/// Quotes `path` for a shell, without characters that could control a terminal.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", crate::plain::plain(&text, 4_096).replace('\'', "'\\''"))
}

/// Creates `dir` if it does not exist, and checks it and every directory above it. `dir` is absolute and
/// contains no links. `given` is the path that the user named, which may contain symbolic links.
pub(super) fn secure_root(given: &Path, dir: &Path) -> io::Result<()> {
    let me = effective_user();
    for path in [given, dir] {
        let mut trail = trail(path)?;
        trail.retain(|at| at != dir);
        for at in trail {
            let facts = Facts::of(&at.symlink_metadata()?);
            let part = if facts.kind == Kind::Link { Part::Link } else { Part::Above };
            check(&at, part, facts, me)?;
        }
    }
    let mut missing: Vec<&Path> = dir.ancestors().take_while(|at| !at.exists()).collect();
    while let Some(at) = missing.pop() {
        make_dir(at)?;
    }
    check(dir, Part::Directory, Facts::of(&dir.symlink_metadata()?), me)?;
    Ok(())
}

/// Creates `dir`, closed to other users whatever the umask. A directory that exists is left as it is.
fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The umask may have removed a permission that the owner needs, and the parent may have passed on its
        // set-group-id bit. So the mode is set again.
        created => created.and_then(|()| std::fs::set_permissions(dir, Permissions::from_mode(0o700))),
    }
}

/// Syncs the names in `dir`, and those of the directories above it up to the file system's root. The first session
/// of a node may have created them.
pub(super) fn sync_names(dir: &Path) -> io::Result<()> {
    let device = |dir: &Path| dir.symlink_metadata().map(|meta| meta.dev()).ok();
    let here = device(dir);
    for at in dir.ancestors().take_while(|at| device(at) == here) {
        match File::open(at).and_then(|open| open.sync_all()) {
            // A directory that this user must not read cannot be synced. No session has created a name in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && at != dir => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Checks that `path` is a regular file that no other user can access. Does not open it.
pub(super) fn check_file(path: &Path) -> io::Result<Metadata> {
    let meta = path.symlink_metadata()?;
    check(path, Part::File, Facts::of(&meta), effective_user())?;
    Ok(meta)
}

fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns `/`, and every directory and symbolic link that the kernel passes when it resolves `path`. The list
/// ends before the first part that does not exist.
fn trail(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut todo: VecDeque<PathBuf> = steps(path);
    let (mut at, mut seen, mut links) = (PathBuf::from("/"), vec![PathBuf::from("/")], 0);
    while let Some(step) = todo.pop_front() {
        if step == Path::new("/") {
            at = step;
            continue;
        }
        if step == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let meta = match next.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        };
        seen.push(next.clone());
        if !meta.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        for step in steps(&next.read_link()?).into_iter().rev() {
            todo.push_front(step);
        }
    }
    Ok(seen)
}

fn steps(path: &Path) -> VecDeque<PathBuf> {
    path.components()
        .filter(|step| *step != Component::CurDir)
        .map(|step| PathBuf::from(step.as_os_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 1000;

    #[test]
    fn each_part_of_a_path_is_checked_by_kind_owner_and_mode() {
        use Kind::{Directory, Link, Other, Regular};
        let fine = "";
        let table = [
            (Part::Above, Directory, 0, 0o755, fine),
            (Part::Above, Directory, ME, 0o700, fine),
            (Part::Above, Directory, 0, 0o1777, fine),
            (Part::Above, Directory, ME, 0o1777, fine),
            (Part::Above, Directory, 0, 0o777, "chmod go-w /a"),
            (Part::Above, Directory, ME, 0o775, "chmod go-w /a"),
            (Part::Above, Directory, 7, 0o755, "belongs to user 7"),
            (Part::Above, Directory, 7, 0o1777, "belongs to user 7"),
            (Part::Above, Regular, ME, 0o600, "is not a directory"),
            (Part::Link, Link, 0, 0o777, fine),
            (Part::Link, Link, ME, 0o777, fine),
            (Part::Link, Link, 7, 0o777, "belongs to user 7"),
            (Part::Directory, Directory, ME, 0o700, fine),
            (Part::Directory, Directory, ME, 0o2700, fine),
            (Part::Directory, Directory, ME, 0o710, "chmod -R go= /a"),
            (Part::Directory, Directory, ME, 0o755, "chmod -R go= /a"),
            (Part::Directory, Directory, ME, 0o1777, "chmod -R go= /a"),
            (Part::Directory, Directory, 0, 0o700, "chown -R 1000 /a"),
            (Part::Directory, Link, ME, 0o777, "symbolic link"),
            (Part::File, Regular, ME, 0o600, fine),
            (Part::File, Regular, ME, 0o400, fine),
            (Part::File, Regular, ME, 0o644, "chmod go= /a"),
            (Part::File, Regular, 0, 0o600, "chown 1000 /a"),
            (Part::File, Link, ME, 0o777, "symbolic link"),
            (Part::File, Other("a pipe"), ME, 0o600, "a pipe, not a regular file"),
            (Part::File, Directory, ME, 0o700, "a directory, not a regular file"),
        ];
        for (part, kind, uid, mode, text) in table {
            let message = check(Path::new("/a"), part, Facts { kind, uid, mode }, ME);
            let message = message.err().map_or(String::new(), |fault| fault.to_string());
            assert_eq!(message.is_empty(), text.is_empty(), "{part:?} {kind:?} {uid} {mode:o}: {message}");
            assert!(message.contains(text), "{part:?} {kind:?} {uid} {mode:o}: {message}");
        }
    }

    #[test]
    fn a_quoted_path_is_safe_in_a_shell() {
        assert_eq!(shell_word(Path::new("/var/lib/quorate-1/a")), "/var/lib/quorate-1/a");
        assert_eq!(shell_word(Path::new("/a b/$(x)'\u{1b}")), "'/a b/$(x)'\\'' '");
    }
}

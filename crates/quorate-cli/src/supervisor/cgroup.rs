//! A separate cgroup for the command. It is possible if the user may manage this process's cgroup. With a
//! separate cgroup, `cgroup.kill` can also end processes of the command that changed their user.
//!
//! Only an unprivileged supervisor process creates such a cgroup. It needs a cgroup of version 2 that belongs
//! to its user, and a kernel with `cgroup.kill` (Linux 5.14). Root can signal every process without a cgroup,
//! and the service manager manages root's cgroups. The new cgroup is always directly below this process's own
//! cgroup, which is never killed.

use rustix::process::{Pid, geteuid};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The cgroup of one command.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// The supervisor's own cgroup.
    own: PathBuf,
    dir: PathBuf,
}

impl Cgroup {
    /// Creates the cgroup and moves this process into it, so that the command starts in it. Returns `None` if
    /// the user has no right to create a cgroup.
    pub(super) fn enter() -> Option<Self> {
        if geteuid().is_root() {
            return None;
        }
        let own = own()?;
        if fs::metadata(&own).ok()?.uid() != geteuid().as_raw() {
            return None;
        }
        let dir = dir_of(&own, rustix::process::getpid());
        fs::create_dir(&dir).ok()?;
        if !dir.join("cgroup.kill").exists() || fs::write(dir.join("cgroup.procs"), "0").is_err() {
            let _ = fs::remove_dir(&dir);
            return None;
        }
        Some(Self { own, dir })
    }

    /// Moves this process back to its own cgroup. Returns `None` if that fails. Then this process is still in
    /// the command's cgroup, which must not be killed.
    pub(super) fn leave(self) -> Option<Self> {
        fs::write(self.own.join("cgroup.procs"), "0").ok()?;
        (own()? == self.own).then_some(self)
    }

    /// Kills every process in the cgroup, of any user.
    pub(super) fn kill(&self) {
        kill(&self.dir);
    }

    /// Removes the cgroup. Processes that still run in it are first moved to the supervisor process's cgroup,
    /// as far as that is permitted.
    pub(super) fn remove(&self) {
        for pid in fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.own.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Kills the processes in the cgroup that `supervisor` has created for its command. `supervisor` is a child of
/// this process.
pub(super) fn kill_command_of(supervisor: Pid) {
    if let Some(own) = own() {
        kill(&dir_of(&own, supervisor));
    }
}

/// Removes the cgroup that `supervisor` has created for its command, if the cgroup is empty. `supervisor` has
/// ended.
pub(super) fn remove_command_of(supervisor: Pid) {
    if let Some(own) = own() {
        let _ = fs::remove_dir(dir_of(&own, supervisor));
    }
}

fn dir_of(own: &Path, supervisor: Pid) -> PathBuf {
    own.join(format!("quorate-{}", supervisor.as_raw_pid()))
}

/// Kills the processes of a cgroup, unless this process is itself in this cgroup or in one below it.
fn kill(dir: &Path) {
    if own().is_some_and(|own| !own.starts_with(dir)) {
        // The file is opened without creating it. If it does not exist, the cgroup is gone, and there is
        // nothing to kill.
        let file = fs::File::options().write(true).open(dir.join("cgroup.kill"));
        let _ = file.and_then(|mut file| io::Write::write_all(&mut file, b"1"));
    }
}

/// Returns the directory of this process's cgroup of version 2.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&groups, &mounts)
}

/// Finds the directory from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn locate(groups: &str, mounts: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // The format of a line: `id parent device root mount-point options … - type source options`
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let (root, point) = (head.next()?, head.next()?);
        let below = Path::new(path).strip_prefix(root).ok()?;
        tail.starts_with("cgroup2 ").then(|| Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_at_its_mount_point() {
        let mounts = "24 1 0:22 / /proc rw - proc proc rw\n41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let found = locate("1:cpu:/x\n0::/user.slice/a\n", mounts);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/user.slice/a")));
        let inside = "41 31 0:38 /pod/x /sys/fs/cgroup rw shared:9 - cgroup2 cgroup rw\n";
        assert_eq!(locate("0::/pod/x/y\n", inside), Some(PathBuf::from("/sys/fs/cgroup/y")));
        assert_eq!(locate("0::/elsewhere\n", inside), None);
        assert_eq!(locate("1:cpu:/x\n", mounts), None, "version 1 only");
    }
}

//! Recognises file systems that several machines can mount at the same time.
//!
//! Two machines have two boot clocks, and their locks may not work between them. A node on such a file system
//! could grant one lease twice. The kernel's magic number identifies most of these file systems. Some numbers
//! are ambiguous (`sshfs` and local disks can both use FUSE) or not in the table. Then the name in
//! `/proc/self/mountinfo` decides. A file system below another one (overlayfs, ecryptfs) is not recognised.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems are not asked"))]

use std::{io, path::Path};

/// The magic number of FUSE, and of virtiofs, which is based on FUSE.
const FUSE: u64 = 0x6573_5546;

/// The magic numbers of file systems that several machines can mount at the same time.
const SHARED: [(u64, &str); 24] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x564C, "NCP"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "CephFS"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2003_0528, "OrangeFS"),
    (0xAAD7_AAEA, "PanFS"),
    (0xBEEF_DEAD, "StorNext"),
    (0x0131_11A8, "Ibrix"),
    (0x6163_6673, "ACFS"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
    (0x7C7C_6673, "prl_fs"),
    (FUSE, "FUSE"),
];

/// The names, as in `/proc/self/mountinfo`, of file systems that several machines can mount at the same time.
const SHARED_NAMES: [&str; 31] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ncpfs",
    "9p",
    "drvfs",
    "virtiofs",
    "ceph",
    "afs",
    "coda",
    "gfs",
    "gfs2",
    "ocfs2",
    "lustre",
    "gpfs",
    "mmfs",
    "beegfs",
    "fhgfs",
    "orangefs",
    "pvfs2",
    "panfs",
    "cvfs",
    "acfs",
    "dvs",
    "wekafs",
    "glusterfs",
    "vboxsf",
    "vmhgfs",
    "prl_fs",
];

/// The FUSE file systems that store their files on this machine. Any other FUSE file system may use a network.
const LOCAL_FUSE: [&str; 2] = ["fuseblk", "fuse.fuse-overlayfs"];

/// Returns the name of the file system with this magic number, if several machines can mount it at the same
/// time. `name` is its name in `/proc/self/mountinfo`, if that could be read.
fn shared(magic: u64, name: Option<&str>) -> Option<String> {
    let listed = SHARED.iter().find(|(of, _)| *of == magic).map(|(_, name)| *name);
    match (listed, name) {
        (Some(_), Some(name)) if magic == FUSE && LOCAL_FUSE.contains(&name) => None,
        (Some("FUSE"), Some(name)) => Some(name.to_owned()),
        (Some(listed), _) => Some(listed.to_owned()),
        (None, Some(name)) => {
            let is_shared = SHARED_NAMES.contains(&name) || name.starts_with("fuse.");
            (is_shared && !LOCAL_FUSE.contains(&name)).then(|| name.to_owned())
        }
        (None, None) => None,
    }
}

/// Returns the name of the file system of the mount `id` from the text of `/proc/self/mountinfo`.
fn name_of(mountinfo: &str, id: u64) -> Option<&str> {
    let id = id.to_string();
    let line = mountinfo.lines().find(|line| line.split(' ').next() == Some(&id))?;
    line.split_once(" - ")?.1.split(' ').next()
}

/// Returns the mount id of an open file from the text of its `/proc/self/fdinfo`.
fn mount_of(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Returns the name of the file system of `dir` if other machines can mount it too.
#[cfg(target_os = "linux")]
pub(super) fn shared_below(dir: &Path) -> io::Result<Option<String>> {
    use std::os::fd::AsRawFd;
    let open = std::fs::File::open(dir)?;
    let magic = rustix::fs::fstatfs(&open)?.f_type as u64 & 0xFFFF_FFFF;
    // In a sandbox without /proc, the name is not known, and only the magic number decides.
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mount = mount_of(&read(&format!("/proc/self/fdinfo/{}", open.as_raw_fd())));
    let mountinfo = read("/proc/self/mountinfo");
    Ok(shared(magic, mount.and_then(|id| name_of(&mountinfo, id))))
}

/// Returns `None`, because file systems are checked on Linux only.
#[cfg(not(target_os = "linux"))]
pub(super) fn shared_below(_dir: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_file_systems_are_recognised_by_number_or_by_name() {
        let table = [
            // Local file systems: ext4, xfs, btrfs, tmpfs, zfs, f2fs, overlay.
            (0xEF53, Some("ext4"), None),
            (0x5846_5342, Some("xfs"), None),
            (0x9123_683E, Some("btrfs"), None),
            (0x0102_1994, Some("tmpfs"), None),
            (0x2FC1_2FC1, Some("zfs"), None),
            (0xF2F5_2010, None, None),
            (0x794C_7630, Some("overlay"), None),
            (0x6969, Some("nfs4"), Some("NFS")),
            (0x6969, None, Some("NFS")),
            (0x517B, None, Some("SMB")),
            (0xFF53_4D42, Some("cifs"), Some("CIFS")),
            (0xFE53_4D42, Some("smb3"), Some("SMB2")),
            (0x0102_1997, Some("9p"), Some("9p")),
            (0x00C3_6400, Some("ceph"), Some("CephFS")),
            (0x5346_414F, None, Some("AFS")),
            (0x6B41_4653, None, Some("AFS")),
            (0x0116_1970, None, Some("GFS2")),
            (0x7461_636F, None, Some("OCFS2")),
            (0x0BD0_0BD0, None, Some("Lustre")),
            (0x4750_4653, None, Some("GPFS")),
            (0x1983_0326, None, Some("BeeGFS")),
            (FUSE, Some("fuse.sshfs"), Some("fuse.sshfs")),
            (FUSE, Some("fuse.glusterfs"), Some("fuse.glusterfs")),
            (FUSE, Some("virtiofs"), Some("virtiofs")),
            (FUSE, Some("fuse"), Some("fuse")),
            (FUSE, None, Some("FUSE")),
            (FUSE, Some("fuseblk"), None),
            (FUSE, Some("fuse.fuse-overlayfs"), None),
            // File systems whose magic numbers are not in the table.
            (0x1234_5678, Some("wekafs"), Some("wekafs")),
            (0x1234_5678, Some("gpfs"), Some("gpfs")),
            (0x1234_5678, Some("fuse.new"), Some("fuse.new")),
            (0x1234_5678, Some("newfs"), None),
            (0x1234_5678, None, None),
        ];
        for (magic, name, expected) in table {
            assert_eq!(shared(magic, name).as_deref(), expected, "{magic:#x} {name:?}");
        }
    }

    #[test]
    fn the_mount_of_a_directory_is_found_by_its_number() {
        let mountinfo = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                         27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n\
                         271 27 0:50 / /mnt/a\\040b rw - fuse.sshfs me@host:/ rw,user_id=0\n";
        assert_eq!(name_of(mountinfo, 27), Some("ext4"));
        assert_eq!(name_of(mountinfo, 271), Some("fuse.sshfs"));
        assert_eq!(name_of(mountinfo, 2), None);
        assert_eq!(mount_of("pos:\t0\nflags:\t0100000\nmnt_id:\t271\nino:\t5\n"), Some(271));
        assert_eq!(mount_of(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machines_own_file_systems_pass() {
        assert_eq!(shared_below(Path::new("/")).unwrap(), None);
        assert_eq!(shared_below(Path::new("/dev/shm")).unwrap(), None);
    }
}

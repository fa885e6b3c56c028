use std::{io, sync::Arc};

/// Returns the id of this boot of the host. A lease is valid only in the boot in which it was acquired.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn id() -> io::Result<Arc<str>> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    clean(&id).ok_or_else(|| io::Error::other("/proc/sys/kernel/random/boot_id holds no id"))
}

/// Returns the id of this boot of the host. The boot *time* is unsuitable, because it changes when the clock
/// is set. A lease of this boot would then look like a lease of another boot.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn id() -> io::Result<Arc<str>> {
    sysctl(&["kern.bootsessionuuid", "kern.boot_id"])?.ok_or_else(|| {
        io::Error::new(io::ErrorKind::Unsupported, "this system does not tell one boot from another")
    })
}

/// Returns `None`, because on these systems the machine id is in a file, which [`super::machine`] reads.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn machine_id() -> Option<Arc<str>> {
    None
}

/// Returns a digest of the host's id, if the system reports one. These systems have no file with the machine
/// id.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn machine_id() -> Option<Arc<str>> {
    super::machine::digest(&sysctl(&["kern.uuid", "kern.hostuuid"]).ok()??)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn sysctl(names: &[&str]) -> io::Result<Option<Arc<str>>> {
    for name in names {
        let said = std::process::Command::new("sysctl").args(["-n", name]).output()?;
        if let Some(id) = clean(&String::from_utf8_lossy(&said.stdout)).filter(|_| said.status.success()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Returns the id with only the characters that ids have.
fn clean(id: &str) -> Option<Arc<str>> {
    let id: String = id.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    (!id.is_empty()).then(|| id.into())
}

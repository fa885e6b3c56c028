use std::{io, sync::Arc};

/// What changes with each boot of the host: a lease counts only under the boot that it was taken in.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn id() -> io::Result<Arc<str>> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    clean(&id).ok_or_else(|| io::Error::other("/proc/sys/kernel/random/boot_id holds no id"))
}

/// What changes with each boot of the host. The boot *time* would not do: it moves when the clock is set, and
/// a lease would look like another boot's.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn id() -> io::Result<Arc<str>> {
    for name in ["kern.bootsessionuuid", "kern.boot_id"] {
        let said = std::process::Command::new("sysctl").args(["-n", name]).output()?;
        if let Some(id) = clean(&String::from_utf8_lossy(&said.stdout)).filter(|_| said.status.success()) {
            return Ok(id);
        }
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not tell one boot from another"))
}

/// The id as the name of a directory.
fn clean(id: &str) -> Option<Arc<str>> {
    let id: String = id.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    (!id.is_empty()).then(|| id.into())
}

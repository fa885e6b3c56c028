use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder in which Debian installs PostgreSQL. Each version has a folder of its own in this folder, which
/// is not on the `PATH`.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Returns the folder with `initdb` and `postgres`: the first such folder on the `PATH`, or that of the
/// newest version that a package has installed.
pub(super) fn folder() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_both = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    std::env::split_paths(&path).find(has_both).or_else(|| {
        let versions = versions_in(Path::new(VERSIONS)).into_iter();
        versions.filter(|(_, folder)| has_both(folder)).max_by_key(|(version, _)| *version).map(|(_, f)| f)
    })
}

fn versions_in(root: &Path) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let version = |name: &str| name.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
    entries
        .filter_map(Result::ok)
        .map(|entry| (version(&entry.file_name().to_string_lossy()), entry.path().join("bin")))
        .collect()
}

/// Returns an unprivileged user for the server, if this process runs as root. PostgreSQL refuses to run as root.
pub(super) fn unprivileged_user() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |wanted: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

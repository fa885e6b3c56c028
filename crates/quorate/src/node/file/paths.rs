use std::path::{Path, PathBuf};

/// Returns `dir` as an absolute path. Symbolic links in the part that exists are resolved. So two workers
/// that use the same directory get the same name for it, whether or not it exists yet.
pub(super) fn canonical(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    for there in dir.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), dir.strip_prefix(there)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    dir
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_the_same_name_before_and_after_its_creation() {
        let home = super::super::tests::Scratch::new();
        let link = home.path().join("link");
        std::fs::create_dir(home.path().join("real")).unwrap();
        std::os::unix::fs::symlink(home.path().join("real"), &link).unwrap();
        let before = canonical(&link.join("a/./b/"));
        std::fs::create_dir_all(link.join("a/b")).unwrap();
        assert_eq!(before, canonical(&link.join("a/b")));
        assert_eq!(before, home.path().canonicalize().unwrap().join("real/a/b"));
    }
}

//! The files of the book, and the test that mdBook builds it.

use super::page::Page;
use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// Returns the pages of the folder and of the folders in it, without those behind links to folders.
pub(crate) fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        if entry.file_type().expect("a type").is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.insert(path);
        }
    }
    pages
}

#[test]
fn the_summary_lists_each_page_once() {
    let source = root().join("docs/guide/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("the summary");
    let listed: Vec<PathBuf> =
        Page::read(&summary).links.into_iter().map(|(_, link)| source.join(link)).collect();
    let unique: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let mut present = pages(&source);
    present.remove(&source.join("SUMMARY.md"));
    // A forge shows only the path of a symlink.
    let links: Vec<_> = present.iter().filter(|page| page.is_symlink()).collect();
    assert!(links.is_empty(), "these pages are symlinks: {links:?}");
    assert!(present.len() > 20, "{present:?}");
    let missing: Vec<_> = present.difference(&unique).collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:?}");
    let unknown: Vec<_> = unique.difference(&present).collect();
    assert!(unknown.is_empty(), "in SUMMARY.md only: {unknown:?}");
}

/// Builds the book where mdBook is installed. The other tests of this target check what a build would check,
/// and more, so a machine without mdBook is no failure.
#[test]
fn the_book_builds() {
    let program = env::var_os("MDBOOK").unwrap_or_else(|| "mdbook".into());
    let out = tempfile::tempdir().expect("a directory");
    let mut build = Command::new(program);
    build.arg("build").arg("--dest-dir").arg(out.path()).arg(root().join("docs/guide"));
    let Ok(output) = build.output() else {
        let line = "guide::the_book_builds: the book was not built: mdbook is missing (cargo install mdbook)";
        // The harness hides the output of a test that passes, so this goes to standard error directly.
        drop(writeln!(std::io::stderr(), "{line}"));
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let first = fs::read_to_string(out.path().join("ten-minutes.html")).expect("a page");
    assert!(first.contains("quorate run"), "{first}");
}

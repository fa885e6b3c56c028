//! Every link of the documentation leads to a file and, if it names one, to a section.

use super::{
    book::{pages, root},
    page::Page,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

/// The address of the repository's files. The guide uses it for files that are not part of the book.
const REPOSITORY: &str = "https://github.com/quorate/quorate/blob/main/";

#[test]
fn every_link_leads_to_a_page_or_a_section() {
    let root = root();
    let mut all = pages(&root.join("docs"));
    for entry in fs::read_dir(&root).expect("the repository") {
        let path = entry.expect("an entry").path();
        all.extend((path.extension().is_some_and(|extension| extension == "md")).then_some(path));
    }
    let read: BTreeMap<PathBuf, Page> = all
        .iter()
        .map(|path| (path.clone(), Page::read(&fs::read_to_string(path).expect("UTF-8"))))
        .collect();
    let mut links = 0;
    let mut broken = Vec::new();
    for (path, page) in &read {
        for (line, link) in &page.links {
            links += 1;
            if let Err(why) = check(&root, &read, path, link) {
                let path = path.strip_prefix(&root).expect("below it").display();
                broken.push(format!("{path}:{line}: {link}: {why}"));
            }
        }
    }
    assert!(links > 100, "the links were found: {links}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Checks one link of the page `from`.
fn check(root: &Path, read: &BTreeMap<PathBuf, Page>, from: &Path, link: &str) -> Result<(), String> {
    let (link, folder) = match link.strip_prefix(REPOSITORY) {
        Some(link) => (link, root),
        None if link.contains("://") || link.starts_with("mailto:") => return Ok(()),
        None => (link, from.parent().unwrap_or(root)),
    };
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { from.to_owned() } else { normal(&folder.join(file)) };
    if !file.is_empty() && !target.exists() {
        return Err("there is no such file".to_owned());
    }
    let book = root.join("docs/guide/src");
    // A page of the book is also read on GitHub, but the book itself has only its own files.
    if from.starts_with(&book) && !target.starts_with(&book) && folder != root {
        return Err(format!("the file is not part of the book; use {REPOSITORY}"));
    }
    let Some(anchor) = anchor else { return Ok(()) };
    let other;
    let page = match read.get(&target) {
        Some(page) => page,
        None if target.extension().is_some_and(|extension| extension == "md") => {
            other = Page::read(&fs::read_to_string(&target).map_err(|error| error.to_string())?);
            &other
        }
        None => return Err("only pages have sections".to_owned()),
    };
    if page.anchors.iter().any(|known| known == anchor) {
        return Ok(());
    }
    Err(format!("the page has no such section; it has {}", page.anchors.join(", ")))
}

/// Removes `..` from a path by its text, as a browser does, so that links to files are not followed.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn a_broken_link_is_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let from = root.join("guide/a.md");
    let pages = BTreeMap::from([(from.clone(), Page::read("# One\n"))]);
    let check = |link: &str| check(root, &pages, &from, link);
    assert_eq!(check("#one"), Ok(()));
    assert_eq!(check("../run.sh"), Ok(()));
    assert_eq!(check("https://example.com/x#y"), Ok(()));
    assert!(check("#two").is_err_and(|why| why.contains("it has one")));
    assert!(check("b.md").is_err());
    assert!(check(&format!("{REPOSITORY}guide/none.md")).is_err());
}

//! Lists the names in a directory.

use super::{
    super::{NamesQuery, StoredNames},
    store::{RowFile, is_temporary, read_row_file},
};
use serde::de::IgnoredAny;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Returns the names that `query` lists: the names of leases of any boot, and of claims. Leaves out a file
/// that is removed meanwhile or cannot be read. A request that needs an unreadable file reports the error.
pub(super) fn stored_names(root: &Path, query: &NamesQuery) -> io::Result<StoredNames> {
    let mut names = StoredNames::default();
    let boots = entries(&root.join("leases"))?;
    for directory in boots.into_iter().chain([root.join("claims")]) {
        for file in entries(&directory)? {
            let name = file.file_name().filter(|name| !is_temporary(name));
            let content = name.and_then(|_| read_row_file(&file).ok());
            let row =
                content.and_then(|bytes| serde_json::from_slice::<RowFile<String, IgnoredAny>>(&bytes).ok());
            if row.is_some_and(|row| !query.add(&mut names, &row.name)) {
                return Ok(names);
            }
        }
    }
    Ok(names)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
        Ok(found) => found.map(|entry| Ok(entry?.path())).collect(),
    }
}

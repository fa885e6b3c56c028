//! Lists the names in a directory.

use super::store::{RowFile, is_temporary, read_row_file};
use crate::admin::{NamesQuery, StoredNames};
use serde::de::IgnoredAny;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Returns the names that `query` lists, of leases of any boot and of claims. A file that is removed meanwhile,
/// or cannot be read, is left out: a request that needs it reports the error.
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

#[cfg(all(test, feature = "claims"))]
mod tests {
    use super::*;
    use crate::{claim::Claims, node::FileNode, quorum::Quorum};

    #[tokio::test]
    async fn leases_and_claims_are_listed() {
        let home = super::super::tests::Scratch::new();
        let node = FileNode::new(home.path().join("node"));
        let names =
            |query: &NamesQuery| node.stored_names(query).unwrap().keys.into_iter().collect::<Vec<_>>();
        assert!(names(&NamesQuery::locks(9)).is_empty(), "the directory does not exist");
        let quorum = Quorum::builder().node(node.clone()).trust_new_nodes(true).build().unwrap();
        let lease = quorum.lock("Backup/1").acquire().await.unwrap();
        let claims = Claims::new(&quorum, "orders");
        let done = claims.process("o-1", |_| async { Ok::<_, String>("shipped") }).await;
        assert!(done.unwrap().may_ack());
        let claim = claims.claim("o-2").await.unwrap();
        fs::write(home.path().join("node/claims/garbage.json"), "?").unwrap();
        assert_eq!(names(&NamesQuery::locks(9)), ["Backup/1".into()]);
        assert_eq!(
            names(&NamesQuery::claims("orders", 9).unwrap()),
            ["claim/orders/o-1".into(), "claim/orders/o-2".into()]
        );
        assert!(names(&NamesQuery::claims("others", 9).unwrap()).is_empty());
        drop((lease, claim));
        quorum.close().await;
    }
}

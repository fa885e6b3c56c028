use super::NamesQuery;
use crate::{
    claim::Claims,
    env::{SystemWorld, World},
    node::FileNode,
    quorum::Quorum,
};
use std::{fs, sync::Arc};

#[tokio::test]
async fn a_directory_lists_its_leases_and_claims() {
    let home = std::env::temp_dir().join(format!("quorate-names-{:016x}", SystemWorld.random()));
    let node = FileNode::new(home.join("node"));
    let names = |query: &NamesQuery| node.stored_names(query).unwrap().keys.into_iter().collect::<Vec<_>>();
    assert!(names(&NamesQuery::locks(9)).is_empty(), "the directory does not exist");
    fs::create_dir(&home).unwrap();
    let quorum = Quorum::builder().node(node.clone()).trust_new_nodes(true).build().unwrap();
    let lease = quorum.lock("Backup/1").acquire().await.unwrap();
    let claims = Claims::new(&quorum, "orders");
    let done = claims.process("o-1", |_| async { Ok::<_, String>("shipped") }).await;
    assert!(done.unwrap().may_ack());
    let claim = claims.claim("o-2").await.unwrap();
    assert_eq!(names(&NamesQuery::locks(9)), [Arc::<str>::from("Backup/1")]);
    assert_eq!(
        names(&NamesQuery::claims("orders", 9).unwrap()),
        ["claim/orders/o-1", "claim/orders/o-2"].map(Arc::<str>::from)
    );
    assert!(names(&NamesQuery::claims("others", 9).unwrap()).is_empty());
    assert_eq!(names(&NamesQuery::one_lock("Backup", 9)), [Arc::<str>::from("Backup/1")]);
    assert!(names(&NamesQuery::one_lock("Back", 9)).is_empty());
    drop((lease, claim));
    quorum.close().await;
    fs::remove_dir_all(home).unwrap();
}

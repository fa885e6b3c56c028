//! Asks each node for the names that it stores.

use crate::{
    config::{Config, NodeSpec},
    connect,
    exit::{FAILURE, Failure, NO_QUORUM},
};
use futures_util::future::join_all;
use quorate::{
    admin::{NamesQuery, StoredNames},
    env::Env,
    internals::majority,
    node::{FileNode, Resource},
};
use std::time::Duration;
use tokio::sync::oneshot;

/// The longest time for which a node is asked. A server with many keys needs some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The description of this work for [`Progress`](crate::progress::Progress).
pub(crate) const WORK: &str = "asking the nodes for the names that they store";

/// The resources that the nodes store.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) resources: Vec<Resource>,
    /// True if there are more than the query permits.
    pub(crate) is_cut: bool,
    /// The nodes that could not be asked, each with the reason.
    pub(crate) missing: Vec<String>,
}

/// Lists the resources that the nodes store. A majority of the nodes must answer. Any majority has at least
/// one node in common with the majority that stores a resource, so no such resource is missing.
pub(crate) async fn list(config: &Config, query: &NamesQuery) -> Result<Listing, Failure> {
    let env = Env::system();
    let answers = join_all(config.nodes.iter().map(|node| ask(config, node, query, &env))).await;
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (node, answer) in config.nodes.iter().zip(answers) {
        match answer? {
            Ok(names) => found.push(names),
            Err(why) => {
                missing.push(format!("{}: {}", node.name(), connect::without_name(&node.name(), &why)));
            }
        }
    }
    let needed = majority(config.nodes.len());
    if found.len() < needed {
        let text = format!(
            "cannot list what the nodes store: {} of {} nodes answered, {needed} required\n  {}",
            found.len(),
            config.nodes.len(),
            missing.join("\n  ")
        );
        return Err(Failure::new(NO_QUORUM, text));
    }
    let (resources, is_cut) = query.merge(&found);
    Ok(Listing { resources, is_cut, missing })
}

/// Asks one node for the names that it stores. Returns the reason if it cannot be asked.
pub(crate) async fn ask(
    config: &Config,
    node: &NodeSpec,
    query: &NamesQuery,
    env: &Env,
) -> Result<Result<StoredNames, String>, Failure> {
    match node {
        NodeSpec::Redis { url, password_file, tls } => {
            let node = connect::redis(config, url, password_file.as_deref(), tls)?;
            let answer = env.before(env.now() + PATIENCE, node.stored_names(query)).await;
            Ok(answer.map_or_else(
                || Err(format!("no answer in {PATIENCE:?}")),
                |answer| answer.map_err(|cause| cause.to_string()),
            ))
        }
        NodeSpec::File { dir } => {
            let (node, query) = (FileNode::new(dir.clone()), query.clone());
            let (sender, answer) = oneshot::channel();
            // The thread ends when it has read the directory. If the file system hangs, it ends with the process.
            let thread = std::thread::Builder::new().name("quorate-list".to_owned()).spawn(move || {
                // If the receiver has stopped waiting, it does not need the answer.
                let _ = sender.send(node.stored_names(&query));
            });
            thread.map_err(|error| Failure::new(FAILURE, error))?;
            let read = env.before(env.now() + PATIENCE, answer).await;
            Ok(match read {
                Some(Ok(read)) => read.map_err(|error| error.to_string()),
                Some(Err(_)) => Err("the directory could not be read".to_owned()),
                None => Err(format!("no answer in {PATIENCE:?}")),
            })
        }
    }
}

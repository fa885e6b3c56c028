//! Asks each node alone for what it remembers of earlier use, without the agreement of a majority.
//!
//! # What is not guaranteed
//!
//! A node that lost its data shows no earlier use. Held locks are not found if the node's user may not list the names.
//! A lock that has been released leaves only its fencing counter, which is read for the leadership of the group alone.

use crate::{
    config::{Config, NodeSpec},
    connect::{self, PATIENCE},
    exit::Failure,
    operate::observer,
    stored_names,
    time::rfc3339,
};
use futures_util::future::join_all;
use quorate::{
    admin::NamesQuery,
    election::PastTerm,
    env::Env,
    ledger::{Operation, OperationLog},
    node::{FencingToken, Resource},
    plain::plain,
    quorum::Quorum,
};
use std::time::Duration;

/// The name of the operation `quorate nodes trust` in the audit list.
pub(crate) const TRUST: &str = "nodes-trust";
/// The number of times that a node is asked, which may be late, and the pause between two of them.
const ATTEMPTS: u32 = 3;
const AGAIN: Duration = Duration::from_millis(100);
/// The longest name that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The number of the newest operations that are read.
const OPERATIONS: usize = 20;

/// The traces of earlier use that one node remembers.
#[derive(Debug, Default)]
pub(crate) struct NodeMemory {
    /// The newest term of the group.
    term: Option<PastTerm>,
    /// The fencing counter of the group's leadership.
    token: Option<FencingToken>,
    /// The name of a lock or leadership that is stored as held.
    held: Option<String>,
    /// The newest operation in the audit list that was carried out on a cluster in use.
    operation: Option<Operation>,
}

/// Asks every node of the configuration alone. A node that cannot be asked returns the reason.
pub(crate) async fn of_each(
    config: &Config,
    group: Option<&str>,
) -> Result<Vec<Result<NodeMemory, String>>, Failure> {
    join_all(config.nodes.iter().map(|node| ask(config, node, group))).await.into_iter().collect()
}

async fn ask(
    config: &Config,
    node: &NodeSpec,
    group: Option<&str>,
) -> Result<Result<NodeMemory, String>, Failure> {
    // A quorum of this node alone. The node's marker names the whole set, so the node grants it no vote, but it
    // answers reads.
    let alone = Config { nodes: vec![node.clone()], ..config.clone() };
    let quorum = connect::only_looking(&alone)?;
    quorum.met(PATIENCE).await;
    let mut found = read(&quorum, group).await;
    for _ in 1..ATTEMPTS {
        if !matches!(found, Ok(Err(_))) {
            break;
        }
        quorum.env().sleep(AGAIN).await;
        found = read(&quorum, group).await;
    }
    quorum.close().await;
    let mut memory = match found? {
        Ok(memory) => memory,
        Err(why) => return Ok(Err(why)),
    };
    // The smallest sufficient rule for a user does not permit SCAN. The other reads are enough evidence then.
    if let Ok(names) = stored_names::ask(config, node, &NamesQuery::locks(1), &Env::system()).await? {
        memory.held = names.keys.first().map(ToString::to_string);
    }
    Ok(Ok(memory))
}

async fn read(quorum: &Quorum, group: Option<&str>) -> Result<Result<NodeMemory, String>, Failure> {
    let why = |error: &dyn ToString| {
        quorum
            .nodes()
            .first()
            .and_then(|node| node.is_away().then(|| node.reason()))
            .flatten()
            .unwrap_or_else(|| error.to_string())
    };
    let mut memory = NodeMemory::default();
    match OperationLog::new(quorum).newest(OPERATIONS).await {
        // An attempt to trust the nodes that failed says nothing about earlier use.
        Ok(found) => memory.operation = found.into_iter().find(|op| op.action.as_ref() != TRUST || op.done),
        Err(error) => return Ok(Err(why(&error))),
    }
    let Some(group) = group else { return Ok(Ok(memory)) };
    match observer(quorum, group)?.history(1).await {
        Ok(terms) => memory.term = terms.into_iter().next(),
        Err(error) => return Ok(Err(why(&error))),
    }
    let Ok(leadership) = Resource::election(group) else { return Ok(Ok(memory)) };
    match quorum.inspect(&leadership).await {
        Ok(seen) => memory.token = seen.token,
        Err(error) => return Ok(Err(why(&error))),
    }
    Ok(Ok(memory))
}

impl NodeMemory {
    /// Describes the traces of earlier use, `None` if there are none.
    pub(crate) fn of_use(&self) -> Option<String> {
        let held = self.held.as_ref().map(|name| format!("it stores the lock {}", plain(name, NAME_MAX)));
        let operation = self.operation.as_ref().map(|operation| {
            let (action, at) = (plain(&operation.action, NAME_MAX), rfc3339(operation.at));
            format!("its audit list has the operation {action} of {at}")
        });
        let counter =
            self.token.map(|token| format!("it stores the fencing token {} of the group", token.get()));
        self.leadership().or(counter).or(held).or(operation)
    }

    /// Describes the last leader of the group that the node knows, and the time.
    pub(crate) fn leadership(&self) -> Option<String> {
        let term = self.term.as_ref()?;
        let (number, holder) = (term.term.get(), plain(&term.holder, NAME_MAX));
        let end = term.end.as_ref().map_or_else(
            || "with no recorded end".to_owned(),
            |end| format!("ended {} ({})", rfc3339(end.at), end.cause),
        );
        Some(format!("it stores term {number} of {holder}, begun {}, {end}", rfc3339(term.began)))
    }
}

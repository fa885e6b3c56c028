use crate::{
    config::{Config, NodeSpec, SecretUrl, TlsFiles},
    exit::{CONFIG, Failure, NO_QUORUM},
    log,
    progress::Progress,
};
use quorate::redis::RedisNode;
use quorate::{
    admin::NodeSet,
    election::{Election, Term},
    internals::majority,
    node::FileNode,
    plain::plain,
    quorum::{NoMajority, NodeOutcome, NodeState, NodeStatus, Quorum, QuorumConfig, QuorumStatus},
};
pub(crate) use quorate_operator::view::without_name;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// The longest wait for the handshakes. After it a command continues without the nodes that have not
/// answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The longest reason of one node in a line that has the reasons of all nodes, in bytes.
const REASON_MAX: usize = 500;

/// Waits until each node has answered the handshake, but at most [`PATIENCE`], and shows the progress. Returns the
/// states of the nodes.
pub(crate) async fn meet(quorum: &Quorum) -> QuorumStatus {
    Progress::new(quorum.env(), "connecting to the nodes", None).during(quorum.met(PATIENCE)).await
}

/// Returns the quorum that the configuration describes.
pub(crate) fn quorum(config: &Config, settings: QuorumConfig) -> Result<Quorum, Failure> {
    let read_only = settings.read_only;
    let mut builder = Quorum::builder().config(settings);
    for node in &config.nodes {
        builder = match node {
            NodeSpec::File { dir } => builder.node(file(dir.clone(), read_only)),
            NodeSpec::Redis { url, password_file, tls } => {
                builder.node(redis(config, url, password_file.as_deref(), tls)?)
            }
        };
    }
    builder.build().map_err(|error| Failure::new(CONFIG, format!("{}: {error}", config.nodes_from)))
}

/// Returns a quorum that writes nothing to the nodes, for commands that only read. The list of nodes may be
/// mistyped. Even then, such a command must not write markers to these nodes or create directories of file
/// nodes.
pub(crate) fn only_looking(config: &Config) -> Result<Quorum, Failure> {
    quorum(config, QuorumConfig { read_only: true, ..config.settings.clone() })
}

/// Returns such a quorum once its nodes have answered. If some did not, and the others suffice, says so on the standard
/// error: an answer of a majority is complete, but the next node that fails may end it.
pub(crate) async fn looking(config: &Config) -> Result<Quorum, Failure> {
    let quorum = only_looking(config)?;
    if let Some(text) = unanswered(&meet(&quorum).await) {
        log::say(&text);
    }
    Ok(quorum)
}

/// Describes in one line the nodes that do not answer, if the others are a majority.
fn unanswered(nodes: &[NodeStatus]) -> Option<String> {
    let is_away = |node: &NodeStatus| matches!(node.state, NodeState::Connecting | NodeState::Unreachable(_));
    let away: Vec<NodeStatus> = nodes.iter().filter(|node| is_away(node)).cloned().collect();
    let answered = nodes.len() - away.len();
    (!away.is_empty() && answered >= majority(nodes.len())).then(|| {
        let (total, why) = (nodes.len(), in_one_line(&away));
        format!("quorate: {answered} of {total} nodes answered; `quorate doctor` examines the others: {why}")
    })
}

/// Returns the nodes as a set for administration, in which each node is handled independently of the others. If
/// `read_only` is true, no directory of a file node is created.
pub(crate) fn node_set(config: &Config, nodes: &[NodeSpec], read_only: bool) -> Result<NodeSet, Failure> {
    nodes.iter().try_fold(NodeSet::default(), |set, node| {
        Ok(match node {
            NodeSpec::File { dir } => set.node(file(dir.clone(), read_only)),
            NodeSpec::Redis { url, password_file, tls } => {
                set.node(redis(config, url, password_file.as_deref(), tls)?)
            }
        })
    })
}

fn file(dir: PathBuf, read_only: bool) -> FileNode {
    let node = FileNode::new(dir);
    if read_only { node.must_exist() } else { node }
}

/// Returns one Redis server of the configuration.
pub(crate) fn redis(
    config: &Config,
    url: &SecretUrl,
    password_file: Option<&Path>,
    own: &TlsFiles,
) -> Result<RedisNode, Failure> {
    let node = RedisNode::parse(url.expose()).map_err(|error| Failure::new(CONFIG, error))?;
    let mut node = node.prefix(&config.prefix);
    let TlsFiles { ca_file, client } = own.or(&config.tls);
    if let Some(file) = ca_file {
        node = node.ca_file(file);
    }
    if let Some((certificate, key)) = client {
        node = node.client_certificate(certificate, key);
    }
    Ok(match password_file {
        Some(file) => node.password_file(file),
        None => node,
    })
}

/// Counts the nodes that vote.
pub(crate) fn votes(nodes: &[NodeStatus]) -> usize {
    nodes.iter().filter(|node| node.votes()).count()
}

pub(crate) fn is_quorum(nodes: &[NodeStatus]) -> bool {
    votes(nodes) >= majority(nodes.len())
}

/// Describes in a few words whether this process leads or follows, or why it cannot.
pub(crate) fn leadership(quorum: &Quorum, election: &Election) -> String {
    let impediment = election.impediment();
    if let Some(term) = election.term().filter(Term::is_valid) {
        let but = impediment.map(|why| format!(", but {why}")).unwrap_or_default();
        return format!("leading term {}{but}", term.unchecked_token().get());
    }
    let without_quorum = without_quorum(&quorum.nodes());
    without_quorum
        .unwrap_or_else(|| impediment.map_or("following".to_owned(), |why| format!("cannot lead: {why}")))
}

/// Returns one line with the reason of each node that does not vote, if fewer than a majority vote.
pub(crate) fn without_quorum(nodes: &[NodeStatus]) -> Option<String> {
    (!is_quorum(nodes)).then(|| format!("no quorum: {}: {}", counted(nodes), in_one_line(nodes)))
}

/// Returns the name of each node that does not vote, and the reason, in one line.
fn in_one_line(nodes: &[NodeStatus]) -> String {
    // Nodes often have the same reason, such as a full disk. Each text is cut, so that the last node is named too.
    let shown = reasons(nodes).map(|(name, why)| format!("{name}: {}", plain(&why, REASON_MAX)));
    shown.collect::<Vec<_>>().join("; ")
}

/// Returns how many nodes vote, and how many are required.
fn counted(nodes: &[NodeStatus]) -> String {
    format!("{} of {} nodes vote, {} required", votes(nodes), nodes.len(), majority(nodes.len()))
}

/// Returns the name of each node that does not vote, and the reason.
fn reasons(nodes: &[NodeStatus]) -> impl Iterator<Item = (&str, String)> {
    nodes.iter().filter_map(|node| Some((&*node.name, without_name(&node.name, &node.reason()?))))
}

/// Describes the nodes that do not vote, one line each. Use this only for a failure that the states of the
/// nodes explain. A failed round has its own [`NoMajority`]; use [`no_quorum`] for it.
pub(crate) fn explain(nodes: &[NodeStatus]) -> String {
    let mut text = counted(nodes);
    for (name, why) in reasons(nodes) {
        // `write!` to a string never fails.
        let _ = write!(text, "\n  {name}: {why}");
    }
    text
}

/// Returns the failure of a round that did not reach a majority. Its text begins with `what`, followed by a
/// line with the reason for each node that did not agree, and by the next step.
pub(crate) fn no_quorum(what: &str, report: &NoMajority) -> Failure {
    let mut text = format!("{what}: {}", outcomes(report));
    text.push_str("\n`quorate doctor` shows what is wrong with each node, and how to fix it");
    Failure::new(NO_QUORUM, text)
}

/// Describes a round that did not reach a majority: the number of nodes that agreed, and a line with the reason for
/// each of the others.
pub(crate) fn outcomes(report: &NoMajority) -> String {
    let agreed = report.count(|outcome| matches!(outcome, NodeOutcome::Granted));
    let mut text =
        format!("{agreed} of {} nodes agreed, {} required", report.outcomes().len(), report.needed());
    for (node, outcome) in report.outcomes() {
        if !matches!(outcome, NodeOutcome::Granted) {
            // `write!` to a string never fails.
            let _ = write!(text, "\n  {node}: {}", without_name(node, &outcome.to_string()));
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use quorate::{node::Cause, quorum::VoteRejection};

    /// Returns the status of a node that has not been measured.
    pub(crate) fn node(name: &str, state: NodeState) -> NodeStatus {
        NodeStatus { name: name.into(), state, version: None, round_trip: None, round_trip_p99: None }
    }

    #[test]
    fn without_a_quorum_one_line_has_the_reason_of_each_node() {
        let full = format!("OOM\r\n\u{1b}[2J {}", "x".repeat(5_000));
        let full = NodeState::Refused(VoteRejection::Unable(full.into()));
        let away = NodeState::Unreachable(Cause::Unreachable("c: Connection refused".into()));
        let nodes = [node("a", NodeState::Trusted), node("b", full), node("c", away)];
        let line = without_quorum(&nodes).expect("one node is no majority");
        let begins =
            "no quorum: 1 of 3 nodes vote, 2 required: b: it refuses what a lease needs: OOM   [2J x";
        assert!(line.starts_with(begins) && line.ends_with("; c: unreachable: Connection refused"), "{line}");
        let voting = [node("a", NodeState::Trusted), node("b", NodeState::Trusted), nodes[2].clone()];
        assert_eq!(without_quorum(&voting), None);
    }

    #[test]
    fn a_reader_hears_of_the_nodes_that_a_majority_does_without() {
        let away = NodeState::Unreachable(Cause::Unreachable("c: Connection refused".into()));
        let voting = |name| node(name, NodeState::Trusted);
        let nodes = [voting("a"), voting("b"), node("c", away)];
        let line = "quorate: 2 of 3 nodes answered; `quorate doctor` examines the others: c: unreachable: Connection refused";
        assert_eq!(unanswered(&nodes).as_deref(), Some(line));
        assert_eq!(unanswered(&nodes[1..]), None, "one of two is no majority, and a failure says so");
        assert_eq!(unanswered(&nodes[..2]), None);
    }

    #[test]
    fn the_name_of_a_node_is_shown_once() {
        let why = "unreachable: redis://a:6379/0: Connection refused; start it";
        for name in ["redis://a:6379/0", "redis://a:6379"] {
            assert_eq!(without_name(name, why), "unreachable: Connection refused; start it");
        }
        let cause = NodeOutcome::Unreachable(Cause::Unreachable("b: Connection refused".into()));
        let text = no_quorum("x", &NoMajority::new(1, vec![("b".into(), cause)])).to_string();
        assert_eq!(text.matches("b: ").count(), 1, "{text}");
    }

    #[test]
    fn a_failed_round_names_the_nodes_that_did_not_agree() {
        let nodes = vec![
            ("a".into(), NodeOutcome::Granted),
            ("b".into(), NodeOutcome::Unreachable(Cause::TimedOut)),
            ("c".into(), NodeOutcome::Pending),
        ];
        let failure = no_quorum("cannot reach a quorum for x", &NoMajority::new(2, nodes));
        let text = failure.to_string();
        assert!(
            text.starts_with("cannot reach a quorum for x: 1 of 3 nodes agreed, 2 required\n  b: "),
            "{text}"
        );
        assert!(text.contains("\n  c: ") && !text.contains("\n  a: "), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.starts_with("`quorate doctor` ")), "{text}");
        assert_eq!(failure.code, NO_QUORUM);
    }
}

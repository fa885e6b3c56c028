//! The health checks. They send no request to the nodes, so that they cost little and answer at once.

use super::{
    error::{HttpError, page},
    site::Site,
    tokens::Access,
};
use crate::connect;
use axum::{Extension, extract::State, http::StatusCode, response::Response};
use quorate::{election::Leader, env::WallTime, internals::majority, plain::plain};
use quorate_operator::view::{LeaderView, MaybeMillis, MaybeRfc3339};
use schemars::JsonSchema;
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// The longest name of a worker that is shown, in bytes.
const NAME_MAX: usize = 200;
/// The longest reason that is shown, in bytes.
const REASON_MAX: usize = 5_000;

/// The state of the daemon's loop.
#[derive(Serialize, JsonSchema)]
pub(super) struct Live {
    live: bool,
    reason: Option<String>,
}

/// The votes of the nodes.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ready {
    ready: bool,
    reason: Option<String>,
    nodes: usize,
    nodes_voting: usize,
    nodes_required: usize,
}

/// The leader, as far as this process knows.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Leader")]
pub(super) struct LeaderPage {
    group: String,
    /// True if this process leads.
    leading: bool,
    /// The name of this process.
    worker: String,
    /// The worker that leads, as far as this process knows.
    leader: Option<String>,
    /// The number of the term, if this process leads. It is the fencing token.
    term: Option<u64>,
    #[serde(rename = "remaining_ms", with = "MaybeMillis")]
    remaining: Option<Duration>,
    #[serde(with = "MaybeRfc3339")]
    seen_since: Option<WallTime>,
}

/// The answer to a client without a token, if there is one.
#[derive(Serialize)]
struct PublicHealth {
    ok: bool,
}

/// Answers 200 while the daemon's loop runs, and 503 otherwise.
pub(super) async fn livez(
    State(site): State<Arc<Site>>,
    Extension(access): Extension<Access>,
) -> Result<Response, HttpError> {
    let reason = site.silence().map(|silence| {
        format!(
            "the main loop has not run for {silence:.0?}: the process is blocked or overloaded; restart it"
        )
    });
    let live = reason.is_none();
    answer(access, live, &Live { live, reason })
}

/// Answers 200 if a majority of the nodes votes, also on a follower, and otherwise 503 with the reason of each node that
/// does not vote. Also answers 503 if this worker was elected, and a majority refuses what the leader writes.
pub(super) async fn readyz(
    State(site): State<Arc<Site>>,
    Extension(access): Extension<Access>,
) -> Result<Response, HttpError> {
    let nodes = site.quorum.nodes();
    let (votes, required) = (connect::votes(&nodes), majority(nodes.len()));
    let reason = if site.stopping.is_cancelled() {
        Some("the daemon is stopping".to_owned())
    } else {
        let why =
            connect::without_quorum(&nodes).or_else(|| site.election.impediment().map(|why| why.to_string()));
        why.map(|why| plain(&why, REASON_MAX))
    };
    let ready = reason.is_none();
    let page = Ready { ready, reason, nodes: nodes.len(), nodes_voting: votes, nodes_required: required };
    answer(access, ready, &page)
}

/// Answers 200 if this process leads, and 503 otherwise.
pub(super) async fn leader(
    State(site): State<Arc<Site>>,
    Extension(access): Extension<Access>,
) -> Result<Response, HttpError> {
    let leading = site.election.is_leader();
    // If this process does not lead but still knows itself as the leader, that knowledge is out of date. Another worker of
    // the same name is known by the lease that the nodes have reported.
    let own = &site.quorum.config().worker;
    let is_other = |known: &Leader| known.remaining.is_some() || known.worker != *own;
    let known = site.election.leader().filter(|known| leading || is_other(known));
    let view = known.as_ref().map(LeaderView::new);
    let page = LeaderPage {
        group: plain(site.election.group(), NAME_MAX),
        leading,
        worker: plain(own, NAME_MAX),
        leader: view.as_ref().map(|leader| leader.worker.clone()),
        term: view.as_ref().and_then(|leader| leader.term),
        remaining: view.and_then(|leader| leader.remaining),
        seen_since: known.map(|known| known.seen_since),
    };
    answer(access, leading, &page)
}

fn answer(access: Access, ok: bool, whole: &impl Serialize) -> Result<Response, HttpError> {
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match access {
        Access::Health => page(status, &PublicHealth { ok }),
        Access::Client | Access::Read | Access::Operate => page(status, whole),
    }
}

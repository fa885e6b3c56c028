//! The requests that concern no single job: the freeze, the leadership, messages and locks, and what was done to them.

use super::{
    api::{Answer, asking, permit},
    error::{HttpError, json, status},
    guard::Operator,
    params::Params,
    site::Site,
};
use crate::{
    audit, claims, election,
    jobs::{self, Action},
    leader, locks, operator,
};
use axum::{
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
};
use std::sync::Arc;

/// The largest number of entries in an answer.
const LISTED_MAX: u32 = 10_000;
/// The number of entries in an answer, if the request names none.
const LISTED: u32 = 20;

/// The name of a set of claims in the path.
type SetName = Result<Path<String>, PathRejection>;
/// The names of a set of claims and of a message in the path.
type MessageName = Result<Path<(String, String)>, PathRejection>;

pub(super) async fn resign(State(site): State<Arc<Site>>, operator: Operator, body: Body) -> Answer {
    let params = Params::of_body(body, &["wait", "term", "reason"]).await?;
    let (term, wait) = (params.term()?, params.wait()?);
    let group = &**site.election.group();
    tracing::info!(group, peer = %operator.address, "asked over HTTP to make the leader resign");
    let _permit = permit(&site).await;
    let operator = operator::Operator::named(&operator.name(), params.text("reason"));
    let (document, code) = election::json(&site.quorum, group, term, wait, &operator).await?;
    Ok(json(status(code), document))
}

pub(super) async fn leader_history(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    let limit = limit(query.as_deref())?;
    asking(&site, async || leader::json(&site.quorum, site.election.group(), limit).await, true).await
}

pub(super) async fn audit(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    let limit = limit(query.as_deref())?;
    asking(&site, async || audit::json(&site.quorum, site.election.group(), limit).await, true).await
}

pub(super) async fn list_locks(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    let limit = names_limit(query.as_deref())?;
    asking(&site, async || locks::json(&site.quorum, &site.config, limit).await, true).await
}

pub(super) async fn list_claims(
    State(site): State<Arc<Site>>,
    set: SetName,
    RawQuery(query): RawQuery,
) -> Answer {
    claims_of(&site, set, query.as_deref(), false).await
}

pub(super) async fn dead_letters(
    State(site): State<Arc<Site>>,
    set: SetName,
    RawQuery(query): RawQuery,
) -> Answer {
    claims_of(&site, set, query.as_deref(), true).await
}

pub(super) async fn show_message(
    State(site): State<Arc<Site>>,
    name: MessageName,
    RawQuery(query): RawQuery,
) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    let Path((set, id)) = name.map_err(not_utf8)?;
    let _permit = permit(&site).await;
    let (document, code) = claims::one_json(&site.quorum, &set, &id).await?;
    Ok(json(status(code), document))
}

pub(super) async fn reset_message(
    State(site): State<Arc<Site>>,
    name: MessageName,
    operator: Operator,
    body: Body,
) -> Answer {
    let params = Params::of_body(body, &["reason"]).await?;
    let Path((set, id)) = name.map_err(not_utf8)?;
    let _permit = permit(&site).await;
    let operator = operator::Operator::named(&operator.name(), params.text("reason"));
    let (document, code) = claims::reset_json(&site.quorum, &set, &id, &operator).await?;
    Ok(json(status(code), document))
}

pub(super) async fn freeze(State(site): State<Arc<Site>>, operator: Operator, body: Body) -> Answer {
    let params = Params::of_body(body, &["wait", "reason", "for", "until"]).await?;
    let Some(reason) = params.text("reason") else {
        return Err(HttpError::bad_request(
            "reason is missing; say why, for the people who find the jobs frozen",
        ));
    };
    let until = match (params.time("until")?, params.length("for")?) {
        (Some(until), None) => until,
        (None, Some(length)) => site.quorum.wall() + length,
        _ => return Err(HttpError::bad_request("give either for, such as \"30m\", or until, a time")),
    };
    request(&site, &operator, &params, &Action::Freeze { reason, until }).await
}

pub(super) async fn unfreeze(State(site): State<Arc<Site>>, operator: Operator, body: Body) -> Answer {
    let params = Params::of_body(body, &["wait"]).await?;
    request(&site, &operator, &params, &Action::Unfreeze).await
}

async fn request(site: &Site, operator: &Operator, params: &Params, action: &Action) -> Answer {
    let jobs = site.jobs()?.requester(&operator.name()).wait(params.wait()?);
    let _permit = permit(site).await;
    let (document, code) = jobs::request(&jobs, "", action).await?;
    Ok(json(status(code), document))
}

async fn claims_of(site: &Site, set: SetName, query: Option<&str>, only_dead: bool) -> Answer {
    let limit = names_limit(query)?;
    let Path(set) = set.map_err(not_utf8)?;
    let read = async || claims::all_json(&site.quorum, &site.config, &set, limit, only_dead).await;
    asking(site, read, true).await
}

fn limit(query: Option<&str>) -> Result<u32, HttpError> {
    Params::of_query(query, &["limit"], None)?.number("limit", LISTED, 1..=LISTED_MAX)
}

/// Returns the limit of a list of stored names. Its default is that of the command.
fn names_limit(query: Option<&str>) -> Result<u32, HttpError> {
    Params::of_query(query, &["limit"], None)?.number("limit", LISTED_MAX, 1..=LISTED_MAX)
}

fn not_utf8(_: PathRejection) -> HttpError {
    HttpError::bad_request("a name in the path is not UTF-8; encode its bytes like %C3%BC")
}

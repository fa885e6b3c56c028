//! The actions, and the requests that concern no job: the leadership, messages and locks, and what was done to them.

use super::{
    api::{Answer, asking, permit},
    error::{HttpError, json, status},
    guard,
    params::Params,
    site::Site,
};
use crate::{audit, claims, leader, locks, operate, shards, show};
use axum::{
    body::Body,
    extract::{
        Path, RawPathParams, RawQuery, State,
        rejection::{PathRejection, RawPathParamsRejection},
    },
    routing::{self, MethodRouter, post},
};
use quorate::env::WallTime;
use quorate_operator::{Action, Given, Operator, Verb};
use std::sync::Arc;

/// The largest number of entries in an answer.
const LISTED_MAX: u32 = 10_000;
/// The number of entries in an answer, if the request names none.
const LISTED: u32 = 20;

/// The names in the path of an action.
type Names = Result<RawPathParams, RawPathParamsRejection>;
/// The name of a set of claims in the path.
type SetName = Result<Path<String>, PathRejection>;
/// The names of a set of claims and of a message in the path.
type MessageName = Result<Path<(String, String)>, PathRejection>;

/// Returns the handler of an action. The names in its path and the properties of its body are the fields of the action.
pub(super) fn action(verb: Verb) -> MethodRouter<Arc<Site>> {
    post(async move |State(site): State<Arc<Site>>, names: Names, operator: guard::Operator, body: Body| {
        act(verb, &site, names, &operator, (body, &[])).await
    })
}

/// Returns the handler that stores a job on the nodes, in place of an earlier one.
pub(super) fn put() -> MethodRouter<Arc<Site>> {
    routing::put(
        async |State(site): State<Arc<Site>>, names: Names, operator: guard::Operator, body: Body| {
            act(Verb::Put, &site, names, &operator, (body, &[])).await
        },
    )
}

/// Returns the handler that stores a job whose name is not stored yet.
pub(super) fn create() -> MethodRouter<Arc<Site>> {
    post(async |State(site): State<Arc<Site>>, names: Names, operator: guard::Operator, body: Body| {
        act(Verb::Put, &site, names, &operator, (body, &["job"])).await
    })
}

/// Returns the handler that removes a job from the nodes.
pub(super) fn remove() -> MethodRouter<Arc<Site>> {
    routing::delete(
        async |State(site): State<Arc<Site>>, names: Names, operator: guard::Operator, body: Body| {
            act(Verb::Remove, &site, names, &operator, (body, &[])).await
        },
    )
}

/// Carries an action out. `more` are the fields of the body besides those of the action: the name of a new job.
async fn act(
    verb: Verb,
    site: &Site,
    names: Names,
    operator: &guard::Operator,
    (body, more): (Body, &[&'static str]),
) -> Answer {
    let known = verb.fields().iter().map(|field| field.name).chain(verb.waits().then_some("wait"));
    let known: Vec<&str> = known.chain(more.iter().copied()).collect();
    let params = Params::of_body(body, &known).await?;
    let names = names.map_err(|_| {
        HttpError::bad_request("a name in the path is not UTF-8; encode its bytes like %C3%BC")
    })?;
    let given = Posted { names: &names, params: &params, is_new: !more.is_empty(), now: site.quorum.wall() };
    let action = Action::read(verb, &given).map_err(|wrong| HttpError::bad_request(wrong.text))?;
    let wait = params.wait()?;
    let by = Operator::named(&operator.from.operator(), given.text("reason"));
    if verb == Verb::Resign {
        let group = &**site.election.group();
        tracing::info!(group, peer = %operator.from, "asked over HTTP to make the leader resign");
    }
    let _permit = permit(site).await;
    let done = operate::act(&site.quorum, (site.election.group(), &action), &by, wait).await?;
    let code = done.error.as_ref().map_or(0, |error| operate::failure(error).code);
    Ok(json(status(code), show::json(&done.answer)?))
}

/// The fields of a request.
struct Posted<'a> {
    names: &'a RawPathParams,
    params: &'a Params,
    /// True for a job that must not be stored yet.
    is_new: bool,
    now: WallTime,
}

impl Given for Posted<'_> {
    fn raw(&self, field: &str) -> Option<&str> {
        if self.is_new && field == "expect" {
            return Some("absent");
        }
        let mut names = self.names.iter();
        names.find(|(name, _)| *name == field).map(|(_, value)| value).or(self.params.get(field))
    }

    fn now(&self) -> WallTime {
        self.now
    }
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

pub(super) async fn list_shards(State(site): State<Arc<Site>>) -> Answer {
    asking(&site, async || shards::json(&site.quorum).await, true).await
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

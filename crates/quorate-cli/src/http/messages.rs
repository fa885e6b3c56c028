//! The messages of clients: to claim, complete and abandon them, in batches.

use super::{
    api::Answer,
    error::{HttpError, page},
    guard::Client,
    leases::{self, CLIENT, KEEP, TTL, millis, refused, times, unacquired},
    parameter::{Kind::*, Parameter},
    params::Params,
    site::Site,
    watch::find,
};
use crate::{
    failures,
    leases::{Asked, Kind, Leases, Part},
};
use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
};
use quorate::{
    Claims,
    claim::{Claim, ClaimError, ClaimOutcome},
    plain::plain,
};
use quorate_operator::view::text;
use schemars::JsonSchema;
use serde::Serialize;
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// The largest number of messages in a request.
const MESSAGES_MAX: usize = 1_000;
/// The longest result that is stored with a message, in bytes.
const RESULT_MAX: usize = 1_000;
/// The permitted retentions.
const RETENTIONS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(366 * 24 * 3_600);
const MESSAGES: Parameter = Parameter::new("messages", List, "The ids of up to 1000 messages").required();
/// The parameters of [`claim`].
pub(super) const CLAIM: [Parameter; 6] = [
    MESSAGES,
    TTL,
    KEEP,
    Parameter::new("retention", Text, "How long the nodes remember that a message is done; default 24h"),
    Parameter::new(
        "max_attempts",
        Number,
        "The attempts after which a message is given up; default no limit",
    ),
    CLIENT,
];
/// The parameters of [`complete`].
pub(super) const COMPLETE: [Parameter; 2] = [
    MESSAGES,
    Parameter::new(
        "result",
        Text,
        "A text of up to 1000 bytes that is stored with each of them; default empty",
    ),
];
/// The parameters of [`abandon`].
pub(super) const ABANDON: [Parameter; 1] = [MESSAGES];

/// The answer to a claim.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Claimed")]
pub(super) struct Page {
    /// The lease on the messages that were claimed; `null` if none was.
    lease: Option<leases::Page>,
    /// The outcome of each message, in the order of the request.
    messages: Vec<Outcome>,
}

/// The outcome of one message.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "MessageOutcome")]
pub(super) struct Outcome {
    message: String,
    /// Of a claim: `claimed`, `in_progress`, `done`, `dead_lettered` or `failed`. Of a completion: `completed` or `failed`. Of an
    /// abandonment: `abandoned` or `failed`. `unknown` if the lease does not hold it.
    outcome: &'static str,
    token: Option<u64>,
    attempt: Option<u32>,
    /// The worker that handles it, if it is in progress.
    holder: Option<String>,
    retry_after_ms: Option<u64>,
    /// The result that is stored, if it is done.
    result: Option<String>,
    /// The reason, if it failed.
    error: Option<String>,
}

/// The outcomes of messages that were completed or abandoned.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageOutcomes")]
pub(super) struct Outcomes {
    messages: Vec<Outcome>,
}

pub(super) async fn claim(
    State(site): State<Arc<Site>>,
    client: Client,
    set: Result<Path<String>, PathRejection>,
    body: Body,
) -> Answer {
    let leases = site.leases()?;
    let answer = claim_for(&site, leases, &client, set, body).await;
    if let Err(error) = &answer {
        leases.asked(if error.is_server() { Asked::Failed } else { Asked::Refused });
    }
    answer
}

async fn claim_for(
    site: &Site,
    leases: &Arc<Leases>,
    client: &Client,
    set: Result<Path<String>, PathRejection>,
    body: Body,
) -> Answer {
    let Path(set) = set.map_err(|_| {
        HttpError::bad_request("the name of the set in the path is not UTF-8; encode its bytes like %C3%BC")
    })?;
    let params = Params::of_request(body, &CLAIM).await?;
    let (messages, times) = (messages(&params)?, times(site, &params)?);
    let mut claims = Claims::new(&site.quorum, &*set).ttl(times.0);
    if params.get("retention").is_some() {
        claims = claims.retention(params.duration("retention", Duration::ZERO, RETENTIONS)?);
    }
    if params.get("max_attempts").is_some() {
        claims = claims.max_attempts(params.number("max_attempts", 1, 1..=1_000_000)?);
    }
    let seat = leases.seat(&client.0, messages.len()).map_err(refused)?;
    let found =
        claims.claim_many(messages.iter().map(String::as_str)).await.map_err(|error| match error {
            ClaimError::Acquire(error) => unacquired(error),
            error => failures::of_claims(&error).into(),
        })?;
    let mut parts = Vec::new();
    let messages = found.into_iter().map(|(id, outcome)| of_claim(&id, outcome, &mut parts)).collect();
    leases.asked(if parts.is_empty() { Asked::Contended } else { Asked::Acquired });
    let lease = (!parts.is_empty()).then(|| {
        let (seat, kind) = (seat.only(parts.len()), Kind::Messages(set.into()));
        leases::document(site, &leases.hold(seat, client.named(&params), kind, times, parts))
    });
    page(StatusCode::OK, &Page { lease, messages })
}

fn of_claim(id: &str, outcome: Result<ClaimOutcome, ClaimError>, parts: &mut Vec<Part>) -> Outcome {
    let message = plain(id, 1_000);
    match outcome {
        Ok(ClaimOutcome::Claimed(claim)) => {
            let (token, attempt) = (Some(claim.unchecked_token().get()), Some(claim.attempt()));
            parts.push(Part::Message(claim));
            Outcome { message, outcome: "claimed", token, attempt, ..Outcome::default() }
        }
        Ok(ClaimOutcome::InProgress { retry_after, holder }) => Outcome {
            message,
            outcome: "in_progress",
            holder: holder.map(|holder| plain(holder.worker(), 200)),
            retry_after_ms: retry_after.map(millis),
            ..Outcome::default()
        },
        Ok(ClaimOutcome::Done(done)) => {
            Outcome { message, outcome: "done", result: Some(text(&done.result)), ..Outcome::default() }
        }
        Ok(ClaimOutcome::DeadLettered(dead)) => {
            Outcome { message, outcome: "dead_lettered", attempt: Some(dead.attempts), ..Outcome::default() }
        }
        Ok(_) => Outcome { message, outcome: "failed", ..Outcome::default() },
        Err(error) => failed(message, &error),
    }
}

fn failed(message: String, error: &ClaimError) -> Outcome {
    let error = Some(failures::of_claims(error).to_string());
    Outcome { message, outcome: "failed", error, ..Outcome::default() }
}

/// Records messages as done.
pub(super) async fn complete(
    State(site): State<Arc<Site>>,
    _client: Client,
    id: Result<Path<String>, PathRejection>,
    body: Body,
) -> Answer {
    let sign = find(&site, id)?.sign();
    let params = Params::of_request(body, &COMPLETE).await?;
    let (messages, result) = (messages(&params)?, params.get("result").unwrap_or_default());
    if result.len() > RESULT_MAX {
        let text = format!(
            "result has {} bytes; store up to {RESULT_MAX}, such as the key of a longer one",
            result.len()
        );
        return Err(HttpError::bad_request(text));
    }
    let (claims, unknown) = sign.held().take_messages(&messages);
    let done = Claim::complete_many(claims.into_iter().map(|claim| (claim, result))).await;
    let done = done.into_iter().map(|(id, done)| (id, done.map(|_| "completed")));
    outcomes(done, unknown)
}

/// Frees messages for other workers.
pub(super) async fn abandon(
    State(site): State<Arc<Site>>,
    _client: Client,
    id: Result<Path<String>, PathRejection>,
    body: Body,
) -> Answer {
    let sign = find(&site, id)?.sign();
    let messages = messages(&Params::of_request(body, &ABANDON).await?)?;
    let (claims, unknown) = sign.held().take_messages(&messages);
    let done = Claim::abandon_many(claims).await;
    let done = done.into_iter().map(|(id, done)| (id, done.map(|()| "abandoned")));
    outcomes(done, unknown)
}

fn outcomes(
    done: impl Iterator<Item = (Arc<str>, Result<&'static str, ClaimError>)>,
    unknown: Vec<String>,
) -> Answer {
    let done = done.map(|(id, done)| {
        let message = plain(&id, 1_000);
        match done {
            Ok(outcome) => Outcome { message, outcome, ..Outcome::default() },
            Err(error) => failed(message, &error),
        }
    });
    let unknown = unknown.iter().map(|id| Outcome {
        message: plain(id, 1_000),
        outcome: "unknown",
        error: Some("the lease does not hold this message: it was completed, abandoned or lost".to_owned()),
        ..Outcome::default()
    });
    page(StatusCode::OK, &Outcomes { messages: done.chain(unknown).collect() })
}

fn messages(params: &Params) -> Result<Vec<String>, HttpError> {
    let messages = params.all("messages");
    if messages.is_empty() || messages.len() > MESSAGES_MAX {
        let text = format!(
            "messages has {} ids; send a JSON object with 1 to {MESSAGES_MAX}, like {{\"messages\": [\"order-17\"]}}",
            messages.len()
        );
        return Err(HttpError::bad_request(text));
    }
    Ok(messages)
}

//! A lease that a client has: to keep, watch and release it.

use super::{
    api::Answer,
    error::{self, HttpError},
    guard::Client,
    leases::{Page, WAIT_MAX, document, word},
    parameter::{Kind::*, Parameter},
    params::{Params, wrong},
    site::Site,
};
use crate::{
    leases::{End, Held, LeaseId, Phase, Sign},
    show,
};
use axum::{
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use quorate::env::BootTime;
use schemars::JsonSchema;
use serde::Serialize;
use std::{convert::Infallible, sync::Arc, time::Duration};

/// The number of events within the time for which a client may be silent.
const EVENTS: u32 = 4;

/// The parameters of [`watch`].
pub(super) const WATCH: [Parameter; 2] = [
    Parameter::new(
        "wait",
        Text,
        "Answer only once the state has changed, or after this time, up to 30s; default 0s",
    ),
    Parameter::new("seen", Text, "The state that the client knows, held or step_down; default held"),
];

/// The answer about a lease that has ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EndedLease")]
pub(super) struct Gone {
    status: u16,
    error: String,
    #[serde(flatten)]
    lease: Page,
}

/// The result of a release.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Released")]
pub(super) struct Released {
    released: bool,
    /// False if too few nodes confirmed it in time: the lease has ended, and the nodes that missed it keep the lock until
    /// its TTL is over.
    confirmed: bool,
}

/// A stream that is being sent. The request that asked for it is a sign of the client until its end.
struct Events {
    site: Arc<Site>,
    sign: Sign,
    known: Option<Phase>,
    ends: BootTime,
}

/// Looks at a lease, which is a sign of its client. Waits for a change, or sends a stream of them.
pub(super) async fn watch(
    State(site): State<Arc<Site>>,
    _client: Client,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    let sign = find(&site, id)?.sign();
    if headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream") {
        Params::of_query(query.as_deref(), &[], None)?;
        return Ok(events(site, sign));
    }
    let params = Params::of_query(query.as_deref(), &WATCH.map(|parameter| parameter.name), None)?;
    let wait = params.duration("wait", Duration::ZERO, Duration::ZERO..=WAIT_MAX)?;
    let seen = match params.get("seen") {
        None | Some("held") => Phase::Held,
        Some("step_down") => Phase::StepDown,
        Some(other) => return Err(wrong("seen", other, "is no state of a lease; write held or step_down")),
    };
    let env = site.env();
    let _ = env.before(env.now() + wait, sign.held().leaves(seen)).await;
    state(&site, &sign)
}

fn state(site: &Site, sign: &Sign) -> Answer {
    let page = document(site, sign.held());
    match page.reason {
        None => error::page(StatusCode::OK, &page),
        Some(end) => gone(page, end),
    }
}

fn gone(lease: Page, end: End) -> Answer {
    let why = match end {
        End::Released => "its client has released it",
        End::Silent => "its client sent no request about it for the time `keep`",
        End::Lost => "too few nodes extended it in time, or an operator released it",
        End::Stopped => "the daemon has stopped",
    };
    let status = StatusCode::GONE;
    let text = format!("the lease is lost: {why}; stop the work, and acquire the lock again");
    error::page(status, &Gone { status: status.as_u16(), error: text, lease })
}

pub(super) async fn release(
    State(site): State<Arc<Site>>,
    _client: Client,
    id: Result<Path<String>, PathRejection>,
) -> Answer {
    let held = find(&site, id)?;
    match held.release().await {
        Some(done) => error::page(StatusCode::OK, &Released { released: true, confirmed: done.is_ok() }),
        None => state(&site, &held.sign()),
    }
}

/// Returns the lease of the path. An id of an earlier process, or of no lease, is that of a lost lease.
pub(super) fn find(site: &Site, id: Result<Path<String>, PathRejection>) -> Result<Arc<Held>, HttpError> {
    let id = id.ok().and_then(|Path(id)| LeaseId::parse(&id));
    id.and_then(|id| site.leases().ok()?.find(id)).ok_or_else(|| {
        let text = "no lease has this id: it is lost. It was released, it ended more than a minute ago, or the daemon has \
                    restarted since; stop the work, and acquire the lock again";
        HttpError::new(StatusCode::NOT_FOUND, text)
    })
}

/// Returns the events of a lease: its state now, each change, and the state four times within `keep`. The stream ends with
/// the lease. It also ends after `keep`, so that a client that no longer runs does not ask for the next one.
fn events(site: Arc<Site>, sign: Sign) -> Response {
    let ends = site.env().now() + sign.held().view().keep.min(WAIT_MAX);
    let events = Events { site, sign, known: None, ends };
    let body = Body::from_stream(stream::unfold(events, async |mut events| {
        let text = events.next().await?;
        Some((Ok::<_, Infallible>(text), events))
    }));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        let (env, held) = (self.site.env(), self.sign.held());
        if let Some(known) = self.known {
            if matches!(known, Phase::Ended(_)) || env.now() >= self.ends {
                return None;
            }
            let at = env.now() + held.view().keep / EVENTS;
            let _ = env.before(at.min(self.ends), held.leaves(known)).await;
        }
        // The phase is that of the document or an earlier one, so no change is left out.
        let (phase, page) = (held.phase(), document(&self.site, held));
        let document = show::json(&page).unwrap_or_default();
        self.known = Some(phase);
        Some(format!("event: {}\ndata: {document}\n", word(phase)))
    }
}

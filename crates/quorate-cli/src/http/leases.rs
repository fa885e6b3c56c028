//! The leases of clients: to acquire locks, and to list what is held.

use super::{
    api::Answer,
    error::{self, HttpError, page},
    guard::Client,
    parameter::{Kind::*, Parameter},
    params::Params,
    site::Site,
};
use crate::{
    connect,
    leases::{Asked, End, Held, Kind, Leases, Part, Phase, Refusal, View},
    time::rfc3339,
};
use axum::{
    body::Body,
    extract::{RawQuery, State},
    http::StatusCode,
};
use quorate::{
    AcquireError, FencingToken, LeaseOptions, TryAcquire, node::Owner, plain::plain, quorum::Quorum,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// The longest wait of a request, which is shorter than the longest time to answer.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);
/// The longest name of a client that is kept, in bytes.
const CLIENT_MAX: usize = 100;
/// The shortest time without a sign that a client may ask for.
const KEEP_MIN: Duration = Duration::from_millis(100);
/// The longest time without a sign that a client may ask for.
const KEEP_MAX: Duration = Duration::from_secs(3_600);

pub(super) const TTL: Parameter = Parameter::new(
    "ttl",
    Text,
    "The longest time for which a daemon that dies blocks other clients, like 10s; default lease.ttl of its file",
);
pub(super) const KEEP: Parameter = Parameter::new(
    "keep",
    Text,
    "The longest time without a request about the lease, up to 1h; then it is released. Default ttl",
);
pub(super) const CLIENT: Parameter =
    Parameter::new("client", Text, "A name of the client for operators, up to 100 bytes");
/// The parameters of [`acquire`].
pub(super) const ACQUIRE: [Parameter; 7] = [
    Parameter::new("lock", Text, "The name of the lock; this or locks is required"),
    Parameter::new("locks", List, "Up to 256 names: all of these locks or none are acquired, for one lease"),
    TTL,
    KEEP,
    Parameter::new("wait", Text, "The longest wait for the lock, up to 30s; default 0s"),
    Parameter::new("shared", Flag, "True for a reader's lease, which has no fencing token; default false"),
    CLIENT,
];
/// A lease, as its client sees it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lease")]
pub(super) struct Page {
    /// The id, which is the only key to the lease: keep it secret.
    id: String,
    /// `held`, `step_down` (finish the work: it ends soon) or `ended`.
    state: &'static str,
    /// Why it ended: `released`, `silent` (no request for `keep`), `lost` (the nodes did not extend it, or an operator released
    /// it) or `stopped` (the daemon).
    pub(super) reason: Option<End>,
    /// The locks or messages that it holds.
    holds: Vec<Named>,
    /// The fencing token of the first; `null` for a reader.
    token: Option<u64>,
    shared: bool,
    /// For how long the work may go on without another answer, counted from when the client *sent* this request.
    remaining_ms: u64,
    ttl_ms: u64,
    keep_ms: u64,
    /// The time of the answer.
    at: String,
}

/// A lock or message with its fencing token.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Holding")]
struct Named {
    name: String,
    token: Option<u64>,
}

/// The answer if another client holds a lock.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Conflict")]
pub(super) struct Conflict {
    status: u16,
    error: String,
    /// The lock that is held.
    lock: String,
    /// The worker that holds it, such as another daemon; `null` if no majority of the nodes names one.
    holder: Option<String>,
    /// The time after which the lock may be free, if it is not extended.
    retry_after_ms: Option<u64>,
}

pub(super) async fn acquire(State(site): State<Arc<Site>>, client: Client, body: Body) -> Answer {
    let leases = site.leases()?;
    let answer = acquire_for(&site, leases, &client, body).await;
    if let Err(error) = &answer {
        leases.asked(if error.is_server() { Asked::Failed } else { Asked::Refused });
    }
    answer
}

async fn acquire_for(site: &Site, leases: &Arc<Leases>, client: &Client, body: Body) -> Answer {
    let params = Params::of_request(body, &ACQUIRE).await?;
    let (names, shared) = (names(&params)?, params.flag("shared"));
    let times = times(site, &params)?;
    let wait = params.duration("wait", Duration::ZERO, Duration::ZERO..=WAIT_MAX)?;
    let seat = leases.seat(&client.0, names.len()).map_err(refused)?;
    let options = LeaseOptions::new().ttl(times.0);
    let tried = match (&names[..], shared) {
        (_, true) => read(&site.quorum, &names, options, wait).await?,
        ([name], false) => one(&site.quorum, name, options, wait).await?,
        _ => all(&site.quorum, &names, options, wait).await?,
    };
    match tried {
        TryAcquire::Acquired(parts) => {
            let kind = if shared { Kind::Shared } else { Kind::Exclusive };
            let held = leases.hold(seat, client.named(&params), kind, times, parts);
            leases.asked(Asked::Acquired);
            page(StatusCode::OK, &document(site, &held))
        }
        TryAcquire::Contended { resource, retry_after, holder } => {
            leases.asked(Asked::Contended);
            let lock = plain(resource.key(), 1_000);
            let holder = holder.as_ref().map(|holder| plain(Owner::worker(holder), 200));
            // The nodes know a client of this daemon only by the name of the daemon.
            let is_own = holder.as_deref() == Some(&*site.config.settings.worker);
            let own = if is_own { leases.client_of(resource.key()) } else { None };
            let by = match (&own, &holder) {
                (Some(client), _) => format!("the client {client:?} of this daemon"),
                (None, Some(worker)) => format!("{worker:?}"),
                (None, None) => "another client".to_owned(),
            };
            let error = format!("the lock {lock:?} is held by {by}; try again, or give wait up to 30s");
            let status = StatusCode::CONFLICT;
            let retry_after_ms = retry_after.map(millis);
            page(status, &Conflict { status: status.as_u16(), error, lock, holder, retry_after_ms })
        }
    }
}

async fn one(
    quorum: &Quorum,
    name: &str,
    options: LeaseOptions,
    wait: Duration,
) -> Result<TryAcquire<Vec<Part>>, HttpError> {
    let lock = quorum.lock(name).options(options);
    if wait.is_zero() {
        let tried = lock.try_acquire().await.map_err(unacquired)?;
        return Ok(mapped(tried, |lease| vec![Part::Lock(lease)]));
    }
    contended(lock.wait(wait).acquire().await.map(|lease| vec![Part::Lock(lease)]))
}

async fn read(
    quorum: &Quorum,
    names: &[String],
    options: LeaseOptions,
    wait: Duration,
) -> Result<TryAcquire<Vec<Part>>, HttpError> {
    let [name] = names else {
        let text =
            format!("shared is true and locks has {} names; a reader's lease is for one lock", names.len());
        return Err(HttpError::bad_request(text));
    };
    let lock = quorum.read_lock(name).options(options);
    if wait.is_zero() {
        let tried = lock.try_acquire().await.map_err(unacquired)?;
        return Ok(mapped(tried, |lease| vec![Part::Reader(lease)]));
    }
    contended(lock.wait(wait).acquire().await.map(|lease| vec![Part::Reader(lease)]))
}

async fn all(
    quorum: &Quorum,
    names: &[String],
    options: LeaseOptions,
    wait: Duration,
) -> Result<TryAcquire<Vec<Part>>, HttpError> {
    let acquired = quorum.locks(names).options(options).wait(wait).acquire_all().await;
    contended(acquired.map(|leases| leases.into_leases().into_iter().map(Part::Lock).collect()))
}

fn mapped<L>(tried: TryAcquire<L>, to: impl FnOnce(L) -> Vec<Part>) -> TryAcquire<Vec<Part>> {
    match tried {
        TryAcquire::Acquired(lease) => TryAcquire::Acquired(to(lease)),
        TryAcquire::Contended { resource, retry_after, holder } => {
            TryAcquire::Contended { resource, retry_after, holder }
        }
    }
}

/// Returns the outcome of a wait, whose end is not an error here.
fn contended(acquired: Result<Vec<Part>, AcquireError>) -> Result<TryAcquire<Vec<Part>>, HttpError> {
    match acquired {
        Ok(parts) => Ok(TryAcquire::Acquired(parts)),
        Err(AcquireError::Contended { resource, report }) => {
            Ok(TryAcquire::Contended { resource, retry_after: None, holder: report.holder().cloned() })
        }
        Err(error) => Err(unacquired(error)),
    }
}

pub(super) fn unacquired(error: AcquireError) -> HttpError {
    match &error {
        AcquireError::Setting(_) => HttpError::bad_request(error.to_string()),
        AcquireError::Unreachable { resource, report } | AcquireError::Untrusted { resource, report } => {
            connect::no_quorum(&format!("cannot reach a quorum for {}", resource.key()), report).into()
        }
        _ => HttpError::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

pub(super) fn refused(refusal: Refusal) -> HttpError {
    match refusal {
        Refusal::Client(most) => HttpError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "this client would hold more than {most} locks and messages; release some, or raise serve.leases_per_client"
            ),
        ),
        Refusal::Total(most) => HttpError::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "the clients would hold more than {most} locks and messages; release some, or start another daemon"
            ),
        ),
        Refusal::Stopping => HttpError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the daemon is stopping; ask again once it has restarted",
        ),
    }
}

/// Returns the names of the locks.
fn names(params: &Params) -> Result<Vec<String>, HttpError> {
    match (params.get("lock"), params.all("locks")) {
        (Some(lock), locks) if locks.is_empty() => Ok(vec![lock.to_owned()]),
        (None, locks) if !locks.is_empty() => Ok(locks),
        (None, _) => Err(HttpError::bad_request(
            "lock is missing; send a JSON object with the name of the lock, like {\"lock\": \"nightly\"}",
        )),
        _ => Err(HttpError::bad_request("lock and locks are both given; give one of them")),
    }
}

/// Returns `ttl` and `keep`.
pub(super) fn times(site: &Site, params: &Params) -> Result<(Duration, Duration), HttpError> {
    let ttl = params.duration("ttl", site.config.lease.ttl, Duration::ZERO..=Duration::MAX)?;
    Ok((ttl, params.duration("keep", ttl.clamp(KEEP_MIN, KEEP_MAX), KEEP_MIN..=KEEP_MAX)?))
}

/// Returns the document of a lease.
pub(super) fn document(site: &Site, held: &Held) -> Page {
    let View { phase, names, remaining, keep, .. } = held.view();
    let holds: Vec<Named> = names
        .iter()
        .map(|(name, token)| Named { name: plain(name, 1_000), token: token.map(FencingToken::get) })
        .collect();
    Page {
        id: held.id.to_string(),
        state: word(phase),
        reason: if let Phase::Ended(end) = phase { Some(end) } else { None },
        token: holds.first().and_then(|first| first.token),
        holds,
        shared: held.kind == Kind::Shared,
        remaining_ms: millis(remaining),
        ttl_ms: millis(held.ttl),
        keep_ms: millis(keep),
        at: rfc3339(site.env().wall()),
    }
}

/// Returns the word for a phase.
pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Held => "held",
        Phase::StepDown => "step_down",
        Phase::Ended(_) => "ended",
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Client {
    /// Returns the name for operators.
    pub(super) fn named(&self, params: &Params) -> Arc<str> {
        match params.get("client") {
            Some(name) => format!("{} ({})", plain(name, CLIENT_MAX), self.0).into(),
            None => Arc::clone(&self.0),
        }
    }
}

impl Site {
    /// Returns the leases of clients.
    pub(super) fn leases(&self) -> Result<&Arc<Leases>, HttpError> {
        self.leases.as_ref().ok_or_else(|| {
            let text = "this process holds no leases for clients; start `quorate serve`";
            HttpError::new(StatusCode::NOT_FOUND, text)
        })
    }
}

/// Returns all leases, for operators.
pub(super) async fn list(State(site): State<Arc<Site>>, RawQuery(query): RawQuery) -> Answer {
    Params::of_query(query.as_deref(), &[], None)?;
    error::page(StatusCode::OK, &Listed { leases: views(site.leases()?) })
}

/// The leases of all clients.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClientLeases")]
pub(super) struct Listed {
    leases: Vec<quorate_operator::view::ClientLease>,
}

/// Returns all leases as operators see them, without their ids.
pub(super) fn views(leases: &Leases) -> Vec<quorate_operator::view::ClientLease> {
    let view = |held: Arc<Held>| {
        let view = held.view();
        let kind = match &held.kind {
            Kind::Exclusive => "exclusive".to_owned(),
            Kind::Shared => "shared".to_owned(),
            Kind::Messages(set) => format!("messages of {}", plain(set, 200)),
        };
        quorate_operator::view::ClientLease {
            client: held.client.to_string(),
            names: view.names.iter().map(|(name, _)| plain(name, 1_000)).collect(),
            kind,
            state: word(view.phase),
            token: view.names.first().and_then(|(_, token)| *token).map(FencingToken::get),
            since: held.since,
            age: view.age,
            quiet: view.quiet,
            remaining: view.remaining,
        }
    };
    leases.all().into_iter().map(view).collect()
}

//! The operations of the API: one list, from which the router and the description are made.

use super::{
    api, error, health, leases, messages, operate,
    parameter::{Kind, Parameter},
    site::Site,
    watch,
};
use crate::{audit, claims, jobs, leader, locks, nodes, shards, status};
use axum::routing::{MethodRouter, delete, get, post};
use quorate_operator::{
    Kind as FieldKind, Need, Request, Reset, Resignation, Verb,
    view::{JobView, WhyView},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::sync::Arc;

/// Returns the schema of a document.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;
/// The meaning of a status other than 200.
type Status = (&'static str, &'static str);

const NO_QUORUM: Status = ("503", "Too few nodes answered");
const NOT_LED: Status = ("404", "There is no leader, or it leads another term");
const NO_JOB: Status = ("404", "There is no such job, or the leader refused");
const REFUSED: Status = ("404", "The leader refused the job, with the reason");
const NO_MESSAGE: Status = ("404", "The nodes store nothing of the message");
const UNANSWERED: Status = ("504", "No answer of the leader in time; it may still carry the request out");
const HELD: Status = ("504", "A worker holds the message");
const CONFLICT: Status = ("409", "Another client holds the lock; the body names the holder");
const LIMIT: Status = ("429", "The client, or all clients, hold as much as the limits permit");
const UNKNOWN: Status =
    ("404", "The lease is lost: no lease has this id, for example because the daemon has restarted");
const ENDED: Status = ("410", "The lease has ended; the body has the reason");
const ENTRIES: Parameter =
    Parameter::new("limit", Kind::Number, "Number of entries, up to 10000; default 20");
const NAMES: Parameter = Parameter::new(
    "limit",
    Kind::Number,
    "Number of stored names to look at, up to 10000, which is the default",
);

/// One operation of the API.
pub(super) struct Operation {
    pub(super) path: String,
    pub(super) route: MethodRouter<Arc<Site>>,
    /// The parameters of a GET, and the properties of the body of a POST.
    pub(super) parameters: Vec<Parameter>,
    pub(super) method: Method,
    /// True if clients of leases may use it. All others are for those who may read everything.
    pub(super) is_for_clients: bool,
    pub(super) summary: String,
    /// The schema of the answer; `None` for text.
    pub(super) answer: Option<SchemaOf>,
    /// The statuses other than 200 that are specific to this operation.
    pub(super) others: &'static [Status],
    /// A status whose body has a schema of its own.
    pub(super) shows: Option<(&'static str, SchemaOf)>,
    /// True if the body of the other statuses has the schema of the answer.
    pub(super) is_health: bool,
}

/// The method of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// Returns the name in the description.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

/// Returns the operations of a daemon. `description` answers with their description.
pub(super) fn all(has_jobs: bool, has_clients: bool, description: MethodRouter<Arc<Site>>) -> Vec<Operation> {
    let mut all = Vec::from(of_health());
    all.extend([
        look::<()>("/metrics", "The measurements in the text format of Prometheus", get(api::metrics)).text(),
        look::<serde_json::Map<String, serde_json::Value>>(
            "/api/v1/openapi.json",
            "This description",
            description,
        )
        .for_clients(),
        look::<status::Page>(
            "/api/v1/status",
            "The nodes, and the holders of resources, as `quorate status --json`",
            get(api::show_status),
        )
        .takes([Parameter::new(
            "resource",
            Kind::Text,
            "A lock, election/GROUP or claim/SET/ID; may be repeated; default the group",
        )]),
        look::<nodes::Page>(
            "/api/v1/nodes",
            "The nodes in detail, as `quorate nodes list --json`",
            get(api::list_nodes),
        ),
        look::<leader::Page>(
            "/api/v1/leader/history",
            "The terms of the group, newest first, as `quorate leader history --json`",
            get(operate::leader_history),
        )
        .takes([ENTRIES])
        .others(&[NO_QUORUM]),
        look::<audit::Page>(
            "/api/v1/audit",
            "Requests and operations of people, newest first, as `quorate audit --json`",
            get(operate::audit),
        )
        .takes([ENTRIES])
        .others(&[NO_QUORUM]),
        look::<locks::Page>(
            "/api/v1/locks",
            "The held locks, as `quorate locks list --json`",
            get(operate::list_locks),
        )
        .takes([NAMES])
        .others(&[NO_QUORUM]),
        look::<shards::Page>(
            "/api/v1/shards",
            "The sets of shards, their workers and owners, as `quorate shards list --json`",
            get(operate::list_shards),
        )
        .others(&[NO_QUORUM]),
    ]);
    all.extend(of_claims());
    if has_clients {
        all.extend(of_leases());
        all.extend(of_messages());
        let list = "The leases of all clients, by client, without their ids";
        all.push(look::<leases::Listed>("/api/v1/leases", list, get(leases::list)));
    }
    if has_jobs {
        all.extend(of_jobs());
        all.push(creation());
    }
    all.extend(Verb::ALL.into_iter().filter(|verb| has_jobs || !verb.is_of_jobs()).map(action));
    all
}

fn of_health() -> [Operation; 3] {
    [
        look::<health::Live>("/livez", "200 while the main loop of the daemon runs", get(health::livez))
            .health(),
        look::<health::Ready>(
            "/readyz",
            "200 if a majority of the nodes votes and accepts what the leader writes, also on a follower",
            get(health::readyz),
        )
        .health(),
        look::<health::LeaderPage>("/leader", "200 if this process leads the group", get(health::leader))
            .health(),
    ]
}

fn of_claims() -> [Operation; 3] {
    [
        look::<claims::Page>(
            "/api/v1/claims/{set}",
            "The messages of a set, as `quorate claims show --json`",
            get(operate::list_claims),
        )
        .takes([NAMES])
        .others(&[NO_QUORUM]),
        look::<claims::Page>(
            "/api/v1/claims/{set}/dead-letters",
            "The messages that were given up, as `quorate claims dead-letters --json`",
            get(operate::dead_letters),
        )
        .takes([NAMES])
        .others(&[NO_QUORUM]),
        look::<claims::Page>(
            "/api/v1/claims/{set}/messages/{id}",
            "One message, as `quorate claims show SET ID --json`",
            get(operate::show_message),
        )
        .others(&[NO_MESSAGE, NO_QUORUM]),
    ]
}

fn of_leases() -> [Operation; 3] {
    [
        look::<leases::Page>(
            "/api/v1/leases",
            "Acquire locks, for a lease that is held while its client sends requests about it",
            post(leases::acquire),
        )
        .does(Method::Post, &leases::ACQUIRE)
        .others(&[CONFLICT, LIMIT, NO_QUORUM])
        .shows::<leases::Conflict>("409"),
        look::<leases::Page>(
            "/api/v1/leases/{id}",
            "Keep a lease, and look at it or wait for its step-down or end. With `Accept: text/event-stream`, a stream of \
             its states, which ends after `keep`",
            get(watch::watch),
        )
        .does(Method::Get, &watch::WATCH)
        .others(&[UNKNOWN, ENDED])
        .shows::<watch::Gone>("410"),
        look::<watch::Released>("/api/v1/leases/{id}", "Release a lease", delete(watch::release))
            .does(Method::Delete, &[])
            .others(&[UNKNOWN, ENDED])
            .shows::<watch::Gone>("410"),
    ]
}

fn of_messages() -> [Operation; 3] {
    [
        look::<messages::Page>(
            "/api/v1/claims/{set}",
            "Claim messages, for a lease on those that are free",
            post(messages::claim),
        )
        .does(Method::Post, &messages::CLAIM)
        .others(&[LIMIT, NO_QUORUM]),
        look::<messages::Outcomes>(
            "/api/v1/leases/{id}/complete",
            "Record messages of a lease as done",
            post(messages::complete),
        )
        .does(Method::Post, &messages::COMPLETE)
        .others(&[UNKNOWN]),
        look::<messages::Outcomes>(
            "/api/v1/leases/{id}/abandon",
            "Free messages of a lease for other workers",
            post(messages::abandon),
        )
        .does(Method::Post, &messages::ABANDON)
        .others(&[UNKNOWN]),
    ]
}

fn of_jobs() -> [Operation; 5] {
    let from = "Ticks later than this time (RFC 3339); default now";
    let at = "The time at which it should have run (RFC 3339); default its latest tick";
    [
        look::<jobs::ListPage>(
            "/api/v1/jobs",
            "All jobs, as `quorate jobs list --json`",
            get(api::list_jobs),
        )
        .others(&[NO_QUORUM]),
        look::<JobView>("/api/v1/jobs/{job}", "One job, as `quorate jobs show --json`", get(api::show_job))
            .others(&[NO_JOB, NO_QUORUM]),
        look::<jobs::HistoryPage>(
            "/api/v1/jobs/{job}/history",
            "The ends of a job's runs, newest first, as `quorate jobs history --json`",
            get(api::history),
        )
        .takes([ENTRIES])
        .others(&[NO_JOB, NO_QUORUM]),
        look::<jobs::NextPage>(
            "/api/v1/jobs/{job}/next",
            "The next ticks of a job, as `quorate jobs next --json`",
            get(api::next),
        )
        .takes([
            Parameter::new("count", Kind::Number, "Number of ticks, up to 10000; default 5"),
            Parameter::new("from", Kind::Text, from),
        ])
        .others(&[NO_JOB, NO_QUORUM]),
        look::<WhyView>(
            "/api/v1/jobs/{job}/why",
            "Why a job did or did not run, as `quorate jobs why --json`",
            get(api::why),
        )
        .takes([Parameter::new("at", Kind::Text, at)])
        .others(&[NO_JOB, NO_QUORUM]),
    ]
}

/// Returns the operation of an action, whose parameters are its fields.
fn action(verb: Verb) -> Operation {
    let (path, answer, others): (_, SchemaOf, &[Status]) = match verb {
        Verb::Put => ("jobs/{job}".to_owned(), schema::<Request>, &[REFUSED, NO_QUORUM, UNANSWERED]),
        Verb::Remove => ("jobs/{job}".to_owned(), schema::<Request>, &[NO_JOB, NO_QUORUM, UNANSWERED]),
        Verb::Resign => {
            ("election/resign".to_owned(), schema::<Resignation>, &[NOT_LED, NO_QUORUM, UNANSWERED])
        }
        Verb::Reset => {
            let path = "claims/{set}/messages/{id}/reset".to_owned();
            (path, schema::<Reset>, &[NO_MESSAGE, NO_QUORUM, HELD])
        }
        Verb::Freeze | Verb::Unfreeze => {
            (verb.name().to_owned(), schema::<Request>, &[NO_JOB, NO_QUORUM, UNANSWERED])
        }
        _ => (format!("jobs/{{job}}/{}", verb.name()), schema::<Request>, &[NO_JOB, NO_QUORUM, UNANSWERED]),
    };
    let (method, route) = match verb {
        Verb::Put => (Method::Put, operate::put()),
        Verb::Remove => (Method::Delete, operate::remove()),
        _ => (Method::Post, operate::action(verb)),
    };
    Operation {
        path: format!("/api/v1/{path}"),
        route,
        parameters: parameters_of(verb),
        method,
        is_for_clients: false,
        summary: format!("{}: {}", verb.words().label, verb.words().effect),
        answer: Some(answer),
        others,
        shows: None,
        is_health: false,
    }
}

/// Returns the operation that stores a job whose name is not stored yet.
fn creation() -> Operation {
    let about = "The name of the job";
    let name = Parameter { name: "job", kind: Kind::Text, about, is_required: true };
    Operation {
        path: "/api/v1/jobs".to_owned(),
        route: operate::create(),
        parameters: std::iter::once(name)
            .chain(parameters_of(Verb::Put).into_iter().filter(|parameter| parameter.name != "expect"))
            .collect(),
        summary: "Store a new job: it is refused if a job of this name is stored already".to_owned(),
        ..action(Verb::Put)
    }
    .posted()
}

/// Returns the properties of the body of an action, which are its fields.
fn parameters_of(verb: Verb) -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> = verb
        .fields()
        .iter()
        .map(|field| Parameter {
            name: field.name,
            kind: if field.kind == FieldKind::Term { Kind::Number } else { Kind::Text },
            about: field.about,
            is_required: field.need == Need::Required,
        })
        .collect();
    if verb.waits() {
        let about = "Longest wait for the leader's answer, up to 30s; default 10s";
        parameters.push(Parameter::new("wait", Kind::Text, about));
    }
    parameters
}

fn look<A: JsonSchema>(path: &str, summary: &str, route: MethodRouter<Arc<Site>>) -> Operation {
    Operation {
        path: path.to_owned(),
        route,
        parameters: Vec::new(),
        method: Method::Get,
        is_for_clients: false,
        summary: summary.to_owned(),
        answer: Some(schema::<A>),
        others: &[],
        shows: None,
        is_health: false,
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) fn error_schema(generator: &mut SchemaGenerator) -> Schema {
    schema::<error::Page>(generator)
}

impl Operation {
    fn takes<const N: usize>(self, parameters: [Parameter; N]) -> Self {
        Self { parameters: parameters.into(), ..self }
    }

    /// Makes it an operation of clients, with this method and these parameters.
    fn does(self, method: Method, parameters: &[Parameter]) -> Self {
        Self { method, parameters: parameters.into(), ..self }.for_clients()
    }

    /// Makes it an operation by POST.
    fn posted(self) -> Self {
        Self { method: Method::Post, ..self }
    }

    /// Gives the body of a status a schema of its own.
    fn shows<A: JsonSchema>(self, status: &'static str) -> Self {
        Self { shows: Some((status, schema::<A>)), ..self }
    }

    fn for_clients(self) -> Self {
        Self { is_for_clients: true, ..self }
    }

    fn others(self, others: &'static [Status]) -> Self {
        Self { others, ..self }
    }

    fn text(self) -> Self {
        Self { answer: None, ..self }
    }

    fn health(self) -> Self {
        Self {
            is_for_clients: true,
            others: &[("503", "It is not so. The body has the same properties as with 200")],
            is_health: true,
            ..self
        }
    }
}

//! The description of the API, in the format OpenAPI 3.1.

use super::openapi_operate;
use serde_json::{Map, Value, json};

/// A schema: its name, and its properties, each with its type.
pub(super) type Schema = (&'static str, &'static [(&'static str, &'static str)]);

/// One operation of the API.
pub(super) struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// The parameters of a GET, and the properties of the body of a POST: name, type and description.
    parameters: &'static [(&'static str, &'static str, &'static str)],
    /// The schema of the answer; `None` for text.
    answer: Option<&'static str>,
    /// The statuses other than 200 that are specific to this operation, each with its meaning.
    others: &'static [(&'static str, &'static str)],
}

pub(super) const WAIT: (&str, &str, &str) =
    ("wait", "string", "Longest wait for the leader's answer, up to 30s; default 10s");
const NOT_FOUND: (&str, &str) = ("404", "There is no such job, or the leader refused");
pub(super) const NO_QUORUM: (&str, &str) = ("503", "Too few nodes answered");
pub(super) const UNANSWERED: (&str, &str) =
    ("504", "No answer of the leader in time; it may still carry the request out");
pub(super) const READ_JOB: &[(&str, &str)] = &[NOT_FOUND, NO_QUORUM];
pub(super) const REQUEST: &[(&str, &str)] = &[NOT_FOUND, NO_QUORUM, UNANSWERED];

const OPERATIONS: [Operation; 16] = [
    health("/livez", "200 while the main loop of the daemon runs", "Live"),
    health(
        "/readyz",
        "200 if a majority of the nodes votes and accepts what the leader writes, also on a follower",
        "Ready",
    ),
    health("/leader", "200 if this process leads the group", "Leader"),
    get("/metrics", "The measurements in the text format of Prometheus", &[], None, &[]),
    get("/api/v1/openapi.json", "This description", &[], Some("Description"), &[]),
    get(
        "/api/v1/status",
        "The nodes, and the holders of resources, as `quorate status --json`",
        &[(
            "resource",
            "string",
            "A lock, election/GROUP or claim/SET/ID; may be repeated; default the group",
        )],
        Some("Status"),
        &[],
    ),
    get("/api/v1/nodes", "The nodes in detail, as `quorate nodes list --json`", &[], Some("Nodes"), &[]),
    get("/api/v1/jobs", "All jobs, as `quorate jobs list --json`", &[], Some("Jobs"), &[NO_QUORUM]),
    get("/api/v1/jobs/{job}", "One job, as `quorate jobs show --json`", &[], Some("Job"), READ_JOB),
    get(
        "/api/v1/jobs/{job}/history",
        "The ends of a job's runs, newest first, as `quorate jobs history --json`",
        &[("limit", "integer", "Number of entries, up to 10000; default 20")],
        Some("History"),
        READ_JOB,
    ),
    get(
        "/api/v1/jobs/{job}/next",
        "The next ticks of a job, as `quorate jobs next --json`",
        &[
            ("count", "integer", "Number of ticks, up to 10000; default 5"),
            ("from", "string", "Ticks later than this time (RFC 3339); default now"),
        ],
        Some("Next"),
        READ_JOB,
    ),
    post("/api/v1/jobs/{job}/trigger", "Run a job once now", &[WAIT], Some("Request"), REQUEST),
    post(
        "/api/v1/jobs/{job}/pause",
        "Skip a job's ticks until it is resumed",
        &[
            ("reason", "string", "Why; shown beside the pause"),
            ("until", "string", "The end of the pause (RFC 3339); default none"),
            WAIT,
        ],
        Some("Request"),
        REQUEST,
    ),
    post("/api/v1/jobs/{job}/resume", "Run a job's ticks again", &[WAIT], Some("Request"), REQUEST),
    post(
        "/api/v1/jobs/{job}/cancel",
        "Cancel a job's active runs",
        &[("tick", "string", "Only the run of this tick (RFC 3339)"), WAIT],
        Some("Request"),
        REQUEST,
    ),
    post(
        "/api/v1/jobs/{job}/backfill",
        "Run a job for each tick of a time span",
        &[
            ("from", "string", "Start of the span, inclusive (RFC 3339); required"),
            ("until", "string", "End of the span, exclusive (RFC 3339); required"),
            WAIT,
        ],
        Some("Request"),
        REQUEST,
    ),
];

/// The properties of each schema, with their types. A type is a type of JSON or another schema. In brackets,
/// it is the type of the elements of a list. With a question mark, the value may also be null.
const SCHEMAS: [Schema; 21] = [
    ("Error", &[("status", "integer"), ("error", "string")]),
    ("Live", &[("live", "boolean"), ("reason", "string?")]),
    (
        "Ready",
        &[
            ("ready", "boolean"),
            ("reason", "string?"),
            ("nodes", "integer"),
            ("nodes_voting", "integer"),
            ("nodes_required", "integer"),
        ],
    ),
    (
        "Leader",
        &[
            ("group", "string"),
            ("leading", "boolean"),
            ("worker", "string"),
            ("leader", "string?"),
            ("term", "integer?"),
            ("remaining_ms", "integer?"),
            ("seen_since", "string?"),
        ],
    ),
    (
        "Description",
        &[
            ("openapi", "string"),
            ("info", "object"),
            ("security", "[object]"),
            ("paths", "object"),
            ("components", "object"),
        ],
    ),
    (
        "Status",
        &[
            ("prefix", "string"),
            ("nodes_from", "string"),
            ("quorum", "boolean"),
            ("nodes", "[NodeStatus]"),
            ("resources", "[Resource]"),
        ],
    ),
    (
        "NodeStatus",
        &[
            ("name", "string"),
            ("reachable", "boolean"),
            ("trusted", "boolean"),
            ("reason", "string?"),
            ("votes_in_ms", "integer?"),
            ("version", "string?"),
            ("round_trip_ms", "number?"),
        ],
    ),
    (
        "Resource",
        &[
            ("resource", "string"),
            ("held", "boolean?"),
            ("holder", "string?"),
            ("owner", "string?"),
            ("reserved_for", "string?"),
            ("remaining_ms", "integer?"),
            ("fencing_token", "integer?"),
            ("done", "string?"),
            ("frozen", "string?"),
            ("copies", "[Copy]?"),
            ("error", "string?"),
        ],
    ),
    ("Copy", &[("node", "string"), ("state", "string"), ("records", "integer?"), ("of", "integer?")]),
    (
        "Nodes",
        &[("prefix", "string"), ("nodes_from", "string"), ("quorum", "boolean"), ("nodes", "[NodeDetails]")],
    ),
    (
        "NodeDetails",
        &[
            ("name", "string"),
            ("votes", "boolean"),
            ("reason", "string?"),
            ("version", "string?"),
            ("round_trip_ms", "number?"),
            ("clock_ahead_ms", "number?"),
            ("run_id", "string?"),
            ("uptime_s", "integer?"),
            ("remembers_since", "string?"),
            ("votes_from", "string?"),
            ("marker_nodes", "string?"),
            ("marker_settings", "object?"),
        ],
    ),
    ("Jobs", &[("group", "string"), ("frozen", "Pause?"), ("jobs", "[Job]")]),
    (
        "Job",
        &[
            ("group", "string"),
            ("name", "string"),
            ("schedule", "string"),
            ("rules", "string"),
            ("placement", "string"),
            ("registered", "string"),
            ("paused", "Pause?"),
            ("frozen", "boolean"),
            ("next", "string?"),
            ("expect_within_us", "integer?"),
            ("overdue_since", "string?"),
            ("failing_since", "string?"),
            ("unsent", "[Unsent]"),
            ("running", "[ActiveRun]"),
            ("last", "[RunEnd]"),
        ],
    ),
    ("Unsent", &[("event", "string"), ("at", "string"), ("reason", "string")]),
    ("Pause", &[("by", "string"), ("at", "string"), ("reason", "string?"), ("until", "string?")]),
    (
        "ActiveRun",
        &[
            ("tick", "string"),
            ("request", "string?"),
            ("worker", "string"),
            ("term", "integer"),
            ("orphaned", "boolean"),
        ],
    ),
    (
        "RunEnd",
        &[
            ("tick", "string"),
            ("until", "string?"),
            ("cause", "string"),
            ("request", "string?"),
            ("outcome", "string"),
            ("reason", "string"),
            ("worker", "string"),
            ("term", "integer"),
            ("started", "string?"),
            ("took_us", "integer?"),
            ("attempts", "integer"),
            ("last_error", "string?"),
            ("output", "string?"),
        ],
    ),
    ("History", &[("group", "string"), ("job", "string"), ("history", "[RunEnd]")]),
    (
        "Next",
        &[
            ("job", "string"),
            ("schedule", "string"),
            ("source", "string"),
            ("from", "string"),
            ("next", "[Tick]"),
        ],
    ),
    ("Tick", &[("tick", "string"), ("local", "string")]),
    (
        "Request",
        &[
            ("group", "string"),
            ("job", "string"),
            ("action", "string"),
            ("accepted", "boolean"),
            ("id", "string?"),
            ("text", "string?"),
            ("count", "integer?"),
            ("error", "string?"),
        ],
    ),
];

const fn health(path: &'static str, summary: &'static str, answer: &'static str) -> Operation {
    let others = &[("503", "It is not so. The body has the same properties as with 200")];
    Operation { method: "get", path, summary, parameters: &[], answer: Some(answer), others }
}

pub(super) const fn get(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [(&'static str, &'static str, &'static str)],
    answer: Option<&'static str>,
    others: &'static [(&'static str, &'static str)],
) -> Operation {
    Operation { method: "get", path, summary, parameters, answer, others }
}

pub(super) const fn post(
    path: &'static str,
    summary: &'static str,
    parameters: &'static [(&'static str, &'static str, &'static str)],
    answer: Option<&'static str>,
    others: &'static [(&'static str, &'static str)],
) -> Operation {
    Operation { method: "post", path, summary, parameters, answer, others }
}

fn operations() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(&openapi_operate::OPERATIONS)
}

fn schemas() -> impl Iterator<Item = &'static Schema> {
    SCHEMAS.iter().chain(&openapi_operate::SCHEMAS)
}

/// Returns the description, with the paths of jobs if the daemon has jobs.
pub(super) fn document(has_jobs: bool) -> Value {
    let mut paths = Map::new();
    for operation in operations().filter(|operation| has_jobs || !operation.is_of_jobs()) {
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[operation.method] = operation.describe();
    }
    let schemas: Map<String, Value> = schemas()
        .map(|(name, properties)| {
            let typed = properties.iter().map(|(name, text)| ((*name).to_owned(), schema(text)));
            let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
            let object = json!({
                "type": "object",
                "properties": typed.collect::<Map<_, _>>(),
                "required": required,
            });
            ((*name).to_owned(), object)
        })
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Quorate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Leadership, nodes and jobs of one daemon. An error is {\"status\", \"error\"}. If the daemon has a \
                            read token, /livez, /readyz and /leader answer clients without it with their status alone, \
                            and all other paths with 401.",
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    })
}

impl Operation {
    /// Returns whether only a daemon with jobs has the path.
    fn is_of_jobs(&self) -> bool {
        self.path.contains("/jobs") || self.path.ends_with("freeze")
    }

    fn describe(&self) -> Value {
        let content = match self.answer {
            Some(name) => json!({ "application/json": { "schema": schema(name) } }),
            None => json!({ "text/plain": { "schema": { "type": "string" } } }),
        };
        let is_health = self.others.len() == 1 && self.path.matches('/').count() == 1;
        let mut responses = json!({ "200": { "description": self.summary, "content": content } });
        let error = json!({ "application/json": { "schema": schema("Error") } });
        let usual =
            [("400", "A parameter is unknown or wrong"), ("401", "No valid token"), ("403", "Not allowed")];
        for (status, description) in self.others.iter().chain(&usual) {
            let content = if is_health && *status == "503" { &content } else { &error };
            responses[*status] = json!({ "description": description, "content": content });
        }
        let mut described = json!({ "summary": self.summary, "responses": responses });
        let names = self.path.split(['{', '}']).skip(1).step_by(2);
        let in_path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let in_path: Vec<Value> = names.map(in_path).collect();
        if !in_path.is_empty() {
            described["parameters"] = in_path.into();
        }
        if self.method == "post" {
            let properties = self.parameters.iter().map(|(name, of, description)| {
                ((*name).to_owned(), json!({ "type": of, "description": description }))
            });
            let body = json!({ "type": "object", "properties": properties.collect::<Map<_, _>>() });
            described["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
            described["security"] = json!([{ "token": [] }]);
        } else {
            let query = self.parameters.iter().map(|(name, of, description)| {
                json!({ "name": name, "in": "query", "description": description, "schema": { "type": of } })
            });
            let path = described["parameters"].as_array().cloned().unwrap_or_default();
            described["parameters"] = path.into_iter().chain(query).collect();
        }
        described
    }
}

/// Returns the schema of a type of [`SCHEMAS`].
fn schema(text: &str) -> Value {
    if let Some(text) = text.strip_suffix('?') {
        return match schema(text) {
            mut simple if simple.get("type").is_some() => {
                simple["type"] = json!([simple["type"], "null"]);
                simple
            }
            other => json!({ "anyOf": [other, { "type": "null" }] }),
        };
    }
    if let Some(items) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return json!({ "type": "array", "items": schema(items) });
    }
    match text.starts_with(char::is_uppercase) {
        true => json!({ "$ref": format!("#/components/schemas/{text}") }),
        false => json!({ "type": text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_its_schema_and_every_schema_a_use() {
        let text = document(true).to_string();
        for (name, _) in schemas() {
            assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "{name}");
        }
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas().any(|(known, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn a_daemon_without_jobs_describes_none() {
        let with = document(true)["paths"].as_object().unwrap().len();
        let paths = document(false)["paths"].as_object().unwrap().clone();
        assert!(paths.len() < with && paths.keys().all(|path| !path.contains("jobs")));
        assert!(paths.contains_key("/leader") && paths.contains_key("/api/v1/nodes"));
    }
}

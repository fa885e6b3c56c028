//! The part of the description for the paths of [`operate`](super::operate), and `why`.

use super::openapi::{NO_QUORUM, Operation, READ_JOB, REQUEST, Schema, UNANSWERED, WAIT, get, post};

const LIMIT: (&str, &str, &str) = ("limit", "integer", "Number of entries, up to 10000; default 20");
const NAMES: (&str, &str, &str) =
    ("limit", "integer", "Number of stored names to look at, up to 10000, which is the default");
const REASON: (&str, &str, &str) = ("reason", "string", "Why; shown in the audit list");
const NOTHING_STORED: (&str, &str) = ("404", "The nodes store nothing of the message");

pub(super) const OPERATIONS: [Operation; 11] = [
    post(
        "/api/v1/election/resign",
        "Make the leader resign, as `quorate election resign --json`",
        &[("term", "integer", "Only if the leader leads this term"), REASON, WAIT],
        Some("Resignation"),
        &[("404", "There is no leader, or it leads another term"), NO_QUORUM, UNANSWERED],
    ),
    get(
        "/api/v1/leader/history",
        "The terms of the group, newest first, as `quorate leader history --json`",
        &[LIMIT],
        Some("Terms"),
        &[NO_QUORUM],
    ),
    get(
        "/api/v1/audit",
        "Requests and operations of people, newest first, as `quorate audit --json`",
        &[LIMIT],
        Some("Audit"),
        &[NO_QUORUM],
    ),
    get(
        "/api/v1/locks",
        "The held locks, as `quorate locks list --json`",
        &[NAMES],
        Some("Locks"),
        &[NO_QUORUM],
    ),
    get(
        "/api/v1/claims/{set}",
        "The messages of a set, as `quorate claims show --json`",
        &[NAMES],
        Some("Messages"),
        &[NO_QUORUM],
    ),
    get(
        "/api/v1/claims/{set}/dead-letters",
        "The messages that were given up, as `quorate claims dead-letters --json`",
        &[NAMES],
        Some("Messages"),
        &[NO_QUORUM],
    ),
    get(
        "/api/v1/claims/{set}/messages/{id}",
        "One message, as `quorate claims show SET ID --json`",
        &[],
        Some("Messages"),
        &[NOTHING_STORED, NO_QUORUM],
    ),
    post(
        "/api/v1/claims/{set}/messages/{id}/reset",
        "Make a message that was given up count as new, as `quorate claims reset --json`",
        &[REASON],
        Some("Reset"),
        &[NOTHING_STORED, NO_QUORUM, ("504", "A worker holds the message")],
    ),
    get(
        "/api/v1/jobs/{job}/why",
        "Why a job did or did not run, as `quorate jobs why --json`",
        &[("at", "string", "The time at which it should have run (RFC 3339); default its latest tick")],
        Some("Explanation"),
        READ_JOB,
    ),
    post(
        "/api/v1/freeze",
        "Skip the ticks of all jobs until a time, as `quorate freeze --json`",
        &[
            ("reason", "string", "Why; shown beside the freeze; required"),
            ("for", "string", "The length of the freeze, such as 30m; this or until is required"),
            ("until", "string", "The end of the freeze (RFC 3339)"),
            WAIT,
        ],
        Some("Request"),
        REQUEST,
    ),
    post(
        "/api/v1/unfreeze",
        "End the freeze now, as `quorate unfreeze --json`",
        &[WAIT],
        Some("Request"),
        REQUEST,
    ),
];

pub(super) const SCHEMAS: [Schema; 10] = [
    (
        "Resignation",
        &[
            ("group", "string"),
            ("resigned", "boolean"),
            ("leader", "string?"),
            ("term", "integer?"),
            ("successor", "string?"),
            ("successor_term", "integer?"),
            ("error", "string?"),
        ],
    ),
    ("Terms", &[("group", "string"), ("terms", "[Term]")]),
    (
        "Term",
        &[
            ("term", "integer"),
            ("holder", "string"),
            ("began", "string"),
            ("ended", "string?"),
            ("cause", "string?"),
            ("reason", "string?"),
            ("lasted_ms", "integer?"),
            ("leads", "boolean"),
        ],
    ),
    ("Audit", &[("group", "string?"), ("requests", "[AuditEntry]")]),
    (
        "AuditEntry",
        &[
            ("at", "string"),
            ("by", "string"),
            ("action", "string"),
            ("target", "string"),
            ("job", "string?"),
            ("reason", "string?"),
            ("until", "string?"),
            ("from", "string?"),
            ("tick", "string?"),
            ("accepted", "boolean"),
            ("answer", "string"),
            ("leader", "string?"),
            ("id", "string?"),
        ],
    ),
    (
        "Locks",
        &[("prefix", "string"), ("locks", "[HeldLock]"), ("complete", "boolean"), ("missing", "[string]")],
    ),
    (
        "HeldLock",
        &[
            ("name", "string"),
            ("state", "string"),
            ("holder", "string?"),
            ("remaining_ms", "integer?"),
            ("fencing_token", "integer?"),
        ],
    ),
    (
        "Messages",
        &[
            ("set", "string"),
            ("messages", "[object]"),
            ("examined", "integer"),
            ("complete", "boolean"),
            ("missing", "[string]"),
        ],
    ),
    ("Reset", &[("set", "string"), ("id", "string"), ("reset", "boolean"), ("error", "string?")]),
    (
        "Explanation",
        &[
            ("group", "string"),
            ("job", "string"),
            ("asked", "string?"),
            ("reason", "string"),
            ("tick", "string?"),
            ("text", "string"),
            ("evidence", "[string]"),
            ("action", "string"),
            ("entry", "RunEnd?"),
            ("next", "string?"),
        ],
    ),
];

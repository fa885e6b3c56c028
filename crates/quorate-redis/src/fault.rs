//! What went wrong, in words that say what to do. No password reaches them, though a server repeats it.

use crate::reply::{shown, unexpected};
use quorate::{node::Cause, plain::plain};
use redis::{RedisError, ServerError};
use std::io;

/// The mend for a server that does not know us.
const CREDENTIALS: &str = "check the user and password in the node's URL or password_file";

/// What may be behind a TLS connection that ends without a word.
const DROPPED_TLS: &str = "it closed the connection before it answered; where it demands a client certificate, give a \
                           cert_file and a key_file";

/// The mend for a user with too few rights. The braces are those of the counters.
const RIGHTS: &str = "let the user of the node's URL do +config|get +@read +@write +@scripting +@connection +@pubsub +info +time, \
                      and give it the keys ~PREFIX* and ~{PREFIX* and the channels &PREFIX*; `quorate doctor` names the least that would do";

/// The cause behind an error of the server's own.
pub(crate) fn of_server(error: &ServerError) -> Cause {
    of_error(error.code(), error.details().unwrap_or_default())
}

/// The cause behind an error that repeats `secret`, without it. Looked for before the text is cut: half a password
/// would not be known for one.
pub(crate) fn unless_it_repeats(error: &ServerError, secret: &str) -> Result<(), Cause> {
    let (code, details) = (error.code(), error.details().unwrap_or_default());
    if !code.contains(secret) && !details.contains(secret) {
        return Ok(());
    }
    Err(of_error(&code.replace(secret, "***"), &details.replace(secret, "***")))
}

fn of_error(code: &str, details: &str) -> Cause {
    let said = said(code, details);
    match code {
        // The driver opens another session, which loads the scripts again.
        "NOSCRIPT" => Cause::Closed,
        "NOAUTH" | "WRONGPASS" => Cause::Denied(format!("{said}; {CREDENTIALS}").into()),
        "NOPERM" => Cause::Denied(format!("{said}; {RIGHTS}").into()),
        // These pass: a snapshot that succeeds, memory that is freed, a master that comes back.
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" | "OOM" | "READONLY"
        | "NOREPLICAS" => Cause::Unreachable(said.into()),
        "DENIED" => Cause::Denied(
            "the server is in protected mode and takes no connection from another machine; give it a password, or set bind and protected-mode".into(),
        ),
        "ERR" if details.starts_with("AUTH") => {
            Cause::Denied(format!("the server asks nobody for a password, but was given one; {CREDENTIALS}").into())
        }
        "ERR" if details.starts_with("max number of clients") => Cause::Unreachable(said.into()),
        "ERR" => unexpected(&said),
        _ => Cause::Denied(said.into()),
    }
}

/// The cause behind a failed connection to the node called `name`.
pub(crate) fn of_io(name: &str, error: &io::Error) -> Cause {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let mend = "no Redis server listens there; start it, or correct the node's address";
        return Cause::Unreachable(shown(&format!("{name}: {error}; {mend}")));
    }
    let is_dropped = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
    if is_dropped && name.starts_with("rediss://") {
        return Cause::Unreachable(shown(&format!("{name}: {error}: {DROPPED_TLS}")));
    }
    Cause::Unreachable(shown(&format!("{name}: {error}")))
}

/// The cause behind a connection to the node called `name` that broke during the handshake.
pub(crate) fn of_broken(name: &str, error: &RedisError) -> Cause {
    if error.is_connection_dropped() && name.starts_with("rediss://") {
        return Cause::Unreachable(shown(&format!("{name}: {DROPPED_TLS}")));
    }
    if error.is_connection_dropped() {
        let hint = "it closed the connection before it answered; where the port speaks TLS, write rediss://";
        return Cause::Unreachable(shown(&format!("{name}: {hint}")));
    }
    if error.is_io_error() {
        return Cause::Unreachable(shown(&format!("{name}: {error}")));
    }
    unexpected(&format!("{name} does not speak Redis's protocol: {error}"))
}

/// `cause` without `secret`.
pub(crate) fn without(cause: Cause, secret: &str) -> Cause {
    let clean = |text: std::sync::Arc<str>| match text.contains(secret) {
        true => text.replace(secret, "***").into(),
        false => text,
    };
    match cause {
        Cause::Unreachable(text) => Cause::Unreachable(clean(text)),
        Cause::Denied(text) => Cause::Denied(clean(text)),
        Cause::Misconfigured(text) => Cause::Misconfigured(clean(text)),
        Cause::Protocol(text) => Cause::Protocol(clean(text)),
        other => other,
    }
}

fn said(code: &str, details: &str) -> String {
    format!("{} {}", plain(code, 32), plain(details, 200).trim())
}

//! Converts errors of a server or a connection to [`Cause`]s, with a fix. A cause never contains a password,
//! even if the server repeats it.

use crate::reply::{shown, unexpected};
use quorate::{node::Cause, plain::plain};
use redis::{RedisError, ServerError};
use std::io;

/// The fix for a server that does not accept the credentials.
const CREDENTIALS: &str = "check the user and password in the node's URL or password_file";

/// The likely reason for a TLS connection that ends without an alert.
const DROPPED_TLS: &str = "it closed the connection before it answered; where it demands a client certificate, give a \
                           cert_file and a key_file";

/// The fix for a user with too few permissions. The text names `{PREFIX*` too, because the keys of counters,
/// readers and queues begin with a brace.
const RIGHTS: &str = "let the user of the node's URL do +config|get +@read +@write +@scripting +@connection +@pubsub +info +time, \
                      and give it the keys ~PREFIX* and ~{PREFIX* and the channels &PREFIX*; `quorate doctor` prints the smallest sufficient rule";

/// Returns the cause for an error that the server reported.
pub(crate) fn of_server(error: &ServerError) -> Cause {
    of_error(error.code(), error.details().unwrap_or_default())
}

/// Checks whether an error repeats `secret`. If it does, returns its cause without the secret. The text must be
/// searched before it is cut to a limit, because a password that is cut in two would not be found.
pub(crate) fn check_for_secret(error: &ServerError, secret: &str) -> Result<(), Cause> {
    let (code, details) = (error.code(), error.details().unwrap_or_default());
    if !code.contains(secret) && !details.contains(secret) {
        return Ok(());
    }
    Err(of_error(&code.replace(secret, "***"), &details.replace(secret, "***")))
}

fn of_error(code: &str, details: &str) -> Cause {
    let text = server_text(code, details);
    match code {
        // The driver opens another session, which loads the scripts again.
        "NOSCRIPT" => {
            Cause::Unreachable("the server has lost its scripts (SCRIPT FLUSH); a new session loads them again".into())
        }
        "NOAUTH" | "WRONGPASS" => Cause::Denied(format!("{text}; {CREDENTIALS}").into()),
        "NOPERM" => Cause::Denied(format!("{text}; {RIGHTS}").into()),
        // These errors may end without an operator, for instance when memory is freed or a master returns.
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" | "OOM" | "READONLY"
        | "NOREPLICAS" => Cause::Unreachable(text.into()),
        "DENIED" => Cause::Denied(
            "the server is in protected mode and takes no connection from another machine; give it a password, or set bind and protected-mode".into(),
        ),
        "ERR" if details.starts_with("AUTH") => {
            Cause::Denied(format!("the server requires no password, but received one; {CREDENTIALS}").into())
        }
        "ERR" if details.starts_with("max number of clients") => Cause::Unreachable(text.into()),
        "ERR" => unexpected(&text),
        _ => Cause::Denied(text.into()),
    }
}

/// Returns the text and the fix of an error with which the server refuses a write whatever its key is. Returns `None` for
/// any other error. `error` is the text of the error, with its code.
pub(crate) fn of_refused_write(error: &str) -> Option<String> {
    let fix = match error.split(' ').next()? {
        "OOM" => "raise the server's maxmemory, or remove other data from it",
        "MISCONF" => "check the server's disk",
        "NOREPLICAS" => "set min-replicas-to-write 0 on the server, because a node needs no replicas",
        "NOPERM" => RIGHTS,
        // Redis 7 gives this text to a script whose user lacks a permission.
        "ERR" if error.starts_with("ERR The user executing the script can't") => RIGHTS,
        _ => return None,
    };
    Some(format!("{}; {fix}", plain(error, 400).trim_end_matches('.')))
}

/// Returns the cause for a failed connection to the node called `name`.
pub(crate) fn of_io(name: &str, error: &io::Error) -> Cause {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let fix = "no Redis server listens there; start it, or correct the node's address";
        return Cause::Unreachable(shown(&format!("{name}: {error}; {fix}")));
    }
    let is_dropped = matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
    if is_dropped && name.starts_with("rediss://") {
        return Cause::Unreachable(shown(&format!("{name}: {error}: {DROPPED_TLS}")));
    }
    Cause::Unreachable(shown(&format!("{name}: {error}")))
}

/// Returns the cause for a connection to the node called `name` that broke during the handshake.
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

/// Returns `cause` without `secret`.
pub(crate) fn redact(cause: Cause, secret: &str) -> Cause {
    let clean = |text: std::sync::Arc<str>| match text.contains(secret) {
        true => text.replace(secret, "***").into(),
        false => text,
    };
    match cause {
        Cause::Unreachable(text) => Cause::Unreachable(clean(text)),
        Cause::Denied(text) => Cause::Denied(clean(text)),
        Cause::Misconfigured(text) => Cause::Misconfigured(clean(text)),
        Cause::Changed(text) => Cause::Changed(clean(text)),
        Cause::Protocol(text) => Cause::Protocol(clean(text)),
        other => other,
    }
}

fn server_text(code: &str, details: &str) -> String {
    format!("{} {}", plain(code, 32), plain(details, 200).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_every_write_gets_is_told_from_one_of_a_single_key_and_has_a_fix() {
        for (error, fix) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "maxmemory'; raise the server's maxmemory",
            ),
            (
                "MISCONF Errors writing to the AOF file: No space left on device",
                "device; check the server's disk",
            ),
            ("NOREPLICAS Not enough good replicas to write.", "write; set min-replicas-to-write 0"),
            ("NOPERM this user has no permissions to run the 'set' command", "`quorate doctor`"),
            ("ERR The user executing the script can't run this command or subcommand", "`quorate doctor`"),
        ] {
            let text = of_refused_write(error).unwrap_or_else(|| panic!("{error}"));
            assert!(text.contains(fix), "{text}");
        }
        for error in ["", "ERR value is not an integer or out of range", "WRONGTYPE x", "BUSY x", "OOMS x"] {
            assert_eq!(of_refused_write(error), None, "{error}");
        }
        let hostile = of_refused_write("OOM \u{1b}[2J").unwrap();
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
    }
}

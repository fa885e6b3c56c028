//! Converts errors of a server or a connection to [`Cause`]s, with a fix. A cause never contains a password,
//! even if the server repeats it.

use crate::redis::{
    reply::{shown, unexpected},
    wire::ReadError,
};
use crate::{node::Cause, plain::plain};
use std::io;

/// The fix for a server that does not accept the credentials.
const CREDENTIALS: &str = "check the user and password in the node's URL or password_file";

/// The likely reason for a TLS connection that ends without an alert.
const DROPPED_TLS: &str = "it closed the connection before it answered; where it demands a client certificate, give a \
                           cert_file and a key_file";

/// The fix for a node's user with too few permissions. The text names `{PREFIX*` too, because the keys of counters,
/// readers and queues begin with a brace.
pub(crate) const RIGHTS: &str = "let the user of the node's URL do +config|get +@read +@write +@scripting +@connection +@pubsub +@transaction +info +time, \
                      and give it the keys ~PREFIX* and ~{PREFIX* and the channels &PREFIX*; `quorate doctor` prints the smallest sufficient rule";

/// The texts that a script gets whose user lacks a permission: from Redis 6.2 (without a code) and 7.0, and from later
/// releases and Valkey.
const NO_PERMISSION_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script: "];

/// The text in place of a text of the server that contains the password.
const WITHHELD: &str = "(its text is not shown, because it contains the password)";

/// The length in bytes from which a password in a fact about the server is no accident.
const NO_ACCIDENT: usize = 8;

/// Returns the cause for an error that the server reported, without `secret`. `rights` is the fix for a user with too few
/// permissions.
pub(crate) fn of_server(error: &str, secret: Option<&str>, rights: &str) -> Cause {
    let (code, details) = parts(error);
    let text = error_text(error, secret);
    match code {
        // The driver opens another session, which loads the scripts again.
        "NOSCRIPT" => {
            Cause::Unreachable("the server has lost its scripts (SCRIPT FLUSH); a new session loads them again".into())
        }
        "NOAUTH" | "WRONGPASS" => Cause::Denied(format!("{text}; {CREDENTIALS}").into()),
        "NOPERM" => Cause::Denied(format!("{text}; {rights}").into()),
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
pub(crate) fn of_refused_write(error: &str, secret: Option<&str>) -> Option<String> {
    let fix = match error.split(' ').next()? {
        "OOM" => "raise the server's maxmemory, or remove other data from it",
        "MISCONF" => "check the server's disk",
        "NOREPLICAS" => "set min-replicas-to-write 0 on the server, because a node needs no replicas",
        "NOPERM" => RIGHTS,
        _ if NO_PERMISSION_IN_SCRIPT.iter().any(|text| error.contains(text)) => RIGHTS,
        _ => return None,
    };
    // The code decides, also where the text is withheld.
    let shown = secret.map_or(error, |secret| without(error, secret));
    Some(format!("{}; {fix}", plain(shown, 400).trim_end_matches('.')))
}

/// Returns the cause for a failed connection to the node called `name`.
pub(crate) fn of_io(name: &str, error: &io::Error) -> Cause {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        let fix = "no Redis server listens there; start it, or correct the node's address";
        return Cause::Unreachable(shown(&format!("{name}: {error}; {fix}")));
    }
    if is_dropped(error) && name.starts_with("rediss://") {
        return Cause::Unreachable(shown(&format!("{name}: {error}: {DROPPED_TLS}")));
    }
    Cause::Unreachable(shown(&format!("{name}: {error}")))
}

/// Returns the cause for a connection to the node called `name` that broke during the handshake.
pub(crate) fn of_broken(name: &str, error: &ReadError) -> Cause {
    let error = match error {
        ReadError::Io(error) => error,
        ReadError::Malformed(why) => {
            return unexpected(&format!("{name} does not speak Redis's protocol: {why}"));
        }
    };
    let hint = match is_dropped(error) {
        true if name.starts_with("rediss://") => DROPPED_TLS,
        true => "it closed the connection before it answered; where the port speaks TLS, write rediss://",
        false => return Cause::Unreachable(shown(&format!("{name}: {error}"))),
    };
    Cause::Unreachable(shown(&format!("{name}: {hint}")))
}

/// Returns whether the server has closed the connection.
pub(crate) fn is_dropped(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted | UnexpectedEof | NotConnected)
}

/// Returns `cause` without `secret`. The texts of other causes are not of the server, or come from [`of_server`].
pub(crate) fn redact(cause: Cause, secret: &str) -> Cause {
    match cause {
        Cause::Changed(text) => Cause::Changed(fact_without(&text, secret).into()),
        Cause::Protocol(text) => Cause::Protocol(without(&text, secret).into()),
        other => other,
    }
}

/// Returns `text` of the server, or another text if it contains `secret`, since a server may repeat its input. The whole
/// text is withheld: a mask inside a well-known text would show which of its words is the password.
pub(crate) fn without<'a>(text: &'a str, secret: &str) -> &'a str {
    if text.contains(secret) { WITHHELD } else { text }
}

/// Returns `text`, a fact about the server such as its version, or another text if it contains `secret`. A short password
/// is in many facts by accident, and the unchanged fact does not show it.
pub(crate) fn fact_without<'a>(text: &'a str, secret: &str) -> &'a str {
    if secret.len() < NO_ACCIDENT { text } else { without(text, secret) }
}

/// Returns the text of an error of the server. It is searched before it is cut to a limit, because a password that is cut
/// in two would not be found.
pub(crate) fn error_text(error: &str, secret: Option<&str>) -> String {
    let (code, details) = parts(error);
    let contains = |text: &str| secret.is_some_and(|secret| text.contains(secret));
    match (contains(code), contains(details)) {
        (true, _) => WITHHELD.to_owned(),
        (false, true) => format!("{} {WITHHELD}", plain(code, 32)),
        (false, false) => format!("{} {}", plain(code, 32), plain(details, 200).trim()),
    }
}

/// Returns the code and the rest of an error's text.
pub(crate) fn parts(error: &str) -> (&str, &str) {
    error.split_once(' ').unwrap_or((error, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_error_that_repeats_the_password_is_withheld_as_a_whole() {
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        let shown = |secret: Option<&str>| of_server(wrong, secret, RIGHTS).to_string();
        for secret in [None, Some("hunter2"), Some("z"), Some("0")] {
            assert!(shown(secret).contains("WRONGPASS invalid username-password pair"), "{secret:?}");
        }
        // A mask in these texts would show the password.
        for secret in ["a", "i", "invalid", "WRONGPASS", "S", "username-password"] {
            let text = shown(Some(secret));
            assert!(text.contains(WITHHELD) && !text.contains("***"), "{secret}: {text}");
            assert!(!text.contains("invalid user") && text.contains(CREDENTIALS), "{secret}: {text}");
            assert!(matches!(of_server(wrong, Some(secret), RIGHTS), Cause::Denied(_)), "{secret}");
        }
        let repeats = "ERR unknown command 'x', with args beginning with: 'hunter2'";
        let text = of_server(repeats, Some("hunter2"), RIGHTS).to_string();
        assert!(text.contains(&format!("ERR {WITHHELD}")), "{text}");
    }

    #[test]
    fn a_short_password_does_not_change_a_fact() {
        assert_eq!(fact_without("noeviction", "n"), "noeviction");
        assert_eq!(fact_without("7.0.15", "hunter2-hunter2"), "7.0.15");
        assert_eq!(fact_without("hunter2-hunter2 1", "hunter2-hunter2"), WITHHELD);
    }

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
            ("The user executing the script can't run this command or subcommand", "`quorate doctor`"),
            (
                "ERR ACL failure in script: User app has no permissions to run the 'set' command",
                "`quorate doctor`",
            ),
        ] {
            let text = of_refused_write(error, None).unwrap_or_else(|| panic!("{error}"));
            assert!(text.contains(fix), "{text}");
        }
        for error in ["", "ERR value is not an integer or out of range", "WRONGTYPE x", "BUSY x", "OOMS x"] {
            assert_eq!(of_refused_write(error, None), None, "{error}");
        }
        let hostile = of_refused_write("OOM \u{1b}[2J", None).unwrap();
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
        // A node out of memory is found also under a password that is in the code of the error.
        let withheld = of_refused_write("OOM command not allowed", Some("O")).unwrap();
        assert_eq!(
            withheld,
            format!("{WITHHELD}; raise the server's maxmemory, or remove other data from it")
        );
    }
}

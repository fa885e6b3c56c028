use super::config;
use crate::unfriendly::{fit_to_print, text};
use quorate::node::Node;
use quorate::redis::RedisNode;
use quorate_cli::{config::Environment, config::NodeSpec, probe};
use std::{collections::BTreeMap, ffi::OsString, io, path::Path};

/// A password that occurs in no other text.
pub const SECRET: &str = "Zk7qXw9v";

/// The second half of a password that has a special character in its middle.
const HALF: &str = "Qm3tYb8n";

pub(super) const URL: &[&str] = &[
    "redis", "rediss", "unix", "valkey", "file", "://", "REDIS://", ":", "/", "//", "@", "a", "cache",
    "10.0.0.1", "[::1]", "6379", "99999", "0", "-1", "?db=", "&", "user=", "pass=", "#", "%40", "%zz", "%00",
    " ", "\u{1b}", "ü", "..", ",",
];

/// Pieces of URLs that have a place for a password, into which [`secrets`] inserts the secret.
pub(super) const PIECES: &[&str] = &[
    "/Qm3tYb8n@cache",
    "#Qm3tYb8n@cache",
    "?Qm3tYb8n@cache:6379",
    "/Qm3tYb8n",
    "?Qm3tYb8n",
    ":Qm3tYb8n",
    "%Qm3tYb8n@cache",
    "redis://:",
    "rediss://user:",
    "unix:///s?pass=",
    "unix:///s?pass=&user=u",
    "@",
    "@cache",
    "@cache:6379",
    "@cache:port",
    "/0",
    "/x",
    "?db=1",
    "#x",
    ",redis://b",
    ":6379",
    "\"",
    "]",
    "\n",
    " ",
    "=",
    "http://u:",
    "redis//user:",
    "user:",
    "'",
    "{",
    "\u{1b}",
    "&db=x",
];

/// Reads a node's URL with the code that connects, and with the program. The results must be safe to print, and
/// the node's name must be a URL of the same node.
pub fn node_url(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match RedisNode::parse(text) {
        Ok(node) => {
            let again = RedisNode::parse(node.name());
            assert_eq!(again.as_ref().map(Node::name).ok(), Some(node.name()), "a name is a URL of itself");
            fit_to_print(&format!("{node:?}"));
        }
        Err(error) => fit_to_print(&error.to_string()),
    }
    match NodeSpec::parse(text, None) {
        Ok(spec) => fit_to_print(&format!("{spec:?} {spec}")),
        Err(error) => fit_to_print(&error.to_string()),
    }
}

/// Builds a URL from `bytes` by inserting [`SECRET`] at the first place that a password can have. The text
/// before and after the password may make the URL invalid. Checks that no part of the program shows the secret.
pub fn secrets(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Some((scheme, rest)) = text.split_once("://") else { return };
    // Without a place for a password, the program cannot recognise the secret as one.
    let place = rest.find("?pass=").map(|at| at + 6).or_else(|| rest.find(':').map(|at| at + 1));
    let Some((before, after)) = place.and_then(|place| rest.split_at_checked(place)) else { return };
    if !is_a_beginning(scheme, before) {
        return;
    }
    let url = format!("{scheme}://{before}{SECRET}{after}");
    // After an `@` comes the host, and after a separator comes another URL. The second half is not part of a
    // password there.
    let half = !before.contains(HALF)
        && after.rfind(HALF).is_some_and(|at| !after[..at].contains(['@', ',', ' ', '\n']));
    for shown in everything_said_of(&url) {
        assert!(!shown.contains(SECRET), "{url:?}: {shown}");
        assert!(!half || !shown.contains(HALF), "half of the password of {url:?}: {shown}");
    }
}

/// Returns whether a person would read this text as the beginning of a URL that ends just before its password.
fn is_a_beginning(scheme: &str, before: &str) -> bool {
    let odd = |c: char| c.is_control() || "\"'\\,#{}[] ".contains(c);
    scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
        && !before.contains(odd)
        && (before.ends_with("?pass=") || !before.contains(['@', '/', '?']))
}

fn everything_said_of(url: &str) -> Vec<String> {
    let mut said = vec![
        RedisNode::parse(url)
            .map_or_else(|error| error.to_string(), |node| format!("{node:?} {}", node.name())),
        NodeSpec::parse(url, None)
            .map_or_else(|error| format!("{error} {error:?}"), |spec| format!("{spec:?} {spec}")),
        NodeSpec::parse(url, Some("/p".into()))
            .map_or_else(|error| error.to_string(), |spec| format!("{spec:?}")),
    ];
    for text in [
        format!("nodes = [\"{url}\"]\n"),
        format!("nodes = [{{ url = \"{url}\", password_file = \"p\" }}]\n"),
        format!("nodes = \"{url}\"\n"),
        format!("nodes = [\"{url}\n"),
        format!("nodes = [\"{url}\", 5]\n"),
        format!("node = [\"{url}\"]\n"),
        format!("nodes = [{{ uri = \"{url}\" }}]\n"),
        format!("nodes = [\"{url}\"]\nlease = \"{url}\"\n"),
    ] {
        said.push(match config::load(&text) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error} {error:?}"),
        });
    }
    let missing = |_: &Path| Err(io::ErrorKind::NotFound.into());
    for args in [
        vec!["exec", "--nodes", url, "--lock", "x", "--", "true"],
        vec!["exec", url, "--lock", "x", "--", "true"],
        vec!["exec", "--node", url, "--lock", "x", "--", "true"],
        vec!["run", "--nodes", url, "--log-level", url],
        vec!["exec", "--ttl", url, "--nodes", url, "--lock", "x", "--", "true"],
        vec![url],
    ] {
        let args: Vec<OsString> = ["quorate"].into_iter().chain(args).map(Into::into).collect();
        let env = BTreeMap::new();
        let around = Environment { env, read: &missing, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
        said.push(match probe::arguments(&args, &around) {
            Ok(config) => format!("{config:?}"),
            Err(error) => error,
        });
    }
    let env: BTreeMap<_, _> = [("QUORATE_NODES".to_owned(), url.to_owned())].into();
    let around = Environment { env, read: &missing, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
    let args: Vec<OsString> = ["quorate", "status"].map(Into::into).into();
    said.push(probe::arguments(&args, &around).map_or_else(|error| error, |config| format!("{config:?}")));
    said
}

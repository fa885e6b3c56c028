use crate::unfriendly::fit_to_print;
use quorate_cli::{config::Environment, probe};
use std::{collections::BTreeMap, ffi::OsString, io, path::Path};

pub(super) const PIECES: &[&str] = &[
    "exec\0",
    "run\0",
    "status\0",
    "nodes\0",
    "trust\0",
    "demo\0",
    "audit\0",
    "when\0",
    "claims\0",
    "dead-letters\0",
    "reset\0",
    "list\0",
    "--limit\0",
    "jobs\0",
    "why\0",
    "pause\0",
    "--reason\0",
    "--until\0",
    "--at\0",
    "@every 5s\0",
    "--zone\0",
    "--dst\0",
    "election\0",
    "resign\0",
    "lock\0",
    "show\0",
    "release\0",
    "--force\0",
    "--group\0",
    "--term\0",
    "--nodes\0",
    "redis://a,redis://b,redis://c\0",
    "--local\0",
    "--lock\0",
    "x\0",
    "--ttl\0",
    "5s\0",
    "0s\0",
    "--wait\0",
    "--no-wait\0",
    "--conflict-exit-code\0",
    "256\0",
    "7\0",
    "--\0",
    "true\0",
    "--config\0",
    "/q.toml\0",
    "--prefix\0",
    "{\0",
    "\u{1b}[2J\0",
    "--help\0",
    "-h\0",
    "--version\0",
    "--json\0",
    "--log-level\0",
    "debug\0",
    "--log-format\0",
    "file:///a\0",
    "--check\0",
    "ü",
    "=",
    "-",
    "\0",
];

/// Reads `bytes` as the arguments of the program. The arguments are separated by NUL bytes.
pub fn arguments(bytes: &[u8]) {
    use std::os::unix::ffi::OsStringExt;
    let args = bytes.split(|byte| *byte == 0).map(|arg| OsString::from_vec(arg.to_vec()));
    read([OsString::from("quorate")].into_iter().chain(args).collect());
}

pub(super) fn read(args: Vec<OsString>) {
    let missing = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let env: BTreeMap<_, _> = [("HOME".to_owned(), "/home/x".to_owned())].into();
    let around = Environment { env, read: &missing, is_own: &|_| true, host: "oak".to_owned(), pid: 7 };
    match probe::arguments(&args, &around) {
        Ok(Some(config)) => {
            assert!(!config.nodes.is_empty(), "there is no default list of nodes");
            assert!(!config.lease.ttl.is_zero() && config.lease.ttl <= config.settings.max_ttl);
        }
        Ok(None) => {}
        Err(error) => fit_to_print(&error),
    }
}

use crate::unfriendly::{fit_to_print, text};
use quorate_cli::config::{Config, ConfigError, Environment, Flags, NodeSpec};
use std::{collections::BTreeMap, path::Path};

pub(super) const PIECES: &[&str] = &[
    "nodes = [\"redis://a\", \"redis://b\", \"redis://c\"]\n",
    "nodes = [",
    "{ url = \"redis://b/1\", password_file = \"s\" }",
    "]\n",
    "group = \"billing\"\n",
    "prefix = \"shop:\"\n",
    "max_ttl = \"20s\"\n",
    "drift_rate = 0.01\n",
    "drift_rate = nan\n",
    "drift_rate = -1e308\n",
    "node_timeout = \"50ms\"\n",
    "[lease]\n",
    "ttl = \"10s\"\n",
    "ttl = \"584542046090y\"\n",
    "max_ttl = \"290000000000y\"\nlease = { ttl = \"280000000000y\" }\n",
    "step_down_grace = \"2s\"\n",
    "[[job]]\n",
    "name = \"n\"\n",
    "schedule = \"0 3 * * *\"\n",
    "zone = \"Europe/Kyiv\"\n",
    "zone = \"x\"\n",
    "every = \"10s\"\n",
    "every = \"1ns\"\n",
    "command = [\"true\"]\n",
    "command = []\n",
    "misfire = { rule = \"run-once\", within = \"1h\" }\n",
    "misfire = \"skip\"\n",
    "delivery = \"at-least-once\"\n",
    "timeout = \"0s\"\n",
    "env = { A = \"b\" }\n",
    "shell = \"true | false\"\n",
    "shell = \"\"\n",
    "ok_exit_codes = [0, 3]\n",
    "ok_exit_codes = [-9223372036854775808]\n",
    "keep_output = \"4KiB\"\n",
    "background = \"leave\"\n",
    "keep_output = \"99999999999999999999MiB\"\n",
    "delay = \"1s\"\n",
    "at = \"2027-01-01T00:00:00Z\"\n",
    "at = \"+262142-12-31T23:59:59Z\"\n",
    "dst = \"both\"\n",
    "jitter = \"1s\"\n",
    "jitter = \"584542046090y\"\n",
    "overlap = \"skip\"\n",
    "runs_on = \"any\"\n",
    "retries = { attempts = 3, backoff = \"1s\", max_backoff = \"1m\" }\n",
    "retries = { attempts = 9223372036854775807 }\n",
    "priority = -2147483648\n",
    "history = 10000\n",
    "max_running = 1\n",
    "\u{0}",
    "\u{1b}",
    "=",
    "\"",
    "[",
    "]",
    "ü",
    "#",
    "\n",
    "nodez = 1\n",
    "fence_retention = \"1s\"\n",
    "ledger_retention = \"0s\"\n",
    "max_clock_offset = \"1y\"\n",
    "clock_step_allowance = \"1y\"\n",
    "worker = \"\\u0007\"\n",
];

/// Reads the text of a configuration file twice. Both results must be the same, and an error must name the
/// file.
pub fn config(bytes: &[u8]) {
    if let Some(text) = text(bytes) {
        read(text);
    }
}

pub(super) fn read(text: &str) {
    match load(text) {
        Ok(config) => {
            assert_eq!(load(text).as_ref(), Ok(&config));
            assert!(!config.nodes.is_empty());
            for node in &config.nodes {
                let name = node.name();
                let again = NodeSpec::parse(&name, None).map(|again| again.name());
                assert_eq!(again, Ok(name), "a name is a URL of itself");
            }
            if let Err(error) = config.group_with_jobs() {
                fit_to_print(&error.to_string());
            }
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("/q.toml") || error.contains("nodes"), "an error of no place: {error}");
            fit_to_print(&error);
        }
    }
}

pub(super) fn load(text: &str) -> Result<Config, ConfigError> {
    let read = |_: &Path| Ok(text.to_owned());
    let env: BTreeMap<_, _> = [("QUORATE_CONFIG".to_owned(), "/q.toml".to_owned())].into();
    Config::load(
        &Flags::default(),
        &Environment { env, read: &read, is_own: &|_| true, host: "oak".to_owned(), pid: 7 },
    )
}

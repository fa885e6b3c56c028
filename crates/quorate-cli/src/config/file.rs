//! The file as it is written: keys, types and positions. Other modules check the values.

use super::{LeaseConfig, Secret, tls::TlsNames};
use humantime_serde::Serde;
use quorate::{
    quorum::QuorumConfig,
    scheduler::{Delivery, Overlap},
};
use serde::{
    Deserialize,
    de::{self, value::MapAccessDeserializer},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    path::PathBuf,
    time::Duration,
};
use toml::Spanned;

/// A duration and its position in the file.
pub(super) type Time = Spanned<Serde<Duration>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileText {
    pub(super) nodes: Option<Spanned<Vec<Spanned<NodeText>>>>,
    pub(super) tls: Option<Spanned<TlsNames>>,
    pub(super) group: Option<Spanned<String>>,
    pub(super) prefix: Option<Spanned<String>>,
    worker: Option<Spanned<String>>,
    node_timeout: Option<Time>,
    ask: Option<AskText>,
    max_ttl: Option<Time>,
    drift_rate: Option<Spanned<f64>>,
    clock_step_allowance: Option<Time>,
    max_clock_offset: Option<Time>,
    fence_retention: Option<Time>,
    ledger_retention: Option<Time>,
    durable: Option<bool>,
    trust_new_nodes: Option<bool>,
    #[serde(default)]
    lease: LeaseText,
    #[serde(default)]
    pub(super) election: ElectionText,
    pub(super) max_running: Option<Spanned<i64>>,
    pub(super) labels: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    pub(super) commands: BTreeMap<Spanned<String>, Spanned<Vec<String>>>,
    #[serde(default)]
    pub(super) http: HttpText,
    #[serde(default)]
    pub(super) serve: ServeText,
    #[serde(default)]
    pub(super) output: OutputText,
    pub(super) otlp: Option<Spanned<OtlpText>>,
    #[serde(default)]
    pub(super) job: Vec<Spanned<JobText>>,
    #[serde(default)]
    pub(super) notify: Vec<Spanned<NotifyText>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct OutputText {
    pub(super) dir: Option<Spanned<PathBuf>>,
    pub(super) keep: Option<Spanned<i64>>,
    pub(super) max_size: Option<Spanned<String>>,
    pub(super) max_age: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct NotifyText {
    pub(super) on: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) jobs: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) webhook: Option<Spanned<Secret<String>>>,
    pub(super) webhook_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) header_files: BTreeMap<Spanned<String>, PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) timeout: Option<Time>,
    pub(super) no_leader_after: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct LeaseText {
    ttl: Option<Time>,
    step_down_grace: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ElectionText {
    pub(super) priority: Option<Spanned<i64>>,
    pub(super) take_over_after: Option<Time>,
    pub(super) never_lead: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct HttpText {
    pub(super) listen: Option<Spanned<String>>,
    pub(super) read_token_file: Option<Spanned<PathBuf>>,
    pub(super) operate_token_file: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ServeText {
    pub(super) listen: Option<Vec<Spanned<String>>>,
    pub(super) token_file: Option<Spanned<PathBuf>>,
    pub(super) socket_group: Option<Spanned<String>>,
    pub(super) leases_per_client: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct JobText {
    pub(super) name: Spanned<String>,
    #[serde(alias = "cron")]
    pub(super) schedule: Option<Spanned<String>>,
    pub(super) every: Option<Time>,
    pub(super) delay: Option<Time>,
    pub(super) at: Option<Spanned<String>>,
    #[serde(alias = "timezone")]
    pub(super) zone: Option<Spanned<String>>,
    pub(super) dst: Option<Spanned<String>>,
    pub(super) except: Option<Spanned<Vec<String>>>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) until: Option<Spanned<String>>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) shell: Option<Spanned<String>>,
    pub(super) http: Option<Spanned<HttpJobText>>,
    pub(super) ok_exit_codes: Option<Spanned<Vec<Spanned<i64>>>>,
    pub(super) keep_output: Option<Spanned<String>>,
    pub(super) background: Option<BackgroundText>,
    pub(super) cwd: Option<PathBuf>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Secret<String>>,
    pub(super) misfire: Option<Spanned<MisfireText>>,
    pub(super) delivery: Option<Delivery>,
    pub(super) timeout: Option<Time>,
    pub(super) jitter: Option<Time>,
    pub(super) overlap: Option<Overlap>,
    pub(super) retries: Option<Spanned<RetriesText>>,
    pub(super) after: Option<Spanned<AfterText>>,
    pub(super) runs_on: Option<Spanned<RunsOnText>>,
    pub(super) concurrency: Option<Spanned<ConcurrencyText>>,
    pub(super) priority: Option<Spanned<i64>>,
    pub(super) history: Option<Spanned<i64>>,
    pub(super) expect_within: Option<Time>,
    pub(super) pause_after_failures: Option<Spanned<i64>>,
    pub(super) ping: Option<Spanned<Secret<String>>>,
    pub(super) ping_file: Option<Spanned<PathBuf>>,
    pub(super) ping_on: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct RetriesText {
    pub(super) attempts: Spanned<i64>,
    pub(super) backoff: Option<Time>,
    pub(super) max_backoff: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AskText {
    Majority,
    All,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with url and the other settings of a request")]
pub(super) struct HttpJobText {
    pub(super) method: Option<Spanned<String>>,
    pub(super) url: Option<Spanned<Secret<String>>>,
    pub(super) url_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) header_files: BTreeMap<Spanned<String>, PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) content_type: Option<Spanned<String>>,
    pub(super) body: Option<Spanned<Secret<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with job and on")]
pub(super) struct AfterText {
    pub(super) job: Spanned<String>,
    pub(super) on: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with key and limit")]
pub(super) struct ConcurrencyText {
    pub(super) key: String,
    pub(super) limit: Spanned<i64>,
}

/// The workers as the file names them: `leader`, `any`, `every`, or a table with labels.
#[derive(Debug)]
pub(super) enum RunsOnText {
    Named(String),
    Labels { labels: Vec<String>, every: bool },
}

impl<'de> Deserialize<'de> for RunsOnText {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            labels: Vec<String>,
            #[serde(default)]
            every: bool,
        }

        struct Either;

        impl<'de> de::Visitor<'de> for Either {
            type Value = RunsOnText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"leader\", \"any\", \"every\", or a table with labels, such as { labels = [\"eu\"] }",
                )
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<RunsOnText, E> {
                Ok(RunsOnText::Named(name.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RunsOnText, A::Error> {
                Table::deserialize(MapAccessDeserializer::new(map))
                    .map(|Table { labels, every }| RunsOnText::Labels { labels, every })
            }
        }

        from.deserialize_any(Either)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct MisfireText {
    pub(super) rule: RuleText,
    pub(super) within: Option<Time>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RuleText {
    Skip,
    RunOnce,
    RunAll,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BackgroundText {
    End,
    Leave,
}

/// A node as the file names it: a URL, or a table with the URL and the node's files. `Debug` shows no password.
pub(super) struct NodeText {
    pub(super) url: String,
    pub(super) password_file: Option<PathBuf>,
    pub(super) tls: TlsNames,
}

impl fmt::Debug for NodeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::nodes::redact(&self.url))
    }
}

impl<'de> Deserialize<'de> for NodeText {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: String,
            password_file: Option<PathBuf>,
            ca_file: Option<PathBuf>,
            cert_file: Option<PathBuf>,
            key_file: Option<PathBuf>,
        }

        struct Either;

        impl<'de> de::Visitor<'de> for Either {
            type Value = NodeText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node's URL, or a table with url and its files (password_file, ca_file, …)")
            }

            fn visit_str<E: de::Error>(self, url: &str) -> Result<NodeText, E> {
                Ok(NodeText { url: url.to_owned(), password_file: None, tls: TlsNames::default() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<NodeText, A::Error> {
                let Table { url, password_file, ca_file, cert_file, key_file } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NodeText { url, password_file, tls: TlsNames { ca_file, cert_file, key_file } })
            }
        }

        from.deserialize_any(Either)
    }
}

/// The collector as the file names it: a URL, or a table with the URL and the other settings.
#[derive(Debug)]
pub(super) struct OtlpText {
    pub(super) url: Option<Spanned<Secret<String>>>,
    pub(super) url_file: Option<Spanned<PathBuf>>,
    pub(super) header_files: BTreeMap<Spanned<String>, PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) every: Option<Time>,
}

impl<'de> Deserialize<'de> for OtlpText {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: Option<Spanned<Secret<String>>>,
            url_file: Option<Spanned<PathBuf>>,
            #[serde(default)]
            header_files: BTreeMap<Spanned<String>, PathBuf>,
            ca_file: Option<PathBuf>,
            every: Option<Time>,
        }

        struct Either;

        impl<'de> de::Visitor<'de> for Either {
            type Value = OtlpText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the URL of a collector, or a table with url and the other settings")
            }

            fn visit_str<E: de::Error>(self, url: &str) -> Result<OtlpText, E> {
                // The caller has the position of the whole value, which is that of the URL.
                let url = Some(Spanned::new(0..0, Secret(url.to_owned())));
                let header_files = BTreeMap::new();
                Ok(OtlpText { url, url_file: None, header_files, ca_file: None, every: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<OtlpText, A::Error> {
                let Table { url, url_file, header_files, ca_file, every } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(OtlpText { url, url_file, header_files, ca_file, every })
            }
        }

        from.deserialize_any(Either)
    }
}

impl FileText {
    /// Returns the settings of the file. Keys that the file does not have get the library's defaults. The
    /// default name of the worker is the argument `worker`.
    pub(super) fn quorum_config(&self, worker: &str) -> QuorumConfig {
        let default = QuorumConfig::default();
        QuorumConfig {
            worker: self.worker.as_ref().map_or(worker, |worker| worker.as_ref()).into(),
            node_timeout: time(self.node_timeout.as_ref(), default.node_timeout),
            ask_all_nodes: self.ask == Some(AskText::All),
            max_ttl: time(self.max_ttl.as_ref(), default.max_ttl),
            drift_rate: self.drift_rate.as_ref().map_or(default.drift_rate, |rate| *rate.as_ref()),
            clock_step_allowance: time(self.clock_step_allowance.as_ref(), default.clock_step_allowance),
            max_clock_offset: time(self.max_clock_offset.as_ref(), default.max_clock_offset),
            fence_retention: time(self.fence_retention.as_ref(), default.fence_retention),
            ledger_retention: time(self.ledger_retention.as_ref(), default.ledger_retention),
            durable: self.durable.unwrap_or(default.durable),
            trust_new_nodes: self.trust_new_nodes.unwrap_or(default.trust_new_nodes),
            ..default
        }
    }

    /// Returns the timing of the lease. Keys that the file does not have get the library's defaults.
    pub(super) fn lease(&self, settings: &QuorumConfig) -> LeaseConfig {
        let ttl = time(self.lease.ttl.as_ref(), settings.default_ttl());
        LeaseConfig {
            ttl,
            step_down_grace: time(self.lease.step_down_grace.as_ref(), QuorumConfig::default_grace(ttl)),
        }
    }

    /// Returns the position of a key in the file. If the file does not have the key, returns the position of a
    /// key that the library's check compares with it. Returns `None` if there is no such key.
    pub(super) fn span_of(&self, key: &str) -> Option<Range<usize>> {
        let time = |time: &Option<Time>| time.as_ref().map(Spanned::span);
        match key {
            "nodes" => self.nodes.as_ref().map(Spanned::span),
            "worker" => self.worker.as_ref().map(Spanned::span),
            "drift_rate" => self.drift_rate.as_ref().map(Spanned::span),
            "node_timeout" => time(&self.node_timeout),
            "max_ttl" => time(&self.max_ttl).or_else(|| time(&self.node_timeout)),
            "ledger_retention" => time(&self.ledger_retention),
            "fence_retention" => time(&self.fence_retention).or_else(|| time(&self.max_ttl)),
            "ttl" => time(&self.lease.ttl)
                .or_else(|| time(&self.lease.step_down_grace))
                .or_else(|| time(&self.max_ttl))
                .or_else(|| time(&self.node_timeout)),
            _ => None,
        }
    }
}

fn time(written: Option<&Time>, default: Duration) -> Duration {
    written.map_or(default, |time| **time.as_ref())
}

/// Returns the values that these names mean. An error has the position and the reason.
pub(super) fn one_of<T: Copy + Ord>(
    key: &str,
    written: &Spanned<Vec<Spanned<String>>>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<BTreeSet<T>, (Range<usize>, String)> {
    if written.as_ref().is_empty() {
        return Err((written.span(), format!("has an empty `{key}`")));
    }
    let find = |text: &Spanned<String>| {
        all.iter().copied().find(|value| name(*value) == text.as_ref()).ok_or_else(|| {
            let short: String = text.as_ref().chars().take(40).collect();
            (text.span(), format!("has {short:?} in `{key}`, which is unknown"))
        })
    };
    written.as_ref().iter().map(find).collect()
}

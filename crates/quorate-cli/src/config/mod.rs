//! The configuration: flags, environment and one file, read and checked before anything starts.
//!
//! # What is not guaranteed
//!
//! A configuration that passes the checks is valid, but may still be wrong. The checks do not find out
//! whether the nodes answer, whether all workers have the same list, and whether a command can be started.
//! Passwords in URLs are kept and passed on, but never shown. A password *file* is not opened here.
//!
//! # Sources
//!
//! | setting | sources, the first that has it |
//! | --- | --- |
//! | the file | `--config`, `QUORATE_CONFIG`, `$XDG_CONFIG_HOME/quorate/quorate.toml` (else `~/.config/…`), `/etc/quorate/quorate.toml` |
//! | the nodes | `--nodes` or `--local`, `QUORATE_NODES`, `nodes` in the file |
//! | the TLS files | the node's own (options of its URL, or its table), `--ca-file`, `QUORATE_CA_FILE`, `tls` in the file; `--cert-file` and `--key-file` likewise |
//! | the prefix | `--prefix`, `prefix` in the file, `quorate:` |
//! | the address of the HTTP server | `--listen`, `http.listen` in the file, no server |
//! | the addresses for clients of `quorate serve` | its `--listen`, `serve.listen` in the file |
//!
//! A relative path in a file is relative to the directory of that file. Any other relative path is relative
//! to the working directory.
//!
//! There is no default list of nodes. With a default, three machines on which the setting is misspelt could
//! each use a node of their own, and so have three leaders. For the same reason an unknown `QUORATE_…`
//! variable is an error.

mod changes;
mod election;
mod error;
mod file;
mod http;
mod http_job;
mod job;
mod lease;
mod load;
mod node_files;
mod nodes;
mod notify;
mod otlp;
mod output;
mod ping;
mod secret;
mod secret_files;
mod serve;
mod source;
mod tls;
mod validation;
mod webhook;

pub use election::ElectionConfig;
pub use error::ConfigError;
pub(crate) use error::nearest;
pub use http::HttpConfig;
pub use http_job::HttpJob;
pub use job::{Background, JobConfig};
pub use lease::LeaseConfig;
pub use load::Config;
pub(crate) use nodes::redact;
pub use nodes::{NodeError, NodeSpec, SecretUrl};
pub use notify::{NotifyConfig, NotifyEvent, NotifyTarget};
pub use otlp::OtlpConfig;
pub use output::OutputConfig;
pub use ping::{PingConfig, PingEvent};
pub use secret::Secret;
pub use serve::{ClientAddress, ServeConfig};
pub(crate) use source::{COMMAND_VARIABLES, NODES_VARIABLE};
pub use source::{Environment, Flags, NodesFrom, ServeFlags};
pub use tls::{TlsFiles, TlsNames};
pub use validation::PREFIX;
pub use webhook::SecretSource;
pub(crate) use webhook::{WEBHOOK_EXAMPLE, is_private, parse_url};

#[cfg(test)]
mod notify_tests;
#[cfg(test)]
mod tests;

use crate::{
    config::SharedSettings,
    node::{Incarnation, NodeTime},
    plain::plain,
};
use std::{fmt::Write, sync::Arc};

/// The beginning of a marker's first line. The version of the format follows it.
const HEAD: &str = "quorate-marker ";
/// The version of the format. Versions 1 and 2 were never part of a published release. Version 1 contained no setting
/// except `max_ttl`, and version 2 neither an incarnation nor the id of the data. Their markers are refused, because
/// they do not show what a worker must compare.
const VERSION: &str = "3";

/// A record that each node stores. From the marker, a worker notices that the node has lost its memory, or that
/// another worker has other settings.
///
/// The text form has lines of `key=value`. Nodes and scripts compare the text as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The server's run id when the marker was written.
    pub run_id: Arc<str>,
    /// The id of the node's data ([`DataId`](crate::node::DataId)) when the marker was written. Empty if the server
    /// reported none.
    pub data: Arc<str>,
    /// The id of the node's present memory. It changes exactly when `since` does.
    pub incarnation: Incarnation,
    /// The names of the node set, sorted and joined by commas.
    pub nodes: Arc<str>,
    /// The settings that all workers share.
    pub settings: SharedSettings,
    /// The time on the node's clock at which its memory began. A restarted node may come back with old
    /// fencing counters, and some of these counters may have been started by a worker whose clock was ahead.
    /// So after a restart, this time is set to twice `max_clock_offset` after the handshake, which is later
    /// than any such counter.
    pub since: NodeTime,
    /// The time on the node's clock from which its votes count.
    pub votes_from: NodeTime,
}

impl Marker {
    /// Returns the names of a node set in the form in which a marker contains them.
    pub fn node_set(names: &[Arc<str>]) -> Arc<str> {
        let mut names: Vec<&str> = names.iter().map(|name| &**name).collect();
        names.sort_unstable();
        names.join(",").into()
    }

    /// Returns the text that a marker contains in place of the node set while the node set `from` is being
    /// replaced by `to`. No worker's node list has this text. The marker of a node that has left the set
    /// keeps this text.
    pub(crate) fn closed_set(from: &str, to: &str) -> Arc<str> {
        format!("({from})->({to})").into()
    }

    /// Returns the old and the new node set, if the marker says that the node set is being replaced or has been
    /// replaced.
    pub fn replacement(&self) -> Option<(&str, &str)> {
        self.nodes.strip_prefix('(')?.strip_suffix(')')?.split_once(")->(")
    }

    /// Returns the text that a node stores.
    pub fn to_text(&self) -> Arc<str> {
        let Self { run_id, data, incarnation, nodes, .. } = self;
        let mut text =
            format!("{HEAD}{VERSION}\nrun={run_id}\ndata={data}\nmemory={incarnation}\nnodes={nodes}");
        for (key, value) in SharedSettings::KEYS.into_iter().zip(self.settings.values()) {
            // `write!` to a string never fails.
            let _ = write!(text, "\n{key}={value}");
        }
        let (since, votes) = (self.since.as_micros(), self.votes_from.as_micros());
        let _ = write!(text, "\nsince_us={since}\nvotes_us={votes}");
        text.into()
    }

    /// Returns whether a text is a marker of any version.
    pub fn is_marker(text: &str) -> bool {
        text.starts_with(HEAD)
    }

    /// Reads the text that a node stores.
    ///
    /// # Errors
    /// [`MarkerError`] if `text` is not a marker of this version.
    pub fn parse(text: &str) -> Result<Self, MarkerError> {
        let mut lines = text.lines();
        match lines.next().and_then(|line| line.strip_prefix(HEAD)) {
            Some(VERSION) => {}
            Some(version) => {
                let version = plain(version, 20);
                return Err(MarkerError(format!(
                    "has format version {version}, and this worker reads {VERSION}"
                )));
            }
            None => return Err(MarkerError(format!("does not begin with {HEAD:?}"))),
        }
        let mut value = |key: &str| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(key)?.strip_prefix('='))
                .ok_or_else(|| MarkerError(format!("has no {key} where one belongs")))
        };
        let run_id = value("run")?.into();
        let data = value("data")?.into();
        let incarnation = Incarnation::parse(value("memory")?)
            .ok_or_else(|| MarkerError("has a memory that is no id of 16 hexadecimal digits".to_owned()))?;
        let nodes = value("nodes")?.into();
        let mut number = |key: &str| -> Result<u64, MarkerError> {
            value(key)?.parse().map_err(|_| MarkerError(format!("has a {key} that is no number")))
        };
        let mut values = [0; 6];
        for (value, key) in values.iter_mut().zip(SharedSettings::KEYS) {
            *value = number(key)?;
        }
        let settings = SharedSettings::from_values(values)
            .ok_or_else(|| MarkerError("has a durable or trust_new that is neither 0 nor 1".to_owned()))?;
        let since = NodeTime::from_micros(number("since_us")?);
        let votes_from = NodeTime::from_micros(number("votes_us")?);
        Ok(Self { run_id, data, incarnation, nodes, settings, since, votes_from })
    }
}

/// The reason why a node's marker cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MarkerError(String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QuorumConfig;

    fn settings() -> SharedSettings {
        SharedSettings::of(&QuorumConfig::default())
    }

    #[test]
    fn the_text_form_keeps_every_field() {
        let marker = Marker {
            run_id: "abc".into(),
            data: "0123".into(),
            incarnation: Incarnation::from_number(0x1f),
            nodes: Marker::node_set(&["b".into(), "a".into()]),
            settings: settings(),
            since: NodeTime::from_micros(1_700_000_000_000_000),
            votes_from: NodeTime::from_micros(1_700_000_030_300_000),
        };
        assert_eq!(&*marker.nodes, "a,b");
        assert!(marker.to_text().contains("\nmemory=000000000000001f\n"));
        assert_eq!(Marker::parse(&marker.to_text()), Ok(marker));
    }

    #[test]
    fn a_closed_node_names_both_sets() {
        let nodes = Marker::closed_set("a,b,c", "b,c,d");
        let [run_id, zero] = ["abc".into(), "0".into()];
        let (settings, at) = (settings(), NodeTime::from_micros(7));
        let (data, incarnation) = ("".into(), Incarnation::default());
        let closed = Marker { run_id, data, incarnation, nodes, settings, since: at, votes_from: at };
        assert_eq!(closed.replacement(), Some(("a,b,c", "b,c,d")));
        assert_eq!(Marker::parse(&closed.to_text()).as_ref(), Ok(&closed));
        assert_eq!(Marker { nodes: zero, ..closed }.replacement(), None);
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "OK", "quorate-marker 3\nrun=a", "quorate-marker 3\nrun=a\ndata=\nmemory=x\nnodes=b"]
        {
            assert!(Marker::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_marker_of_another_version_is_refused_with_the_version() {
        let one = "quorate-marker 1\nrun=abc\nnodes=a,b\nmax_ttl_ms=30000\nsince_us=1\nvotes_us=2";
        let text = Marker::parse(one).unwrap_err().to_string();
        assert_eq!(text, "has format version 1, and this worker reads 3");
        assert!(Marker::parse("quorate-marker 4\u{1b}[2J").unwrap_err().to_string().contains("version 4"));
    }
}

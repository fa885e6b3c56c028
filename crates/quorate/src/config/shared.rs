use crate::config::QuorumConfig;
use std::{fmt, sync::Arc, time::Duration};

/// The settings that all workers of a deployment must share, because the safety of one worker depends on the
/// settings of the others. Each node's marker contains these settings. If a worker's settings differ from a
/// marker, that node's votes do not count for the worker.
///
/// | setting | what can happen to other workers if one worker's value differs |
/// | --- | --- |
/// | `max_ttl` | a node that lost its memory votes before the longest lease has ended |
/// | `max_clock_offset` | the same, and a fencing token is given twice |
/// | `clock_step_allowance` | a worker counts votes of a node whose clock has stepped by more than another worker's lease allows for |
/// | `drift_rate` | a worker considers its lease valid after other workers consider it ended |
/// | `durable` | a restarted node votes at once, for every worker |
/// | `trust_new_nodes` | a node that lost its memory votes at once, for every worker |
///
/// Durations are compared in microseconds, `drift_rate` in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    max_ttl_us: u64,
    max_clock_offset_us: u64,
    clock_step_allowance_us: u64,
    drift_ppb: u64,
    durable: bool,
    trust_new_nodes: bool,
}

/// A shared setting whose value in a node's marker differs from this worker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingMismatch {
    /// The setting, as [`QuorumConfig`] and configuration files call it.
    pub field: &'static str,
    /// The marker's value.
    pub theirs: Arc<str>,
    /// This worker's value.
    pub ours: Arc<str>,
}

impl SharedSettings {
    /// Returns the shared settings of `config`.
    pub fn of(config: &QuorumConfig) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            max_ttl_us: micros(config.max_ttl),
            max_clock_offset_us: micros(config.max_clock_offset),
            clock_step_allowance_us: micros(config.clock_step_allowance),
            // A rate that was checked is at most 0.5, so the result fits. For any other rate the cast
            // saturates.
            drift_ppb: (config.drift_rate * 1e9).round() as u64,
            durable: config.durable,
            trust_new_nodes: config.trust_new_nodes,
        }
    }

    /// Returns [`QuorumConfig::max_ttl`].
    pub fn max_ttl(&self) -> Duration {
        Duration::from_micros(self.max_ttl_us)
    }

    /// Returns [`QuorumConfig::max_clock_offset`].
    pub fn max_clock_offset(&self) -> Duration {
        Duration::from_micros(self.max_clock_offset_us)
    }

    /// Returns [`QuorumConfig::clock_step_allowance`].
    pub fn clock_step_allowance(&self) -> Duration {
        Duration::from_micros(self.clock_step_allowance_us)
    }

    /// Returns [`QuorumConfig::drift_rate`].
    pub fn drift_rate(&self) -> f64 {
        self.drift_ppb as f64 / 1e9
    }

    /// Returns [`QuorumConfig::durable`].
    pub fn durable(&self) -> bool {
        self.durable
    }

    /// Returns [`QuorumConfig::trust_new_nodes`].
    pub fn trust_new_nodes(&self) -> bool {
        self.trust_new_nodes
    }

    /// Returns the first setting whose value in `self`, the settings of a marker, differs from `ours`.
    pub fn mismatch(&self, ours: &Self) -> Option<SettingMismatch> {
        let at = self.values().into_iter().zip(ours.values()).position(|(theirs, ours)| theirs != ours)?;
        let field = Self::FIELDS[at];
        Some(SettingMismatch { field, theirs: self.shown(field).into(), ours: ours.shown(field).into() })
    }

    /// The keys of the settings in a marker, in the marker's order.
    pub(crate) const KEYS: [&str; 6] =
        ["max_ttl_us", "clock_offset_us", "clock_step_us", "drift_ppb", "durable", "trust_new"];

    /// The names of the settings in [`QuorumConfig`], in the order of `KEYS`.
    const FIELDS: [&str; 6] =
        ["max_ttl", "max_clock_offset", "clock_step_allowance", "drift_rate", "durable", "trust_new_nodes"];

    /// The values of the settings as a marker contains them, in the order of `KEYS`.
    pub(crate) fn values(&self) -> [u64; 6] {
        [
            self.max_ttl_us,
            self.max_clock_offset_us,
            self.clock_step_allowance_us,
            self.drift_ppb,
            self.durable.into(),
            self.trust_new_nodes.into(),
        ]
    }

    /// Returns the settings with these [`values`](SharedSettings::values), or `None` if one of the values is out of
    /// range.
    pub(crate) fn from_values(values: [u64; 6]) -> Option<Self> {
        let [max_ttl_us, max_clock_offset_us, clock_step_allowance_us, drift_ppb, durable, trusts] = values;
        let flag = |value: u64| match value {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Some(Self {
            max_ttl_us,
            max_clock_offset_us,
            clock_step_allowance_us,
            drift_ppb,
            durable: flag(durable)?,
            trust_new_nodes: flag(trusts)?,
        })
    }

    fn shown(&self, field: &str) -> String {
        match field {
            "max_ttl" => format!("{:?}", self.max_ttl()),
            "max_clock_offset" => format!("{:?}", self.max_clock_offset()),
            "clock_step_allowance" => format!("{:?}", self.clock_step_allowance()),
            "drift_rate" => self.drift_rate().to_string(),
            "durable" => self.durable.to_string(),
            _ => self.trust_new_nodes.to_string(),
        }
    }
}

impl fmt::Display for SharedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, field) in Self::FIELDS.into_iter().enumerate() {
            write!(f, "{}{field} {}", if at > 0 { ", " } else { "" }, self.shown(field))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each field of [`QuorumConfig`] on which other workers depend is shared. A new field does
    /// not compile until this test lists it.
    #[test]
    fn every_setting_on_which_others_depend_is_shared() {
        let base = QuorumConfig::default();
        let QuorumConfig {
            worker: _,
            node_timeout: _,
            ask_all_nodes: _,
            max_ttl,
            drift_rate,
            clock_step_allowance,
            max_clock_offset,
            fence_retention: _,
            ledger_retention: _,
            durable,
            trust_new_nodes,
            read_only: _,
            #[cfg(feature = "sabotage")]
                sabotage: _,
        } = base.clone();
        let more = Duration::from_micros(1);
        let others = [
            ("max_ttl", "30.000001s", QuorumConfig { max_ttl: max_ttl + more, ..base.clone() }),
            ("drift_rate", "0.02", QuorumConfig { drift_rate: drift_rate * 2.0, ..base.clone() }),
            (
                "clock_step_allowance",
                "200.001ms",
                QuorumConfig { clock_step_allowance: clock_step_allowance + more, ..base.clone() },
            ),
            (
                "max_clock_offset",
                "1.000001s",
                QuorumConfig { max_clock_offset: max_clock_offset + more, ..base.clone() },
            ),
            ("durable", "true", QuorumConfig { durable: !durable, ..base.clone() }),
            ("trust_new_nodes", "true", QuorumConfig { trust_new_nodes: !trust_new_nodes, ..base.clone() }),
        ];
        let ours = SharedSettings::of(&base);
        assert_eq!(ours.mismatch(&ours), None);
        assert_eq!(others.len(), ours.values().len());
        for (field, theirs, config) in others {
            let found = SharedSettings::of(&config).mismatch(&ours).expect(field);
            assert_eq!((found.field, &*found.theirs), (field, theirs));
            assert_ne!(found.theirs, found.ours);
        }
        let own = QuorumConfig { worker: "other".into(), node_timeout: Duration::from_secs(1), ..base };
        assert_eq!(SharedSettings::of(&own), ours);
    }

    /// Regression: the marker did not store the fraction of a millisecond of a `max_ttl`. The worker then found
    /// that its own setting differed from the marker that it had written itself.
    #[test]
    fn values_survive_the_marker_whatever_their_fraction() {
        let odd = QuorumConfig {
            max_ttl: Duration::from_nanos(1_500_500_499),
            drift_rate: 0.1 + 0.2,
            ..QuorumConfig::default()
        };
        let ours = SharedSettings::of(&odd);
        assert_eq!(SharedSettings::from_values(ours.values()), Some(ours));
        assert_eq!(SharedSettings::from_values([1, 1, 1, 1, 2, 0]), None);
    }
}

use crate::{
    config::SettingError,
    env::{SystemWorld, World},
    node::Owner,
    sabotage::Sabotage,
};
use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// The constant part of [`QuorumConfig::margin`]. This part covers the time to read a clock, and the rounding
/// of TTLs to milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// The maximum number of bytes of the host's name in a worker's default name.
const HOST_MAX: usize = 64;

/// The settings of a worker. They are checked when a quorum is built. Some of them are *shared*: they must be
/// equal on all workers of a deployment, and each node's marker stores them (see
/// [`SharedSettings`](super::SharedSettings)). If a worker's shared settings differ from a node's marker, the
/// votes of that node do not count for the worker.
///
/// ```
/// use quorate::{Quorum, QuorumConfig, node::MemoryNode};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = QuorumConfig { max_ttl: Duration::from_secs(15), durable: false, ..QuorumConfig::default() };
/// let quorum = Quorum::builder().config(config).node(MemoryNode::new("a")).trust_new_nodes(true).build()?;
/// assert_eq!(quorum.config().max_ttl, Duration::from_secs(15));
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct QuorumConfig {
    /// The name of this worker in owner tokens, so that the nodes can name the holder of a lock. The default
    /// is the host's name and the process id, `HOST-PID`. In a container a random part follows, since the host's
    /// name and the process id may be those of another container.
    pub worker: Arc<str>,
    /// The longest time that a node may take to answer a request, independent of any TTL. Default 100 ms.
    pub node_timeout: Duration,
    /// Asks all nodes for a lock or a message at once. If false, a majority is asked first; for one lock, all workers ask
    /// the same majority. The other nodes are asked only if one of these refuses, fails or is late. A lease
    /// that is still held after a second is extended to all nodes. Either value is safe, and workers may differ.
    /// Default false.
    pub ask_all_nodes: bool,
    /// The longest TTL of any lease, and therefore the minimum wait of a node that lost its memory. Shared by all
    /// workers. Default 30 s. Leases are renewed, so even long work does not need a larger value.
    pub max_ttl: Duration,
    /// The largest relative difference between the rates of two clocks. Shared by all workers. Default 0.01.
    pub drift_rate: f64,
    /// The largest step of a node's clock that leases tolerate. A lease tolerates a step of at most a tenth
    /// of its TTL. Shared by all workers. Default 200 ms.
    pub clock_step_allowance: Duration,
    /// The largest difference between the wall clocks of nodes and workers. Shared by all workers. Default 1
    /// s. The setting has three uses:
    ///
    /// * A fencing counter starts from a worker's wall clock. A node accepts that start only if it differs
    ///   from the node's own clock by at most this offset.
    /// * A node's answer about a tick counts only if the node's memory began at least this offset before the
    ///   tick.
    /// * A node that lost its memory waits for at least four times this offset.
    pub max_clock_offset: Duration,
    /// The lifetime of a fencing counter after its last use. Default 7 days.
    pub fence_retention: Duration,
    /// The time for which the nodes keep a job, its history and its state after the last worker with that job
    /// has ended. A group's ledger is kept for at least this time after the last worker of the group has
    /// ended. Default 30 days.
    ///
    /// Workers confirm their jobs at least every two hours. Workers of one group may use different values
    /// only if each is a day or more. With a shorter value, a worker could remove the jobs of another worker
    /// between two confirmations.
    pub ledger_retention: Duration,
    /// Requires that nodes persist every write before they answer, so that a restart loses no data. The
    /// worker checks this at each handshake. Shared by all workers. Default false.
    pub durable: bool,
    /// Lets nodes without a marker vote at once. Use it only for development and tests. Shared by all
    /// workers. Default false.
    pub trust_new_nodes: bool,
    /// Keeps the worker from writing markers, so that a wrong setting of this worker does not stay on the
    /// nodes. The worker uses only nodes that other workers have marked. Default false.
    pub read_only: bool,
    /// The safety mechanisms that this worker leaves out, to test that the simulation detects their absence.
    /// Default none.
    #[cfg(feature = "sabotage")]
    #[doc(hidden)]
    pub sabotage: Vec<Sabotage>,
}

impl Default for QuorumConfig {
    fn default() -> Self {
        Self {
            worker: default_worker(),
            node_timeout: Duration::from_millis(100),
            ask_all_nodes: false,
            max_ttl: Duration::from_secs(30),
            drift_rate: 0.01,
            clock_step_allowance: Duration::from_millis(200),
            max_clock_offset: Duration::from_secs(1),
            fence_retention: Duration::from_secs(7 * 24 * 3600),
            ledger_retention: Duration::from_secs(30 * 24 * 3600),
            durable: false,
            trust_new_nodes: false,
            read_only: false,
            #[cfg(feature = "sabotage")]
            sabotage: Vec::new(),
        }
    }
}

/// Returns the host's name and the process id, and in a container a random part. The name stays the same in a process.
fn default_worker() -> Arc<str> {
    static WORKER: LazyLock<Arc<str>> = LazyLock::new(|| {
        let random = crate::env::is_in_pid_namespace().then(|| SystemWorld.random());
        worker_of(&crate::env::host_name(), std::process::id(), random)
    });
    Arc::clone(&WORKER)
}

fn worker_of(host: &str, pid: u32, random: Option<u64>) -> Arc<str> {
    let host: String = host.chars().filter(|c| !crate::plain::steers(*c)).collect();
    let worker = match crate::plain::plain(&host, HOST_MAX).trim() {
        "" => format!("pid-{pid}"),
        host => format!("{host}-{pid}"),
    };
    match random {
        Some(random) => format!("{worker}-{:06x}", random & 0xff_ffff).into(),
        None => worker.into(),
    }
}

impl QuorumConfig {
    /// Returns the default TTL: 10 s, or `max_ttl` if that is shorter.
    pub fn default_ttl(&self) -> Duration {
        Duration::from_secs(10).min(self.max_ttl)
    }

    /// Returns the default time between the step-down and the end of validity: a fifth of the TTL.
    pub fn default_grace(ttl: Duration) -> Duration {
        ttl / 5
    }

    /// Returns how long a node that lost its memory must not vote: `max_ttl × (1 + drift_rate)`, so that
    /// every lease that the node granted has ended. The time is at least [`QuorumConfig::reseed_after`], so
    /// that no fencing token is repeated.
    pub fn quarantine(&self) -> Duration {
        (self.max_ttl + self.max_ttl.mul_f64(self.drift_rate)).max(self.reseed_after())
    }

    /// Returns how long a node must wait before it starts a lost fencing counter again: four times
    /// `max_clock_offset`.
    ///
    /// The lost counter may have been ahead of this node's clock by twice the offset: a worker's clock may be
    /// one offset ahead of another node's clock, and that node's clock one offset ahead of this node's. The
    /// new counter may start one offset behind this node's clock. So three times the offset is not enough:
    /// with that wait, the formal model finds a token that is issued twice.
    pub fn reseed_after(&self) -> Duration {
        self.max_clock_offset * 4
    }

    /// Returns the part of a TTL that does not count as validity: `ttl × drift_rate + clock_step_allowance +
    /// 2 ms`. The term `clock_step_allowance` is limited to a tenth of the TTL.
    pub fn margin(&self, ttl: Duration) -> Duration {
        if self.sabotaged(Sabotage::NoMargin) {
            return Duration::ZERO;
        }
        ttl.mul_f64(self.drift_rate) + self.clock_step_allowance.min(ttl / 10) + ROUNDING
    }

    /// Returns how long a lease is valid from the time at which its request was sent.
    pub fn validity(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.margin(ttl))
    }

    /// Returns whether this worker leaves out the safety mechanism `mechanism`, because a test has set this.
    #[cfg(feature = "sabotage")]
    pub(crate) fn sabotaged(&self, mechanism: Sabotage) -> bool {
        self.sabotage.contains(&mechanism)
    }

    /// Returns false, because without the feature `sabotage` no mechanism can be left out.
    #[cfg(not(feature = "sabotage"))]
    pub(crate) const fn sabotaged(&self, _: Sabotage) -> bool {
        false
    }

    /// Returns how long a driver waits before it opens a new session. The wait begins when the driver sends
    /// its last request that could set a key. After this wait the node refuses that request as too late, even
    /// if the request is still on its way through the old connection.
    pub(crate) fn fence(&self) -> Duration {
        // The request itself is valid for one node timeout. The second node timeout covers the error in the
        // estimate of the node's clock, which is at most one round trip. The node's clock may also step back.
        self.node_timeout * 2 + self.clock_step_allowance
    }

    /// Returns the longest time for which a round waits for the nodes that it asked first.
    pub(crate) fn patience_max(&self) -> Duration {
        self.node_timeout / 2
    }

    /// Checks the settings against each other, and the names of the nodes against each other.
    ///
    /// # Errors
    /// [`SettingError`], which names the field, its value, the reason and the fix.
    pub fn validate(&self, names: &[Arc<str>]) -> Result<(), SettingError> {
        if names.is_empty() {
            let reason = "so no node votes";
            return Err(SettingError::new(
                "nodes",
                "empty",
                reason,
                "name at least one node, better three or five",
            ));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(Arc::clone(name))) {
            return Err(SettingError::new(
                "nodes",
                format!("[{}]", names.join(", ")),
                format!("which names {twice} twice"),
                format!("one server has one vote, so name it once ({} nodes are left)", names.len() - 1),
            ));
        }
        Self::validate_worker("worker", &self.worker)?;
        self.check_ranges()?;
        self.check_relations()
    }

    /// Checks the range of each setting.
    fn check_ranges(&self) -> Result<(), SettingError> {
        let (milli, second) = (Duration::from_millis(1), Duration::from_secs(1));
        let (minute, day) = (60 * second, 24 * 3600 * second);
        for (field, value, least, most) in [
            ("node_timeout", self.node_timeout, milli, minute),
            ("max_ttl", self.max_ttl, Duration::ZERO, day),
            ("clock_step_allowance", self.clock_step_allowance, Duration::ZERO, day),
            ("max_clock_offset", self.max_clock_offset, Duration::ZERO, day),
            ("fence_retention", self.fence_retention, Duration::ZERO, day * 3660),
            ("ledger_retention", self.ledger_retention, second, day * 3660),
        ] {
            let (value_text, over) = (format!("{value:?}"), value > most);
            if over {
                let fix = format!("give it at most {most:?}");
                return Err(SettingError::new(field, value_text, format!("above {most:?}"), fix));
            }
            if value < least {
                let why = if field == "ledger_retention" {
                    ": a job whose workers all restart would lose its history"
                } else {
                    ""
                };
                let fix = format!("give it at least {least:?}{why}");
                return Err(SettingError::new(field, value_text, format!("below {least:?}"), fix));
            }
        }
        if !(0.0..=0.5).contains(&self.drift_rate) {
            let fix = "give it 0 to 0.5 (default 0.01)";
            return Err(SettingError::new(
                "drift_rate",
                self.drift_rate.to_string(),
                "not between 0 and 0.5",
                fix,
            ));
        }
        Ok(())
    }

    /// Checks the relations between settings that depend on each other.
    fn check_relations(&self) -> Result<(), SettingError> {
        if self.max_ttl < self.node_timeout * 3 {
            return Err(SettingError::new(
                "max_ttl",
                format!("{:?}", self.max_ttl),
                format!("shorter than three times node_timeout {:?}", self.node_timeout),
                "a lease must outlive three node timeouts: raise max_ttl",
            ));
        }
        if self.fence_retention < self.max_ttl {
            return Err(SettingError::new(
                "fence_retention",
                format!("{:?}", self.fence_retention),
                format!("shorter than max_ttl {:?}", self.max_ttl),
                "a counter must outlive the leases that it counts: raise fence_retention",
            ));
        }
        if self.fence_retention < self.reseed_after() {
            return Err(SettingError::new(
                "fence_retention",
                format!("{:?}", self.fence_retention),
                format!("shorter than four times max_clock_offset {:?}", self.max_clock_offset),
                "a counter that is started again must not repeat its tokens: raise fence_retention",
            ));
        }
        Ok(())
    }

    /// Returns advice if the number of nodes is even. Such a list is allowed, but one node fewer would
    /// tolerate as many faults. The advice is logged when a quorum is built.
    pub fn advice(nodes: usize) -> Option<String> {
        (nodes > 0 && nodes.is_multiple_of(2)).then(|| {
            format!(
                "nodes names {nodes} servers; an even number tolerates no more faults than {}: leave one out, or add one",
                nodes - 1
            )
        })
    }

    /// Checks the name of a worker. `field` is the setting that contains the name, for the text of the error.
    pub(crate) fn validate_worker(field: &'static str, name: &str) -> Result<(), SettingError> {
        if name.is_empty() || name.len() > 128 || name.contains(crate::plain::steers) {
            let shown: String = name.chars().take(130).collect();
            return Err(SettingError::new(
                field,
                format!("{shown:?}"),
                "which is no worker's name",
                "give it 1 to 128 bytes without control characters and invisible ones",
            ));
        }
        Ok(())
    }

    /// Checks the TTL and the grace period of one kind of lease. `extended` is true if the lease is extended
    /// automatically.
    ///
    /// # Errors
    /// [`SettingError`], which names the field, its value, the reason and the fix.
    pub fn validate_lease(&self, ttl: Duration, grace: Duration, extended: bool) -> Result<(), SettingError> {
        if ttl > self.max_ttl {
            return Err(SettingError::new(
                "ttl",
                format!("{ttl:?}"),
                format!("above max_ttl {:?}", self.max_ttl),
                "shorten ttl (leases extend themselves) or raise max_ttl on every worker",
            ));
        }
        let valid = self.validity(ttl);
        let busy = if extended { ttl / 3 + self.node_timeout } else { self.node_timeout };
        let needed = busy.saturating_add(grace);
        if valid < needed {
            let rounds = if extended { "one extension, every third of it," } else { "one round" };
            return Err(SettingError::new(
                "ttl",
                format!("{ttl:?}"),
                format!("of which {valid:?} count as valid"),
                format!(
                    "{rounds} with node_timeout {:?} and step_down_grace {grace:?} need {:?}: lengthen ttl, or shorten \
                     step_down_grace or node_timeout",
                    self.node_timeout, needed
                ),
            ));
        }
        Ok(())
    }

    /// Returns whether the owner token `holder` reserves a lock for this worker, as the successor in a
    /// transfer.
    pub(crate) fn is_successor_of(&self, holder: &Owner) -> bool {
        holder.reserved_for().is_some_and(|successor| *successor == *self.worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn the_default_worker_is_named_by_host_and_process_and_is_a_valid_name() {
        assert_eq!(&*worker_of("web-1.example", 7, None), "web-1.example-7");
        assert_eq!(&*worker_of("", 7, None), "pid-7");
        assert_eq!(&*worker_of("a\n\u{1b}b", 7, None), "ab-7");
        assert_eq!(&*worker_of("web", 9, Some(0xffff_ffff_ff00_00ab)), "web-9-0000ab", "in a container");
        let long = worker_of(&"ü".repeat(200), u32::MAX, Some(5));
        assert!(QuorumConfig::validate_worker("worker", &long).is_ok(), "{long}");
        let default = QuorumConfig::default().worker;
        assert!(default.contains(&format!("-{}", std::process::id())), "{default}");
        assert!(QuorumConfig::validate_worker("worker", &default).is_ok(), "{default}");
    }

    #[test]
    fn the_margin_and_the_quarantine_follow_the_formulas() {
        let config = QuorumConfig::default();
        assert_eq!(config.margin(Duration::from_secs(10)), Duration::from_millis(100 + 200 + 2));
        assert_eq!(config.margin(Duration::from_secs(1)), Duration::from_millis(10 + 100 + 2));
        assert_eq!(config.quarantine(), Duration::from_millis(30_300));
        let short = QuorumConfig { max_ttl: Duration::from_secs(2), ..QuorumConfig::default() };
        assert_eq!(
            short.quarantine(),
            Duration::from_secs(4),
            "long enough for a counter to be started again"
        );
    }

    #[test]
    fn impossible_timings_are_refused_with_the_name_of_the_field() {
        let config = QuorumConfig::default();
        assert!(config.validate(&names(&["a", "b", "c"])).is_ok());
        assert!(config.validate(&names(&["a", "b", "a"])).unwrap_err().to_string().contains("names a twice"));
        assert!(config.validate(&[]).unwrap_err().to_string().contains("nodes is empty"));
        let wild = QuorumConfig { drift_rate: 2.0, ..QuorumConfig::default() };
        assert!(wild.validate(&names(&["a"])).unwrap_err().to_string().contains("drift_rate is 2"));
        let second = Duration::from_secs(1);
        let apart = QuorumConfig {
            max_clock_offset: 20 * second,
            fence_retention: 60 * second,
            ..QuorumConfig::default()
        };
        assert!(apart.validate(&names(&["a"])).unwrap_err().to_string().contains("max_clock_offset 20s"));
        let slow = QuorumConfig { node_timeout: Duration::from_secs(20), ..QuorumConfig::default() };
        assert!(slow.validate(&names(&["a"])).unwrap_err().to_string().contains("max_ttl is 30s"));

        assert!(config.validate_lease(2 * second, second * 2 / 5, true).is_ok());
        let long = config.validate_lease(40 * second, second, true).unwrap_err().to_string();
        assert!(long.contains("ttl is 40s") && long.contains("max_ttl 30s"), "{long}");
        let short = config.validate_lease(second / 5, second / 25, true).unwrap_err().to_string();
        assert!(short.contains("ttl is 200ms") && short.contains("node_timeout 100ms"), "{short}");
        let proud = config.validate_lease(10 * second, 9 * second, true).unwrap_err().to_string();
        assert!(proud.contains("step_down_grace 9s"), "{proud}");
    }
}

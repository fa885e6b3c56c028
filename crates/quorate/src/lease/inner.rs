use crate::{
    config::{QuorumConfig, SettingError},
    driver::{NodeFactory, NodePool},
    env::Env,
    lease::{
        AcquireError, command::RenewerCommand, majority_log::MajorityLog, params::LeaseParams,
        recent_waits::RecentWaits, renewer::LeaseRenewer,
    },
    measure::AcquireMeasures,
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::mpsc;

/// The state that every part of one quorum shares: the node drivers, and the channel to the renewer.
pub(crate) struct QuorumInner {
    pool: Arc<NodePool>,
    commands: mpsc::UnboundedSender<RenewerCommand>,
    leases: AtomicU64,
    majority_log: MajorityLog,
    recent_waits: RecentWaits,
    measures: AcquireMeasures,
    /// The parameters of the latest lease.
    params: Mutex<Option<Arc<LeaseParams>>>,
    /// The groups whose leadership a campaign of this worker seeks.
    campaigns: Mutex<BTreeSet<Arc<str>>>,
}

/// The text is kept short, because the `Debug` text of every handle contains it.
impl fmt::Debug for QuorumInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum")
            .field("worker", &self.config().worker)
            .field("nodes", &self.pool.len())
            .finish_non_exhaustive()
    }
}

impl QuorumInner {
    /// Checks the configuration and the list of nodes, and starts the drivers and the renewer.
    pub(crate) fn start(
        env: Env,
        config: QuorumConfig,
        nodes: Vec<NodeFactory>,
    ) -> Result<Self, SettingError> {
        let (commands, taken) = mpsc::unbounded_channel();
        let (events, heard) = mpsc::unbounded_channel();
        let pool = Arc::new(NodePool::start(env.clone(), config, nodes, &events)?);
        if let Some(advice) = QuorumConfig::advice(pool.len()) {
            tracing::warn!("{advice}");
        }
        env.spawn(LeaseRenewer::new(Arc::clone(&pool), taken, heard).run());
        Ok(Self {
            pool,
            commands,
            leases: AtomicU64::new(0),
            majority_log: MajorityLog::default(),
            recent_waits: RecentWaits::default(),
            measures: AcquireMeasures::new(),
            params: Mutex::default(),
            campaigns: Mutex::default(),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<NodePool> {
        &self.pool
    }

    pub(crate) fn env(&self) -> &Env {
        self.pool.env()
    }

    pub(crate) fn config(&self) -> &QuorumConfig {
        self.pool.config()
    }

    /// Returns the durations of the attempts to acquire locks.
    pub(crate) fn measures(&self) -> &AcquireMeasures {
        &self.measures
    }

    pub(crate) fn majority_log(&self) -> &MajorityLog {
        &self.majority_log
    }

    pub(super) fn recent_waits(&self) -> &RecentWaits {
        &self.recent_waits
    }

    /// Logs why an acquisition continues to wait. If the lock is contended, a majority has answered, so the end
    /// of an earlier wait for a majority is logged. Otherwise the missing majority is logged.
    pub(crate) fn log_wait(&self, error: &AcquireError) {
        let now = self.env().now();
        if error.is_contended() {
            self.majority_log.reached(now);
        } else {
            self.majority_log.missing(now, self.pool.has_had_quorum(), error);
        }
    }

    /// Returns these parameters, shared with earlier leases that have the same. A process may hold very many leases,
    /// nearly all of them with the same parameters.
    pub(crate) fn share(&self, params: LeaseParams) -> Arc<LeaseParams> {
        let mut latest = self.params.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some(shared) if **shared == params => Arc::clone(shared),
            _ => Arc::clone(latest.insert(Arc::new(params))),
        }
    }

    /// Notes that a campaign for the leadership of `group` begins. Returns false if another one is under way: two
    /// campaigns of one worker would compete, and the second would never lead.
    pub(crate) fn begin_campaign(&self, group: &Arc<str>) -> bool {
        self.campaigns.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(group))
    }

    /// Notes that the campaign for the leadership of `group` has ended.
    pub(crate) fn end_campaign(&self, group: &str) {
        self.campaigns.lock().unwrap_or_else(PoisonError::into_inner).remove(group);
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a command to the renewer. Returns `false` if the renewer has ended.
    pub(crate) fn command(&self, command: RenewerCommand) -> bool {
        self.commands.send(command).is_ok()
    }
}

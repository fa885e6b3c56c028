use crate::{
    config::{QuorumConfig, SettingError},
    driver::{NodeFactory, NodePool},
    env::Env,
    lease::{command::RenewerCommand, renewer::LeaseRenewer},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::mpsc;

/// What every part of one quorum shares: the drivers, and the way to the keeper.
#[derive(Debug)]
pub(crate) struct QuorumInner {
    pool: Arc<NodePool>,
    commands: mpsc::UnboundedSender<RenewerCommand>,
    leases: AtomicU64,
}

impl QuorumInner {
    /// Checks the setup, and starts the drivers and the keeper.
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
        Ok(Self { pool, commands, leases: AtomicU64::new(0) })
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

    pub(crate) fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the keeper took the order.
    pub(crate) fn command(&self, command: RenewerCommand) -> bool {
        self.commands.send(command).is_ok()
    }
}

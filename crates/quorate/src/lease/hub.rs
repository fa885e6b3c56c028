use super::keeper::{Keeper, Order};
use crate::{
    env::Env,
    round::{Fleet, Setup, SetupError, Starter},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::mpsc;

/// What every part of one quorum shares: the drivers, and the way to the keeper.
#[derive(Debug)]
pub(crate) struct Hub {
    fleet: Arc<Fleet>,
    orders: mpsc::UnboundedSender<Order>,
    leases: AtomicU64,
}

impl Hub {
    /// Checks the setup, and starts the drivers and the keeper.
    pub(crate) fn start(env: Env, setup: Setup, nodes: Vec<Starter>) -> Result<Self, SetupError> {
        let (orders, taken) = mpsc::unbounded_channel();
        let (events, heard) = mpsc::unbounded_channel();
        let fleet = Arc::new(Fleet::start(env.clone(), setup, nodes, &events)?);
        if let Some(advice) = Setup::advice(fleet.len()) {
            tracing::warn!("{advice}");
        }
        env.spawn(Keeper::new(Arc::clone(&fleet), taken, heard).run());
        Ok(Self { fleet, orders, leases: AtomicU64::new(0) })
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    pub(crate) fn env(&self) -> &Env {
        self.fleet.env()
    }

    pub(crate) fn setup(&self) -> &Setup {
        self.fleet.setup()
    }

    pub(crate) fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the keeper took the order.
    pub(crate) fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }
}

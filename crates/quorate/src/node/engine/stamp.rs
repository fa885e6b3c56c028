//! The stamps by which other nodes and workers notice that a node has lost data.

use super::{RequestHandler, Store};
use crate::node::{Reply, StampStep};
use std::sync::Arc;

impl<S: Store> RequestHandler<'_, S> {
    /// Merges the stamps of the other nodes by maximum, and changes the node's own stamp. What the worker knows of the
    /// node's own stamp counts only for [`StampStep::Raise`]: otherwise the reply would hide a loss.
    pub(super) fn stamp(
        &mut self,
        own: &Arc<str>,
        known: &[(Arc<str>, u64)],
        step: StampStep,
    ) -> Result<Reply, S::Error> {
        let mut stamps = self.store.stamps()?;
        let (mut counts, mut has_changed) = (Vec::with_capacity(known.len()), false);
        for (name, known) in known {
            let stored = stamps.get(name).copied().unwrap_or_default();
            let count = match step {
                _ if name != own => stored.max(*known),
                StampStep::Tell => stored,
                StampStep::Advance => stored + 1,
                StampStep::Raise => stored.max(*known) + 1,
            };
            if count > stored {
                stamps.insert(Arc::clone(name), count);
                has_changed = true;
            }
            counts.push(count);
        }
        if has_changed {
            self.store.set_stamps(stamps)?;
        }
        Ok(Reply::Stamps(counts))
    }
}

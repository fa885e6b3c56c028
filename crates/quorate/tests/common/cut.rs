//! A node in memory that a test can cut off from its worker.

use quorate::node::{
    Batch, BatchReply, Cause, Hello, Listen, MemoryNode, MemorySession, Node, PushSender, Session,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A node that its worker cannot reach while the flag `off` is true.
#[derive(Clone)]
pub(crate) struct Cut {
    node: MemoryNode,
    off: Arc<AtomicBool>,
}

pub(crate) struct CutSession {
    session: MemorySession,
    off: Arc<AtomicBool>,
}

impl Cut {
    /// Wraps `node`. The worker cannot reach the node while `off` is true.
    pub(crate) fn new(node: &MemoryNode, off: &Arc<AtomicBool>) -> Self {
        Self { node: node.clone(), off: Arc::clone(off) }
    }
}

impl Node for Cut {
    type Session = CutSession;

    fn name(&self) -> &str {
        self.node.name()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(CutSession, Hello), Cause> {
        if self.off.load(Ordering::Relaxed) {
            return Err(Cause::Unreachable("cut off".into()));
        }
        let (session, hello) = self.node.open(push_sender).await?;
        Ok((CutSession { session, off: Arc::clone(&self.off) }, hello))
    }
}

impl Session for CutSession {
    fn send(&mut self, batch: Batch) -> impl Future<Output = Result<BatchReply, Cause>> + Send + 'static {
        let sent = (!self.off.load(Ordering::Relaxed)).then(|| self.session.send(batch));
        async move {
            match sent {
                Some(sent) => sent.await,
                None => Err(Cause::Closed),
            }
        }
    }

    fn listen(&mut self, listen: Listen) {
        self.session.listen(listen);
    }
}

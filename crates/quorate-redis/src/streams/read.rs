//! The shell that reads: one connection, one question at a time, and only when it is asked for a message.

use super::{
    Begin, StreamError, StreamMessage, StreamSource,
    entry::{self, Entry},
    link::Link,
    message::Shared,
    plan::{Plan, Step},
};
use quorate::node::Cause;
use redis::Cmd;
use std::{collections::VecDeque, sync::Arc};

/// A consumer at work.
pub(super) struct Read {
    source: StreamSource,
    shared: Arc<Shared>,
    plan: Plan,
    link: Option<Link>,
    /// What has been read and not been asked for.
    ready: VecDeque<Entry>,
    /// The group has been there: where it is lost, so may entries be that it never gave out.
    grouped: bool,
}

impl Read {
    pub(super) fn new(source: StreamSource, shared: Arc<Shared>) -> Self {
        let plan = Plan::new(source.min_idle, source.env().now());
        Self { source, shared, plan, link: None, ready: VecDeque::new(), grouped: false }
    }

    /// The next entry, or what went wrong; then ask again.
    pub(super) async fn next(&mut self) -> Result<StreamMessage, StreamError> {
        loop {
            while let Some(entry) = self.ready.pop_front() {
                if let Some(message) = self.shared.give_out(entry) {
                    return Ok(message);
                }
            }
            if let Err(cause) = self.fill().await {
                self.link = None;
                self.plan.failed();
                return Err(self.source.failed(cause));
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Cause> {
        // Not put back before it has answered: what is given up halfway is not used again.
        let mut link = match self.link.take() {
            Some(link) => link,
            None => self.connect().await?,
        };
        let env = self.source.env();
        match self.plan.next(self.source.block(), env.now()) {
            Step::Own(after) => {
                let read = entry::of_read(link.ask(&self.read_group(&after, None)).await?)?;
                self.plan.had_own(read.last().map(|last| last.id.clone()));
                self.ready.extend(read);
            }
            Step::Takeover(from) => {
                let taken = entry::of_autoclaim(link.ask(&self.autoclaim(&from)).await?)?;
                if !taken.deleted.is_empty() {
                    let (stream, deleted) = (&*self.source.stream, taken.deleted.len());
                    tracing::warn!(stream, deleted, "entries were deleted while they were pending");
                }
                self.plan.took_over(taken.next, self.source.env().now());
                self.ready.extend(taken.entries);
            }
            Step::New(block) => {
                let waited = link.wait(&self.read_group(">", Some(block)), block).await?;
                let read = entry::of_read(waited)?;
                self.plan.had_new();
                self.ready.extend(read);
            }
        }
        self.link = Some(link);
        Ok(())
    }

    async fn connect(&mut self) -> Result<Link, Cause> {
        let env = self.source.env();
        let pause = self.plan.pause();
        // Workers that lost the server together do not come back together.
        env.sleep(pause - env.random_below(pause / 2)).await;
        let mut link = Link::open(&self.source).await?;
        let from = if self.source.begin == Begin::New && !self.grouped { "$" } else { "0" };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&*self.source.stream).arg(&*self.source.group).arg(from).arg("MKSTREAM");
        match link.ask(&create).await {
            Ok(_) => {}
            Err(Cause::Denied(why)) if why.starts_with("BUSYGROUP") => {}
            Err(cause) => return Err(cause),
        }
        self.grouped = true;
        Ok(link)
    }

    fn read_group(&self, after: &str, block: Option<std::time::Duration>) -> Cmd {
        let StreamSource { stream, group, consumer, batch, .. } = &self.source;
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&**group).arg(&**consumer).arg("COUNT").arg(*batch);
        if let Some(block) = block {
            read.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(u64::MAX));
        }
        read.arg("STREAMS").arg(&**stream).arg(after);
        read
    }

    fn autoclaim(&self, from: &str) -> Cmd {
        let StreamSource { stream, group, consumer, batch, min_idle, .. } = &self.source;
        let mut claim = redis::cmd("XAUTOCLAIM");
        let idle = u64::try_from(min_idle.as_millis()).unwrap_or(u64::MAX);
        claim.arg(&**stream).arg(&**group).arg(&**consumer).arg(idle).arg(from).arg("COUNT").arg(*batch);
        claim
    }
}

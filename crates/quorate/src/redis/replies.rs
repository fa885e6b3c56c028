//! Collects a server's replies to a batch into a [`BatchReply`].

use crate::{
    node::{Batch, BatchReply, Cause, NodeTime, Refusal, Reply, Request},
    redis::{
        encoded::{Encoded, ExpectedReply},
        fault,
        item::item,
        keys::Keys,
        ledger_page::Page,
        plain_acquires::PlainAcquires,
        reply::{array, mismatch, number, shown, time, unexpected},
        resp::Value,
        transaction::{self, Terms},
    },
};
use std::{sync::Arc, vec};

/// The replies to a batch, as far as they have arrived.
pub(crate) struct Replies {
    /// The expected replies to the calls that have not been answered.
    expected: vec::IntoIter<ExpectedReply>,
    requests: Vec<Request>,
    /// The position in the batch of each request, in the order of the replies.
    order: Vec<usize>,
    /// The counts of the acquires whose replies are expected.
    counts: vec::IntoIter<u64>,
    terms: Terms,
    plain: Arc<PlainAcquires>,
    /// The number of commands of the present transaction that were answered, and the error of the first that was refused.
    queued: usize,
    not_queued: Option<String>,
    node_time: NodeTime,
    replies: Vec<Reply>,
    /// The page that was read for the next command.
    page: Option<Box<Page>>,
    /// True if the server was no replica at the handshake.
    of_primary: bool,
    /// The first error.
    failed: Option<Cause>,
}

impl Replies {
    /// Begins with no replies to `batch`. `plain` learns from them. `of_primary` is true if the server was
    /// no replica at the handshake.
    pub(crate) fn new(
        encoded: Encoded,
        batch: Batch,
        keys: &Keys,
        plain: Arc<PlainAcquires>,
        of_primary: bool,
    ) -> Self {
        let Batch { requests, not_after, stamp } = batch;
        Self {
            expected: encoded.expected.into_iter(),
            replies: Vec::with_capacity(requests.len()),
            requests,
            order: encoded.order,
            counts: encoded.counts.into_iter(),
            terms: Terms { not_after, stamp, keys: keys.clone() },
            plain,
            queued: 0,
            not_queued: None,
            node_time: NodeTime::default(),
            page: None,
            of_primary,
            failed: None,
        }
    }

    /// Returns whether every command has been answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.expected.len() == 0
    }

    /// Adds the records that were read before to the last reply, if the script has accepted the request.
    fn add_page(&mut self) {
        if let (Some(page), Some(reply)) = (self.page.take(), self.replies.last_mut()) {
            page.add_to(reply);
        }
    }

    /// Parses the reply to the next command. The cause of an error does not contain `secret`.
    pub(crate) fn add(&mut self, value: &Value<'_>, secret: Option<&str>) {
        if let Some(ExpectedReply::Commands { commands, .. }) = self.expected.as_slice().first()
            && self.queued < *commands
        {
            let word: &[u8] = if self.queued == 0 { b"OK" } else { b"QUEUED" };
            self.queued += 1;
            match value {
                Value::Text(text) if *text == word => {}
                Value::Error(error) => _ = self.not_queued.get_or_insert_with(|| error.to_string()),
                other => _ = self.failed.get_or_insert(mismatch(other, "a command of a transaction")),
            }
            return;
        }
        let Some(expected) = self.expected.next() else { return };
        if self.failed.is_none()
            && let Err(cause) = self.parse(value, expected, secret)
        {
            self.failed = Some(cause);
        }
    }

    fn parse(
        &mut self,
        value: &Value<'_>,
        expected: ExpectedReply,
        secret: Option<&str>,
    ) -> Result<(), Cause> {
        let items = match expected {
            ExpectedReply::Items(items) => items,
            ExpectedReply::Commands { acquires, .. } => {
                return self.parse_transaction(value, acquires, secret);
            }
            ExpectedReply::Page => {
                self.page = Some(Box::new(Page::scanned(value, secret)?));
                return Ok(());
            }
        };
        if let Value::Error(error) = value {
            return Err(fault::of_server(error, secret, fault::RIGHTS));
        }
        if items == 0 {
            self.node_time = time(value)?;
            return Ok(());
        }
        let parts = array(value, "a script's reply")?;
        if parts.len() != items + 1 {
            return Err(unexpected(&format!("{} replies to {items} requests", parts.len())));
        }
        self.node_time = NodeTime::from_micros(number(&parts[0])?);
        for part in &parts[1..] {
            let reply = item(part)?;
            if self.of_primary
                && let Reply::Refused(Refusal::Failed(why)) = &reply
                && why.starts_with("READONLY")
            {
                // The server has become a replica. The next handshake reports its role.
                return Err(Cause::Changed(Arc::clone(why)));
            }
            self.add_reply(reply, false);
        }
        self.add_page();
        Ok(())
    }

    /// Parses the reply to EXEC. If the server has refused a command, it has run none of them, or each by itself. The session
    /// ends, so that the attempts release what they may hold, and the next handshake finds the reason.
    fn parse_transaction(
        &mut self,
        value: &Value<'_>,
        acquires: usize,
        secret: Option<&str>,
    ) -> Result<(), Cause> {
        self.queued = 0;
        let refused = self.not_queued.take();
        let error = match value {
            Value::Error(error) => Some(refused.as_deref().unwrap_or(error)),
            _ => refused.as_deref(),
        };
        if let Some(error) = error {
            return Err(match error.starts_with("READONLY") && self.of_primary {
                true => Cause::Changed(shown(error)),
                false => fault::of_server(error, secret, fault::RIGHTS),
            });
        }
        let counts: Vec<u64> = self.counts.by_ref().take(acquires).collect();
        let values = array(value, "EXEC")?;
        let positions = self.order.get(self.replies.len()..).unwrap_or_default();
        let requests = positions.iter().filter_map(|position| self.requests.get(*position)).zip(counts);
        let (time, replies) = transaction::replies(values, requests, &self.terms)?;
        self.node_time = time;
        replies.into_iter().for_each(|reply| self.add_reply(reply, true));
        Ok(())
    }

    fn add_reply(&mut self, reply: Reply, by_commands: bool) {
        let request = self.order.get(self.replies.len()).and_then(|position| self.requests.get(*position));
        if let Some(request) = request {
            self.plain.learn(request, &reply, self.node_time, by_commands);
        }
        self.replies.push(reply);
    }

    /// Returns the reply to the batch. Removes `secret` from errors, in case the server repeats it.
    pub(crate) fn finish(mut self, secret: Option<&str>) -> Result<BatchReply, Cause> {
        if let Some(cause) = self.failed {
            return Err(match secret {
                Some(secret) => fault::redact(cause, secret),
                None => cause,
            });
        }
        self.plain.saw(self.node_time);
        for reply in &mut self.replies {
            if let (
                Reply::Refused(Refusal::WrongType(text) | Refusal::Failed(text) | Refusal::Unable(text))
                | Reply::MayHold(Refusal::WrongType(text) | Refusal::Failed(text) | Refusal::Unable(text)),
                Some(secret),
            ) = (reply, secret)
            {
                *text = fault::without(text, secret).into();
            }
        }
        if self.order.is_sorted() {
            return Ok(BatchReply { node_time: self.node_time, replies: self.replies });
        }
        let mut replies: Vec<(usize, Reply)> = self.order.into_iter().zip(self.replies).collect();
        replies.sort_unstable_by_key(|(position, _)| *position);
        let replies = replies.into_iter().map(|(_, reply)| reply).collect();
        Ok(BatchReply { node_time: self.node_time, replies })
    }
}

#[cfg(test)]
mod tests;

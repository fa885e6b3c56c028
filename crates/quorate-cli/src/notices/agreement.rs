//! The agreement of the workers that one of them sends a notification to a receiver: a claim for each receiver and
//! event. So a receiver gets no second message if the leader changes while another receiver does not answer.

use crate::config::NotifyConfig;
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    quorum::Quorum,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// The time for which the nodes remember that a notification was sent. A leader that has sent one removes it from the
/// ledger at once, so a later leader asks only if that leader ended just then.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// The longest wait for one answer of the nodes. Without one, the message is sent: twice rather than never.
const AGREE_WITHIN: Duration = Duration::from_secs(5);
/// The pause before a claim of another worker is looked at again, and the largest number of looks. A worker that has
/// ended keeps its claim for one TTL.
const AGAIN: (Duration, u32) = (Duration::from_secs(1), 60);

/// The claims of one receiver.
#[derive(Debug)]
pub(super) struct ReceiverClaims {
    quorum: Quorum,
    claims: Claims,
    receiver: String,
}

/// The worker that sends a message.
pub(super) enum Turn {
    /// This one, under this claim; `None` if the workers cannot agree.
    Ours(Option<Box<Claim>>),
    /// Another one has sent it.
    Elsewhere,
}

impl ReceiverClaims {
    pub(super) fn new(quorum: &Quorum, group: &str, config: &NotifyConfig) -> Self {
        let claims = Claims::new(quorum, format!("notify-{group}")).retention(REMEMBERED);
        Self { quorum: quorum.clone(), claims, receiver: key_of(config) }
    }

    /// Waits until it is clear which worker sends the message with this id.
    ///
    /// # Cancel safety
    /// Safe: a claim of this call is released.
    pub(super) async fn turn(&self, id: &str) -> Turn {
        let env = self.quorum.env();
        let id = format!("{}/{id}", self.receiver);
        for _ in 0..AGAIN.1 {
            match env.before(env.now() + AGREE_WITHIN, self.claims.claim(&*id)).await {
                Some(Ok(ClaimOutcome::Claimed(claim))) => return Turn::Ours(Some(Box::new(claim))),
                Some(Ok(ClaimOutcome::Done(_))) => return Turn::Elsewhere,
                Some(Ok(_)) => env.sleep(AGAIN.0).await,
                Some(Err(_)) | None => break,
            }
        }
        Turn::Ours(None)
    }

    /// Notes the end of this worker's turn. If the message is not `settled`, another worker may send it.
    pub(super) async fn ended(&self, claim: Option<Box<Claim>>, settled: bool) {
        let Some(claim) = claim else { return };
        let env = self.quorum.env();
        let ended = async move {
            match settled {
                true => claim.complete("").await.map(drop),
                false => claim.abandon().await,
            }
        };
        if let Some(Err(error)) = env.before(env.now() + AGREE_WITHIN, ended).await {
            tracing::debug!("the nodes did not store that a notification was sent: {error}");
        }
    }
}

/// Returns a text that is the same on all workers with this receiver, whatever the order of their receivers. It shows
/// no secret.
fn key_of(config: &NotifyConfig) -> String {
    let mut hasher = DefaultHasher::new();
    config.to.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

//! Tests of consumers of streams. A dropped consumer must leave no handler and no claim. It may have
//! acknowledged only messages that are done.

use crate::{
    at_every_await_point,
    stage::{Alive, Matter, NAME, SOON, Stage, TTL},
};
use futures_util::{StreamExt, stream};
use quorate::{
    claim::{
        ClaimOutcome,
        stream::{Message, Received},
    },
    env::Env,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const MS: Duration = Duration::from_millis(1);

/// The futures that the tests of this file cover, by type and name.
pub(crate) const TRIED: &[&str] = &["Consume::until", "Message::ack", "Message::leave"];

#[test]
fn consume_until() {
    at_every_await_point("Consume::until", Matter::Claim, |stage| {
        Box::pin(consume(stage, true, Duration::ZERO))
    });
}

#[test]
fn message_ack() {
    at_every_await_point("Message::ack", Matter::Claim, |stage| Box::pin(consume(stage, true, 15 * MS)));
}

#[test]
fn message_leave() {
    at_every_await_point("Message::leave", Matter::Claim, |stage| Box::pin(consume(stage, false, 15 * MS)));
}

/// A message whose source acknowledges slowly.
struct Slow {
    env: Env,
    takes: Duration,
    acked: Arc<AtomicBool>,
}

impl Message for Slow {
    type Error = Infallible;

    fn id(&self) -> Result<&str, Box<dyn std::error::Error + Send + Sync>> {
        Ok(NAME)
    }

    async fn ack(&self) -> Result<(), Infallible> {
        self.acked.store(true, Ordering::Relaxed);
        self.env.sleep(self.takes).await;
        Ok(())
    }

    async fn leave(&self) {
        self.env.sleep(self.takes).await;
    }
}

/// Consumes one message, and then the end of the stream. The message's handler succeeds if `succeeds` is true,
/// and fails otherwise.
async fn consume(stage: &Stage, succeeds: bool, takes: Duration) -> bool {
    let (works, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let message = Slow { env: stage.env.clone(), takes, acked: Arc::clone(&acked) };
    let (alive, env) = (Arc::clone(&works), stage.env.clone());
    let handler = move |delivery: Received<Slow>| {
        let (alive, env) = (Alive::new(&alive), env.clone());
        async move {
            let _alive = alive;
            env.sleep(15 * MS).await;
            delivery.fencing_token().expect("it is ours");
            if succeeds { Ok("it worked") } else { Err("it did not") }
        }
    };
    let consumer = stage.claims().consume(stream::once(async { message }).boxed(), handler);
    // If a rival has the message, or too few nodes answer, the consumer tries again. Its patience is longer
    // than either condition lasts.
    let consumer = consumer.max_wait(Duration::from_secs(60)).until(std::future::pending::<()>());
    let ended = stage.cut(consumer).await;
    let idle = async {
        while works.load(Ordering::Relaxed) {
            stage.env.sleep(MS).await;
        }
    };
    stage.soon("end of the handler", 5 * MS, idle).await;
    // If the consumer was dropped while it recorded the handler's result, the message stays claimed until the
    // TTL of the claim ends.
    stage.patience.set(TTL + SOON);
    if let Some(Ok(consumed)) = &ended
        && succeeds
    {
        assert_eq!(consumed.acked, 1, "{consumed:?}");
    }
    if acked.load(Ordering::Relaxed) {
        match stage.claims().claim(NAME).await {
            Ok(ClaimOutcome::Done(_)) => {}
            other => panic!("acked, and then {other:?}"),
        }
    }
    ended.is_some()
}

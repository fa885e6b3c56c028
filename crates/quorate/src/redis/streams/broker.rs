//! One connection to the broker. The connection sends one command at a time, and waits for the reply until a
//! deadline.

use super::StreamSource;
use crate::redis::{
    command::{Command, cmd},
    link::Link,
    resp::Value,
};
use crate::{env::Env, node::Cause};
use std::time::Duration;

/// The longest time that opening a connection may take, and that the reply to a command may take unless it
/// blocks on the server.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The fix for a user with too few permissions.
const RIGHTS: &str = "let the broker's user do +xgroup|create +xreadgroup +xautoclaim +xack +select +client|setname, and give it \
                      the stream's key";

/// An open connection to the broker. After an error it is not used again, since a reply may still be in
/// flight.
pub(super) struct BrokerConnection {
    env: Env,
    link: Link,
}

impl BrokerConnection {
    /// Connects and authenticates.
    pub(super) async fn open(source: &StreamSource) -> Result<Self, Cause> {
        let env = source.env();
        env.before(env.now() + REPLY_TIMEOUT, Self::log_in(source)).await.unwrap_or(Err(Cause::TimedOut))
    }

    async fn log_in(source: &StreamSource) -> Result<Self, Cause> {
        let mut link = Link::dial(&source.node, RIGHTS).await?;
        link.log_in().await?;
        link.select().await?;
        // The user may have no permission to name its connections. The user can read streams nevertheless.
        match link.demand(cmd("CLIENT").arg("SETNAME").arg("quorate-stream")).await {
            Ok(_) | Err(Cause::Denied(_)) => {}
            Err(cause) => return Err(cause),
        }
        link.allow_long_replies();
        Ok(Self { env: source.env().clone(), link })
    }

    /// Sends a command that blocks on the server for at most `block`, and returns the reply.
    pub(super) async fn ask(&mut self, command: &mut Command, block: Duration) -> Result<Value<'_>, Cause> {
        let deadline = self.env.now() + block + REPLY_TIMEOUT;
        self.env.before(deadline, self.link.demand(command)).await.unwrap_or(Err(Cause::TimedOut))
    }
}

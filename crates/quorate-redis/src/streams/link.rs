//! One connection to the broker. The connection sends one command at a time, and waits for the reply until a
//! deadline.

use super::StreamSource;
use crate::{
    address::Secret,
    command::{Command, cmd},
    fault, reply,
    resp::Value,
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Cause, Node},
};
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
    name: String,
    reader: Reader,
    writer: Writer,
    password: Option<Secret>,
}

impl BrokerConnection {
    /// Connects and authenticates.
    pub(super) async fn open(source: &StreamSource) -> Result<Self, Cause> {
        let env = source.env();
        env.before(env.now() + REPLY_TIMEOUT, Self::log_in(source)).await.unwrap_or(Err(Cause::TimedOut))
    }

    async fn log_in(source: &StreamSource) -> Result<Self, Cause> {
        let (reader, writer, login) = source.node.dial().await?;
        let auth = login.auth();
        let name = source.node.name().to_owned();
        let mut connection =
            Self { env: source.env().clone(), name, reader, writer, password: login.password };
        if let Some(mut auth) = auth {
            connection.ask(&mut auth).await?;
        }
        if login.database != 0 {
            connection.ask(cmd("SELECT").number(login.database)).await?;
        }
        // The user may have no permission to name its connections. The user can read streams nevertheless.
        match connection.ask(cmd("CLIENT").arg("SETNAME").arg("quorate-stream")).await {
            Ok(_) | Err(Cause::Denied(_)) => {}
            Err(cause) => return Err(cause),
        }
        connection.reader.allow_long_replies();
        Ok(connection)
    }

    /// Sends a command that does not block on the server, and returns the reply.
    pub(super) async fn ask(&mut self, command: &mut Command) -> Result<Value<'_>, Cause> {
        self.ask_within(command, REPLY_TIMEOUT).await
    }

    /// Sends a command that blocks on the server for at most `block`, and returns the reply.
    pub(super) async fn wait(&mut self, command: &mut Command, block: Duration) -> Result<Value<'_>, Cause> {
        self.ask_within(command, block + REPLY_TIMEOUT).await
    }

    async fn ask_within(&mut self, command: &mut Command, within: Duration) -> Result<Value<'_>, Cause> {
        let deadline = self.env.now() + within;
        let request = async {
            let sent = self.writer.send(&command.packed()).await;
            sent.map_err(|error| fault::of_io(&self.name, &error))?;
            self.reader.next().await.map_err(|error| fault::of_broken(&self.name, &error))
        };
        let reply = self.env.before(deadline, request).await.unwrap_or(Err(Cause::TimedOut));
        // A server may repeat its input in an error. The password is removed, so that it does not appear in
        // logs.
        match (reply, &self.password) {
            (Ok(Value::Error(error)), password) => {
                Err(of_server(&error, password.as_ref().map(Secret::reveal)))
            }
            (Err(cause), Some(password)) => Err(fault::redact(cause, password.reveal())),
            (reply, _) => reply,
        }
    }
}

/// Returns the cause for an error that the broker reported. The cause differs from the cause for a node,
/// because the broker's user needs other permissions.
fn of_server(error: &str, secret: Option<&str>) -> Cause {
    match fault::parts(error).0 {
        "NOPERM" => Cause::Denied(format!("{}; {RIGHTS}", fault::error_text(error, secret)).into()),
        _ => fault::of_server(error, secret),
    }
}

/// Returns the cause for an unexpected value.
pub(super) fn unexpected(what: &str, value: &Value<'_>) -> Cause {
    reply::unexpected(&format!("{} for {what}", reply::kind(value)))
}

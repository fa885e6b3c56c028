//! One connection to the broker: a command, its answer, within a time.

use super::StreamSource;
use crate::{
    address::Secret,
    fault, reply,
    wire::{Reader, Writer},
};
use quorate::{
    env::Env,
    node::{Cause, Node},
    plain::plain,
};
use redis::{Cmd, ServerError, Value};
use std::time::Duration;

/// How long a connection, or the answer to a command that does not wait, may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The mend for a user with too few rights.
const RIGHTS: &str = "let the broker's user do +xgroup|create +xreadgroup +xautoclaim +xack +select +client|setname, and give it \
                      the stream's key";

/// An open connection. After an error it is not used again: an answer may still be under way.
pub(super) struct Link {
    env: Env,
    name: String,
    reader: Reader,
    writer: Writer,
    password: Option<Secret>,
}

impl Link {
    /// Connects and says who we are.
    pub(super) async fn open(source: &StreamSource) -> Result<Self, Cause> {
        let env = source.env();
        env.before(env.now() + ANSWER, Self::greet(source)).await.unwrap_or(Err(Cause::TimedOut))
    }

    async fn greet(source: &StreamSource) -> Result<Self, Cause> {
        let (reader, writer, login) = source.node.dial().await?;
        let auth = login.auth();
        let name = source.node.name().to_owned();
        let mut link = Self { env: source.env().clone(), name, reader, writer, password: login.password };
        if let Some(auth) = auth {
            link.ask(&auth).await?;
        }
        if login.database != 0 {
            link.ask(redis::cmd("SELECT").arg(login.database)).await?;
        }
        // A user that may not name its connections reads streams as well.
        match link.ask(redis::cmd("CLIENT").arg("SETNAME").arg("quorate-stream")).await {
            Ok(_) | Err(Cause::Denied(_)) => {}
            Err(cause) => return Err(cause),
        }
        link.reader.is_known();
        Ok(link)
    }

    /// The answer to a command that does not wait.
    pub(super) async fn ask(&mut self, command: &Cmd) -> Result<Value, Cause> {
        self.ask_within(command, ANSWER).await
    }

    /// The answer to a command that waits on the server for `waits` at most.
    pub(super) async fn wait(&mut self, command: &Cmd, waits: Duration) -> Result<Value, Cause> {
        self.ask_within(command, waits + ANSWER).await
    }

    async fn ask_within(&mut self, command: &Cmd, within: Duration) -> Result<Value, Cause> {
        let deadline = self.env.now() + within;
        let asked = async {
            let sent = self.writer.send(&command.get_packed_command()).await;
            sent.map_err(|error| fault::of_io(&self.name, &error))?;
            self.reader.next().await.map_err(|error| fault::of_broken(&self.name, &error))
        };
        let answer = self.env.before(deadline, asked).await.unwrap_or(Err(Cause::TimedOut));
        // A server that repeats what it was told would have its password in every log.
        match (answer, &self.password) {
            (Ok(Value::ServerError(error)), Some(password)) => {
                fault::unless_it_repeats(&error, password.reveal())?;
                Err(of_server(&error))
            }
            (Ok(Value::ServerError(error)), None) => Err(of_server(&error)),
            (Err(cause), Some(password)) => Err(fault::without(cause, password.reveal())),
            (answer, _) => answer,
        }
    }
}

/// The cause behind an error of the broker's own. What its user needs is not what a node's does.
fn of_server(error: &ServerError) -> Cause {
    match error.code() {
        "NOPERM" => {
            Cause::Denied(format!("{}; {RIGHTS}", plain(error.details().unwrap_or_default(), 200)).into())
        }
        _ => fault::of_server(error),
    }
}

/// What the server should not have said.
pub(super) fn unexpected(what: &str, value: &Value) -> Cause {
    reply::unexpected(&format!("{} for {what}", reply::kind(value)))
}

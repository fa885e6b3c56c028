use crate::node::{Cause, Node};
use crate::redis::{
    RedisNode,
    address::Login,
    command::Command,
    fault,
    resp::Value,
    wire::{ReadError, Reader, Writer},
};

/// A connection to a server whose commands are answered one after the other. A session takes it over after the handshake.
pub(crate) struct Link {
    name: String,
    reader: Reader,
    writer: Writer,
    login: Login,
    /// The fix for a user with too few permissions.
    rights: &'static str,
}

impl Link {
    /// Connects to the server of `node`. Sends nothing.
    pub(crate) async fn dial(node: &RedisNode, rights: &'static str) -> Result<Self, Cause> {
        let (halves, login) = node.dial().await?;
        Ok(Self::new(node.name(), halves, login, rights))
    }

    /// Takes over a connection that was opened with `login` to the server called `name`.
    pub(crate) fn new(
        name: &str,
        (reader, writer): (Reader, Writer),
        login: Login,
        rights: &'static str,
    ) -> Self {
        Self { name: name.to_owned(), reader, writer, login, rights }
    }

    pub(crate) fn login(&self) -> &Login {
        &self.login
    }

    /// Returns the two halves of the connection, and the login.
    pub(crate) fn into_parts(self) -> ((Reader, Writer), Login) {
        ((self.reader, self.writer), self.login)
    }

    /// Authenticates the client, if there is a password.
    pub(crate) async fn log_in(&mut self) -> Result<(), Cause> {
        match self.login.auth() {
            Some(mut auth) => self.demand(&mut auth).await.map(drop),
            None => Ok(()),
        }
    }

    /// Selects the database of the URL.
    pub(crate) async fn select(&mut self) -> Result<(), Cause> {
        match self.login.select() {
            Some(mut select) => self.demand(&mut select).await.map(drop),
            None => Ok(()),
        }
    }

    /// Raises the limit for the length of a reply. Called after the login.
    pub(crate) fn allow_long_replies(&mut self) {
        self.reader.allow_long_replies();
    }

    /// Sends a command, and returns the reply, which may be an error.
    pub(crate) async fn ask(&mut self, command: &mut Command) -> Result<Value<'_>, Cause> {
        self.send(&command.packed()).await?;
        self.next().await
    }

    /// Sends a command, and returns the reply. An error of the server becomes a cause without the password.
    pub(crate) async fn demand(&mut self, command: &mut Command) -> Result<Value<'_>, Cause> {
        self.send(&command.packed()).await?;
        match self.reader.next().await.map_err(|error| fault::of_broken(&self.name, &error))? {
            Value::Error(error) => Err(fault::of_server(&error, self.login.secret(), self.rights)),
            value => Ok(value),
        }
    }

    /// Sends `bytes`. If the server has closed the connection, the returned error contains the reason that the
    /// server sent, if it can still be read. For example, under TLS 1.3 a server refuses the client's certificate
    /// only after the handshake.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Cause> {
        let Err(unsent) = self.writer.send(bytes).await else { return Ok(()) };
        match self.reader.next().await {
            Err(ReadError::Io(reason)) if !fault::is_dropped(&reason) => {
                Err(fault::of_io(&self.name, &reason))
            }
            _ => Err(fault::of_io(&self.name, &unsent)),
        }
    }

    /// Returns the next reply.
    pub(crate) async fn next(&mut self) -> Result<Value<'_>, Cause> {
        self.reader.next().await.map_err(|error| fault::of_broken(&self.name, &error))
    }
}

//! Lists the names that a server stores.

use crate::{RedisNode, address::Login, command::cmd, examine::Connection, fault, reply, resp::Value};
use quorate::{
    admin::{NamesQuery, StoredNames},
    node::Cause,
};

/// The number of keys that the server looks at for one reply.
const KEYS_A_CALL: &str = "1000";

impl RedisNode {
    /// Returns the names on the server that `query` lists. The call looks at every key of the server's
    /// database, with SCAN, in pieces. It has no time limit of its own: the caller sets one.
    ///
    /// # Errors
    /// The [`Cause`] of the failure. Its text contains no password.
    ///
    /// # Cancel safety
    /// Dropping the future drops the connection. Nothing is written to the server.
    #[doc(hidden)]
    pub async fn stored_names(&self, query: &NamesQuery) -> Result<StoredNames, Cause> {
        let (reader, writer, login) = self.dial().await?;
        let found =
            self.scan(Connection::new(quorate::node::Node::name(self), reader, writer), &login, query).await;
        let Some(password) = &login.password else { return found };
        found.map_err(|cause| fault::redact(cause, password.reveal()))
    }

    async fn scan(
        &self,
        mut connection: Connection<'_>,
        login: &Login,
        query: &NamesQuery,
    ) -> Result<StoredNames, Cause> {
        connection.log_in(login).await?;
        connection.allow_long_replies();
        if login.database != 0
            && let Value::Error(error) = connection.ask(cmd("SELECT").number(login.database)).await?
        {
            return Err(fault::of_server(&error, login.secret()));
        }
        let prefix = self.keys().prefix();
        let pattern = format!("{}*", literal(&format!("{prefix}{}", query.begin())));
        let (mut names, mut cursor) = (StoredNames::default(), "0".to_owned());
        loop {
            let mut scan = cmd("SCAN");
            scan.args([&cursor, "MATCH", &pattern, "COUNT", KEYS_A_CALL, "TYPE", "string"]);
            let (next, keys) = page(&connection.ask(&mut scan).await?, login.secret())?;
            for key in keys {
                // A key that is no text is not one of ours.
                let key = String::from_utf8(key).unwrap_or_default();
                if key.strip_prefix(prefix).is_some_and(|key| !query.add(&mut names, key)) {
                    return Ok(names);
                }
            }
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}

/// Returns the cursor and the keys of a reply to SCAN.
fn page(reply: &Value<'_>, secret: Option<&str>) -> Result<(String, Vec<Vec<u8>>), Cause> {
    let invalid = || Cause::Protocol("the reply to SCAN is not a cursor and a list of keys".into());
    let parts = match reply {
        Value::Error(error) => return Err(fault::of_server(error, secret)),
        Value::Array(parts) => parts,
        _ => return Err(invalid()),
    };
    let [cursor, Value::Array(keys)] = &parts[..] else { return Err(invalid()) };
    let cursor = reply::text(cursor)?.to_string();
    let is_number =
        !cursor.is_empty() && cursor.len() <= 20 && cursor.bytes().all(|byte| byte.is_ascii_digit());
    let keys = keys.iter().map(|key| match key {
        Value::Text(key) => Ok(key.to_vec()),
        _ => Err(invalid()),
    });
    if is_number { Ok((cursor, keys.collect::<Result<_, _>>()?)) } else { Err(invalid()) }
}

/// Escapes the characters of `text` that have a meaning in the patterns of SCAN.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '*' | '?' | '[' | ']') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_matched_literally() {
        assert_eq!(literal("a*b?[c]\\:"), "a\\*b\\?\\[c\\]\\\\:");
        assert_eq!(literal("quorate:claim/orders/"), "quorate:claim/orders/");
    }

    #[test]
    fn an_invalid_reply_is_an_error() {
        let bulk = |text: &'static str| Value::Text(text.as_bytes());
        let valid = Value::Array(vec![bulk("17"), Value::Array(vec![bulk("a"), bulk("b")])]);
        assert_eq!(page(&valid, None).unwrap(), ("17".to_owned(), vec![b"a".to_vec(), b"b".to_vec()]));
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("x"), Value::Array(vec![])]),
            Value::Array(vec![bulk(""), Value::Array(vec![])]),
            Value::Array(vec![bulk("1"), bulk("a")]),
            Value::Array(vec![bulk("1"), Value::Array(vec![Value::Int(3)])]),
        ] {
            assert!(page(&reply, None).is_err(), "{reply:?}");
        }
    }
}

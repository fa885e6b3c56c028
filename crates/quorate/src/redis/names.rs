//! Lists the names that a server stores.

use crate::node::{Cause, NamesQuery, StoredNames};
use crate::redis::{RedisNode, command::cmd, fault, link::Link, reply, resp::Value};

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
        let mut link = Link::dial(self, fault::RIGHTS).await?;
        link.log_in().await?;
        link.allow_long_replies();
        link.select().await?;
        let prefix = self.keys().prefix();
        let pattern = format!("{}*", literal(&format!("{prefix}{}", query.begin())));
        let (mut names, mut cursor) = (StoredNames::default(), 0);
        loop {
            let mut scan = cmd("SCAN");
            scan.number(cursor).args(["MATCH", &pattern, "COUNT", KEYS_A_CALL, "TYPE", "string"]);
            let found = page(&link.demand(&mut scan).await?);
            let (next, keys) = found.map_err(|cause| link.login().redact(cause))?;
            for key in keys {
                // A key that is no text is not one of ours.
                let key = String::from_utf8(key).unwrap_or_default();
                if key.strip_prefix(prefix).is_some_and(|key| !query.add(&mut names, key)) {
                    return Ok(names);
                }
            }
            if next == 0 {
                return Ok(names);
            }
            cursor = next;
        }
    }
}

/// Returns the cursor and the keys of a reply to SCAN.
fn page(value: &Value<'_>) -> Result<(u64, Vec<Vec<u8>>), Cause> {
    let [cursor, keys] = reply::pair(value, "SCAN")?;
    let keys = reply::array(keys, "SCAN")?.iter().map(reply::bytes);
    Ok((reply::number(cursor)?, keys.collect::<Result<_, _>>()?))
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
        assert_eq!(page(&valid).unwrap(), (17, vec![b"a".to_vec(), b"b".to_vec()]));
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![bulk("x"), Value::Array(vec![])]),
            Value::Array(vec![bulk(""), Value::Array(vec![])]),
            Value::Array(vec![bulk("1"), bulk("a")]),
            Value::Array(vec![bulk("1"), Value::Array(vec![Value::Int(3)])]),
        ] {
            assert!(page(&reply).is_err(), "{reply:?}");
        }
    }
}

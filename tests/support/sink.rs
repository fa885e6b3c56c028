use redis::{Connection, RedisResult};
use std::cell::RefCell;

/// A script that makes a write with a token. If it has seen a larger token, it refuses the write. Otherwise it
/// stores the token.
const WRITE: &str = "\
    local seen = tonumber(redis.call('GET', KEYS[1]) or '0') \
    if tonumber(ARGV[1]) < seen then return 0 end \
    redis.call('SET', KEYS[1], ARGV[1]) \
    redis.call('RPUSH', KEYS[2], ARGV[1]) \
    return 1";

/// A store that a lease protects. It is outside of the quorum, and compares fencing tokens in the transaction
/// of the write.
pub struct Sink(RefCell<Connection>);

impl Sink {
    /// Returns the sink on the server at `url`. All writers that use the same server share the sink.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn at(url: &str) -> RedisResult<Self> {
        Ok(Self(RefCell::new(redis::Client::open(url)?.get_connection()?)))
    }

    /// Writes with `token`. Returns whether the write was accepted.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn write(&self, token: u64) -> RedisResult<bool> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(WRITE).arg(2).arg("highest").arg("history").arg(token).query(&mut *self.0.borrow_mut())
    }

    /// Returns the largest token of an accepted write, or 0 if none was accepted.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub fn highest(&self) -> RedisResult<u64> {
        let highest: Option<u64> = redis::cmd("GET").arg("highest").query(&mut *self.0.borrow_mut())?;
        Ok(highest.unwrap_or_default())
    }

    /// Returns the tokens of the accepted writes, in their order.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn history(&self) -> RedisResult<Vec<u64>> {
        redis::cmd("LRANGE").arg("history").arg(0).arg(-1).query(&mut *self.0.borrow_mut())
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

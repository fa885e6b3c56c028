//! The servers that all rivals share.

use crate::plan::Args;
use quorate_testkit::redis::RedisCluster;

/// How many are started.
const SERVERS: usize = 5;

/// Five servers of our own, or those that were named.
pub(crate) struct Servers {
    own: Option<RedisCluster>,
    urls: Vec<String>,
}

impl Servers {
    pub(crate) fn new(args: &Args) -> Result<Self, String> {
        if !args.url.is_empty() {
            return Ok(Self { own: None, urls: args.url.clone() });
        }
        let own = RedisCluster::start(SERVERS).map_err(|error| error.to_string())?;
        Ok(Self { urls: own.urls(), own: Some(own) })
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    pub(crate) fn can_be_stopped(&self) -> bool {
        self.own.is_some()
    }

    /// SIGSTOP: the sockets stay open, and nothing answers.
    pub(crate) fn stop(&self, server: usize) {
        if let Some(own) = &self.own {
            own[server].pause();
        }
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self, server: usize) {
        if let Some(own) = &self.own {
            own[server].resume();
        }
    }

    pub(crate) fn version(&self) -> Result<String, String> {
        let fail = |error: redis::RedisError| format!("{error}; is a Redis server there?");
        let client = redis::Client::open(self.urls[0].as_str()).map_err(fail)?;
        let mut connection = client.get_connection().map_err(fail)?;
        let info: String = redis::cmd("INFO").arg("server").query(&mut connection).map_err(fail)?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").trim().to_owned())
    }
}

//! The servers that all rivals share.

use crate::args::Args;
use quorate_testkit::redis::{RedisCluster, RedisConfig};
use std::time::Duration;

/// The number of servers to start.
const SERVERS: usize = 5;
/// A server logs a call as slow if the call takes this number of microseconds or more. This program sets the
/// limit on the servers that it starts, because the default of Redis (10 ms) is too long here.
const SLOW: &str = "300";

/// Five servers that this program started, or the servers that the user named.
pub(crate) struct Servers {
    own: Option<RedisCluster>,
    urls: Vec<String>,
}

impl Servers {
    pub(crate) fn new(args: &Args) -> Result<Self, String> {
        if !args.url.is_empty() {
            return Ok(Self { own: None, urls: args.url.clone() });
        }
        Self::start(&RedisConfig::new())
    }

    /// Starts servers that sync their append-only file before each answer.
    pub(crate) fn durable() -> Result<Self, String> {
        Self::start(&RedisConfig::new().append_only())
    }

    fn start(config: &RedisConfig) -> Result<Self, String> {
        let own = RedisCluster::start_with(SERVERS, config).map_err(|error| error.to_string())?;
        for server in own.iter() {
            server.command(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW]);
        }
        Ok(Self { urls: own.urls(), own: Some(own) })
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    pub(crate) fn can_be_stopped(&self) -> bool {
        self.own.is_some()
    }

    /// Stops a server with SIGSTOP. Its connections stay open, but it does not answer.
    pub(crate) fn stop(&self, server: usize) {
        if let Some(own) = &self.own {
            own[server].pause();
        }
    }

    /// Continues a stopped server with SIGCONT.
    pub(crate) fn resume(&self, server: usize) {
        if let Some(own) = &self.own {
            own[server].resume();
        }
    }

    /// Returns the processor time that all servers together have used so far.
    pub(crate) fn cpu(&self) -> Result<Duration, String> {
        let mut sum = 0.0;
        for url in &self.urls {
            let info = info(url, "cpu")?;
            for name in ["used_cpu_user:", "used_cpu_sys:"] {
                let figure =
                    info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
                sum += figure.ok_or_else(|| format!("{url}: INFO cpu reports no {name}"))?;
            }
        }
        Ok(Duration::from_secs_f64(sum))
    }

    /// Returns the number of commands that all servers together have run so far, with those of scripts.
    pub(crate) fn commands(&self) -> Result<u64, String> {
        let mut sum = 0;
        for url in &self.urls {
            let stats = info(url, "stats")?;
            let figure = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
            sum += figure
                .and_then(|figure| figure.trim().parse::<u64>().ok())
                .ok_or_else(|| format!("{url}: INFO stats reports no total_commands_processed"))?;
        }
        Ok(sum)
    }

    /// Returns the number of scripts that clients have called on all servers together so far.
    pub(crate) fn script_calls(&self) -> Result<u64, String> {
        let mut sum = 0;
        for url in &self.urls {
            let stats = info(url, "commandstats")?;
            let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            sum += calls.filter_map(|line| line.split(',').next()?.parse::<u64>().ok()).sum::<u64>();
        }
        Ok(sum)
    }

    /// Returns the number of fields that a majority of the servers have in the hash under `key`.
    pub(crate) fn fields(&self, key: &str) -> Result<usize, String> {
        let mut all = Vec::new();
        for url in &self.urls {
            let query = || -> redis::RedisResult<usize> {
                let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
                redis::cmd("HLEN").arg(key).query(&mut connection)
            };
            all.push(query().map_err(|error| error.to_string())?);
        }
        all.sort_unstable();
        Ok(all[(all.len() - 1) / 2])
    }

    /// Returns the longest call in the servers' slow logs, in milliseconds. A server that this program
    /// started logs calls that take [`SLOW`] or more. A server that the user named logs calls according to
    /// its own configuration.
    pub(crate) fn slowest_call(&self) -> Result<f64, String> {
        let mut slowest = 0.0_f64;
        for url in &self.urls {
            let query = || -> redis::RedisResult<Vec<redis::Value>> {
                let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
                redis::cmd("SLOWLOG").arg("GET").arg(128).query(&mut connection)
            };
            for entry in query().map_err(|error| error.to_string())? {
                if let redis::Value::Array(parts) = entry
                    && let Some(redis::Value::Int(micros)) = parts.get(2)
                {
                    slowest = slowest.max(*micros as f64 / 1e3);
                }
            }
        }
        Ok(slowest)
    }

    /// Empties the slow logs.
    pub(crate) fn clear_slow_calls(&self) -> Result<(), String> {
        for url in &self.urls {
            let query = || -> redis::RedisResult<()> {
                let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
                redis::cmd("SLOWLOG").arg("RESET").query(&mut connection)
            };
            query().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn version(&self) -> Result<String, String> {
        let info = info(&self.urls[0], "server")?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").trim().to_owned())
    }
}

fn info(url: &str, section: &str) -> Result<String, String> {
    let query = || -> redis::RedisResult<String> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        redis::cmd("INFO").arg(section).query(&mut connection)
    };
    query().map_err(|error| format!("INFO {section}: {error}; is a Redis server there?"))
}

//! The servers that all rivals share.

use crate::plan::Args;
use quorate_testkit::redis::RedisCluster;
use std::time::Duration;

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

    /// Processor time that the servers have used so far, all together.
    pub(crate) fn cpu(&self) -> Result<Duration, String> {
        let mut sum = 0.0;
        for url in &self.urls {
            let info = info(url, "cpu")?;
            for name in ["used_cpu_user:", "used_cpu_sys:"] {
                let figure =
                    info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
                sum += figure.ok_or_else(|| format!("{url}: INFO cpu tells no {name}"))?;
            }
        }
        Ok(Duration::from_secs_f64(sum))
    }

    pub(crate) fn version(&self) -> Result<String, String> {
        let info = info(&self.urls[0], "server")?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").trim().to_owned())
    }
}

fn info(url: &str, section: &str) -> Result<String, String> {
    let ask = || -> redis::RedisResult<String> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        redis::cmd("INFO").arg(section).query(&mut connection)
    };
    ask().map_err(|error| format!("INFO {section}: {error}; is a Redis server there?"))
}

//! The settings by which a job is watched: the time within which it must succeed, and the URL that it pings.

use super::JobCheck;
use crate::{
    config::{
        ConfigError, PingConfig, PingEvent, Secret, SecretSource,
        file::one_of,
        webhook::{WEBHOOK_EXAMPLE, parse_url},
    },
    files::beside,
};
use quorate::scheduler::Schedule;
use std::{collections::BTreeSet, time::Duration};

impl JobCheck<'_> {
    pub(super) fn expect_within(&self, schedule: &Schedule) -> Result<Option<Duration>, ConfigError> {
        let Some(written) = &self.written.expect_within else { return Ok(None) };
        let time = **written.as_ref();
        let period = schedule.interval().unwrap_or(Duration::from_secs(1));
        if time < period {
            let why = format!(
                "has expect_within = {time:?}, shorter than its period {period:?}, so that it would be overdue between two runs; lengthen it by more than a run takes"
            );
            return Err(self.fail(written.span(), &why));
        }
        Ok(Some(time))
    }

    pub(super) fn ping(&self) -> Result<Option<PingConfig>, ConfigError> {
        let url = match (&self.written.ping, &self.written.ping_file) {
            (Some(url), None) => {
                let parsed = parse_url(&url.as_ref().0, WEBHOOK_EXAMPLE);
                SecretSource::Url(Secret(
                    parsed.map_err(|why| self.fail(url.span(), &format!("has a ping that {why}")))?,
                ))
            }
            (None, Some(file)) => SecretSource::File(beside(self.source.file, file.as_ref())),
            (Some(_), Some(file)) => {
                return Err(self.fail(file.span(), "has `ping` and `ping_file`; keep one of them"));
            }
            (None, None) => {
                return match &self.written.ping_on {
                    Some(on) => {
                        let why = "has `ping_on` and no URL; add ping = \"https://…\", or remove `ping_on`";
                        Err(self.fail(on.span(), why))
                    }
                    None => Ok(None),
                };
            }
        };
        let on = match &self.written.ping_on {
            None => BTreeSet::from([PingEvent::Success]),
            Some(written) => one_of("ping_on", written, &PingEvent::ALL, PingEvent::as_str)
                .map_err(|(at, why)| self.fail(at, &format!("{why}; known are start, success, fail")))?,
        };
        Ok(Some(PingConfig { url, on }))
    }
}

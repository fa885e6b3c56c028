use crate::env::{Env, WallTime};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// Which request: 128 random bits, as 32 hexadecimal digits. It also keys the runs that the request makes, so
/// that a request that is sent twice, or taken up by two leaders, runs nothing twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId(u128);

impl RequestId {
    /// A new one, from the environment's randomness.
    pub fn random(env: &Env) -> Self {
        Self(u128::from(env.random()) << 64 | u128::from(env.random()))
    }

    /// The id of this number.
    pub const fn from_u128(number: u128) -> Self {
        Self(number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RequestId {
    type Err = RequestIdError;
    fn from_str(text: &str) -> Result<Self, RequestIdError> {
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let sound = text.len() == 32 && text.bytes().all(digits);
        let number = sound.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| RequestIdError { text: crate::plain::plain(text, 64) })
    }
}

impl TryFrom<String> for RequestId {
    type Error = RequestIdError;
    fn try_from(text: String) -> Result<Self, RequestIdError> {
        text.parse()
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

/// A text that is no request's id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request id {text:?} cannot be one; use the 32 hexadecimal digits, in lower case, that the request was given"
)]
pub struct RequestIdError {
    text: String,
}

/// What somebody asks of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Which request.
    pub id: RequestId,
    /// Who asks: a worker's name, or USER@HOST.
    pub by: Arc<str>,
    /// When it was asked.
    pub at: WallTime,
    /// For how long after that the leader may take it up. Serialized in milliseconds.
    #[serde(with = "crate::scheduler::store::wire::millis")]
    pub valid_for: Duration,
    /// What is asked.
    pub what: JobAction,
}

/// What is asked of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JobAction {
    /// Its ticks are skipped until it is resumed, whoever leads.
    Pause {
        /// The job.
        job: Arc<str>,
    },
    /// Its ticks run again, from now on.
    Resume {
        /// The job.
        job: Arc<str>,
    },
    /// One run now, beside its schedule.
    Trigger {
        /// The job.
        job: Arc<str>,
    },
    /// One run for each tick of the span, oldest first, whether or not it has run before.
    Backfill {
        /// The job.
        job: Arc<str>,
        /// The beginning of the span, itself included.
        from: WallTime,
        /// The end of the span, itself excluded.
        until: WallTime,
    },
    /// What runs of it is told to stop.
    Cancel {
        /// The job.
        job: Arc<str>,
        /// The run of this tick only.
        tick: Option<WallTime>,
    },
}

impl JobAction {
    /// The job of which it is asked.
    pub fn job(&self) -> &Arc<str> {
        match self {
            Self::Pause { job }
            | Self::Resume { job }
            | Self::Trigger { job }
            | Self::Backfill { job, .. }
            | Self::Cancel { job, .. } => job,
        }
    }
}

/// What the leader says to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JobResponse {
    /// It is done, or will be: what comes of runs stands in the history, under the request's id.
    Accepted {
        /// For people.
        text: Arc<str>,
        /// How many runs it makes or told to stop.
        count: u64,
    },
    /// It will not be done.
    Refused {
        /// Why, for people.
        why: Arc<str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_both_ways_as_thirty_two_digits() {
        let id = RequestId::from_u128(0xab);
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "ab", "+00000000000000000000000000000ab", "000000000000000000000000000000AB"] {
            let error = text.parse::<RequestId>().unwrap_err().to_string();
            assert!(error.contains("32 hexadecimal"), "{error}");
        }
        assert!(serde_json::from_str::<RequestId>("\"x\"").is_err());
        let env = Env::system();
        assert_ne!(RequestId::random(&env), RequestId::random(&env));
    }

    #[test]
    fn requests_and_answers_go_both_ways() {
        let request = |what| JobRequest {
            id: RequestId::from_u128(1),
            by: "me@host".into(),
            at: WallTime::from_micros(5),
            valid_for: Duration::from_secs(60),
            what,
        };
        let job: Arc<str> = "j".into();
        let (from, until) = (WallTime::from_micros(1), WallTime::from_micros(2));
        let text = serde_json::to_string(&request(JobAction::Pause { job: job.clone() })).unwrap();
        let expect = r#"{"id":"00000000000000000000000000000001","by":"me@host","at":5,"valid_for":60000,"what":{"ask":"pause","job":"j"}}"#;
        assert_eq!(text, expect);
        for what in [
            JobAction::Resume { job: job.clone() },
            JobAction::Trigger { job: job.clone() },
            JobAction::Backfill { job: job.clone(), from, until },
            JobAction::Cancel { job: job.clone(), tick: Some(from) },
            JobAction::Cancel { job, tick: None },
        ] {
            let sent = request(what);
            let text = serde_json::to_string(&sent).unwrap();
            assert_eq!(serde_json::from_str::<JobRequest>(&text).unwrap(), sent);
        }
        for answer in [
            JobResponse::Accepted { text: "paused".into(), count: 0 },
            JobResponse::Refused { why: "no such job".into() },
        ] {
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<JobResponse>(&text).unwrap(), answer);
        }
    }
}

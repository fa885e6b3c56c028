use quorate::node::{AttemptCount, DoneRecord, FencingToken, engine::ClaimRecord};
use std::sync::Arc;

/// The value under a claim's key, which holds everything that a server stores of the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredClaim {
    Open(OpenClaim),
    Done(DoneRecord),
}

/// `c:UNTIL:COUNT:KEPT:ATTEMPTS:COUNTED:PAYLOAD:OWNER`. The times are the last milliseconds in which the owner, the
/// counter and the counted attempts exist. They are 0 without an owner, a counter or counted attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OpenClaim {
    pub(super) until_ms: u64,
    pub(super) count: u64,
    pub(super) kept_ms: u64,
    pub(super) attempts: u32,
    pub(super) counted_ms: u64,
    pub(super) payload: String,
    pub(super) owner: String,
}

impl StoredClaim {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("c:") {
            let mut parts = rest.splitn(7, ':');
            return Some(Self::Open(OpenClaim {
                until_ms: parts.next()?.parse().ok()?,
                count: parts.next()?.parse().ok()?,
                kept_ms: parts.next()?.parse().ok()?,
                attempts: parts.next()?.parse().ok()?,
                counted_ms: parts.next()?.parse().ok()?,
                payload: parts.next()?.to_owned(),
                owner: parts.next()?.to_owned(),
            }));
        }
        // `d:TOKEN:AT:PAYLOAD:ATTEMPTS:RESULT`, with ATTEMPTS only for a dead letter.
        let mut parts = text.strip_prefix("d:")?.splitn(5, ':');
        let token = FencingToken::new(parts.next()?.parse().ok()?);
        let at = parts.next()?.parse().ok()?;
        let payload = fingerprint(parts.next()?);
        let dead_lettered = match parts.next()? {
            "" => None,
            attempts => Some(attempts.parse().ok()?),
        };
        Some(Self::Done(DoneRecord { token, at, result: parts.next()?.into(), payload, dead_lettered }))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Open(OpenClaim { until_ms, count, kept_ms, attempts, counted_ms, payload, owner }) => {
                format!("c:{until_ms}:{count}:{kept_ms}:{attempts}:{counted_ms}:{payload}:{owner}")
            }
            Self::Done(DoneRecord { token, at, result, payload, dead_lettered }) => {
                let attempts = dead_lettered.map(|attempts| attempts.to_string()).unwrap_or_default();
                format!("d:{token}:{at}:{}:{attempts}:{result}", payload.as_deref().unwrap_or_default())
            }
        }
    }

    /// Returns the record of the claim, and the last millisecond in which it exists, which is `end_ms` for a claim
    /// that is done.
    pub(super) fn record(&self, end_ms: u64) -> Option<(ClaimRecord, u64)> {
        match self {
            Self::Done(record) => Some((ClaimRecord::Done(record.clone()), end_ms)),
            Self::Open(OpenClaim { counted_ms: 0, .. }) => None,
            Self::Open(OpenClaim { attempts, counted_ms, payload, .. }) => {
                let count = AttemptCount { attempts: *attempts, payload: fingerprint(payload) };
                Some((ClaimRecord::Begun(count), *counted_ms))
            }
        }
    }

    /// Returns the claim without its record.
    pub(super) fn open(self) -> OpenClaim {
        match self {
            Self::Open(open) => open,
            Self::Done(_) => OpenClaim::default(),
        }
    }
}

impl OpenClaim {
    /// Returns the last millisecond in which any part of the claim exists.
    pub(super) fn end_ms(&self) -> u64 {
        self.until_ms.max(self.kept_ms).max(self.counted_ms)
    }
}

fn fingerprint(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

//! Durations as whole numbers in JSON, for the records of the ledger and for definitions.

/// A duration as milliseconds.
pub(in crate::scheduler) mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::scheduler) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// A duration in microseconds.
pub(in crate::scheduler) mod micros {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::scheduler) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// An optional duration in microseconds, rounded up. So only a duration of zero is written as 0.
pub(in crate::scheduler) mod maybe_micros {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub(in crate::scheduler) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| u64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)).serialize(to)
    }

    pub(in crate::scheduler) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<u64>::deserialize(from).map(|time| time.map(Duration::from_micros))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Run {
        #[serde(with = "super::maybe_micros")]
        took: Option<Duration>,
    }

    #[test]
    fn a_duration_shorter_than_a_millisecond_is_not_stored_as_zero() {
        for (took, text, read) in [
            (Some(Duration::from_micros(312)), r#"{"took":312}"#, Some(Duration::from_micros(312))),
            (Some(Duration::from_nanos(40)), r#"{"took":1}"#, Some(Duration::from_micros(1))),
            (Some(Duration::ZERO), r#"{"took":0}"#, Some(Duration::ZERO)),
            (None, r#"{"took":null}"#, None),
        ] {
            assert_eq!(serde_json::to_string(&Run { took }).unwrap(), text);
            assert_eq!(serde_json::from_str::<Run>(text).unwrap().took, read);
        }
    }
}

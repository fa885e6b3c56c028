use std::fmt;

/// The product and the release of a server. Tests whose expectation depends on it ask the server that they
/// started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerVersion {
    valkey: bool,
    number: (u32, u32, u32),
}

impl ServerVersion {
    /// Parses the reply to INFO. Valkey also reports the Redis version that it is compatible with, so its own
    /// version is read first. Returns `None` if there is no version.
    pub(super) fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let valkey = field("valkey_version");
        let mut parts = valkey.or_else(|| field("redis_version"))?.split('.').map(str::parse);
        let mut part = || parts.next()?.ok();
        Some(Self { valkey: valkey.is_some(), number: (part()?, part()?, part()?) })
    }

    /// Returns `true` for Redis before `major.minor`. Every release of Valkey is newer than Redis 7.2.
    pub fn is_redis_before(self, major: u32, minor: u32) -> bool {
        !self.valkey && (self.number.0, self.number.1) < (major, minor)
    }
}

/// Writes the version as a node's status shows it: `7.0.15`, or `valkey 9.1.2`.
impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.number;
        write!(f, "{}{major}.{minor}.{patch}", if self.valkey { "valkey " } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_not_taken_for_the_redis_that_it_is_compatible_with() {
        let of = |info| ServerVersion::parse(info).expect("a version");
        let valkey = of("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n");
        assert_eq!(valkey.to_string(), "valkey 9.1.2");
        assert!(!valkey.is_redis_before(7, 0) && !valkey.is_redis_before(99, 0));
        let redis = of("redis_version:6.2.14\r\n");
        assert_eq!(redis.to_string(), "6.2.14");
        assert!(redis.is_redis_before(7, 0) && !redis.is_redis_before(6, 2));
        for none in ["", "redis_version:7\r\n", "redis_version:a.b.c\r\n"] {
            assert_eq!(ServerVersion::parse(none), None, "{none:?}");
        }
    }
}

use crate::env::WallTime;
use std::sync::Arc;

/// The longest part of a group's name that a claim set's begins with; what follows stands for the rest.
const GROUP_MAX: usize = 400;

/// The claim set of a group's spread ticks. Claim sets have no slashes, groups may.
pub(super) fn set(group: &str) -> String {
    let mut safe = escaped(group);
    if safe.len() > GROUP_MAX {
        let rest = safe.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        safe = format!("{}%{rest:016x}", crate::node::engine::cut(&safe, GROUP_MAX));
    }
    format!("spread:{safe}")
}

/// The id of the claim on one tick.
pub(super) fn id(job: &str, tick: WallTime) -> String {
    format!("{}/{:020}", escaped(job), tick.as_micros())
}

/// The key of a job's row in the ledger of spread ticks.
pub(super) fn row(job: &str) -> Arc<str> {
    crate::schedule::JobRow::key(job)
}

fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F").replace('{', "%7B").replace('}', "%7D")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Resource;

    #[test]
    fn any_group_and_any_job_has_claims_of_its_own() {
        let tick = WallTime::from_micros(5);
        assert_eq!(set("billing"), "spread:billing");
        assert_eq!(id("nightly", tick), "nightly/00000000000000000005");
        let mut seen = std::collections::BTreeSet::new();
        for name in
            ["a/b", "a%2Fb", "a%b", "{a}", "%7Ba%7D", &"ї".repeat(256), &format!("{}x", "ї".repeat(255))]
        {
            assert!(seen.insert(set(name)), "{name}");
            assert!(Resource::claim(&set(name), &id("j{/}%", tick)).is_ok(), "{name}");
        }
        assert!(Resource::claim("s", &id(&"%".repeat(128), tick)).is_ok(), "the longest name of a job");
    }
}

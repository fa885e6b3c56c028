//! Checks the keys that are left on a server after every worker has ended.

/// Returns a violation if this key must not be left. `pttl` is its remaining time in milliseconds, or -1 if it
/// does not expire. `claimed` is true if the key has a claim that has not expired.
pub(crate) fn leftover(key: &str, pttl: i64, claimed: bool) -> Option<String> {
    let Some(name) = key.strip_prefix("quorate:").or_else(|| key.strip_prefix("{quorate:")) else {
        return Some(format!("leftovers: {key} is no key of Quorate"));
    };
    let lasting = matches!(name, "node" | "node}:stamps") || name.starts_with("ledger/");
    let record = name.ends_with("}:fence") || (name.starts_with("claim/") && !claimed);
    if !lasting && !record {
        return Some(format!("leftovers: {key} is still stored, for {pttl} ms"));
    }
    (record && pttl < 0).then(|| format!("leftovers: {key} is stored without a TTL"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_with_a_ttl_are_no_leftovers_and_locks_are() {
        for (key, pttl) in [
            ("quorate:node", -1),
            ("{quorate:node}:stamps", -1),
            ("quorate:ledger/soak", -1),
            ("{quorate:lock-0}:fence", 9),
            ("quorate:claim/soak/m-1", 5),
        ] {
            assert_eq!(leftover(key, pttl, false), None);
        }
        for (key, pttl, claimed) in [
            ("quorate:lock-0", 900, false),
            ("quorate:election/soak", 900, false),
            ("quorate:claim/soak/m-1", 900, true),
            ("quorate:claim/soak/m-1", -1, false),
            ("{quorate:lock-0}:fence", -1, false),
            ("other", 5, false),
        ] {
            assert!(leftover(key, pttl, claimed).is_some(), "{key}");
        }
    }
}

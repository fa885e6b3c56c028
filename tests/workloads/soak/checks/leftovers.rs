//! What may stand on a server when every worker has ended.

/// What is wrong with a key that has `pttl` milliseconds to live (-1: for ever). `held`: it is a claim that somebody has.
pub(crate) fn leftover(key: &str, pttl: i64, held: bool) -> Option<String> {
    let Some(name) = key.strip_prefix("quorate:").or_else(|| key.strip_prefix("{quorate:")) else {
        return Some(format!("leftovers: {key} is none of Quorate's keys"));
    };
    let lasting = name == "node" || name.starts_with("ledger/");
    let record = name.ends_with("}:fence") || (name.starts_with("claim/") && !held);
    if !lasting && !record {
        return Some(format!("leftovers: {key} still stands, for {pttl} ms"));
    }
    (record && pttl < 0).then(|| format!("leftovers: {key} will stand for ever"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_end_are_no_leftovers_and_locks_are() {
        for (key, pttl) in [
            ("quorate:node", -1),
            ("quorate:ledger/soak", -1),
            ("{quorate:lock-0}:fence", 9),
            ("quorate:claim/soak/m-1", 5),
        ] {
            assert_eq!(leftover(key, pttl, false), None);
        }
        for (key, pttl, held) in [
            ("quorate:lock-0", 900, false),
            ("quorate:election/soak", 900, false),
            ("quorate:claim/soak/m-1", 900, true),
            ("quorate:claim/soak/m-1", -1, false),
            ("{quorate:lock-0}:fence", -1, false),
            ("other", 5, false),
        ] {
            assert!(leftover(key, pttl, held).is_some(), "{key}");
        }
    }
}

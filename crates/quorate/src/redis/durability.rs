//! Derives from a server's settings whether a write is on the server's disk when the server acknowledges it.
//!
//! | setting | required | with another value |
//! | --- | --- | --- |
//! | `appendonly` | `yes` | a restart loses everything since the last snapshot |
//! | `appendfsync` | `always` | replies come a second or more before the changes are on the disk |
//! | `no-appendfsync-on-rewrite` | `no` | the same, while the append-only file is rewritten |
//!
//! If `appendonly` was switched on at run time, nothing is durable until the server has written its first
//! append-only file. The server does not show whether a rewrite of that file is the first one. So a new
//! connection waits until any rewrite has ended. An open connection continues.
//!
//! Some settings do not matter here. `save`: a server loads the append-only file in preference to a snapshot.
//! `aof-load-truncated`: only writes that were not synced, and therefore not acknowledged, are cut off. All
//! `replica-…` and `min-replicas-…` settings: a replica is refused. `aof-use-rdb-preamble` and the thresholds
//! of the rewrite do not matter either. Two faults cannot be detected from here: a disk or a file system that
//! acknowledges a sync without performing it, and a `dir` in memory.

use std::collections::BTreeMap;

/// The settings that are queried with CONFIG GET.
pub(crate) const SETTINGS: [&str; 2] = ["appendfsync", "no-appendfsync-on-rewrite"];

/// The durability of a write that the server has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Durable,
    /// Not known while the server rewrites its append-only file, because the file may be incomplete until the
    /// rewrite has ended.
    Rewriting,
    /// Not durable. Holds the setting with its value, the reason and the fix.
    Volatile(String),
    /// Unknown, since the server does not report a setting. Holds the missing setting, and the fix.
    Unknown(String),
}

/// Derives the durability from the fields of INFO and from the values of [`SETTINGS`]. `settings` lacks a
/// setting that the user has no permission to read.
pub(crate) fn durability(info: &BTreeMap<String, String>, settings: &BTreeMap<String, String>) -> Durability {
    let fact = |name: &str| info.get(name).map(|value| crate::plain::plain(value, 64));
    let volatile = |setting: &str, value: &str, why: &str, fix: &str| {
        let fix = format!("CONFIG SET {setting} {fix} on the server and {setting} {fix} in its redis.conf");
        Durability::Volatile(format!("its {setting} is {value}, under which {why}; {fix}"))
    };
    match fact("aof_enabled").as_deref() {
        Some("1") => {}
        Some("0") => {
            return volatile("appendonly", "no", "a restart loses changes that it has acknowledged", "yes");
        }
        _ => {
            let why = "INFO does not report aof_enabled; use a server with an append-only file";
            return Durability::Unknown(why.to_owned());
        }
    }
    for setting in SETTINGS {
        let (required, why) = match setting {
            "appendfsync" => ("always", "it acknowledges a change before it is on its disk"),
            _ => (
                "no",
                "it acknowledges a change before it is on its disk while it rewrites its append-only file",
            ),
        };
        match settings.get(setting).map(|value| crate::plain::plain(value, 64)) {
            Some(value) if value == required => {}
            Some(value) => return volatile(setting, &value, why, required),
            None => {
                return Durability::Unknown(format!(
                    "it does not report its {setting}; allow its user +config|get (`quorate doctor` shows the whole rule)"
                ));
            }
        }
    }
    let is = |name: &str, value: &str| fact(name).as_deref() == Some(value);
    // If `appendonly` was switched off and on again, the server writes to no file until its first rewrite is
    // complete. INFO does not show whether a rewrite is the first one.
    if is("aof_rewrite_in_progress", "1") || is("aof_rewrite_scheduled", "1") {
        return Durability::Rewriting;
    }
    Durability::Durable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_setting_that_delays_a_sync_is_named_with_its_value_and_the_fix() {
        let on = ("aof_enabled", "1");
        let both = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let table: [(Pairs<'_>, Pairs<'_>, &[&str]); 8] = [
            (&[on], &both, &[]),
            (&[("aof_enabled", "0")], &both, &["appendonly is no", "CONFIG SET appendonly yes"]),
            (
                &[on],
                &[("appendfsync", "everysec"), both[1]],
                &["appendfsync is everysec", "appendfsync always"],
            ),
            (&[on], &[("appendfsync", "no"), both[1]], &["appendfsync is no", "appendfsync always"]),
            (
                &[on],
                &[both[0], ("no-appendfsync-on-rewrite", "yes")],
                &["no-appendfsync-on-rewrite is yes", "CONFIG SET no-appendfsync-on-rewrite no"],
            ),
            (&[], &both, &["aof_enabled"]),
            (&[on], &[both[1]], &["does not report its appendfsync", "+config|get"]),
            (&[on], &[both[0]], &["does not report its no-appendfsync-on-rewrite", "+config|get"]),
        ];
        for (info, settings, expected) in table {
            match durability(&map(info), &map(settings)) {
                Durability::Durable => assert!(expected.is_empty(), "{info:?} {settings:?}"),
                Durability::Rewriting => panic!("{info:?} {settings:?}"),
                Durability::Volatile(why) | Durability::Unknown(why) => {
                    assert!(!expected.is_empty(), "{info:?} {settings:?}: {why}");
                    expected.iter().for_each(|part| assert!(why.contains(part), "{part}: {why}"));
                }
            }
        }
    }

    #[test]
    fn durability_is_unknown_during_a_rewrite_whatever_the_size() {
        let settings = map(&[("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")]);
        for rewrite in ["aof_rewrite_in_progress", "aof_rewrite_scheduled"] {
            for size in ["0", "88"] {
                let info = map(&[("aof_enabled", "1"), (rewrite, "1"), ("aof_base_size", size)]);
                assert_eq!(durability(&info, &settings), Durability::Rewriting, "{rewrite} {size}");
            }
        }
        let off = map(&[("aof_enabled", "0"), ("aof_rewrite_in_progress", "1")]);
        assert!(matches!(durability(&off, &settings), Durability::Volatile(_)), "a setting takes precedence");
    }

    #[test]
    fn a_setting_that_is_not_reported_is_unknown_and_not_false() {
        assert!(matches!(durability(&map(&[]), &map(&[])), Durability::Unknown(_)));
        let on = map(&[("aof_enabled", "1")]);
        assert!(matches!(durability(&on, &map(&[])), Durability::Unknown(_)));
        // The values come from the server. A hostile server must not be able to control a terminal with them.
        let odd = map(&[("appendfsync", "\u{1b}[2Jalways")]);
        let Durability::Volatile(why) = durability(&on, &odd) else { panic!("reported as durable") };
        assert!(!why.contains('\u{1b}'), "{why:?}");
    }
}

//! The rows in a directory, and the comparison with those that the node has reported.

use super::workload::{CrashWorld, node_dir};
use crate::env::World;
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// The content of each file of a node, by its path in the directory, without incomplete files.
pub(super) type Rows = BTreeMap<String, Value>;

/// Reads all rows. Fails if a file cannot be read, unless it is a lease of another boot, which is void.
pub(super) fn read(home: &Path, boot: &str) -> Result<Rows, String> {
    let (root, mut rows) = (node_dir(home), Rows::new());
    let mut open = vec![root.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let relative = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            let is_void = relative.starts_with("leases/") && !relative.starts_with(&format!("leases/{boot}"));
            if is_void || name == "lock" || super::super::store::is_temporary(&name) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let content = fs::read(&path).unwrap();
            let value =
                serde_json::from_slice(&content).map_err(|e| format!("{relative}: {e}: {content:?}"))?;
            rows.insert(relative, value);
        }
    }
    Ok(rows)
}

/// Returns the row in `file` as a request sees it: nothing if it has ended.
fn live<'a>(rows: &'a Rows, file: &str, world: &CrashWorld) -> Option<&'a Value> {
    let found = &rows.get(file)?["row"];
    let (wall, now) = (world.wall().as_micros(), world.now().as_nanos());
    let ends = |row: &Value, field: &str, at: u64| row[field].as_u64().is_some_and(|until| until <= at);
    let life = rows.get(&file.replacen("ledgers/", "lives/", 1)).map(|life| &life["row"]);
    let ended = match file.split_once('/').map_or("", |(table, _)| table) {
        "leases" => ends(found, "until_nanos", now),
        "ledgers" => life.is_some_and(|life| ends(life, "until_micros", wall)),
        "counters" | "claims" | "lives" => ends(found, "until_micros", wall),
        _ => false,
    };
    (!ended).then_some(found)
}

/// Returns the largest token that the node remembers for the claim or the lock with this counter: that of the
/// counter, or that of the done record.
fn token(rows: &Rows, counter: &str, world: &CrashWorld) -> u64 {
    let count = live(rows, counter, world).map(|row| &row["count"]);
    let done = live(rows, &counter.replacen("counters/", "claims/", 1), world);
    let done = done.map(|row| &row["record"]["done"]["token"]);
    [count, done].into_iter().flatten().filter_map(Value::as_u64).max().unwrap_or(0)
}

/// The rows that a crash may leave: each as in one of `either`. A counter that may be forgotten may also be remembered,
/// as in one of `earlier`.
pub(super) struct Allowed<'a> {
    pub(super) either: Vec<&'a Rows>,
    pub(super) earlier: &'a [Rows],
    pub(super) power_loss: bool,
}

impl Allowed<'_> {
    pub(super) fn check(&self, found: &Rows, world: &CrashWorld) -> Result<(), String> {
        let files = self.either.iter().flat_map(|rows| rows.keys()).chain(found.keys());
        for file in files {
            // A directory whose identity was not reported may get another one.
            let is_new = file == "identity.json" && self.either.iter().any(|rows| !rows.contains_key(file));
            if is_new || file == "machine.json" || (self.power_loss && file.starts_with("leases/")) {
                continue;
            }
            let row = live(found, file, world);
            let as_reported = self.either.iter().any(|rows| live(rows, file, world) == row);
            let forgettable = file.starts_with("counters/")
                && self.either.iter().any(|rows| live(rows, file, world).is_none());
            let remembered = forgettable
                && row.is_some()
                && self.earlier.iter().any(|rows| live(rows, file, world) == row);
            let least = self.either.iter().map(|rows| token(rows, file, world)).min().unwrap_or(0);
            if file.starts_with("counters/") && token(found, file, world) < least {
                return Err(format!("{file}: the token {least} is forgotten: {row:?}, and no done record"));
            }
            if !as_reported && !remembered {
                let expected: Vec<_> = self.either.iter().map(|rows| live(rows, file, world)).collect();
                return Err(format!("{file} has {row:?}, and was reported as one of {expected:?}"));
            }
        }
        Ok(())
    }
}

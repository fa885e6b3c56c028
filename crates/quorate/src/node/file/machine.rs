//! Recognises the machine that a directory belongs to, so that no two machines use one directory.
//!
//! The directory records the boot in which it was used last, and the ids of the machines (a host, and
//! containers on it) that used it in that boot. A process of the recorded boot is accepted, since it has the
//! same kernel and clock. A process of another boot is accepted if its machine id is recorded, or if the
//! process or the record has no id: then the machine was probably restarted. Any other process is refused. A
//! boot that a later boot has replaced in the record cannot come back. So a process whose boot was replaced is
//! refused too, whatever its machine id.

use super::boot;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{fmt, io, path::Path, sync::Arc};

/// The maximum number of machine ids that the record lists for one boot, and of replaced boots that it lists.
/// The oldest are dropped.
const RECORDED_MAX: usize = 32;

/// The files that may hold the machine id, in the order in which they are read.
const FILES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// The name of the file by which an operator lets another machine have the directory.
pub(super) const TAKE_OVER: &str = "take-over";

/// The identity of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// The id of the kernel's present boot.
    pub(super) boot: Arc<str>,
    /// A digest of the machine id, if there is one. A container may have none.
    pub(super) id: Option<Arc<str>>,
    /// The host name, for messages.
    pub(super) host: Arc<str>,
}

impl Machine {
    pub(super) fn this() -> io::Result<Self> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { boot: boot::id()?, id: id(), host: crate::plain::plain(&host, 64).into() })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_machine(f, &self.host, self.id.as_deref(), &self.boot)
    }
}

fn format_machine(f: &mut fmt::Formatter<'_>, host: &str, id: Option<&str>, boot: &str) -> fmt::Result {
    let id = id.map_or("none", |id| id.get(..12).unwrap_or(id));
    let plain = |text| crate::plain::plain(text, 64);
    write!(f, "{} (machine {}, boot {})", plain(host), plain(id), plain(boot))
}

/// Returns a digest of this machine's id. The id itself should be kept confidential (machine-id(5)).
fn id() -> Option<Arc<str>> {
    FILES.into_iter().find_map(|file| digest(&std::fs::read_to_string(file).ok()?)).or_else(boot::machine_id)
}

/// Returns a digest of the machine id in the text of a file. `None` if the text is no id. In a machine image
/// the file may be empty, or hold a placeholder until the first boot.
pub(super) fn digest(id: &str) -> Option<Arc<str>> {
    let id = id.trim();
    let is_id = id.len() >= 32 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    let digest = || Sha256::new().chain_update("quorate file node\0").chain_update(id).finalize();
    is_id.then(|| digest().iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

/// The record of the machine and boot that used a directory last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    boot: Arc<str>,
    host: Arc<str>,
    machines: Vec<Arc<str>>,
    replaced: Vec<Arc<str>>,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_machine(f, &self.host, self.machines.last().map(|id| &**id), &self.boot)
    }
}

/// The decision on whether a machine may use a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The directory belongs to this machine.
    Ours,
    /// The machine may use the directory, but this record must be written first.
    Write(Record),
    /// The directory belongs to another machine, according to this record.
    Foreign(Record),
}

/// Decides whether `machine` may open a directory that has this `record`.
pub(super) fn judge(record: Option<&Record>, machine: &Machine) -> Verdict {
    let (boot, host) = (Arc::clone(&machine.boot), Arc::clone(&machine.host));
    let Some(record) = record else {
        let machines = machine.id.iter().cloned().collect();
        return Verdict::Write(Record { boot, host, machines, replaced: Vec::new() });
    };
    let is_listed = |id: &Arc<str>| record.machines.contains(id);
    if record.boot == boot {
        return match &machine.id {
            Some(id) if !is_listed(id) => {
                let mut record = record.clone();
                push(&mut record.machines, id);
                Verdict::Write(record)
            }
            _ => Verdict::Ours,
        };
    }
    let may_be_the_same = match &machine.id {
        Some(id) => record.machines.is_empty() || is_listed(id),
        None => true,
    };
    if record.replaced.contains(&boot) || !may_be_the_same {
        return Verdict::Foreign(record.clone());
    }
    let mut replaced = record.replaced.clone();
    push(&mut replaced, &record.boot);
    // If this process has no id, the recorded ids are kept, because another container on the same machine may
    // have one.
    let machines = machine.id.as_ref().map_or(record.machines.clone(), |id| vec![Arc::clone(id)]);
    Verdict::Write(Record { boot, host, machines, replaced })
}

/// Returns whether a directory that `machine` has opened still belongs to that machine, according to the
/// present `record` of the directory.
pub(super) fn is_still_ours(record: &Record, machine: &Machine) -> bool {
    record.boot == machine.boot
}

fn push(all: &mut Vec<Arc<str>>, one: &Arc<str>) {
    all.push(Arc::clone(one));
    let extra = all.len().saturating_sub(RECORDED_MAX);
    all.drain(..extra);
}

/// Returns the text of the refusal for a machine that must not use the directory, with the fix.
pub(super) fn refusal(root: &Path, record: &Record, machine: &Machine) -> String {
    let root = root.display();
    format!(
        "{root} is in use by the machine {record}, and this is {machine}: a file node serves one machine; name a \
         directory that only this machine has, or, if that machine is gone for good, create the file {root}/{TAKE_OVER}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(boot: &str, id: &str) -> Machine {
        let id = (!id.is_empty()).then(|| id.into());
        Machine { boot: boot.into(), id, host: "host".into() }
    }

    /// Opens one directory with each of these machines in turn, given by boot id and machine id. Returns for
    /// each whether it is accepted.
    fn opened(machines: &[(&str, &str)]) -> Vec<bool> {
        let mut record: Option<Record> = None;
        let mut open = |(boot, id): &(&str, &str)| match judge(record.as_ref(), &machine(boot, id)) {
            Verdict::Ours => true,
            Verdict::Write(new) => {
                record = Some(new);
                true
            }
            Verdict::Foreign(_) => false,
        };
        machines.iter().map(&mut open).collect()
    }

    #[test]
    fn the_same_machine_continues_after_a_restart_and_another_is_refused() {
        assert_eq!(opened(&[("b1", "A"), ("b1", "A"), ("b2", "A"), ("b3", "A")]), [true; 4]);
        assert_eq!(opened(&[("b1", "A"), ("b2", "B"), ("b1", "A")]), [true, false, true]);
    }

    #[test]
    fn containers_of_one_kernel_are_one_machine() {
        // Each container has an id of its own or none. After a restart, they may open the directory in another
        // order.
        assert_eq!(opened(&[("b1", "A"), ("b1", "C"), ("b1", ""), ("b2", "A"), ("b2", "C")]), [true; 5]);
        assert_eq!(opened(&[("b1", ""), ("b2", ""), ("b2", "A"), ("b3", "A"), ("b4", "")]), [true; 5]);
        assert_eq!(opened(&[("b1", "A"), ("b2", ""), ("b3", "B")]), [true, true, false]);
    }

    #[test]
    fn a_replaced_boot_is_refused() {
        // Two machines may have the same id if they are clones of an image, or no id at all. The second
        // machine then looks like a restart of the first. But once the second has replaced the first, the
        // first is refused.
        assert_eq!(opened(&[("b1", "A"), ("b2", "A"), ("b1", "A"), ("b2", "A")]), [true, true, false, true]);
        assert_eq!(opened(&[("b1", ""), ("b2", ""), ("b1", "")]), [true, true, false]);
    }

    #[test]
    fn the_record_stays_small() {
        let boots: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let mut record = None;
        for boot in &boots {
            for id in ["A", "B"] {
                if let Verdict::Write(new) = judge(record.as_ref(), &machine(boot, id)) {
                    record = Some(new);
                }
            }
        }
        let record = record.unwrap();
        assert!(record.replaced.len() == RECORDED_MAX && record.machines.len() <= 2, "{record:?}");
    }

    #[test]
    fn an_id_is_shown_as_a_digest_and_an_empty_one_is_none() {
        let id = digest("3d1219c7c4c5404aaa1f6d2a48adfda4\n").unwrap();
        assert!(id.len() == 32 && !id.contains("3d1219c7"), "{id}");
        assert_eq!(digest("3d1219c7c4c5404aaa1f6d2a48adfda4"), Some(id));
        assert_eq!((digest(""), digest("uninitialized\n")), (None, None));
    }
}

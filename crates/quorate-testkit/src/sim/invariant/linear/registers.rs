use super::{Event, Moments, judge, nanos};
use crate::{
    history::{Findings, History, Moment, Operation, Register, RegisterCall},
    sim::invariant::Invariant,
};
use std::time::Duration;

/// Requires that the accesses to each register of the store that compares fencing tokens are linearizable as a
/// [`Register`]: it loses no update. A write begins when its worker sends it, and ends when it arrives.
///
/// A second store does not compare tokens and loses some updates. That is no violation, because a lease cannot
/// protect against a pause between the check of the lease and the write.
#[derive(Debug, Default)]
pub(in super::super) struct RegisterHistory {
    moments: Moments,
    history: History<Register>,
    findings: Findings,
}

impl Invariant for RegisterHistory {
    fn name(&self) -> &'static str {
        "register history"
    }

    fn judged(&self) -> Vec<(&'static str, u64)> {
        super::judged!(self.findings, "registers")
    }

    fn see(&mut self, now: Duration, event: &Event<'_>) -> Result<(), String> {
        let at = self.moments.next(now);
        match event {
            Event::StoreRead(read) if read.checked => {
                let call = match read.version {
                    Some(value) => RegisterCall::Read { fence: read.fence, value },
                    None => RegisterCall::Refused { fence: read.fence },
                };
                self.history.push(&read.register, Operation::at(&read.worker, call, at));
            }
            Event::Wrote(write) if write.checked => {
                let fence = (write.token, write.access);
                let call = if write.accepted {
                    RegisterCall::Written { fence, base: write.base, value: write.base + 1 }
                } else {
                    RegisterCall::Refused { fence }
                };
                let sent = Moment::from_nanos(nanos(write.sent));
                self.history.push(&write.register, Operation::during(&write.worker, call, sent, at));
            }
            Event::Over => return judge(&self.history, &mut self.findings),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{StoreRead, Write};

    fn read(token: u64, version: Option<u64>) -> StoreRead {
        StoreRead { worker: "a".into(), checked: true, register: "r".into(), fence: (token, 1), version }
    }

    fn write(token: u64, base: u64, accepted: bool) -> Write {
        let sent = Duration::from_millis(1);
        let (worker, register) = ("a".into(), "r".into());
        Write { worker, checked: true, register, token, access: 1, base, stands: 0, accepted, sent }
    }

    #[test]
    fn a_lost_update_is_found_from_reads_and_writes_alone() {
        let run = |base| {
            let mut registers = RegisterHistory::default();
            let mut see = |event: Event<'_>| registers.see(Duration::from_millis(2), &event);
            see(Event::StoreRead(&read(5, Some(0)))).unwrap();
            see(Event::Wrote(&write(5, 0, true))).unwrap();
            see(Event::StoreRead(&read(7, Some(1)))).unwrap();
            see(Event::Wrote(&write(5, 1, false))).unwrap();
            see(Event::Wrote(&write(7, base, true))).unwrap();
            see(Event::Over)
        };
        assert_eq!(run(1), Ok(()));
        assert!(run(0).is_err(), "computed from the value before the first update");
        let mut other = RegisterHistory::default();
        for base in [0, 0] {
            let unchecked = Write { checked: false, ..write(5, base, true) };
            other.see(Duration::from_millis(2), &Event::Wrote(&unchecked)).unwrap();
        }
        assert_eq!(
            other.see(Duration::from_millis(3), &Event::Over),
            Ok(()),
            "the other store promises nothing"
        );
    }
}

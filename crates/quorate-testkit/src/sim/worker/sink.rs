use super::super::{Referee, Truth, Write};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Two simulated stores outside of Quorate, which workers use as they would use a database. One store compares
/// fencing tokens in its own transaction, and the other does not.
#[derive(Debug, Default)]
pub(in super::super) struct Sinks {
    registers: Mutex<Registers>,
}

type Registers = BTreeMap<(bool, String), Register>;

#[derive(Debug, Default)]
struct Register {
    version: u64,
    newest: Fence,
}

/// The value that the comparing store checks: the fencing token, and a number that grows with each access. The
/// number orders the accesses of one holder, which may read again before its last write has arrived.
pub(super) type Fence = (u64, u64);

/// The error of a read whose fence is older than the newest fence that the store has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outdated;

impl Sinks {
    /// Reads the version of a register. The comparing store remembers the fence of this read, and refuses later
    /// accesses with an older fence.
    pub(super) fn read(&self, checked: bool, register: &str, fence: Fence) -> Result<u64, Outdated> {
        let mut registers = self.registers();
        let register = registers.entry((checked, register.to_owned())).or_default();
        if checked && fence < register.newest {
            return Err(Outdated);
        }
        register.newest = register.newest.max(fence);
        Ok(register.version)
    }

    /// Sends a write that is based on the version `base`. The write arrives even if its sender crashes.
    #[expect(clippy::disallowed_methods, reason = "what has left outlives the worker that sent it")]
    pub(super) fn send(
        self: &Arc<Self>,
        truth: Truth,
        way: Duration,
        referee: &Arc<Referee>,
        letter: Letter,
    ) {
        let (sinks, referee) = (Arc::clone(self), Arc::clone(referee));
        tokio::spawn(async move {
            truth.pass(way).await;
            sinks.write(&referee, letter);
        });
    }

    fn write(&self, referee: &Referee, letter: Letter) {
        let Letter { worker, checked, register, fence: (token, access), base, sent } = letter;
        let fence = (token, access);
        let mut registers = self.registers();
        let found = registers.entry((checked, register.clone())).or_default();
        let accepted = !checked || fence >= found.newest;
        let stands = found.version;
        if accepted {
            found.version += 1;
            found.newest = found.newest.max(fence);
        }
        drop(registers);
        let register = register.into();
        referee.wrote(&Write { worker, checked, register, token, access, base, stands, accepted, sent });
    }

    fn registers(&self) -> MutexGuard<'_, Registers> {
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write in flight.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) worker: Arc<str>,
    pub(super) checked: bool,
    pub(super) register: String,
    pub(super) fence: Fence,
    pub(super) base: u64,
    /// The true time at which the letter was sent.
    pub(super) sent: Duration,
}

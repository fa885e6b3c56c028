use super::super::{Referee, Write};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Two stores outside of Quorate that workers read from and write to, as they would to a database: one that
/// compares fencing tokens in its own transaction, and one that does not.
#[derive(Debug, Default)]
pub(in super::super) struct Sinks {
    registers: Mutex<BTreeMap<(bool, String), Register>>,
}

#[derive(Debug, Default)]
struct Register {
    version: u64,
    newest: u64,
}

/// The reader's word that a later token has been seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outdated;

impl Sinks {
    /// Reads a register's version, under `token`. The store that compares tokens remembers it from here on:
    /// who has been overtaken by a reader may write no more.
    pub(super) fn read(&self, checked: bool, register: &str, token: u64) -> Result<u64, Outdated> {
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        let register = registers.entry((checked, register.to_owned())).or_default();
        if checked && token < register.newest {
            return Err(Outdated);
        }
        register.newest = register.newest.max(token);
        Ok(register.version)
    }

    /// Writes what was made from `base`, under `token`.
    pub(super) fn write(&self, referee: &Referee, checked: bool, register: &str, token: u64, base: u64) {
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = registers.entry((checked, register.to_owned())).or_default();
        let accepted = !checked || token >= found.newest;
        let stands = found.version;
        if accepted {
            found.version += 1;
            found.newest = found.newest.max(token);
        }
        drop(registers);
        referee.wrote(&Write { checked, register: register.into(), token, base, stands, accepted });
    }
}

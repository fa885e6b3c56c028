//! The controlling terminal, and the process group that has it.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// The controlling terminal. The supervisor process, which is in neither group, hands the terminal from one
/// group to the other.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    parent: Pid,
    command: Pid,
}

impl Terminal {
    /// Opens the controlling terminal. Returns `None` if there is none.
    pub(super) fn open(parent: Pid, command: Pid) -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, parent, command })
    }

    /// Gives the terminal to the command if the parent has it. Returns whether the command has it now.
    pub(super) fn lend(&self) -> bool {
        match tcgetpgrp(&self.tty) {
            Ok(group) if group == self.command => true,
            Ok(group) if group == self.parent => self.give_to(self.command),
            _ => false,
        }
    }

    /// Gives the terminal to the parent if the command has it. Any other group keeps the terminal, for
    /// example a shell that has taken it because the parent was killed.
    pub(super) fn take_back(&self) {
        if tcgetpgrp(&self.tty).is_ok_and(|group| group == self.command) {
            self.give_to(self.parent);
        }
    }

    fn give_to(&self, group: Pid) -> bool {
        // The supervisor process is in a background group. This call would stop it, unless the signal is
        // blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
        let given = tcsetpgrp(&self.tty, group).is_ok();
        let _ = before.thread_set_mask();
        given
    }
}

//! The controlling terminal, and which process group may use it.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// The controlling terminal. The supervisor process passes the terminal from the parent's group to the
/// command's group and back. The supervisor process itself is in neither group.
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

    /// Gives the terminal to the command's group, if the parent's group has it. Returns whether the command's
    /// group has it now.
    pub(super) fn lend(&self) -> bool {
        match tcgetpgrp(&self.tty) {
            Ok(group) if group == self.command => true,
            Ok(group) if group == self.parent => self.give_to(self.command),
            _ => false,
        }
    }

    /// Gives the terminal back to the parent's group, if the command's group has it. If another group has it,
    /// nothing changes. For example, a shell takes the terminal when the parent is killed.
    pub(super) fn take_back(&self) {
        if tcgetpgrp(&self.tty).is_ok_and(|group| group == self.command) {
            self.give_to(self.parent);
        }
    }

    fn give_to(&self, group: Pid) -> bool {
        // The supervisor process is in a background group. For this call, the kernel sends such a process
        // SIGTTOU, which would stop it. So the signal is blocked during the call.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
        let given = tcsetpgrp(&self.tty, group).is_ok();
        let _ = before.thread_set_mask();
        given
    }
}

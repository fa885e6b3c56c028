//! Who has the terminal.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// The controlling terminal, as the warden, which belongs to none of the two groups, hands it between them.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: File,
    parent: Pid,
    command: Pid,
}

impl Terminal {
    /// `None` without a controlling terminal.
    pub(super) fn open(parent: Pid, command: Pid) -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, parent, command })
    }

    /// Gives the command the terminal if the parent has it. Whether the command has it now.
    pub(super) fn lend(&self) -> bool {
        match tcgetpgrp(&self.tty) {
            Ok(group) if group == self.command => true,
            Ok(group) if group == self.parent => self.give_to(self.command),
            _ => false,
        }
    }

    /// Gives the parent the terminal if the command has it. Whoever else has it keeps it: a shell, say, that
    /// has taken it because the parent was killed.
    pub(super) fn take_back(&self) {
        if tcgetpgrp(&self.tty).is_ok_and(|group| group == self.command) {
            self.give_to(self.parent);
        }
    }

    fn give_to(&self, group: Pid) -> bool {
        // From a background group this would stop us, but for the signal being blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else { return false };
        let given = tcsetpgrp(&self.tty, group).is_ok();
        let _ = before.thread_set_mask();
        given
    }
}

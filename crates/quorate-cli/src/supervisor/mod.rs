//! Runs a command that ends in time, even if this process is killed, stopped or stuck.
//!
//! # What is not guaranteed
//!
//! * The supervisor process acts when it is scheduled. On a machine that gives it no processor time, or that wakes from
//!   suspend, the command runs until the supervisor does. Leave some time between [`Deadline::kill`] and the moment that
//!   matters.
//! * A command inside an uninterruptible system call dies when that call ends. [`Exit::survivors`] names it.
//! * A command that becomes another user's (`sudo`, any setuid program) cannot be signalled by an unprivileged
//!   supervisor. If this process's cgroup (version 2) belongs to its user, as with `Delegate=yes` under systemd, the
//!   command gets a cgroup of its own and is ended by `cgroup.kill` (Linux 5.14). Otherwise [`Exit::survivors`] names the
//!   processes that still run, and the lease must not be released before it has expired: see [`Exit::is_complete`].
//! * The command's *process group* is ended. Processes that left the group (`setsid`, a daemon) are ended with it on
//!   Linux alone, and only if the command was ended because of the lease, or was asked to end by HUP, INT, QUIT or
//!   TERM. If the command ends by itself, processes that have left its group are not touched.
//! * Killing both this process and the supervisor with SIGKILL leaves the command without a guard. Stopping both with
//!   SIGSTOP lets the command run until one of them continues, and is then reported as a lost lease. After killing the
//!   supervisor alone, processes that had left the group may still run, outside of a cgroup of their own. Stopping the
//!   supervisor alone has no such effect: a supervisor that has not acknowledged the last deadlines is killed, after
//!   everything that the command had started.
//! * Without `/proc`, members of the group cannot be identified: after the group's leader has been reaped, the number of
//!   the group is signalled if a process of the group exists at that moment. Without pidfds (Linux before 5.3), the start
//!   time of a process identifies it.
//! * Job control is best effort: see below.
//!
//! # Mechanism
//!
//! [`Supervisor::start`] runs this same binary as `quorate __supervisor`, in a process group of its own, so that a Ctrl-C
//! or a signal to our group does not reach it. The supervisor process starts the command in another group, and listens on
//! a socket for new deadlines. These are points of the boot clock: a message that arrives late cannot lengthen one. At
//! step-down, at [`Deadline::step_down`], or when the socket closes because this process is gone, the group gets SIGTERM;
//! at [`Deadline::kill`], SIGKILL. The supervisor process acknowledges each deadline, and reads all messages that have
//! arrived before it acts on a deadline. If the supervisor process has ended, or is silent until the last deadline that
//! it has acknowledged, [`Supervisor::wait`] kills the group.
//!
//! The exit of the command counts as in time only if the supervisor process observed it before [`Deadline::kill`]. After
//! that the command may have run without the lease, and [`Exit::ended_by`] says so.
//!
//! The command and the supervisor process do not inherit `QUORATE_NODES`, which may contain passwords. They inherit no
//! ignored SIGCHLD and no blocked signals: [`main`] and the program reset these.
//!
//! If the command ends by itself and leaves other processes of its group behind (`sh -c 'sleep 1000 &'`), these are
//! ended too, with SIGTERM and soon after with SIGKILL: the lease is about to be released.
//!
//! # The terminal
//!
//! The command's standard input and outputs are the ones that it is given, unchanged. With
//! [`CommandSpec::job_control`], and started from a shell's prompt (not in a pipe), the command's group becomes the
//! terminal's foreground group, so that Ctrl-C, Ctrl-\ and Ctrl-Z reach it. In a script or a pipe, where the foreground
//! group has other members, the command gets the terminal only when it reads from it or sets it. If Ctrl-Z stops the
//! command, this process stops as well, so that the shell shows its prompt; `fg` and `bg` continue both. A lease is not
//! extended meanwhile: a stop that lasts longer than the lease ends the command.

mod cgroup;
mod children;
mod command;
mod exit;
mod guard;
mod handle;
mod launch;
mod orders;
mod parent;
mod process;
mod processes;
mod signals;
mod terminal;
mod wire;

pub use command::{CommandSpec, Stream};
pub use exit::{EndedBy, Exit, StartError, Status, Survivor};
pub use handle::Supervisor;
pub use process::main;
pub use signals::ForwardedSignals;
pub(crate) use signals::reset as reset_signals;

use quorate::env::BootTime;

/// The first argument with which this binary is a supervisor process: [`main`] takes the arguments after it.
pub const ARGUMENT: &str = "__supervisor";

/// The times at which a command must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time of SIGTERM.
    pub step_down: BootTime,
    /// The time of SIGKILL.
    pub kill: BootTime,
}

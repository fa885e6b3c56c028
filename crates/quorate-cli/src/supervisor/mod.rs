//! Runs a command that ends in time, even if this process is killed, stopped or stuck.
//!
//! # What is not guaranteed
//!
//! * The warden acts when it is scheduled: on a machine that gives it no processor, or wakes from suspend, the
//!   command runs until the warden does. Leave it some time between [`Deadline::kill`] and the moment that
//!   matters.
//! * A command inside an uninterruptible system call dies when that call ends. [`Exit::survivors`] names it.
//! * A command that becomes another user's (`sudo`, any setuid program) cannot be signalled by an unprivileged
//!   supervisor. Where this process's cgroup (version 2) belongs to its user, as with `Delegate=yes` under systemd, the
//!   command gets a cgroup of its own and is ended by `cgroup.kill` (Linux 5.14). Elsewhere [`Exit::survivors`] names
//!   what runs on, and the lease must not be released before it has run out: see [`Exit::is_complete`].
//! * The command's *process group* is ended. What left the group (`setsid`, a daemon) is ended with it on
//!   Linux alone, and only when the command was ended because of the lease, or was asked to end by HUP, INT, QUIT or
//!   TERM. When the command ends by itself, what has left its group is left alone.
//! * Killing both this process and the warden with SIGKILL leaves the command without a guard. Stopping both with
//!   SIGSTOP lets it run on until one of them continues, and is then reported as a lost lease. Killing the warden alone
//!   lets run on what had left the group, outside of a cgroup of its own. Stopping it alone does not: a warden that has
//!   not answered the last deadlines is killed, after everything that the command had started.
//! * Without `/proc` no member of the group is known by itself: the group's number is signalled after its leader has
//!   been reaped, if a process of the group is there at that moment. Without pidfds (Linux before 5.3) the start time of
//!   a process stands for its identity.
//! * Job control is best effort: see below.
//!
//! # How
//!
//! [`Supervisor::start`] runs this same binary as `quorate __warden`, in a process group of its own, so that a
//! Ctrl-C or a signal to our group does not reach it. The warden starts the command in another group, and
//! listens on a socket for new deadlines, which are points of the boot clock: a message that comes late
//! cannot lengthen one. At step-down, at [`Deadline::step_down`], or when the socket closes because we are
//! gone, the group gets SIGTERM; at [`Deadline::kill`], SIGKILL. The warden answers each deadline, and reads all that
//! has arrived before it acts on one. Should the warden itself be gone, or silent until the last deadline that it has
//! answered, [`Supervisor::wait`] kills the group.
//!
//! The command's exit counts as in time only if the warden observed it before [`Deadline::kill`]; after that the command
//! may have run without the lease, and [`Exit::ended_by`] says so.
//!
//! The command and the warden do not inherit `QUORATE_NODES`, which may hold passwords. They have no ignored SIGCHLD and
//! no blocked signals from us: [`main`] and the program take these back.
//!
//! When the command ends by itself and leaves others of its group behind (`sh -c 'sleep 1000 &'`), these are
//! ended too, with SIGTERM and soon after SIGKILL: the lease is about to be released.
//!
//! # The terminal
//!
//! The command's standard input and outputs are the ones it is given, untouched. With
//! [`CommandSpec::job_control`], and started from a shell's prompt (not in a pipe), the command's group is
//! made the terminal's foreground group, so Ctrl-C, Ctrl-\ and Ctrl-Z reach it. In a script or a pipe, where
//! the foreground group has other members, it is lent the terminal only when it reads from it or sets it.
//! Where Ctrl-Z stops the command, we stop as well, so that the shell shows its prompt; `fg` and `bg`
//! continue both. A lease is not extended meanwhile: a stop that outlasts it ends the command.

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

/// The first argument with which this binary is a warden: [`main`] takes the ones after it.
pub const ARGUMENT: &str = "__supervisor";

/// When a command must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When it is told to (SIGTERM).
    pub step_down: BootTime,
    /// When it is made to (SIGKILL).
    pub kill: BootTime,
}

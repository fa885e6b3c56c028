//! Runs a command that ends in time, even if this process is killed, stopped or stuck.
//!
//! # What is not guaranteed
//!
//! * The supervisor process acts only when the system schedules it. On a machine that gives it no processor
//!   time, or that resumes from suspend, the command runs until the supervisor process runs. Leave some time
//!   between [`Deadline::kill`] and the end of the lease.
//! * A command inside an uninterruptible system call dies when that call ends. [`Exit::survivors`] contains it.
//! * An unprivileged supervisor process cannot signal a command that changes to another user (`sudo`, any
//!   setuid program). If this process's cgroup (version 2) belongs to its user, as with `Delegate=yes` under
//!   systemd, the command gets its own cgroup, and `cgroup.kill` ends it (Linux 5.14). Otherwise
//!   [`Exit::survivors`] contains the processes that still run. The lease must then not be released, and ends
//!   when it expires: see [`Exit::is_complete`].
//! * The supervisor process ends the command's *process group*. It ends processes that left the group
//!   (`setsid`, a daemon) only on Linux, and only in two cases: the command was ended because of the lease,
//!   or was asked to end by HUP, INT, QUIT or TERM. If the command ends by itself, processes that have left
//!   its group are not touched.
//! * If both this process and the supervisor process are killed with SIGKILL, nothing guards the command. If
//!   both are stopped with SIGSTOP, the command runs until one of them continues. Then the lease is reported
//!   as lost. If only the supervisor process is killed, processes that had left the group may still run,
//!   unless the command had its own cgroup. If only the supervisor process is stopped, no process of the
//!   command survives the lease: this process kills everything that the command had started, and then the
//!   supervisor process.
//! * Without `/proc`, the members of the group cannot be identified. This process then signals the id of the
//!   group even if the group's leader has been reaped. By then another group may have that id. Without pidfds
//!   (Linux before 5.3), the start time of a process identifies it.
//! * If the file system of [`CommandSpec::dir`] or of the program does not answer, [`Supervisor::start`] fails after the
//!   deadline, and the command is not started.
//! * Job control is best effort: see below.
//!
//! # Mechanism
//!
//! [`Supervisor::start`] runs this same binary as `quorate __supervisor`, in its own process group. So a
//! Ctrl-C, or a signal to the group of this process, does not reach the supervisor process. The supervisor
//! process starts the command in another group, and listens on a socket for new deadlines. The command begins
//! only after this process knows its group: the supervisor process reports the group of a process that waits, this
//! process answers with the command's streams, and then the command replaces the waiting process. Deadlines are
//! times of the boot clock, so a message that arrives late cannot extend a deadline. The group gets SIGTERM
//! at step-down, at [`Deadline::step_down`], or when the socket closes because this process has ended. It
//! gets SIGKILL at [`Deadline::kill`]. The supervisor process acknowledges each deadline, and reads all
//! messages that have arrived before it acts on a deadline. If the supervisor process has ended, or is silent
//! until the last deadline that it has acknowledged, [`Supervisor::wait`] kills the group.
//!
//! The exit of the command counts as in time only if the supervisor process observed it before
//! [`Deadline::kill`]. Otherwise the command may have run without the lease, which [`Exit::ended_by`] shows.
//!
//! The command and the supervisor process do not inherit `QUORATE_NODES`, which may contain passwords. They inherit no
//! ignored SIGCHLD and no blocked signals: [`main`] and the program reset these.
//!
//! The command may end by itself and leave other processes of its group behind (`sh -c 'sleep 1000 &'`). The
//! supervisor process ends these other processes, too, with SIGTERM and soon after with SIGKILL, because the
//! lease is about to be released. [`Exit::background`] is their number. Processes that have
//! left the group before (`setsid`, a daemon) run on; their number is [`Exit::escaped`]. With [`CommandSpec::leave_background`] they run
//! on, and the lease does not cover them.
//!
//! # The terminal
//!
//! The command gets the standard input and outputs of its specification, unchanged. With
//! [`CommandSpec::job_control`], if this process was started from a shell's prompt (not in a pipe), the
//! command's group becomes the terminal's foreground group. So Ctrl-C, Ctrl-\ and Ctrl-Z reach the command.
//! In a script or a pipe, where the foreground group has other members, the command gets the terminal only
//! when it reads from the terminal or changes its settings. If Ctrl-Z stops the command, this process stops
//! as well, so that the shell shows its prompt; `fg` and `bg` continue both. A lease is not extended while
//! this process is stopped. So a stop that lasts longer than the lease ends the command.

mod cgroup;
mod children;
mod command;
mod exit;
mod guard;
mod handle;
mod launch;
mod orders;
mod parent;
mod passing;
mod process;
mod processes;
mod signals;
mod start;
mod terminal;
mod wire;

pub use command::{CommandSpec, Stream};
pub use exit::{EndedBy, Exit, StartError, Status, Survivor};
pub use handle::Supervisor;
pub use process::main;
pub(crate) use processes::own_group;
pub use signals::ForwardedSignals;
pub(crate) use signals::reset as reset_signals;

use quorate::env::BootTime;

/// The first argument that makes this binary a supervisor process. [`main`] takes the arguments after it.
pub const ARGUMENT: &str = "__supervisor";
/// The second argument of the process that becomes the command.
const START: &str = "start";

/// The times at which a command must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time of SIGTERM.
    pub step_down: BootTime,
    /// The time of SIGKILL.
    pub kill: BootTime,
}

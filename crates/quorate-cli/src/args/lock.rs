use super::{NodeArgs, OperatorArgs};
use clap::{Args, Subcommand};

/// The commands on locks.
#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// Show the owner that each node stores for a lock
    #[command(after_help = "\
Examples:
  quorate lock show backup
  # a leadership, a message: named as `quorate status` names them
  quorate lock show election/billing
  quorate lock show claim/orders/17 --json

Unlike `quorate status` it also shows owners that only a minority of the nodes
stores. It only reads. Exit status: 0 if a node stores an owner; 1 if none does;
69 if too few nodes answered; 78 configuration.")]
    Show(LockShowArgs),
    /// Show the locks and leaderships that are held: by which worker, and for how long
    List(LocksListArgs),
    /// Force-release a lock without notifying its holder
    Release(LockReleaseArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate locks list
  # the slots of `quorate exec --lock import --slots 3`
  quorate locks list import
  quorate locks list --limit 100000 --json

It asks every node for the names that it stores, and then a majority for the holder
of each. ENDS IN is the time after which the lock is free if its holder does not
extend it. STATE is exclusive, readers, reserved (for the successor of a transfer),
or minority (an attempt is in progress, or keys of an ended one are left). Messages
are not shown: see `quorate claims show`.

It only reads. On Redis it looks at every key of the database (SCAN), in pieces;
each server has 30 s for that. With an empty prefix it shows every key that may be a
lock. Exit status: 0; 69 no quorum of nodes; 78 configuration.")]
pub(crate) struct LocksListArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Only the lock of this name, and the locks below it (NAME/…), such as its slots
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The largest number of names to read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The lock to show.
#[derive(Debug, Args)]
pub(crate) struct LockShowArgs {
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// A lock by name, a group as election/GROUP, a message as claim/SET/ID
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # show the holder and the risk, and change nothing
  quorate lock release backup
  quorate lock release --force backup
  # a message, a leadership: named as `quorate status` names them
  quorate lock release --force claim/orders/17

The risk: the holder is not notified. It relies on its lease until its next
extension finds that the lease is gone: after a third of the TTL at most. If it
cannot reach the nodes, it relies on it until the last extension that succeeded
ends, almost a whole TTL later. Until then two workers may act at once. Fencing
tokens protect only targets that check them. Use this command when the holder
is known to be gone or stuck for good, or when the key has no expiry and belongs
to another client. Ask a live leader with `quorate leader resign` instead.

It deletes the lock only where the stored owner is the one that it has just
shown. If Quorate wrote that owner, it raises the fencing counter there first. Once
a majority has raised it, the holder cannot take the lock back; the last line says
if fewer did. It deletes no other holder and no done record. Readers have no token:
a released reader that still runs may become a reader again. The holder of another
Redlock client has no counter. It cannot take the lock back either, as Redlock
extends only a key that still has its value. A client that sets a missing key again
when it extends can (redsync with WithSetNXOnExtend).

Exit status: 0 if a majority of the nodes no longer stores the owner; 1 if no
node stores an owner, or without --force; 69 if too few nodes answered; 78
configuration.")]
pub(crate) struct LockReleaseArgs {
    #[command(flatten)]
    pub(crate) lock: LockShowArgs,
    /// Release the lock. Without this flag, only show its holder
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) operator: OperatorArgs,
}

//! Ticks that are spread over the workers: whichever claims one first runs it.
//!
//! # What is not guaranteed
//!
//! * Two ticks of one job may run side by side, on two workers: an overlap rule is kept on each worker alone. A tick
//!   that is due while its worker is busy with the job is another worker's; where all are busy it waits, and is
//!   overtaken by a later one or misfired as on the leader.
//! * A pause takes a moment to be noticed: each worker looks about once a second, less often where the ledger is long. What
//!   ran meanwhile may have an entry of its own beside that of the pause.
//!   A job whose schedule is changed begins anew with the first worker that has the new one.
//! * So does a change of placement. The row that the leader keeps of the job counts: while it says that the leader runs its
//!   ticks, no worker begins one that was due since then, and once it says that they are spread again, those count that are
//!   due from then on. But the ticks of the second or so in which a worker has not yet looked may run twice, by the leader and
//!   by that worker, at most once too: to be sure, pause the job first. While workers of both placements lead in turn, each
//!   hand-over is such a change. A row stays for as long as no leader changes it: a job that was once the leader's is not begun
//!   by workers before one leads that has it as spread.
//! * What came due while no worker was there, and is past its window, is one entry, as far back as the ledger goes.
//! * A run leaves no state to the next: [`Tick::set_state`](super::Tick::set_state) is refused.
//! * What somebody asks for (a trigger, a back-fill) the leader runs, and not beside what it already runs of that; a tick
//!   that a worker runs may go on beside it. A cancel reaches a worker when it next looks at the job's row, about once a
//!   second, less often where the ledger is long: a run that ends before then has ended, and the answer cannot say how
//!   many were stopped. Without a tick it means what has begun by then: what a crashed worker has left is run again all
//!   the same, unless its tick is named.
//! * Fencing tokens order the runs of one tick, and nothing else: see [`Tick::fencing_token`](super::Tick::fencing_token).
//! * Who is told that a tick is lost knows that it was started; it may have done its work.
//!
//! # How a tick is run
//!
//! Every worker that runs a scheduler looks at the spread jobs as well, whether it leads or not. It tries each tick that
//! has come due (where several ask at the very same moment none may have a majority: they ask again, each at its own):
//!
//! 1. It *claims* the tick. Whoever finds it claimed looks again when that claim could have ended, until it is done.
//! 2. Under the claim it writes *started* into a ledger of its own, `spread`, which nobody seals: where nothing stands,
//!    to a majority of the nodes that remember that time; at least once also over a start that has not ended.
//! 3. It looks at the claim again, runs the work under it, writes the *end*, the history, and completes the claim.
//!
//! A worker that crashes keeps its tick until the claim's TTL has ended. Then another has the claim, and finds the start:
//! at least once it runs the tick again, however late; at most once it enters it as lost. A tick that is past its window
//! or overtaken, and was not started, is skipped: a majority must have said that there is no start, and a skip that did not
//! get so far is finished, or overruled, by whoever finds it.
//!
//! # Why a tick is started once without a seal
//!
//! The claim saves work and decides who may start; that a tick is started at most once does not rest on it, nor on
//! any clock. Under at-most-once
//!
//! * a start is a record of its own: with 128 random bits, so that no other attempt ever writes the same one;
//! * a node takes a start only where nothing stands under the tick, and nothing that stands is ever taken away but with
//!   the memory that it stands in: what is written over it, *done* or *lost*, is no start. So in one memory of one
//!   node there is at most one start of a tick;
//! * a start counts at a node whose memory began before the tick was due (less what clocks are apart). A start is
//!   written after that; so a node that has forgotten one has a memory that began after the tick was due, and counts
//!   for no other. What a node forgets on purpose, by its low-water mark, it refuses from then on;
//! * the work begins once a majority of the nodes counts.
//!
//! Of two starts that both counted at a majority some node would have counted both, in one memory: it cannot. With one
//! value a node and no second vote there is nothing to seal: what a seal adds on the leader is that *not started* stands
//! before a leader has written anything, and here nobody acts on that. The price is that a tick may be started by
//! nobody, where two workers' starts have split the nodes: it is entered as lost, and that is what at-most-once allows.
//!
//! `quorate_testkit::model::ledger` searches this, with any number of workers believing to have the claim, and finds
//! two starts as soon as one of the rules is left out.

mod attempt;
mod names;
mod plan;
mod record;
mod rows;
mod runner;
mod scribe;
#[cfg(test)]
mod tests;

pub(super) use runner::{Spreading, spread};

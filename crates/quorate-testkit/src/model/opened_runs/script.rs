//! The histories after which a search can begin. Each leads to an interesting state, so that the search need
//! not explore the way to it.

use super::{
    action::{Action, Ask, Choice},
    bounds::OpenedRuns,
    record::End,
    state::{State, WORKERS},
};
use crate::model::Name;
use stateright::Model;

/// The three nodes, each as a bit of a set.
const X: u8 = 1;
const Y: u8 = 2;
const Z: u8 = 4;
/// The numbers of the leaders.
const L1: u8 = WORKERS as u8;
const L2: u8 = L1 + 1;
const L3: u8 = L1 + 2;
/// The numbers of the first two workers.
const W1: u8 = 0;
const W2: u8 = 1;

/// The steps that have already been taken when a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Nothing has happened yet.
    Nothing,
    /// The first leader has opened the run at x and y.
    Opened,
    /// Like [`Self::Opened`]. All workers have also read the record, perhaps long ago.
    Read,
    /// Like [`Self::Read`]. The first worker has also taken the run at x and y, and executes it.
    Started,
    /// Like [`Self::Read`]. The first worker also has the claim at x and z, and has counted its attempt at z.
    /// The second worker has been granted the claim at y.
    Counting,
    /// Like [`Self::Read`]. The first worker also has the claim at x and z, and has counted its attempt
    /// there. This worker has not started the run.
    Counted,
    /// Like [`Self::Read`]. The first worker has also taken the run at x and z, and then given up the run.
    /// The second worker has taken the run at x and y, and executes it.
    GivenUp,
    /// The first leader has decided to skip the run, and has written nothing yet. The second leader has
    /// opened the run at x and y, and all workers have read its record.
    Split,
    /// Like [`Self::Split`]. The first leader has also written *skipped* at z.
    SplitWritten,
    /// The first leader has opened the run only at x. The second leader has skipped the run at y and z.
    Deposed,
    /// The first leader has opened the run only at x. The second leader has written *skipped* only at z.
    Minorities,
    /// Like [`Self::Minorities`]. The third leader has also found the open run, and has written its own record
    /// only at y so far.
    Mixed,
    /// The first leader has opened the run only at y. The second leader has skipped the run at x and z. Then x
    /// has forgotten. The third leader has sealed x and y, and is about to continue the open run.
    Forgotten,
    /// Like [`Self::Started`]. Then y has forgotten. The second leader has sealed x and y, and continued the
    /// run at x and z. The second worker has read the record there.
    Adopted,
    /// Like [`Self::Opened`]. The first worker has started the run at x and y, and the worker's lease is
    /// over. The leader has written the count to y and z, treated the generation as lost, and opened the
    /// second generation at x and y.
    Second,
    /// Like [`Self::Started`]. Then y has forgotten. The second leader has found no record at y and z. The
    /// second leader has opened the run at these nodes, and holds the claim there.
    Reopened,
    /// Like [`Self::Read`]. The second leader has continued the run at y and z. The first leader holds the
    /// claim at these nodes, and has not counted an attempt.
    Claimed,
    /// Like [`Self::Opened`], with these further steps. The second leader has continued the run at y and z,
    /// and has ended the run there before any worker started the run. The first leader holds the claim of the
    /// run at x and y, and has counted an attempt there. Then y has forgotten its data.
    Voided,
}

impl From {
    fn script(self, workers: u8) -> Vec<Action> {
        let skip = Choice::Close(End::Skipped);
        let opened = [vec![elected(L1)], seals(L1, X | Y, Choice::Open), writes(L1, X | Y)].concat();
        let read = |of| (0..workers).flat_map(move |worker| reads(worker, of));
        let first_skips = || [vec![elected(L1)], seals(L1, X | Y, skip)].concat();
        let opens_at = |node| [vec![elected(L1)], seals(L1, X | Y, Choice::Open), writes(L1, node)].concat();
        let second_opens = || [vec![elected(L2)], seals(L2, X | Y, Choice::Open), writes(L2, X | Y)].concat();
        let second_skips = |of, at| [vec![elected(L2)], seals(L2, of, skip), writes(L2, at)].concat();
        let second_adopts =
            || [vec![elected(L2)], seals(L2, Y | Z, Choice::Follow), writes(L2, Y | Z)].concat();
        let more: Vec<Vec<Action>> = match self {
            Self::Nothing => vec![],
            Self::Opened => vec![opened],
            Self::Read => vec![opened, read(X | Y).collect()],
            Self::Started => vec![opened, read(X | Y).collect(), takes(W1, X | Y)],
            Self::Counting => vec![
                opened,
                read(X | Y).collect(),
                claims(W1, X | Z),
                asks(W1, Ask::Count, Z),
                asks(W2, Ask::Acquire, Y),
            ],
            Self::Counted => {
                vec![opened, read(X | Y).collect(), claims(W1, X | Z), asks(W1, Ask::Count, X | Z)]
            }
            Self::GivenUp => vec![
                opened,
                read(X | Y).collect(),
                claims(W1, X | Z),
                asks(W1, Ask::Count, X | Z),
                vec![Action::Decides(W1, X | Z, Choice::GiveUp)],
                asks(W1, Ask::TakeBack, X),
                vec![Action::Expires(1, name(X))],
                takes(W2, X | Y),
            ],
            Self::Split => vec![first_skips(), second_opens(), read(X | Y).collect()],
            Self::SplitWritten => {
                vec![first_skips(), writes(L1, Z), second_opens(), read(X | Y).collect()]
            }
            Self::Deposed => vec![opens_at(X), second_skips(Y | Z, Y | Z)],
            Self::Minorities => vec![opens_at(X), second_skips(Y | Z, Z)],
            Self::Mixed => vec![
                opens_at(X),
                second_skips(Y | Z, Z),
                vec![elected(L3)],
                seals(L3, X | Y, Choice::Follow),
                writes(L3, Y),
            ],
            Self::Forgotten => vec![
                opens_at(Y),
                second_skips(X | Z, X | Z),
                vec![Action::Forgets(name(X)), elected(L3)],
                seals(L3, X | Y, Choice::Follow),
            ],
            Self::Adopted => vec![
                opened,
                takes_after_reading(W1, X | Y),
                vec![Action::Forgets(name(Y)), elected(L2)],
                seals(L2, X | Y, Choice::Follow),
                writes(L2, X | Z),
                reads(W2, X | Z),
            ],
            Self::Second => vec![
                opened,
                takes_after_reading(W1, X | Y),
                vec![Action::Over(W1), Action::Expires(1, name(Y)), Action::Goes(L1, Choice::Follow)],
                claims(L1, Y | Z),
                asks(L1, Ask::Count, Y | Z),
                vec![Action::Decides(L1, Y | Z, Choice::Open)],
                writes(L1, X | Y),
            ],
            Self::Reopened => vec![
                opened,
                takes_after_reading(W1, X | Y),
                vec![Action::Forgets(name(Y)), elected(L2)],
                seals(L2, Y | Z, Choice::Open),
                writes(L2, Y | Z),
                vec![Action::Goes(L2, Choice::Follow)],
                claims(L2, Y | Z),
            ],
            Self::Claimed => vec![
                opened,
                read(X | Y).collect(),
                second_adopts(),
                vec![Action::Goes(L1, Choice::Follow)],
                claims(L1, Y | Z),
            ],
            Self::Voided => vec![
                opened,
                second_adopts(),
                vec![Action::Goes(L2, Choice::Follow)],
                takes(L2, Y | Z),
                writes(L2, Y | Z),
                vec![Action::Goes(L1, Choice::Follow), Action::Expires(1, name(Y))],
                claims(L1, X | Y),
                asks(L1, Ask::Count, X | Y),
                vec![Action::Forgets(name(Y))],
            ],
        };
        more.concat()
    }

    /// Returns the state after this history, which begins with the state `first`. Steps that `model` does not
    /// have are left out.
    pub(super) fn state(self, model: &OpenedRuns, first: State) -> State {
        let script = self.script(model.workers as u8);
        let needed = script.iter().filter(|action| match action {
            Action::Elected(_) => !model.remembers(),
            Action::Over(_) => model.timed,
            _ => true,
        });
        needed.fold(first, |state, action| {
            let next = model.next_state(&state, *action);
            next.unwrap_or_else(|| unreachable!("{self:?}: {action:?} does nothing in {state:?}"))
        })
    }
}

fn name(node: u8) -> Name {
    Name(node.trailing_zeros() as u8)
}

fn elected(leader: u8) -> Action {
    Action::Elected(leader)
}

fn asks(actor: u8, ask: Ask, nodes: u8) -> Vec<Action> {
    let each = [X, Y, Z].into_iter().filter(|node| nodes & node != 0);
    each.map(|node| Action::Asks(actor, ask, name(node))).collect()
}

fn then(mut actions: Vec<Action>, actor: u8, nodes: u8, choice: Choice) -> Vec<Action> {
    if nodes.count_ones() > 1 {
        actions.push(Action::Decides(actor, nodes, choice));
    }
    actions
}

fn seals(leader: u8, nodes: u8, choice: Choice) -> Vec<Action> {
    then(asks(leader, Ask::Seal, nodes), leader, nodes, choice)
}

fn writes(leader: u8, nodes: u8) -> Vec<Action> {
    then(asks(leader, Ask::Write, nodes), leader, nodes, Choice::Follow)
}

fn reads(worker: u8, nodes: u8) -> Vec<Action> {
    then(asks(worker, Ask::Read, nodes), worker, nodes, Choice::Follow)
}

fn claims(actor: u8, nodes: u8) -> Vec<Action> {
    then(asks(actor, Ask::Acquire, nodes), actor, nodes, Choice::Follow)
}

fn takes(actor: u8, nodes: u8) -> Vec<Action> {
    [claims(actor, nodes), then(asks(actor, Ask::Count, nodes), actor, nodes, Choice::Follow)].concat()
}

fn takes_after_reading(worker: u8, nodes: u8) -> Vec<Action> {
    [reads(worker, nodes), takes(worker, nodes)].concat()
}

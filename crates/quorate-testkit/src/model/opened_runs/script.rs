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
/// The numbers of the first two workers.
const W1: u8 = 0;
const W2: u8 = 1;

/// The steps that have already been taken when a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Nothing has happened yet.
    Nothing,
    /// The first leader has opened the run.
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
    /// The first leader has decided to skip the run, and its record is on its way. The second leader has opened the
    /// run, and all workers have read its record.
    Split,
    /// The first leader has started the run itself. The second leader has opened the second generation.
    Executed,
    /// Like [`Self::Started`]. Then y has forgotten. The second leader has continued the run, and the second worker
    /// has read the record.
    Adopted,
    /// Like [`Self::Opened`]. The first worker has started the run at x and y, and the worker's lease is
    /// over. The leader has written the count to y and z, treated the generation as lost, and opened the
    /// second generation.
    Second,
    /// Like [`Self::Read`]. The second leader has continued the run. The first leader holds the claim at y and z, and
    /// has not counted an attempt.
    Claimed,
    /// Like [`Self::Read`], with these further steps. The second leader has continued the run, and has ended it through
    /// the slot at y and z before any worker started it. Then y has forgotten.
    Voided,
}

impl From {
    fn script(self, workers: u8) -> Vec<Action> {
        let opens = |leader| leads(leader, Choice::Open);
        let opened = || [vec![elected(L1)], opens(L1)].concat();
        let read = || [opened(), (0..workers).map(reads).collect()].concat();
        let second_adopts = || [vec![elected(L2)], leads(L2, Choice::Follow)].concat();
        let follow = |leader| vec![Action::Goes(leader, Choice::Follow)];
        let more: Vec<Vec<Action>> = match self {
            Self::Nothing => vec![],
            Self::Opened => vec![opened()],
            Self::Read => vec![read()],
            Self::Started => vec![read(), takes(W1, X | Y)],
            Self::Counting => {
                vec![read(), claims(W1, X | Z), asks(W1, Ask::Count, Z), asks(W2, Ask::Acquire, Y)]
            }
            Self::Counted => vec![read(), claims(W1, X | Z), asks(W1, Ask::Count, X | Z)],
            Self::GivenUp => vec![
                read(),
                claims(W1, X | Z),
                asks(W1, Ask::Count, X | Z),
                vec![Action::Decides(W1, X | Z, Choice::GiveUp)],
                asks(W1, Ask::TakeBack, X),
                vec![Action::Expires(1, name(X))],
                takes(W2, X | Y),
            ],
            Self::Split => vec![
                vec![elected(L1), Action::TakesOver(L1, Choice::Close(End::Skipped)), elected(L2)],
                opens(L2),
                (0..workers).map(reads).collect(),
            ],
            Self::Executed => {
                vec![vec![elected(L1)], leads(L1, Choice::Direct), follow(L1), vec![elected(L2)], opens(L2)]
            }
            Self::Adopted => vec![
                opened(),
                vec![reads(W1)],
                takes(W1, X | Y),
                vec![Action::Forgets(name(Y))],
                second_adopts(),
                vec![reads(W2)],
            ],
            Self::Second => vec![
                opened(),
                vec![reads(W1)],
                takes(W1, X | Y),
                vec![Action::Over(W1), Action::Expires(1, name(Y))],
                follow(L1),
                claims(L1, Y | Z),
                asks(L1, Ask::Count, Y | Z),
                vec![Action::Decides(L1, Y | Z, Choice::Open), Action::Writes(L1)],
            ],
            Self::Claimed => vec![read(), second_adopts(), follow(L1), claims(L1, Y | Z)],
            Self::Voided => {
                vec![read(), second_adopts(), follow(L2), takes(L2, Y | Z), vec![Action::Forgets(name(Y))]]
            }
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

/// Lets a leader take the ledger over, make this choice, and write its record.
fn leads(leader: u8, choice: Choice) -> Vec<Action> {
    vec![Action::TakesOver(leader, choice), Action::Writes(leader)]
}

fn reads(worker: u8) -> Action {
    Action::Reads(worker, None)
}

fn claims(actor: u8, nodes: u8) -> Vec<Action> {
    then(asks(actor, Ask::Acquire, nodes), actor, nodes, Choice::Follow)
}

fn takes(actor: u8, nodes: u8) -> Vec<Action> {
    [claims(actor, nodes), then(asks(actor, Ask::Count, nodes), actor, nodes, Choice::Follow)].concat()
}

use super::{MaybeMillis, name, text};
use quorate::{
    internals::Marker,
    lease::Inspection,
    node::{FencingToken, Owner},
};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;

/// What the nodes store of a lock, of the leadership of a group, or of a message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Lock")]
pub struct LockView {
    /// `free`, `exclusive`, `readers`, `reserved`, `done` (a message), `minority` if no majority stores one holder, or `unknown`
    /// if too few nodes vote.
    #[schemars(with = "String")]
    pub state: LockState,
    /// True if it has a holder; `null` if that is not known.
    pub held: Option<bool>,
    /// The worker that a majority of the nodes stores as the holder. `null` for readers. For a reservation, the successor.
    pub holder: Option<String>,
    /// The time for which it stays held if it is not extended; `null` if it does not end by itself.
    #[serde(rename = "remaining_ms", with = "MaybeMillis")]
    pub remaining: Option<Duration>,
    /// The largest fencing token that a majority has counted.
    pub fencing_token: Option<u64>,
    /// The result of a message that is done.
    #[serde(rename = "done")]
    pub result: Option<String>,
    /// Every owner that a node stores, the one that most nodes store first.
    pub owners: Vec<OwnerView>,
    /// True if any node stores a holder.
    #[serde(skip)]
    pub is_stored: bool,
}

/// The state of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockState {
    /// It has no holder.
    Free,
    /// One worker holds it.
    Exclusive,
    /// Readers hold it.
    Readers,
    /// It is reserved for the worker to which the last holder transfers it.
    Reserved,
    /// The message has been handled.
    Done,
    /// Only a minority of the nodes stores a holder.
    Minority,
    /// Too few nodes vote.
    Unknown,
}

/// An owner of a lock, and the number of nodes that store it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "LockOwner")]
pub struct OwnerView {
    /// The worker.
    pub holder: String,
    /// The owner token.
    pub owner: String,
    /// The number of nodes that store the token.
    pub nodes: usize,
    /// True if these nodes are a majority, so that the owner holds the lock.
    pub majority: bool,
}

impl LockView {
    /// Returns the view of what the nodes answered. `votes` is true if a majority of them votes: nodes without a vote may have
    /// forgotten a holder.
    pub fn new(seen: &Inspection, votes: bool) -> Self {
        let holder = seen.holder.as_ref().filter(|owner| !is_no_holder(owner));
        let is_contended =
            seen.holder.is_none() && seen.named.first().is_some_and(|(owner, _)| !is_no_holder(owner));
        let state = match holder {
            _ if seen.done.is_some() => LockState::Done,
            _ if is_contended => LockState::Minority,
            _ if !votes => LockState::Unknown,
            None => LockState::Free,
            Some(owner) if owner.reserved_for().is_some() => LockState::Reserved,
            Some(owner) if owner.as_str() == Owner::READERS => LockState::Readers,
            Some(_) => LockState::Exclusive,
        };
        let worker = |owner: &Owner| match owner.reserved_for() {
            Some(successor) => Some(name(successor)),
            None => (owner.as_str() != Owner::READERS).then(|| name(owner.worker())),
        };
        let owner = |(owner, nodes): &(Owner, usize)| OwnerView {
            holder: holder_text(owner),
            owner: owner.as_str().to_owned(),
            nodes: *nodes,
            majority: seen.holder.as_ref() == Some(owner),
        };
        Self {
            state,
            held: (votes && !is_contended).then_some(holder.is_some()),
            holder: holder.and_then(worker),
            remaining: seen.remaining,
            fencing_token: seen.token.map(FencingToken::get),
            result: seen.done.as_ref().map(|done| done.result.to_string()),
            owners: seen.named.iter().map(owner).collect(),
            is_stored: holder.is_some() || is_contended,
        }
    }

    /// Returns the view if too few nodes answered.
    pub const fn unread() -> Self {
        let (held, holder, remaining, fencing_token, result) = (None, None, None, None, None);
        Self {
            state: LockState::Unknown,
            held,
            holder,
            remaining,
            fencing_token,
            result,
            owners: Vec::new(),
            is_stored: false,
        }
    }

    /// Returns whether the nodes know nothing of it.
    pub const fn is_unused(&self) -> bool {
        self.holder.is_none() && self.fencing_token.is_none() && self.result.is_none()
    }

    /// Returns the holder for a column; of a minority, the one that most nodes store.
    pub fn holder_text(&self) -> &str {
        let of_minority = self.owners.first().filter(|_| self.state == LockState::Minority);
        self.holder.as_deref().or(of_minority.map(|owner| &*owner.holder)).unwrap_or("-")
    }

    /// Returns the time until it ends, for a column.
    pub fn left_text(&self) -> String {
        match (self.state, self.remaining) {
            (LockState::Minority, _) => "-".to_owned(),
            (_, Some(left)) => format!("{:.1} s", left.as_secs_f64()),
            (_, None) => "no expiry".to_owned(),
        }
    }

    /// Returns the state for people, in one line.
    pub fn for_people(&self) -> String {
        let token = self.fencing_token.map_or("none yet".to_owned(), |token| token.to_string());
        let left = self.remaining.map(|left| format!("for another {:.1} s", left.as_secs_f64()));
        let holder = self.holder.as_deref().unwrap_or("readers");
        match (self.state, left) {
            (LockState::Done, _) => {
                let result = text(self.result.as_deref().unwrap_or_default());
                format!("done, result {result:?}, fencing token {token}")
            }
            (LockState::Unknown, _) if self.holder.is_none() => {
                format!(
                    "unknown: too few nodes vote, and the others may have lost the holder; last fencing token {token}"
                )
            }
            (LockState::Unknown, _) => format!(
                "unknown: too few nodes vote; the nodes that answer store the holder {holder}, fencing token {token}"
            ),
            (LockState::Minority, _) => format!(
                "only a minority of the nodes stores a holder: it is being acquired, or too few nodes answered; last fencing \
                 token {token}"
            ),
            (LockState::Reserved, Some(left)) => {
                format!("reserved for {holder} {left}, last fencing token {token}")
            }
            (LockState::Free, _) if self.fencing_token.is_none() => "free, never held".to_owned(),
            (LockState::Free, _) => format!("free, last fencing token {token}"),
            (_, Some(left)) => format!("held by {holder} {left}, fencing token {token}"),
            (_, None) => format!("held by {holder} without expiry (not by Quorate)"),
        }
    }
}

impl LockState {
    /// Returns the word for the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Exclusive => "exclusive",
            Self::Readers => "readers",
            Self::Reserved => "reserved",
            Self::Done => "done",
            Self::Minority => "minority",
            Self::Unknown => "unknown",
        }
    }
}

fn holder_text(owner: &Owner) -> String {
    match owner.reserved_for() {
        Some(successor) => format!("no worker, reserved for {}", name(successor)),
        None => name(owner.worker()),
    }
}

/// Returns whether a node stores this text without a holder: for a queue, or as the marker of another prefix, whose key
/// looks like a lock to a prefix that it begins with.
fn is_no_holder(owner: &Owner) -> bool {
    owner.as_str() == Owner::QUEUE || Marker::is_marker(owner.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(owner: Option<&str>, nodes: usize) -> Inspection {
        let named: Vec<_> = owner.map(|owner| (Owner::from_node(owner), nodes)).into_iter().collect();
        Inspection {
            holder: named.first().filter(|_| nodes > 1).map(|(owner, _)| owner.clone()),
            remaining: (nodes > 1).then_some(Duration::from_millis(2_500)),
            contended: owner.is_some() && nodes < 2,
            token: Some(FencingToken::new(7)),
            done: None,
            begun: None,
            named,
            answered: 3,
        }
    }

    #[test]
    fn the_state_says_what_is_known_of_the_holder() {
        let (held, reserved) = (Owner::sign("oak", 1, 2), Owner::reserve("elm", 1, 2));
        let oak = Some(held.as_str());
        for (owner, nodes, votes, state, held, text) in [
            (None, 0, true, LockState::Free, Some(false), "free, last fencing token 7"),
            (None, 0, false, LockState::Unknown, None, "the others may have lost the holder"),
            (oak, 3, true, LockState::Exclusive, Some(true), "for another 2.5 s, fencing token 7"),
            (oak, 3, false, LockState::Unknown, None, "store the holder oak"),
            (oak, 1, true, LockState::Minority, None, "only a minority of the nodes"),
            (
                Some(Owner::READERS),
                2,
                true,
                LockState::Readers,
                Some(true),
                "held by readers for another 2.5 s",
            ),
            (
                Some(reserved.as_str()),
                2,
                true,
                LockState::Reserved,
                Some(true),
                "reserved for elm for another 2.5 s",
            ),
            (Some(Owner::QUEUE), 2, true, LockState::Free, Some(false), "free"),
            (Some(Owner::QUEUE), 2, false, LockState::Unknown, None, "may have lost the holder"),
        ] {
            let view = LockView::new(&seen(owner, nodes), votes);
            assert_eq!((view.state, view.held), (state, held), "{owner:?}, {votes}: {view:?}");
            assert!(view.for_people().contains(text), "{owner:?}, {votes}: {}", view.for_people());
        }
        let minority = LockView::new(&seen(oak, 1), true);
        assert_eq!((minority.holder.as_deref(), minority.holder_text()), (None, "oak"), "no worker holds it");
    }

    #[test]
    fn a_message_that_is_done_may_still_be_held() {
        let record = quorate::node::DoneRecord {
            token: FencingToken::new(7),
            at: 0,
            result: "ok".into(),
            payload: None,
            dead_lettered: None,
        };
        for (owner, votes, held) in
            [(None, true, Some(false)), (Some("oak:1"), true, Some(true)), (None, false, None)]
        {
            let view = LockView::new(&Inspection { done: Some(record.clone()), ..seen(owner, 2) }, votes);
            assert_eq!((view.state, view.held), (LockState::Done, held), "{owner:?}, {votes}");
            assert_eq!(view.for_people(), "done, result \"ok\", fencing token 7");
        }
    }
}

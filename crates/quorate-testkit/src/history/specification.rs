use std::{fmt::Debug, hash::Hash};

/// The sequential behaviour of one object: a lock, a register, a tick or a message.
///
/// A history is linearizable if each operation can be given one moment between its begin and its end, such that the
/// specification accepts the calls in the order of these moments.
pub trait Specification: Clone + Debug + Send + Sync {
    /// The state of the object.
    type State: Clone + Debug + Eq + Hash + Send + Sync;
    /// A call to the object, with its result. Every operation is a part of the order, also one of unknown result. So a
    /// call that may never have taken effect needs a variant that is accepted in every state.
    type Call: Clone + Debug + Send + Sync;

    /// Returns the state before the first call.
    fn initial() -> Self::State;

    /// Returns the state after `call`, or `None` if the object cannot have given this result in `state`.
    fn apply(state: &Self::State, call: &Self::Call) -> Option<Self::State>;

    /// Returns the state to which `calls` lead from `before` in *every* order that the specification accepts. Returns
    /// `None` if the state may depend on the order, or if there is no such order. A history is split where this
    /// returns a state, so a wrong state would hide violations or report false ones.
    ///
    /// By default no history is split.
    fn settled(_before: &Self::State, _calls: &[&Self::Call]) -> Option<Self::State> {
        None
    }
}

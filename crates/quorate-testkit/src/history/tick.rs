use super::Specification;

/// A tick of a job with at-most-once delivery: it starts once, whatever happens.
///
/// Not judged: that a tick starts at all.
#[derive(Clone, Debug)]
pub struct AtMostOnce;

/// A tick of a job with at-least-once delivery: it may start again, but not while a run of it is active, nor after its
/// end was recorded. If a majority of the nodes lost the record ([`TickCall::Forgotten`]), it may.
///
/// Not judged: that a tick starts at all, and the work of a process that is paused. An adapter lets the end of such a
/// run take effect at any time since the process was last known to work.
#[derive(Clone, Debug)]
pub struct AtLeastOnce;

/// A call about a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickCall {
    /// A run of the tick began.
    Started {
        /// The number of the run, unique in the history.
        run: u64,
    },
    /// The run ended.
    Ended {
        /// The number of the run.
        run: u64,
    },
    /// A majority of the nodes has stored that the tick has ended.
    Recorded,
    /// So many nodes lost their data that no majority may store the end of the tick any more.
    Forgotten,
}

/// The state of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TickState {
    started: bool,
    /// The active run.
    active: Option<u64>,
    recorded: bool,
}

impl TickState {
    fn after(self, call: TickCall, may_repeat: bool) -> Option<Self> {
        match call {
            TickCall::Started { run } => {
                let may = self.active.is_none() && !self.recorded && (may_repeat || !self.started);
                may.then_some(Self { started: true, active: Some(run), ..self })
            }
            TickCall::Ended { run } => (self.active == Some(run)).then_some(Self { active: None, ..self }),
            TickCall::Recorded => Some(Self { recorded: true, ..self }),
            TickCall::Forgotten => Some(Self { recorded: false, ..self }),
        }
    }
}

impl Specification for AtMostOnce {
    type State = TickState;
    type Call = TickCall;

    fn initial() -> TickState {
        TickState::default()
    }

    fn apply(state: &TickState, call: &TickCall) -> Option<TickState> {
        state.after(*call, false)
    }
}

impl Specification for AtLeastOnce {
    type State = TickState;
    type Call = TickCall;

    fn initial() -> TickState {
        TickState::default()
    }

    fn apply(state: &TickState, call: &TickCall) -> Option<TickState> {
        state.after(*call, true)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{accepted, during, open},
        *,
    };

    fn started(run: u64) -> TickCall {
        TickCall::Started { run }
    }

    fn ended(run: u64) -> TickCall {
        TickCall::Ended { run }
    }

    #[test]
    fn only_at_least_once_repeats() {
        let once = [during(1, 1, started(1)), during(2, 3, ended(1))];
        let twice = [once.to_vec(), vec![during(4, 4, started(2)), open(5, ended(2))]].concat();
        assert!(accepted::<AtMostOnce>(&once) && accepted::<AtLeastOnce>(&once));
        assert!(accepted::<AtLeastOnce>(&twice));
        assert!(!accepted::<AtMostOnce>(&twice));
    }

    #[test]
    fn a_run_starts_after_the_end_of_the_one_before() {
        let overlap =
            |end| accepted::<AtLeastOnce>(&[during(1, 1, started(1)), during(4, 4, started(2)), end]);
        assert!(!overlap(during(5, 6, ended(1))));
        assert!(overlap(during(3, 6, ended(1))), "the process was paused from 3 on");
        assert!(overlap(open(2, ended(1))), "the process was killed");
    }

    #[test]
    fn a_recorded_end_is_final_until_it_is_forgotten() {
        let begin = [during(1, 1, started(1)), during(2, 2, ended(1)), during(3, 4, TickCall::Recorded)];
        let then = |more: &[_]| accepted::<AtLeastOnce>(&[begin.to_vec(), more.to_vec()].concat());
        let again = during(7, 7, started(2));
        assert!(then(&[]));
        assert!(!then(std::slice::from_ref(&again)));
        assert!(then(&[open(5, TickCall::Forgotten), again.clone()]));
        assert!(!then(&[open(8, TickCall::Forgotten), again]));
        assert!(!accepted::<AtMostOnce>(
            &[begin.to_vec(), vec![open(5, TickCall::Forgotten), during(7, 7, started(2))]].concat()
        ));
    }

    #[test]
    fn an_end_belongs_to_a_start() {
        assert!(!accepted::<AtMostOnce>(&[during(1, 2, ended(1))]));
        assert!(!accepted::<AtLeastOnce>(&[during(1, 1, started(1)), during(2, 3, ended(2))]));
    }
}

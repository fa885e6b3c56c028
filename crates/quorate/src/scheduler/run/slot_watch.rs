use crate::{claim::Shown, env::WallTime, node::DoneRecord};
use std::{sync::Arc, time::Duration};

/// The shortest and the longest pause between two inspections of a slot. The pause is a quarter of the time
/// since the run was due, within these limits.
const INSPECT_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The leader's watch over the slot of one generation of an open run: what it has seen, and the step that follows from
/// each inspection. No I/O and no clock.
#[derive(Debug)]
pub(super) struct SlotWatch {
    not_before: WallTime,
    /// The time at which the run was due, or at which the watch began, whichever is later.
    due: WallTime,
    /// True once a node has counted a worker's attempt to take the slot.
    taken: bool,
    /// True once the run was added to the list of open runs.
    listed: bool,
    holder: Option<Arc<str>>,
}

/// The leader's knowledge at an inspection, beside the state of the slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// The nodes no longer allow a worker to take the slot.
    pub(super) past_horizon: bool,
    /// Too few nodes remember the generation, so that no worker can take it (rule R9c).
    pub(super) forgotten: bool,
    /// The run was cancelled for good, and its record does not say so yet.
    pub(super) cancel_to_store: bool,
}

/// The step after an inspection.
#[derive(Debug, PartialEq)]
pub(super) enum Look {
    /// The generation has ended, and a node stores this end.
    Ended(DoneRecord),
    /// The generation is lost, for this reason.
    Lost(&'static str),
    /// A worker has taken the slot, and its claim is gone: take the slot, to end the generation.
    EndTaken,
    /// A worker executes the run: store the cancellation in the run's record, where the worker reads it.
    StoreCancel,
    /// No worker has taken the run: end the generation if there is a reason.
    Untaken,
    /// Nothing is to be done until the next inspection.
    Wait,
}

impl SlotWatch {
    /// Begins the watch at `now` over a generation that starts at `not_before` or later.
    pub(super) fn new(not_before: WallTime, now: WallTime) -> Self {
        let due = not_before.max(now);
        Self { not_before, due, taken: false, listed: false, holder: None }
    }

    /// Returns the worker that was seen last in the slot.
    pub(super) fn holder(&self) -> Option<&Arc<str>> {
        self.holder.as_ref()
    }

    /// Returns whether the run is to be added to the list of open runs now: once, unless the leader was ordered to end it.
    pub(super) fn lists(&mut self, ordered: bool) -> bool {
        let lists = !self.taken && !ordered && !self.listed;
        self.listed |= lists;
        lists
    }

    /// Returns the pause until the next inspection. `ordered` is true if the leader was ordered to end the run.
    pub(super) fn pause(&self, now: WallTime, ordered: bool) -> Duration {
        let (least, most) = INSPECT_PAUSE;
        match self.not_before > now && !ordered {
            true => now.until(self.not_before) + least,
            false => (self.due.until(now) / 4).clamp(least, most),
        }
    }

    /// Returns whether a worker was seen to have taken the slot for the first time. Then the run leaves the list.
    pub(super) fn note(&mut self, shown: &Shown) -> bool {
        if let Some(owner) = &shown.holder {
            self.holder = Some(owner.worker().into());
        }
        let is_first = shown.ended.is_none() && shown.counted && !self.taken;
        self.taken |= is_first;
        is_first
    }

    /// Returns the step after an inspection, which was [noted](Self::note).
    pub(super) fn look(&self, shown: Shown, around: Around) -> Look {
        let Shown { ended, counted, free, .. } = shown;
        match ended {
            Some(ended) => Look::Ended(ended),
            None if around.past_horizon && free => {
                Look::Lost("no worker can take its slot any more, and no node has its end")
            }
            None if around.past_horizon => Look::Wait,
            None if free && around.forgotten => {
                Look::Lost("too few nodes remember the time at which it was opened, so no worker can take it")
            }
            None if free && counted => Look::EndTaken,
            None if self.taken && around.cancel_to_store => Look::StoreCancel,
            None if self.taken => Look::Wait,
            None => Look::Untaken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Owner;

    fn at(ms: u64) -> WallTime {
        WallTime::from_micros(1_000_000_000 + ms * 1_000)
    }

    fn shown(counted: bool, free: bool) -> Shown {
        Shown { ended: None, counted, free, holder: None }
    }

    fn watch() -> SlotWatch {
        SlotWatch::new(at(1_000), at(0))
    }

    const NOTHING: Around = Around { past_horizon: false, forgotten: false, cancel_to_store: false };

    #[test]
    fn a_run_is_listed_once_and_leaves_the_list_when_it_is_taken() {
        let mut watch = watch();
        assert!(!watch.lists(true), "it is to be ended");
        assert!(watch.lists(false) && !watch.lists(false));
        assert!(!watch.note(&shown(false, true)));
        assert!(watch.note(&shown(true, false)) && !watch.note(&shown(true, false)));
        let mut late = self::watch();
        late.note(&shown(true, false));
        assert!(!late.lists(false), "it was taken before");
    }

    #[test]
    fn a_slot_is_inspected_when_its_run_is_due_and_then_ever_more_rarely() {
        let watch = watch();
        let pause = |ms: u64, ordered| watch.pause(at(ms), ordered).as_millis();
        assert_eq!((pause(400, false), pause(400, true)), (650, 50), "an order does not wait");
        assert_eq!([1_000, 3_000, 9_000].map(|ms| pause(ms, false)), [50, 500, 1_000]);
    }

    #[test]
    fn a_taken_run_is_ended_only_when_its_claim_is_gone() {
        let mut watch = watch();
        let held = Shown { holder: Some(Owner::sign("b", 1, 2)), ..shown(true, false) };
        watch.note(&held);
        assert_eq!(watch.holder().map(|holder| &**holder), Some("b"));
        assert_eq!(watch.look(held.clone(), NOTHING), Look::Wait);
        let cancelled = Around { cancel_to_store: true, ..NOTHING };
        assert_eq!(watch.look(held, cancelled), Look::StoreCancel);
        assert_eq!(watch.look(shown(true, true), cancelled), Look::EndTaken);
        assert_eq!(watch.look(shown(false, true), NOTHING), Look::Wait, "the nodes that counted are away");
        assert_eq!(watch.holder().map(|holder| &**holder), Some("b"), "it is remembered");
    }

    #[test]
    fn no_worker_can_take_a_slot_that_is_past_its_horizon_or_forgotten() {
        let watch = watch();
        let past = Around { past_horizon: true, ..NOTHING };
        assert!(matches!(watch.look(shown(true, true), past), Look::Lost(_)));
        assert_eq!(watch.look(shown(true, false), past), Look::Wait, "it may still be held");
        let forgotten = Around { forgotten: true, ..NOTHING };
        assert!(matches!(watch.look(shown(false, true), forgotten), Look::Lost(_)));
        assert_eq!(watch.look(shown(true, false), forgotten), Look::Untaken);
    }

    #[test]
    fn a_recorded_end_counts_before_everything_else() {
        let ended = DoneRecord { result: "".into(), ..Default::default() };
        let shown = Shown { ended: Some(ended.clone()), ..shown(true, true) };
        let all = Around { past_horizon: true, forgotten: true, cancel_to_store: true };
        assert!(!watch().note(&shown), "the run needs no removal from the list");
        assert_eq!(watch().look(shown, all), Look::Ended(ended));
    }
}

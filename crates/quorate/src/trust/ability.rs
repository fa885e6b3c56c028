//! Decides whether a node serves what leases need. A node may be trusted and answer each request, and yet refuse every
//! write: it is out of memory or disk space, or the worker's user lacks a permission. Or its clock and the worker's are so
//! far apart that it cannot start a fencing counter. Such a node is reported as one that does not vote. If it refused the last test of the commands that leases need, it is not asked for new leases: it
//! might grant one, and refuse the extensions. All other requests are still sent to it, and its grants count.

use crate::{
    env::BootTime,
    node::{Refusal, Reply, Request},
    trust::VoteRejection,
};
use std::{
    mem::{Discriminant, discriminant},
    sync::Arc,
    time::Duration,
};

/// The time after its last refusal at which a node counts as able again, if it has served requests of other kinds since.
/// Until then only a request of the refused kind shows that the reason has ended.
const REFUSAL_LASTS: Duration = Duration::from_secs(10);
/// The time without a refusal after which a record of a ledger that is stored shows that the node is able again. Before,
/// it may show only that the node had stored the record earlier. A leader repeats a refused write many times in this time.
const WRITES_REPEATED_WITHIN: Duration = Duration::from_secs(1);

/// The part of the largest distance of the clocks by which they must be closer before they count as close again. The
/// measured distance varies with each round trip.
const CLOSER_BY: u32 = 10;

/// The ability of one node to serve the requests of this worker.
#[derive(Debug, Default)]
pub(super) struct Ability {
    refuses: Option<Inability>,
    /// [`VoteRejection::Clock`] with the distance that was measured first, while the clocks are too far apart.
    apart: Option<VoteRejection>,
}

#[derive(Debug)]
struct Inability {
    why: Arc<str>,
    /// The kind of the request that was refused last. `None` for a test.
    kind: Option<Discriminant<Request>>,
    last: BootTime,
}

impl Ability {
    /// Returns the reason why the node does not serve what leases need. `None` if it does.
    pub(super) fn objection(&self) -> Option<VoteRejection> {
        let refuses =
            self.refuses.as_ref().map(|inability| VoteRejection::Unable(Arc::clone(&inability.why)));
        refuses.or_else(|| self.apart.clone())
    }

    /// Returns whether the node refuses requests.
    pub(super) fn is_unable(&self) -> bool {
        self.refuses.is_some()
    }

    /// Returns the reason why the node refused the last test. `None` if it passed.
    pub(super) fn failed_test(&self) -> Option<Arc<str>> {
        let failed = self.refuses.as_ref().filter(|inability| inability.kind.is_none());
        failed.map(|inability| Arc::clone(&inability.why))
    }

    /// Records the result of the commands that the handshake has tried.
    pub(super) fn connected(&mut self, now: BootTime, unable: Option<&Arc<str>>) {
        match unable {
            Some(why) => self.refused(now, None, why),
            None => self.served(now, None, Duration::ZERO),
        };
    }

    /// Records the measured distance between the node's clock and this worker's. The clocks may be `most` apart. Returns
    /// whether the objection may have changed.
    ///
    /// The measure decides alone. A node refuses an acquire for its clock only if it has no counter for the resource, so its
    /// replies would show it in turn as one that votes and as one that does not.
    pub(super) fn measured(&mut self, apart: Duration, most: Duration) -> bool {
        let is_far = if self.apart.is_some() { apart > most - most / CLOSER_BY } else { apart > most };
        let changed = is_far != self.apart.is_some();
        if changed {
            self.apart = is_far.then_some(VoteRejection::Clock { apart });
        }
        changed
    }

    /// Records the reply to `request`. Returns whether the objection has changed.
    pub(super) fn observe(&mut self, now: BootTime, request: &Request, reply: &Reply) -> bool {
        // A request to replace the marker by the same marker is a test, like the write of the handshake.
        let kind = (!matches!(request, Request::Mark { .. })).then(|| discriminant(request));
        match reply {
            Reply::Refused(Refusal::Unable(why)) => self.refused(now, kind, why),
            Reply::Written => self.served(now, kind, WRITES_REPEATED_WITHIN),
            _ if shows_a_write(reply) => self.served(now, kind, Duration::ZERO),
            _ => false,
        }
    }

    fn refused(&mut self, now: BootTime, kind: Option<Discriminant<Request>>, why: &Arc<str>) -> bool {
        let known = self.refuses.as_ref();
        // Only a test shows that what refused a test has ended.
        let kind = if known.is_some_and(|known| known.kind.is_none()) { None } else { kind };
        let is_new = known.is_none_or(|known| known.why != *why);
        self.refuses = Some(Inability { why: Arc::clone(why), kind, last: now });
        is_new
    }

    /// Notes that the node has served a request. If it is of the refused kind, the inability ends when the node has refused
    /// nothing for `after`.
    fn served(&mut self, now: BootTime, kind: Option<Discriminant<Request>>, after: Duration) -> bool {
        let ended = self.refuses.as_ref().is_some_and(|inability| {
            let lasts = if inability.kind == kind { after } else { REFUSAL_LASTS };
            now >= inability.last + lasts
        });
        if ended {
            self.refuses = None;
        }
        ended
    }
}

/// Returns whether the node has written for the request, or would have written if there had been a change.
fn shows_a_write(reply: &Reply) -> bool {
    !matches!(
        reply,
        Reply::Refused(_)
            | Reply::MayHold(_)
            | Reply::Held { .. }
            | Reply::Done(_)
            | Reply::State { .. }
            | Reply::Ledger(_)
            | Reply::Conflict(_)
            | Reply::Released(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{FencingToken, Owner, Record, Resource};

    const SECOND: Duration = Duration::from_secs(1);

    fn extend() -> Request {
        Request::Extend {
            resource: Resource::lock("r").unwrap(),
            owner: Owner::sign("w", 1, 2),
            ttl: SECOND,
            token: FencingToken::new(1),
            keep: SECOND,
        }
    }

    fn acquire() -> Request {
        Request::Acquire {
            resource: Resource::lock("r").unwrap(),
            owner: Owner::sign("w", 1, 2),
            ttl: SECOND,
            propose: FencingToken::new(1),
            tolerance: SECOND,
            keep: SECOND,
            ticket: None,
        }
    }

    fn probe() -> Request {
        Request::Mark { expect: Some("m".into()), marker: "m".into() }
    }

    fn unable(why: &str) -> Reply {
        Reply::Refused(Refusal::Unable(why.into()))
    }

    const GRANTED: Reply = Reply::Granted { counter: FencingToken::new(1), begun: None };

    #[test]
    fn a_node_is_unable_from_its_refusal_until_it_serves_a_request_of_the_same_kind() {
        let (mut ability, now) = (Ability::default(), BootTime::from_nanos(5));
        assert!(!ability.observe(now, &acquire(), &GRANTED) && ability.objection().is_none());
        assert!(ability.observe(now, &acquire(), &unable("OOM")), "a change");
        assert_eq!(ability.objection(), Some(VoteRejection::Unable("OOM".into())));
        assert!(!ability.observe(now, &acquire(), &unable("OOM")), "the same");
        assert!(ability.observe(now, &acquire(), &unable("MISCONF")), "another reason");
        // None of these shows that the node can write for an acquire.
        let held = Reply::Held { owner: Owner::sign("w", 1, 2), remaining: None };
        for (request, reply) in [(probe(), Reply::Marked), (extend(), Reply::Extended), (acquire(), held)] {
            assert!(!ability.observe(now, &request, &reply), "{reply:?}");
        }
        assert!(ability.observe(now, &acquire(), &GRANTED));
        assert_eq!(ability.objection(), None);
    }

    /// Regression: a node without memory repeated that it stores a record, and refused another one. It was logged as a
    /// node that votes, and as one that does not, many times a second.
    #[test]
    fn a_node_that_stores_one_record_already_and_refuses_another_one_stays_unable() {
        let record = Record { at: 1, term: FencingToken::new(1), last: false, value: "v".into() };
        let write = Request::Write { ledger: "g".into(), key: "k".into(), seen: None, record };
        let (mut ability, mut now) = (Ability::default(), BootTime::from_nanos(5));
        assert!(ability.observe(now, &write, &unable("OOM")));
        for _ in 0..40 {
            now = now + Duration::from_millis(50);
            assert!(!ability.observe(now, &write, &Reply::Written), "the record that it stores already");
            assert!(!ability.observe(now, &write, &unable("OOM")), "the other record");
        }
        assert!(ability.observe(now + SECOND, &write, &Reply::Written), "no refusal any more");
    }

    #[test]
    fn an_idle_node_is_able_again_as_soon_as_a_probe_that_failed_succeeds() {
        let (mut ability, now) = (Ability::default(), BootTime::from_nanos(5));
        ability.observe(now, &acquire(), &unable("OOM"));
        ability.observe(now + SECOND, &probe(), &unable("OOM"));
        assert!(ability.observe(now + 2 * SECOND, &probe(), &Reply::Marked));
        assert_eq!(ability.objection(), None);
    }

    #[test]
    fn a_refusal_that_no_probe_can_repeat_ends_after_a_time_without_a_further_one() {
        let (mut ability, now) = (Ability::default(), BootTime::from_nanos(5));
        ability.observe(now, &extend(), &unable("NOPERM"));
        ability.observe(now + 5 * SECOND, &extend(), &unable("NOPERM"));
        assert!(!ability.observe(now + 14 * SECOND, &probe(), &Reply::Marked));
        assert!(ability.observe(now + 15 * SECOND, &probe(), &Reply::Marked));
    }

    /// Regression: an acquire of a resource with a counter showed the node as one that votes, and the next one without a
    /// counter as one that does not.
    #[test]
    fn the_measured_distance_of_the_clocks_decides_and_no_reply_does() {
        let (mut ability, now) = (Ability::default(), BootTime::from_nanos(5));
        let far = Some(VoteRejection::Clock { apart: 60 * SECOND });
        assert!(!ability.measured(SECOND, SECOND) && ability.objection().is_none(), "as far as allowed");
        assert!(ability.measured(60 * SECOND, SECOND), "a change");
        assert!(!ability.measured(61 * SECOND, SECOND), "the distance differs each time");
        assert!(!ability.observe(now, &acquire(), &GRANTED));
        assert!(!ability.observe(now, &acquire(), &Reply::Refused(Refusal::Clock { apart: 62 * SECOND })));
        assert!(!ability.measured(SECOND - Duration::from_millis(50), SECOND), "about as far as allowed");
        assert!(ability.objection() == far && !ability.is_unable());
        assert!(ability.measured(SECOND / 2, SECOND) && ability.objection().is_none());
        assert!(!ability.observe(now, &acquire(), &Reply::Refused(Refusal::Clock { apart: 62 * SECOND })));
        ability.measured(60 * SECOND, SECOND);
        ability.observe(now, &acquire(), &unable("OOM"));
        assert_eq!(ability.objection(), Some(VoteRejection::Unable("OOM".into())), "it refuses every lease");
    }

    #[test]
    fn the_handshake_tries_a_write() {
        let (mut ability, now) = (Ability::default(), BootTime::from_nanos(5));
        ability.connected(now, Some(&"OOM".into()));
        assert!(ability.objection().is_some());
        ability.connected(now, None);
        assert!(ability.objection().is_none());
        ability.observe(now, &extend(), &unable("NOPERM"));
        ability.connected(now, None);
        assert!(ability.objection().is_some(), "a new connection does not show that an extension is served");
    }

    #[test]
    fn a_refusal_that_concerns_one_resource_is_none_of_the_node() {
        let mut ability = Ability::default();
        for refusal in
            [Refusal::Stale, Refusal::NotOwner, Refusal::CounterFull, Refusal::Failed("invalid".into())]
        {
            assert!(!ability.observe(BootTime::default(), &acquire(), &Reply::Refused(refusal)));
        }
        assert!(ability.objection().is_none());
    }
}

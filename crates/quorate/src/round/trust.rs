//! The pure judgement: may this node vote?

use super::{Distrust, Marker, QuarantineReason, Sabotage, Setup, SharedSettings};
use crate::{
    env::BootTime,
    node::{Hello, NodeTime},
    plain::plain,
};
use std::{sync::Arc, time::Duration};

/// The most bytes of what a node says that an error repeats.
const SHOWN_MAX: usize = 2_048;

/// What a handshake, or a marker that changed, means.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Votes count once the boot clock shows `from`.
    Votes { marker: Marker, from: BootTime, reason: QuarantineReason },
    /// The marker must first be written anew, where what was seen still stands.
    Write { marker: Marker, from: BootTime, reason: QuarantineReason },
    /// No vote.
    Refused(Distrust),
}

/// What all judgements of one worker rest on.
#[derive(Clone, Debug)]
pub(crate) struct Judge {
    pub(crate) nodes: Arc<str>,
    pub(crate) setup: Setup,
}

impl Judge {
    /// Judges what a node says of itself, received when the boot clock showed `now`.
    pub(crate) fn judge(&self, hello: &Hello, now: BootTime) -> Judgement {
        if hello.replica {
            return Judgement::Refused(Distrust::Replica);
        }
        match hello.eviction.as_deref() {
            Some("noeviction") => {}
            Some(policy) => return Judgement::Refused(Distrust::Evicts(plain(policy, SHOWN_MAX).into())),
            None => return Judgement::Refused(Distrust::EvictionUnknown),
        }
        let marker = match self.marker(hello) {
            Ok(Some(marker)) => marker,
            Ok(None) => {
                let wait = if self.setup.trust_new_nodes { Duration::ZERO } else { self.quarantine() };
                return self.write(hello, now, wait, QuarantineReason::Unmarked);
            }
            Err(why) => return Judgement::Refused(why),
        };
        let reason = QuarantineReason::Marked;
        let from = self.from(&marker, hello.node_time, now);
        if marker.run_id == hello.run_id {
            return match self.is_from_the_future(&marker, hello.node_time) {
                true => {
                    let wait = self.setup.quarantine();
                    let marker = Marker { votes_from: hello.node_time + wait, ..marker };
                    Judgement::Write { marker, from: now + wait, reason }
                }
                false => Judgement::Votes { marker, from, reason },
            };
        }
        if self.setup.durable && hello.durable == Some(true) {
            let marker = Marker { run_id: Arc::clone(&hello.run_id), ..marker };
            return Judgement::Write { marker, from, reason };
        }
        self.write(hello, now, self.quarantine(), QuarantineReason::Restarted)
    }

    /// The node's marker, where it is one of this worker's node list and shared settings; `None` where it has none.
    ///
    /// # Errors
    /// [`Distrust`] where the marker speaks against this worker, or cannot be read.
    pub(crate) fn marker(&self, hello: &Hello) -> Result<Option<Marker>, Distrust> {
        let Some(text) = &hello.marker else { return Ok(None) };
        let marker = Marker::parse(text).map_err(Distrust::MarkerUnreadable)?;
        if let Some((from, to)) = marker.replacement() {
            let (from, to) = (plain(from, SHOWN_MAX).into(), plain(to, SHOWN_MAX).into());
            return Err(Distrust::Replaced { from, to, ours: Arc::clone(&self.nodes) });
        }
        if marker.nodes != self.nodes {
            let (theirs, ours) = (plain(&marker.nodes, SHOWN_MAX).into(), Arc::clone(&self.nodes));
            return Err(Distrust::OtherNodeSet { theirs, ours });
        }
        match marker.settings.mismatch(&SharedSettings::of(&self.setup)) {
            Some(mismatch) => Err(Distrust::OtherSetting(mismatch)),
            None => Ok(Some(marker)),
        }
    }

    /// A marker whose memory begins now and whose votes count after `wait`, on the node's clock and on ours.
    fn write(&self, hello: &Hello, now: BootTime, wait: Duration, reason: QuarantineReason) -> Judgement {
        if self.setup.only_looks {
            return Judgement::Refused(match reason {
                QuarantineReason::Unmarked => Distrust::Unmarked,
                _ => Distrust::Unmet,
            });
        }
        // A node that was marked may come back with old counters, and clocks that were ahead may have seeded
        // them: a worker's by `max_clock_offset` of another node's, and that one by as much of this one's. They
        // are told from new ones by being older than the memory, so it begins after all of them.
        let margin = match reason {
            QuarantineReason::Restarted => self.setup.max_clock_offset * 2,
            _ => Duration::ZERO,
        };
        let marker = Marker {
            run_id: Arc::clone(&hello.run_id),
            nodes: Arc::clone(&self.nodes),
            settings: SharedSettings::of(&self.setup),
            since: hello.node_time + margin,
            votes_from: hello.node_time + wait,
        };
        Judgement::Write { marker, from: now + wait, reason }
    }

    fn quarantine(&self) -> Duration {
        if self.setup.sabotaged(Sabotage::NoQuarantine) { Duration::ZERO } else { self.setup.quarantine() }
    }

    /// Whether the marker's wait is longer than anybody writes: the node's clock was ahead then, and has been set
    /// back. Left as it is, every new connection would wait again, for as long as the clock had been ahead.
    fn is_from_the_future(&self, marker: &Marker, node_time: NodeTime) -> bool {
        let quarantine = self.setup.quarantine();
        let drift = quarantine.mul_f64(self.setup.drift_rate);
        !self.setup.only_looks
            && node_time.until(marker.votes_from) > quarantine + drift + self.setup.clock_step_allowance
    }

    /// When the marker's wait is over on our own clock. It began in the past, so that a node whose clock was
    /// set back meanwhile need not make anyone wait longer than a whole quarantine.
    fn from(&self, marker: &Marker, node_time: NodeTime, now: BootTime) -> BootTime {
        let wait = node_time.until(marker.votes_from);
        now + (wait + wait.mul_f64(self.setup.drift_rate)).min(self.setup.quarantine())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: BootTime = BootTime::from_nanos(1_000_000_000);
    const NODE_NOW: NodeTime = NodeTime::from_micros(1_700_000_000_000_000);

    fn judge() -> Judge {
        Judge { nodes: "a,b,c".into(), setup: Setup::default() }
    }

    fn hello(marker: Option<&Marker>) -> Hello {
        Hello {
            node_time: NODE_NOW,
            run_id: "run-1".into(),
            marker: marker.map(Marker::to_text),
            uptime: Duration::from_secs(3600),
            version: "7".into(),
            replica: false,
            eviction: Some("noeviction".into()),
            durable: None,
            volatile: None,
        }
    }

    fn marker() -> Marker {
        Marker {
            run_id: "run-1".into(),
            nodes: "a,b,c".into(),
            settings: SharedSettings::of(&Setup::default()),
            since: NODE_NOW - Duration::from_secs(1000),
            votes_from: NODE_NOW - Duration::from_secs(900),
        }
    }

    #[test]
    fn our_marker_under_its_own_run_votes() {
        let judged = judge().judge(&hello(Some(&marker())), NOW);
        assert_eq!(
            judged,
            Judgement::Votes { marker: marker(), from: NOW, reason: QuarantineReason::Marked }
        );
    }

    #[test]
    fn a_wait_in_the_marker_is_counted_on_our_clock_and_capped() {
        let waits = Marker { votes_from: NODE_NOW + Duration::from_secs(10), ..marker() };
        let Judgement::Votes { from, .. } = judge().judge(&hello(Some(&waits)), NOW) else { panic!() };
        assert_eq!(NOW.until(from), Duration::from_millis(10_100));
        let far = Marker { votes_from: NODE_NOW + Duration::from_secs(10_000), ..marker() };
        let mut looks = judge();
        looks.setup.only_looks = true;
        let Judgement::Votes { from, .. } = looks.judge(&hello(Some(&far)), NOW) else { panic!() };
        assert_eq!(NOW.until(from), judge().setup.quarantine());
    }

    #[test]
    fn a_wait_that_a_clock_wrote_while_it_was_ahead_is_served_once() {
        let far = Marker { votes_from: NODE_NOW + Duration::from_secs(3600), ..marker() };
        let Judgement::Write { marker, from, .. } = judge().judge(&hello(Some(&far)), NOW) else { panic!() };
        assert_eq!(NOW.until(from), judge().setup.quarantine());
        assert_eq!((marker.since, marker.votes_from), (far.since, NODE_NOW + judge().setup.quarantine()));
        // Of another run it is a restart, whatever the clock showed: its memory is gone.
        let other = Marker { run_id: "run-0".into(), ..far };
        let Judgement::Write { marker, reason, .. } = judge().judge(&hello(Some(&other)), NOW) else {
            panic!()
        };
        assert!(marker.since > NODE_NOW && reason == QuarantineReason::Restarted);
    }

    #[test]
    fn who_only_looks_writes_nothing() {
        let mut judge = judge();
        judge.setup.only_looks = true;
        assert_eq!(judge.judge(&hello(None), NOW), Judgement::Refused(Distrust::Unmarked));
        let old = Marker { run_id: "run-0".into(), ..marker() };
        assert_eq!(judge.judge(&hello(Some(&old)), NOW), Judgement::Refused(Distrust::Unmet));
        assert!(matches!(judge.judge(&hello(Some(&marker())), NOW), Judgement::Votes { .. }));
    }

    #[test]
    fn a_missing_marker_is_a_full_quarantine_whatever_the_uptime() {
        let Judgement::Write { marker, from, reason } = judge().judge(&hello(None), NOW) else { panic!() };
        assert_eq!(NOW.until(from), judge().setup.quarantine());
        assert_eq!(marker.since, NODE_NOW);
        assert_eq!(marker.votes_from, NODE_NOW + judge().setup.quarantine());
        assert_eq!(reason, QuarantineReason::Unmarked);
        let mut durable = judge();
        durable.setup.durable = true;
        let hello = Hello { durable: Some(true), ..hello(None) };
        let Judgement::Write { from, .. } = durable.judge(&hello, NOW) else { panic!() };
        assert_eq!(NOW.until(from), durable.setup.quarantine(), "durable never excuses a missing marker");
    }

    #[test]
    fn another_run_is_quarantined_unless_verified_durable() {
        let old = Marker { run_id: "run-0".into(), ..marker() };
        let Judgement::Write { marker: new, from, reason } = judge().judge(&hello(Some(&old)), NOW) else {
            panic!()
        };
        assert_eq!((NOW.until(from), reason), (judge().setup.quarantine(), QuarantineReason::Restarted));
        assert_eq!(&*new.run_id, "run-1");
        assert_eq!(new.votes_from, NODE_NOW + judge().setup.quarantine());
        let ahead = judge().setup.max_clock_offset * 2;
        assert_eq!(new.since, NODE_NOW + ahead, "later than any seed that may have come back with it");

        let mut durable = judge();
        durable.setup.durable = true;
        let old = Marker { settings: SharedSettings::of(&durable.setup), ..old };
        let claims = Hello { durable: Some(true), ..hello(Some(&old)) };
        let Judgement::Write { marker: kept, from, .. } = durable.judge(&claims, NOW) else { panic!() };
        assert_eq!((kept.since, from), (old.since, NOW), "its memory goes on");
        let unverified = Hello { durable: None, ..hello(Some(&old)) };
        let Judgement::Write { from, .. } = durable.judge(&unverified, NOW) else { panic!() };
        assert_eq!(NOW.until(from), durable.setup.quarantine());
    }

    #[test]
    fn what_an_operator_must_mend_is_refused() {
        let refused = |hello: &Hello| match judge().judge(hello, NOW) {
            Judgement::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&Hello { replica: true, ..hello(None) }), Distrust::Replica);
        let evicts = Hello { eviction: Some("allkeys-lru".into()), ..hello(None) };
        assert!(refused(&evicts).to_string().contains("allkeys-lru"));
        assert_eq!(refused(&Hello { eviction: None, ..hello(None) }), Distrust::EvictionUnknown);
        let set = refused(&hello(Some(&Marker { nodes: "a,b".into(), ..marker() })));
        assert!(set.to_string().contains("[a,b]") && set.to_string().contains("[a,b,c]"));
        let (second, base) = (Duration::from_secs(1), Setup::default());
        for (field, theirs, ours, setup) in [
            ("max_ttl", "9s", "30s", Setup { max_ttl: 9 * second, ..base.clone() }),
            ("max_clock_offset", "5s", "1s", Setup { max_clock_offset: 5 * second, ..base.clone() }),
            (
                "clock_step_allowance",
                "0ns",
                "200ms",
                Setup { clock_step_allowance: Duration::ZERO, ..base.clone() },
            ),
            ("drift_rate", "0.002", "0.01", Setup { drift_rate: 0.002, ..base.clone() }),
            ("durable", "true", "false", Setup { durable: true, ..base.clone() }),
            ("trust_new_nodes", "true", "false", Setup { trust_new_nodes: true, ..base.clone() }),
        ] {
            let settings = SharedSettings::of(&setup);
            let why = refused(&hello(Some(&Marker { settings, ..marker() })));
            let text = why.to_string();
            assert!(text.contains(&format!("{field} {theirs}, this worker's is {ours}")), "{text}");
            assert!(text.contains("give every worker the same") && why.is_permanent(), "{text}");
        }
        let closed = Marker { nodes: Marker::closed_set("a,b,c", "b,c,d"), ..marker() };
        let replaced = refused(&hello(Some(&closed)));
        let text = replaced.to_string();
        assert!(text.contains("[a,b,c]") && text.contains("[b,c,d]") && replaced.is_permanent(), "{text}");
        let ahead = Judge { nodes: "b,c,d".into(), ..judge() };
        let Judgement::Refused(waits) = ahead.judge(&hello(Some(&closed)), NOW) else { panic!() };
        assert!(!waits.is_permanent() && waits.to_string().contains("wait until that is done"));
        let odd = Hello { marker: Some("hello".into()), ..hello(None) };
        assert!(matches!(refused(&odd), Distrust::MarkerUnreadable(_)));
    }
}

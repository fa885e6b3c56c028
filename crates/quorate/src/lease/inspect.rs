use crate::{
    config::majority,
    lease::inner::QuorumInner,
    node::{AttemptCount, DoneRecord, FencingToken, Owner, Reply, Request, Resource},
    vote::{Answer, NoMajority, NodeOutcome, ReplyTo, vote_channel},
};
use std::time::Duration;

/// The holder of a resource, as the nodes reported it. An inspection may be out of date by the time the
/// caller reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// The holder that a majority names.
    pub holder: Option<Owner>,
    /// The time after which fewer than a majority of the nodes store the holder's lease, if it is not extended.
    /// `None` if the key has no expiry, or if there is no holder.
    pub remaining: Option<Duration>,
    /// True if only a minority names a holder. An attempt is in progress, or keys of an earlier attempt are left and
    /// will expire.
    pub contended: bool,
    /// The largest fencing token that the counters of a majority have reached, whether or not the resource is
    /// held.
    pub token: Option<FencingToken>,
    /// For a claim, the done record with the highest token that any node reported.
    #[doc(hidden)]
    pub done: Option<DoneRecord>,
    /// For a claim that is not done, the largest number of attempts that any node has counted, with the
    /// fingerprint of the message's payload.
    #[doc(hidden)]
    pub begun: Option<AttemptCount>,
    /// Every owner that any node names, with the number of nodes that name it. The owner with the largest
    /// number is first.
    pub named: Vec<(Owner, usize)>,
    /// The number of nodes that answered.
    pub answered: usize,
}

/// The owner of a resource, as far as an inspection shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InspectTarget<'a> {
    /// The resource is free: whatever the other nodes answer, no owner can have a majority.
    Nobody,
    /// The owner is not known. The nodes that have not answered may complete a majority for an owner.
    Unknown,
    /// The owner that a majority names.
    Of(&'a Owner),
}

impl Inspection {
    /// Returns the owner of the resource that this inspection shows, in a quorum of `nodes` nodes.
    pub(crate) fn whose(&self, nodes: usize) -> InspectTarget<'_> {
        match self.named.first() {
            Some((owner, times)) if *times >= majority(nodes) => InspectTarget::Of(owner),
            Some((_, times)) if times + (nodes - self.answered) >= majority(nodes) => InspectTarget::Unknown,
            _ => InspectTarget::Nobody,
        }
    }
}

pub(crate) async fn inspect(inner: &QuorumInner, resource: &Resource) -> Result<Inspection, NoMajority> {
    let pool = inner.pool();
    let mut votes = pool.ask_all(Request::Inspect { resource: resource.clone() });
    let mut outcomes = vec![NodeOutcome::Pending; pool.len()];
    let mut views = Vec::new();
    // The function waits for all answers, and not only for a majority, because people read the result and need
    // the state of every node.
    while let Some(vote) = votes.recv().await {
        outcomes[vote.node] = NodeOutcome::of(&vote.answer);
        if let Answer::Reply(Reply::State { holder, counter, done, begun }) = vote.answer {
            views.push(View { holder, counter, done, begun });
        }
    }
    if views.len() < pool.majority() {
        return Err(pool.report(outcomes).of(format!("too few nodes answered about {resource}")));
    }
    Ok(merge(&views, pool.majority()))
}

/// Inspects each of `resources`, in one batch per node. A result is `None` if too few nodes answered. Unlike
/// [`inspect`], this function waits only for the answers of a majority.
pub(crate) async fn inspect_each(inner: &QuorumInner, resources: &[Resource]) -> Vec<Option<Inspection>> {
    let pool = inner.pool();
    let (sender, mut votes) = vote_channel();
    for node in 0..pool.len() {
        for (ticket, resource) in (0..).zip(resources) {
            let request = Request::Inspect { resource: resource.clone() };
            pool.ask(node, request, ReplyTo { sender: sender.clone(), ticket });
        }
    }
    drop(sender);
    let mut views: Vec<Vec<View>> = resources.iter().map(|_| Vec::new()).collect();
    let mut short = resources.len();
    while short > 0
        && let Some(vote) = votes.recv().await
    {
        if let Answer::Reply(Reply::State { holder, counter, done, begun }) = vote.answer {
            let views = &mut views[vote.ticket as usize];
            views.push(View { holder, counter, done, begun });
            short -= usize::from(views.len() == pool.majority());
        }
    }
    let enough = |views: Vec<View>| (views.len() >= pool.majority()).then(|| merge(&views, pool.majority()));
    views.into_iter().map(enough).collect()
}

struct View {
    holder: Option<(Owner, Option<Duration>)>,
    counter: Option<FencingToken>,
    done: Option<DoneRecord>,
    begun: Option<AttemptCount>,
}

fn merge(views: &[View], majority: usize) -> Inspection {
    let holders = || views.iter().filter_map(|view| view.holder.as_ref());
    let holder = holders().find_map(|(owner, _)| {
        let mut left: Vec<_> = holders().filter(|(other, _)| other == owner).map(|(_, left)| *left).collect();
        // A key without an expiry counts as the key that expires last. The list begins with the key that
        // expires last, so a majority no longer stores the lease after the entry at index `majority - 1` has
        // expired.
        left.sort_unstable_by_key(|left| std::cmp::Reverse(left.unwrap_or(Duration::MAX)));
        Some((owner.clone(), *left.get(majority - 1)?))
    });
    let (holder, remaining) = holder.map_or((None, None), |(owner, left)| (Some(owner), left));
    let mut named: Vec<(Owner, usize)> = Vec::new();
    for (owner, _) in holders() {
        match named.iter_mut().find(|(known, _)| known == owner) {
            Some((_, times)) => *times += 1,
            None => named.push((owner.clone(), 1)),
        }
    }
    named.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let mut counters: Vec<_> = views.iter().filter_map(|view| view.counter).collect();
    counters.sort_unstable_by(|a, b| b.cmp(a));
    Inspection {
        contended: holder.is_none() && holders().next().is_some(),
        holder,
        remaining,
        named,
        // A token is issued only once the counters of a majority have reached it. The counters are sorted
        // from the largest to the smallest. So the largest token that may have been issued is at the index
        // `majority - 1`.
        token: counters.get(majority - 1).copied(),
        done: views.iter().filter_map(|view| view.done.clone()).max_by_key(|done| done.token),
        begun: views.iter().filter_map(|view| view.begun.clone()).reduce(|one, two| {
            // The payload of the larger count is used if it is known. The smaller count may belong to an
            // attempt that never began.
            let (more, fewer) = if one.attempts < two.attempts { (two, one) } else { (one, two) };
            AttemptCount { attempts: more.attempts, payload: more.payload.or(fewer.payload) }
        }),
        answered: views.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(holder: Option<(&str, u64)>, counter: u64) -> View {
        let holder = holder.map(|(who, ms)| (Owner::from_node(who), Some(Duration::from_millis(ms))));
        View { holder, counter: Some(FencingToken::new(counter)), done: None, begun: None }
    }

    #[test]
    fn the_payload_is_that_of_the_most_attempts() {
        let counted = |attempts, payload: Option<&str>| {
            let begun = Some(AttemptCount { attempts, payload: payload.map(Into::into) });
            View { holder: None, counter: None, done: None, begun }
        };
        let begun = merge(&[counted(1, Some("bb")), counted(2, Some("aa")), counted(2, None)], 2).begun;
        assert_eq!(begun, Some(AttemptCount { attempts: 2, payload: Some("aa".into()) }));
    }

    /// Regression: three of five nodes had answered, and one of these did not store the holder's lease. The
    /// code wrongly concluded that the resource had no owner, although the two other nodes could still name the
    /// holder.
    #[test]
    fn whose_it_is_hangs_on_all_that_answered_and_on_those_that_did_not() {
        for (named, answered, whose) in [
            (&[][..], 5, InspectTarget::Nobody),
            (&[("a", 3), ("b", 1)], 5, InspectTarget::Of(&Owner::from_node("a"))),
            (&[("a", 2), ("b", 2)], 5, InspectTarget::Nobody),
            (&[("a", 2), ("b", 1)], 4, InspectTarget::Unknown),
            (&[("a", 1)], 3, InspectTarget::Unknown),
            (&[("a", 1), ("b", 1)], 4, InspectTarget::Nobody),
        ] {
            let named = named.iter().map(|(who, times)| (Owner::from_node(who), *times)).collect();
            let look = Inspection { named, answered, ..merge(&[], 3) };
            assert_eq!(look.whose(5), whose, "{look:?}");
        }
    }

    #[test]
    fn a_majority_s_word_is_the_truth() {
        let held = merge(&[view(Some(("a", 50)), 7), view(Some(("a", 70)), 7), view(Some(("b", 90)), 9)], 2);
        assert_eq!(held.holder, Some(Owner::from_node("a")));
        assert_eq!(held.remaining, Some(Duration::from_millis(50)));
        assert_eq!(held.token, Some(FencingToken::new(7)), "a minority's counter is no token");
        let split = merge(&[view(Some(("a", 50)), 7), view(None, 7), view(Some(("b", 90)), 7)], 2);
        assert!(split.holder.is_none() && split.contended);
    }
}

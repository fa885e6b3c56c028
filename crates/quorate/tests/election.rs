//! Elections over memory nodes on the real clock: what a user sees.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{SECOND, nodes, quorum};
use quorate::{
    election::{Election, ElectionError, ElectionEvent, Term},
    lease::Quorum,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn candidate(quorum: &Quorum) -> Election {
    Election::new(quorum, "billing").ttl(SECOND)
}

/// Work that tells its term and runs until it is told to stop.
fn telling(tell: mpsc::UnboundedSender<Term>) -> impl FnMut(Term) -> futures_like::Work {
    move |term| {
        let tell = tell.clone();
        Box::pin(async move {
            tell.send(term.clone()).expect("the test listens");
            term.step_down().cancelled().await;
            Ok(())
        })
    }
}

mod futures_like {
    use std::{convert::Infallible, pin::Pin};
    pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Infallible>> + Send>>;
}

#[tokio::test]
async fn one_leads_and_its_shutdown_hands_over_at_once_with_a_larger_term() {
    let nodes = nodes();
    let (tell, mut terms) = mpsc::unbounded_channel();
    let quorums: Vec<Quorum> = ["a", "b", "c"].iter().map(|worker| quorum(worker, &nodes)).collect();
    let elections: Vec<Election> = quorums.iter().map(candidate).collect();
    let stops: Vec<CancellationToken> = quorums.iter().map(|_| CancellationToken::new()).collect();
    let campaigns: Vec<_> = elections
        .iter()
        .zip(&stops)
        .zip(&quorums)
        .map(|((election, stop), quorum)| {
            let campaign = election.run(telling(tell.clone())).until(stop.clone().cancelled_owned());
            quorum.env().spawn_scoped(campaign)
        })
        .collect();
    let mut last = 0;
    let mut led = Vec::new();
    for _ in 0..3 {
        let term = terms.recv().await.expect("someone leads");
        assert!(term.number().get() > last);
        last = term.number().get();
        let leaders: Vec<usize> = (0..3).filter(|&i| elections[i].is_leader()).collect();
        assert_eq!(leaders.len(), 1, "one leads");
        let mut observer = elections[(leaders[0] + 1) % 3].observe().expect("a name");
        let seen = observer.leader().await.expect("a majority").expect("someone leads");
        assert_eq!((&*seen.worker, seen.term), (["a", "b", "c"][leaders[0]], Some(term.number())));
        led.push(leaders[0]);
        stops[leaders[0]].cancel();
        term.lost().cancelled().await;
        assert!(term.check().is_err());
    }
    led.sort_unstable();
    assert_eq!(led, [0, 1, 2]);
    for campaign in campaigns {
        campaign.await.expect("no panic").expect("a shutdown is Ok");
    }
    for quorum in quorums {
        quorum.close().await;
        assert_eq!(quorum.env().tasks_alive(), 0);
    }
}

#[tokio::test]
async fn ok_resigns_and_campaigns_again_and_err_resigns_and_is_returned() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let election = candidate(&quorum).back_off(Duration::from_millis(10));
    let mut events = election.events();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let ended = election
        .run(move |_| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move { if run < 2 { Ok(()) } else { Err("enough") } }
        })
        .until(std::future::pending())
        .await;
    assert!(matches!(ended, Err(ElectionError::Work("enough"))));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert!(!election.is_leader());
    let mut kinds = Vec::new();
    for _ in 0..6 {
        kinds.push(match events.next().await.expect("six events") {
            ElectionEvent::Elected(_) => "elected",
            ElectionEvent::Resigned(_) => "resigned",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(kinds, ["elected", "resigned"].repeat(3));
    quorum.close().await;
}

#[tokio::test]
async fn a_panic_goes_on_after_the_leader_has_resigned() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let election = candidate(&a);
    let campaign = election.run(|_| async { if true { panic!("oops") } else { Ok::<(), Infallible>(()) } });
    let campaign = a.env().spawn_scoped(campaign.until(std::future::pending()));
    let panic = campaign.await.expect_err("it panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"oops"));
    let (tell, mut terms) = mpsc::unbounded_channel();
    let other = candidate(&b);
    let _campaign = b.env().spawn_scoped(other.run(telling(tell)).until(std::future::pending()));
    let _ = b.env().before(b.env().now() + SECOND / 2, terms.recv()).await.expect("free before its TTL ends");
}

#[tokio::test]
async fn work_that_does_not_end_is_dropped_after_the_grace_and_a_dropped_campaign_releases() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let election = candidate(&a);
    let stop = CancellationToken::new();
    let (tell, mut terms) = mpsc::unbounded_channel();
    let stubborn = election.run(move |term: Term| {
        tell.send(term).expect("the test listens");
        std::future::pending::<Result<(), Infallible>>()
    });
    let campaign = a.env().spawn_scoped(stubborn.until(stop.clone().cancelled_owned()));
    let term = terms.recv().await.expect("it leads");
    let told = a.env().now();
    stop.cancel();
    campaign.await.expect("no panic").expect("a shutdown is Ok");
    let took = a.env().now().since(told);
    assert!(took >= SECOND / 5 && took < SECOND / 2, "the grace is 200 ms, it took {took:?}");
    assert!(!term.is_valid());

    let (tell, mut terms) = mpsc::unbounded_channel();
    let dropped =
        a.env().spawn_scoped(candidate(&a).run(telling(tell.clone())).until(std::future::pending()));
    let kept = terms.recv().await.expect("it leads");
    drop(dropped);
    let _other = b.env().spawn_scoped(candidate(&b).run(telling(tell)).until(std::future::pending()));
    let next = b.env().before(b.env().now() + SECOND / 2, terms.recv()).await.flatten().expect("it leads");
    assert!(next.number() > kept.number() && !kept.is_valid(), "a clone keeps no term alive");
}

#[tokio::test]
async fn an_election_runs_once_and_bad_names_are_told() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let election = candidate(&quorum);
    let (tell, mut terms) = mpsc::unbounded_channel();
    let _first = quorum.env().spawn_scoped(election.run(telling(tell.clone())).until(std::future::pending()));
    let _ = terms.recv().await.expect("it leads");
    let again = election.run(telling(tell.clone())).until(std::future::pending()).await;
    assert!(matches!(again, Err(ElectionError::AlreadyRunning { .. })));
    let bad = Election::new(&quorum, "{x}").run(telling(tell)).until(std::future::pending()).await;
    assert!(bad.expect_err("a brace").to_string().contains("brace"));
}

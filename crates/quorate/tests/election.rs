//! Tests of elections through the public interface, with memory nodes and the real clock.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/log.rs"]
mod log;

use common::{SECOND, nodes, quorum};
use log::Log;
use quorate::{
    election::{Election, ElectionError, ElectionEvent, Term},
    quorum::Quorum,
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

/// Returns work that sends its term to `report`, and then continues until it is cancelled.
fn reporting(report: mpsc::UnboundedSender<Term>) -> impl FnMut(Term) -> futures_like::Work {
    move |term| {
        let report = report.clone();
        Box::pin(async move {
            report.send(term.clone()).expect("the test listens");
            term.step_down_token().cancelled().await;
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
    let (report, mut terms) = mpsc::unbounded_channel();
    let quorums: Vec<Quorum> = ["a", "b", "c"].iter().map(|worker| quorum(worker, &nodes)).collect();
    let elections: Vec<Election> = quorums.iter().map(candidate).collect();
    let stops: Vec<CancellationToken> = quorums.iter().map(|_| CancellationToken::new()).collect();
    let campaigns: Vec<_> = elections
        .iter()
        .zip(&stops)
        .zip(&quorums)
        .map(|((election, stop), quorum)| {
            let campaign = election.run(reporting(report.clone())).until(stop.clone().cancelled_owned());
            quorum.env().spawn_scoped(campaign)
        })
        .collect();
    let mut last = 0;
    let mut led = Vec::new();
    for _ in 0..3 {
        let term = terms.recv().await.expect("someone leads");
        assert!(term.unchecked_token().get() > last);
        last = term.unchecked_token().get();
        let leaders: Vec<usize> = (0..3).filter(|&i| elections[i].is_leader()).collect();
        assert_eq!(leaders.len(), 1, "one leads");
        let mut observer = elections[(leaders[0] + 1) % 3].observe().expect("a name");
        let seen = observer.leader().await.expect("a majority").expect("someone leads");
        assert_eq!((&*seen.worker, seen.term), (["a", "b", "c"][leaders[0]], Some(term.unchecked_token())));
        led.push(leaders[0]);
        stops[leaders[0]].cancel();
        term.lost_token().cancelled().await;
        assert!(term.fencing_token().is_err());
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
async fn work_that_returns_ok_resigns_and_an_error_may_end_the_election() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let election = candidate(&quorum).back_off(Duration::from_millis(10)).end_on_error();
    let mut events = election.events();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let ended = election
        .run(move |_| {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move { if run < 2 { Ok(()) } else { Err("enough") } }
        })
        .until(std::future::pending::<()>())
        .await;
    assert!(matches!(ended, Err(ElectionError::Work("enough"))));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert!(!election.is_leader());
    let mut kinds = Vec::new();
    for _ in 0..7 {
        kinds.push(match events.recv().await.expect("seven events") {
            ElectionEvent::Elected(_) => "elected",
            ElectionEvent::WorkFailed(_) => "failed",
            ElectionEvent::Resigned(_) => "resigned",
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(kinds, ["elected", "resigned", "elected", "resigned", "elected", "failed", "resigned"]);
    quorum.close().await;
}

#[tokio::test]
async fn a_panic_of_work_propagates_after_the_leader_has_resigned() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let election = candidate(&a).end_on_error();
    let campaign = election.run(|_| async { if true { panic!("oops") } else { Ok::<(), Infallible>(()) } });
    let campaign = a.env().spawn_scoped(campaign.until(std::future::pending::<()>()));
    let panic = campaign.await.expect_err("it panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"oops"));
    let (report, mut terms) = mpsc::unbounded_channel();
    let other = candidate(&b);
    let _campaign = b.env().spawn_scoped(other.run(reporting(report)).until(std::future::pending::<()>()));
    let _ = b.env().before(b.env().now() + SECOND / 2, terms.recv()).await.expect("free before its TTL ends");
}

#[tokio::test]
async fn endless_work_is_dropped_after_the_grace_and_a_dropped_campaign_releases() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let election = candidate(&a);
    let stop = CancellationToken::new();
    let (report, mut terms) = mpsc::unbounded_channel();
    let stubborn = election.run(move |term: Term| {
        report.send(term).expect("the test listens");
        std::future::pending::<Result<(), Infallible>>()
    });
    let campaign = a.env().spawn_scoped(stubborn.until(stop.clone().cancelled_owned()));
    let term = terms.recv().await.expect("it leads");
    let asked_at = a.env().now();
    stop.cancel();
    campaign.await.expect("no panic").expect("a shutdown is Ok");
    let took = a.env().now().since(asked_at);
    assert!(took >= SECOND / 5 && took < SECOND / 2, "the grace is 200 ms, it took {took:?}");
    assert!(!term.is_valid());

    let (report, mut terms) = mpsc::unbounded_channel();
    let dropped = a
        .env()
        .spawn_scoped(candidate(&a).run(reporting(report.clone())).until(std::future::pending::<()>()));
    let kept = terms.recv().await.expect("it leads");
    drop(dropped);
    let _other =
        b.env().spawn_scoped(candidate(&b).run(reporting(report)).until(std::future::pending::<()>()));
    let next = b.env().before(b.env().now() + SECOND / 2, terms.recv()).await.flatten().expect("it leads");
    assert!(
        next.unchecked_token() > kept.unchecked_token() && !kept.is_valid(),
        "a clone keeps no term alive"
    );
}

#[tokio::test]
async fn an_election_runs_once_and_invalid_names_are_refused() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let election = candidate(&quorum);
    let (report, mut terms) = mpsc::unbounded_channel();
    let _first = quorum
        .env()
        .spawn_scoped(election.run(reporting(report.clone())).until(std::future::pending::<()>()));
    let _ = terms.recv().await.expect("it leads");
    let again = election.run(reporting(report.clone())).until(std::future::pending::<()>()).await;
    assert!(matches!(again, Err(ElectionError::AlreadyRunning { .. })));
    // Another candidate or a scheduler of the group would wait for this process's own lease without limit.
    let group = election.group();
    let second = Election::new(&quorum, group).run(reporting(report.clone()));
    let second = second.until(std::future::pending::<()>()).await;
    assert!(matches!(second, Err(ElectionError::AlreadyRunning { .. })), "{second:?}");
    #[cfg(feature = "scheduler")]
    {
        let scheduled = quorate::Scheduler::new(&quorum, group).run().await;
        let error = scheduled.expect_err("the election runs").to_string();
        assert!(error.contains(&**group) && error.contains("Scheduler::on"), "{error}");
    }
    let bad = Election::new(&quorum, "{x}").run(reporting(report)).until(std::future::pending::<()>()).await;
    assert!(bad.expect_err("a brace").to_string().contains("brace"));
}

/// The way in which the work fails.
#[derive(Clone, Copy, Debug)]
enum Fails {
    ByError,
    ByPanic,
}

#[tokio::test]
async fn work_that_fails_is_restarted_and_the_group_has_a_leader_again() {
    for fails in [Fails::ByError, Fails::ByPanic] {
        let (nodes, log) = (nodes(), Log::default());
        let _heard = log.warnings();
        let quorum = quorum("a", &nodes);
        let pause = Duration::from_millis(20);
        let election = candidate(&quorum).restart_backoff(pause, 2 * pause);
        let mut events = election.events();
        let (report, mut terms) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let mut before = 0;
        let campaign = election.run(move |term: Term| {
            before += 1;
            let (report, cut) = (report.clone(), before <= 3);
            async move {
                let _ = report.send(term.clone());
                if cut {
                    match fails {
                        Fails::ByError => return Err("the connection was cut"),
                        Fails::ByPanic => panic!("the connection was cut"),
                    }
                }
                term.step_down_token().cancelled().await;
                Ok(())
            }
        });
        let campaign = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
        let mut last = 0;
        for _ in 0..4 {
            let term = terms.recv().await.expect("it leads again");
            assert!(term.unchecked_token().get() > last, "each time under a new term");
            last = term.unchecked_token().get();
        }
        assert!(election.is_leader(), "{fails:?}");
        stop.cancel();
        campaign.await.expect("no panic").expect("a shutdown is Ok");
        let mut kinds = Vec::new();
        while kinds.len() < 12 {
            kinds.push(match events.recv().await.expect("twelve events") {
                ElectionEvent::Elected(_) => 'e',
                ElectionEvent::WorkFailed(_) => 'f',
                ElectionEvent::StepDown(_) => 's',
                ElectionEvent::Resigned(_) => 'r',
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(kinds.iter().collect::<String>(), "efrefrefresr", "{fails:?}");
        let lines = log.lines("the connection was cut");
        assert_eq!(lines.len(), 3, "{log:?}");
        let whole = |line: &String| line.contains("WARN") && line.contains("billing");
        assert!(lines.iter().all(whole), "{lines:?}");
        quorum.close().await;
    }
}

#[tokio::test]
async fn another_candidate_leads_while_a_failed_one_pauses() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    // After a failure, this candidate pauses for longer than the test may take. So the other candidate must
    // become the leader.
    let failing = candidate(&a).restart_backoff(SECOND * 600, SECOND * 600);
    let (report, mut failed) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let campaign = failing.run(move |term: Term| {
        let _ = report.send(term);
        async { Err::<(), _>("this host has no route to the database") }
    });
    let campaign = a.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
    let first = failed.recv().await.expect("it leads");
    let (report, mut terms) = mpsc::unbounded_channel();
    let other = candidate(&b);
    let _campaign = b.env().spawn_scoped(other.run(reporting(report)).until(std::future::pending::<()>()));
    let term = b.env().before(b.env().now() + SECOND * 30, terms.recv()).await.expect("in time");
    assert!(term.expect("a term").unchecked_token() > first.unchecked_token());
    assert!(other.is_leader() && !failing.is_leader());
    // The candidate is in its pause. A shutdown must end this pause at once.
    stop.cancel();
    let ended = a.env().before(a.env().now() + SECOND * 30, campaign).await.expect("in time");
    ended.expect("no panic").expect("a shutdown is Ok");
    a.close().await;
}

#[tokio::test]
async fn an_error_of_cancelled_work_neither_delays_nor_fails_the_shutdown() {
    let nodes = nodes();
    let quorum = quorum("a", &nodes);
    let election = candidate(&quorum).back_off(SECOND * 600).restart_backoff(SECOND * 600, SECOND * 600);
    let (report, mut terms) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let campaign = election.run(move |term: Term| {
        let report = report.clone();
        async move {
            let _ = report.send(());
            term.step_down_token().cancelled().await;
            Err::<(), _>("asked to stop")
        }
    });
    let campaign = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));
    terms.recv().await.expect("it leads");
    stop.cancel();
    let env = quorum.env();
    let ended = env.before(env.now() + SECOND * 30, campaign).await.expect("in time");
    ended.expect("no panic").expect("a shutdown is Ok");
    quorum.close().await;
}

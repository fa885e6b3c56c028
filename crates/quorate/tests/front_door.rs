//! Tests of the public interface from the view of a new user: names, settings and errors of any type, a short
//! `Debug` output, and tasks that end with their term.

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use quorate::{
    Election, ElectionError, LeaseOptions, Quorum, QuorumConfig, Term, env::WallTime, lease::LeaseError,
    node::MemoryNode,
};
use std::{
    convert::Infallible,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);

fn nodes() -> Vec<MemoryNode> {
    (0..3).map(|i| MemoryNode::new(&format!("memory-{i}"))).collect()
}

fn quorum(worker: &str, nodes: &[MemoryNode]) -> Quorum {
    Quorum::builder().nodes(nodes.to_vec()).worker(worker).trust_new_nodes(true).build().expect("settings")
}

#[tokio::test]
async fn names_may_be_of_any_text_type_and_the_debug_text_of_handles_is_short() {
    let quorum = quorum("a", &nodes());
    let name = "invoice-42".to_owned();
    let lease = quorum.lock(&name).acquire().await.expect("free");
    let arc: Arc<str> = name.into();
    assert!(quorum.lock(arc).try_acquire().await.expect("a quorum").is_contended());
    let election = Election::new(&quorum, String::from("billing"));
    for shown in [
        format!("{lease:?}"),
        format!("{quorum:?}"),
        format!("{election:?}"),
        format!("{:?}", quorum.lock("x")),
    ] {
        assert!(shown.len() < 250, "{} characters: {shown}", shown.len());
    }
    quorum.close().await;
}

#[tokio::test]
async fn a_setting_applies_in_whatever_order_it_is_given() {
    let config =
        QuorumConfig { max_ttl: 20 * SECOND, worker: "of the config".into(), ..QuorumConfig::default() };
    let before = Quorum::builder().worker("a").config(config.clone());
    let after = Quorum::builder().config(config).worker("a");
    for builder in [before, after] {
        let quorum = builder.nodes(nodes()).build().expect("settings");
        assert_eq!((&*quorum.config().worker, quorum.config().max_ttl), ("a", 20 * SECOND));
        quorum.close().await;
    }
    let quorum = quorum("a", &nodes());
    let options = LeaseOptions::new().max_hold(60 * SECOND);
    let lock = quorum.lock("x").ttl(5 * SECOND).options(options);
    assert_eq!(lock.acquire().await.expect("free").ttl(), 5 * SECOND, "options leave the rest as it was");
    let long = quorum.read_lock("y").max_hold(SECOND / 100).acquire().await.expect_err("too short");
    assert!(long.to_string().contains("max_hold is 10ms"), "{long}");
    quorum.close().await;
}

#[tokio::test]
async fn work_may_fail_with_a_boxed_error_and_a_shutdown_may_have_any_output() {
    let quorum = quorum("a", &nodes());
    let election = Election::new(&quorum, "g").end_on_error();
    let failing = |_term: Term| async { Err::<(), Box<dyn Error>>("no such table".into()) };
    let ended = election.run(failing).until(std::future::pending::<std::io::Result<()>>()).await;
    assert!(matches!(ended, Err(ElectionError::Work(error)) if error.to_string() == "no such table"));
    let waiting = |term: Term| async move {
        term.step_down_token().cancelled().await;
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    };
    election.run(waiting).until(std::future::ready(7)).await.expect("a shutdown");
    quorum.close().await;
}

#[tokio::test]
async fn a_campaign_that_is_awaited_ends_with_the_quorum() {
    let quorum = quorum("a", &nodes());
    let election = Election::new(&quorum, "g");
    let campaign = election.run(|_| std::future::pending::<Result<(), Infallible>>());
    let closing = async {
        while !election.is_leader() {
            quorum.env().sleep(SECOND / 100).await;
        }
        quorum.close().await;
    };
    let (ended, ()) = tokio::join!(async { campaign.await }, closing);
    assert!(matches!(ended, Err(ElectionError::Acquire(_))), "{ended:?}");
}

struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_task_of_a_term_ends_before_its_lease() {
    let quorum = quorum("a", &nodes());
    let ended = Arc::new(AtomicBool::new(false));
    let election = Election::new(&quorum, "g").end_on_error();
    let campaign = election.run(|term: Term| {
        let guard = Ended(Arc::clone(&ended));
        async move {
            let (started, is_started) = oneshot::channel();
            term.spawn(async move {
                let _guard = guard;
                let _ = started.send(());
                std::future::pending::<()>().await;
            });
            is_started.await.expect("the task runs");
            Err::<(), _>("enough")
        }
    });
    let began = quorum.env().now();
    let result = campaign.until(std::future::pending::<()>()).await;
    assert!(matches!(result, Err(ElectionError::Work("enough"))));
    assert!(ended.load(Ordering::SeqCst), "the task has outlived its term");
    assert!(began.until(quorum.env().now()) < 5 * SECOND, "the resignation waited for the task");
    quorum.close().await;
}

#[tokio::test]
async fn a_follower_knows_the_leader_without_asking() {
    let nodes = nodes();
    let (a, b) = (quorum("a", &nodes), quorum("b", &nodes));
    let (leads, follows) = (Election::new(&a, "g"), Election::new(&b, "g"));
    assert_eq!(follows.leader(), None);
    let work = |_| std::future::pending::<Result<(), Infallible>>();
    let first = a.env().spawn_scoped(leads.run(work).until(std::future::pending::<()>()));
    let begun = WallTime::default();
    while !leads.is_leader() {
        a.env().sleep(SECOND / 100).await;
    }
    let second = b.env().spawn_scoped(follows.run(work).until(std::future::pending::<()>()));
    let deadline = b.env().now() + 20 * SECOND;
    let known = b.env().before(deadline, async {
        loop {
            if let Some(leader) = follows.leader() {
                return leader;
            }
            b.env().sleep(SECOND / 100).await;
        }
    });
    let leader = known.await.expect("a follower learns of the leader");
    assert_eq!((&*leader.worker, leader.term), ("a", None));
    assert!(leader.seen_since > begun);
    assert_eq!(
        leads.leader().and_then(|leader| leader.term),
        leads.term().map(|term| term.unchecked_token())
    );
    drop((first, second));
    a.close().await;
    b.close().await;
}

/// Checks that `Lock::run` may be spawned, takes an error of any type, and releases the lock after each end of its work.
#[tokio::test]
async fn work_under_a_lock_ends_with_a_release() {
    let quorum = quorum("a", &nodes());
    let lock = quorum.lock("invoice-42");
    let token = {
        let lock = lock.clone();
        let work = async move { lock.run(async |lease| Ok::<_, LeaseError>(lease.fencing_token()?)).await };
        quorum.env().spawn_scoped(work).await.expect("no panic").expect("the lock is free")
    };
    let failed = lock.run(async |_| Err::<(), Box<dyn Error + Send + Sync>>("out of paper".into())).await;
    assert_eq!(failed.expect_err("the work failed").to_string(), "out of paper");
    let lease = lock.try_acquire().await.expect("a quorum").acquired().expect("it was released");
    assert!(lease.unchecked_token() > token);
    let busy = lock.clone().wait(Duration::from_millis(1)).run(async |_| Ok::<_, LeaseError>(())).await;
    assert!(matches!(busy, Err(LeaseError::Acquire(error)) if error.is_contended()));
    quorum.close().await;
}

/// Checks that work under a lock ends when its lease does, here by force.
#[tokio::test]
async fn work_under_a_lock_is_dropped_when_the_lease_is_lost() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let quorum = quorum("a", &nodes());
    let operator = quorum.clone();
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Dropped(Arc::clone(&dropped));
    let lock = quorum.lock("invoice-42").ttl(SECOND);
    let work = lock.run(async |lease| {
        let _guard = guard;
        assert!(operator.force_release(lease.resource(), lease.owner()).await.is_final());
        std::future::pending::<Result<(), LeaseError>>().await
    });
    let env = quorum.env().clone();
    let ended = env.before(env.now() + 20 * SECOND, work).await.expect("the lease is lost");
    assert!(matches!(ended, Err(LeaseError::Lost(_))), "{ended:?}");
    assert!(dropped.load(Ordering::SeqCst));
    quorum.close().await;
}

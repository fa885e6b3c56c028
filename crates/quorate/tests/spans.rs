//! Tests of the `tracing` spans of the library.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

#[path = "common/cut.rs"]
mod cut;

use cut::Cut;
use quorate::{
    Claims, Election, Job, Quorum, Scheduler,
    node::MemoryNode,
    scheduler::{Placement, Schedule},
};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tracing::{
    Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    filter::LevelFilter,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

const SECOND: Duration = Duration::from_secs(1);

/// The spans that have ended.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

/// A span, with the name of its parent.
#[derive(Clone, Debug, Default)]
struct Span {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        assert!(metadata.name() == "handler" || *metadata.level() == Level::DEBUG, "{metadata:?}");
        let found = context.span(id).unwrap();
        let parent = found.parent().map(|parent| parent.name());
        let mut span = Span { name: metadata.name(), parent, fields: BTreeMap::new() };
        attributes.record(&mut span);
        found.extensions_mut().insert(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        values.record(context.span(id).unwrap().extensions_mut().get_mut::<Span>().unwrap());
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap().extensions().get::<Span>().unwrap().clone();
        self.0.lock().unwrap().push(span);
    }
}

impl Spans {
    fn named(&self, name: &str) -> Vec<Span> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }
}

impl Span {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or_else(|| panic!("no {name} in {self:?}"), String::as_str)
    }
}

/// Runs a test on one thread, with a subscriber of this level.
fn with_spans<F: Future<Output = ()>>(level: LevelFilter, test: impl FnOnce(Spans) -> F) {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone().with_filter(level));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(subscriber, || runtime.block_on(test(spans)));
}

fn quorum() -> Quorum {
    let nodes = (0..3).map(|number| MemoryNode::new(&format!("memory-{number}")));
    Quorum::builder().nodes(nodes).worker("w").trust_new_nodes(true).build().unwrap()
}

async fn when(quorum: &Quorum, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = quorum.env().now() + 60 * SECOND;
    while !is_so() {
        assert!(quorum.env().now() < deadline, "{what}");
        quorum.env().sleep(SECOND / 100).await;
    }
}

#[test]
fn a_lock_has_a_span_for_each_call_and_for_each_renewal() {
    with_spans(LevelFilter::DEBUG, |spans| async move {
        let quorum = quorum();
        let lease = quorum.lock("invoice").ttl(SECOND).acquire().await.unwrap();
        assert!(quorum.lock("invoice").try_acquire().await.unwrap().is_contended());
        let waits = quorum.lock("invoice").wait(SECOND / 100).acquire().await;
        assert!(waits.unwrap_err().is_contended());
        when(&quorum, "two renewals", || spans.named("renewal").len() >= 2).await;
        for renewal in spans.named("renewal") {
            assert_eq!((renewal.parent, renewal.field("outcome")), (None, "extended"), "{renewal:?}");
            assert_eq!(renewal.field("lock"), "invoice");
            assert_eq!(renewal.field("token"), lease.unchecked_token().to_string());
        }
        lease.release().await.unwrap();
        let outcomes: Vec<String> =
            spans.named("acquire").iter().map(|span| span.field("outcome").to_owned()).collect();
        assert_eq!(outcomes, ["acquired", "contended", "contended"]);
        assert!(spans.named("acquire").iter().all(|span| span.field("lock") == "invoice"));

        let both = quorum.locks(["a", "b"]).acquire_all().await.unwrap();
        let span = spans.named("acquire").pop().unwrap();
        assert_eq!((span.field("lock"), span.field("locks"), span.field("outcome")), ("a", "2", "acquired"));
        let (_, slot) = quorum.slots("import", 2).acquire_any().await.unwrap();
        let span = spans.named("acquire").pop().unwrap();
        assert_eq!((span.field("lock"), span.field("outcome")), ("import/slot-0", "acquired"));
        drop((both, slot));
        quorum.close().await;
    });
}

/// The nodes cannot be reached when the lease must be renewed, so its renewal fails.
#[test]
fn a_renewal_without_a_majority_ends_as_failed() {
    with_spans(LevelFilter::DEBUG, |spans| async move {
        let off = Arc::new(AtomicBool::new(false));
        let nodes = (0..3).map(|number| Cut::new(&MemoryNode::new(&format!("n-{number}")), &off));
        let builder = Quorum::builder().nodes(nodes).trust_new_nodes(true);
        let quorum = builder.node_timeout(SECOND / 20).build().unwrap();
        let lease = quorum.lock("l").ttl(SECOND).acquire().await.unwrap();
        off.store(true, Ordering::Relaxed);
        lease.lost_token().cancelled().await;
        let failed = || spans.named("renewal").iter().any(|span| span.field("outcome") == "failed");
        when(&quorum, "a failed renewal", failed).await;
        quorum.close().await;
    });
}

#[test]
fn the_span_of_a_run_is_below_that_of_its_term_and_the_handler_s_spans_are_below_the_run() {
    with_spans(LevelFilter::DEBUG, |spans| async move {
        let quorum = quorum();
        let election = Election::new(&quorum, "billing").ttl(SECOND);
        let handler = |_| async {
            drop(tracing::info_span!("handler"));
            Ok::<(), String>(())
        };
        let works = Job::new("works", Schedule::every(SECOND / 10).unwrap(), handler);
        let fails =
            Job::new("fails", Schedule::every(SECOND / 10).unwrap(), |_| async { Err::<(), _>("no paper") });
        let any =
            Job::new("any", Schedule::every(SECOND / 5).unwrap(), handler).placement(Placement::AnyWorker);
        let scheduler = Scheduler::on(&election).job(works).job(fails).job(any);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let run = quorum.env().spawn_scoped(scheduler.run().until(stopped));
        let runs = |job: &str| {
            let runs = spans.named("run").into_iter();
            runs.filter(|run| run.field("job") == job && run.fields.contains_key("attempts"))
                .collect::<Vec<_>>()
        };
        when(&quorum, "runs of each job", || {
            ["works", "fails", "any"].iter().all(|job| runs(job).len() >= 2)
        })
        .await;
        let term = election.term().unwrap().unchecked_token().to_string();
        stop.send(()).unwrap();
        run.await.unwrap().unwrap();

        let work = &runs("works")[0];
        assert_eq!((work.parent, work.field("outcome")), (Some("term"), "done"), "{work:?}");
        assert_eq!((work.field("cause"), work.field("attempts")), ("scheduled", "1"));
        assert_eq!(work.field("term"), term);
        assert!(work.field("tick").contains("UTC"), "{work:?}");
        assert!(!work.fields.contains_key("error"));
        let failed = &runs("fails")[0];
        assert_eq!((failed.field("outcome"), failed.field("error")), ("failed", "no paper"));
        // A worker that takes a run does not have the leader's span, only its term.
        let taken = &runs("any")[0];
        assert_eq!((taken.parent, taken.field("outcome"), taken.field("term")), (None, "done", &*term));
        assert!(spans.named("handler").iter().all(|span| span.parent == Some("run")));
        let terms = spans.named("term");
        assert_eq!(terms.len(), 1, "{terms:?}");
        assert_eq!((terms[0].field("group"), terms[0].field("term")), ("billing", &*term));
        assert_eq!((terms[0].parent, terms[0].field("outcome")), (None, "shut down"));
        quorum.close().await;
    });
}

#[test]
fn a_claim_has_a_span_with_its_set_and_its_outcome() {
    with_spans(LevelFilter::DEBUG, |spans| async move {
        let quorum = quorum();
        let claims = Claims::new(&quorum, "orders");
        let done = |_| async { Ok::<_, String>(()) };
        assert!(claims.process("order-1", done).await.unwrap().may_ack());
        assert!(claims.process("order-1", done).await.unwrap().may_ack());
        drop(claims.claim_many(["order-2", "order-3"]).await.unwrap());
        let found = spans.named("claim");
        let one = |at: usize| (found[at].field("set"), found[at].field("id"), found[at].field("outcome"));
        assert_eq!(one(0), ("orders", "order-1", "claimed"));
        assert_eq!(one(1), ("orders", "order-1", "done"));
        assert_eq!((found[2].field("messages"), found[2].fields.contains_key("id")), ("2", false));
        quorum.close().await;
    });
}

#[test]
fn a_subscriber_of_level_info_sees_no_span_of_the_library() {
    with_spans(LevelFilter::INFO, |spans| async move {
        let quorum = quorum();
        let election = Election::new(&quorum, "g").ttl(SECOND);
        let job = Job::new("j", Schedule::every(SECOND / 10).unwrap(), |_| async {
            drop(tracing::info_span!("handler"));
            Ok::<(), String>(())
        });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let run = quorum.env().spawn_scoped(Scheduler::on(&election).job(job).run().until(stopped));
        when(&quorum, "a run", || !spans.named("handler").is_empty()).await;
        stop.send(()).unwrap();
        run.await.unwrap().unwrap();
        quorum.close().await;
        assert!(spans.0.lock().unwrap().iter().all(|span| span.name == "handler" && span.parent.is_none()));
    });
}

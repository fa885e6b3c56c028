//! Tests of the metrics that the library reports through the crate `metrics` (feature `metrics`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, SdkMeterProvider,
    data::{ResourceMetrics, ScopeMetrics},
};
use quorate::{
    Claims, Election, Job, Quorum, Scheduler,
    node::MemoryNode,
    scheduler::{Jobs, Schedule},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use tracing_opentelemetry::MetricsLayer;
use tracing_subscriber::layer::SubscriberExt;

const SECOND: Duration = Duration::from_secs(1);
/// The labels that a series may have.
const LABELS: [&str; 8] = ["node", "group", "job", "outcome", "event", "set", "why", "label"];

/// A recorder that keeps the values of all series. The key of a series is `name{label=value,…}`.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    series: BTreeMap<String, (Kind, f64)>,
    described: BTreeSet<(Kind, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
    /// The value of such a series is the number of recorded durations.
    Histogram,
}

/// A handle to one series of a recorder.
struct Series {
    recorded: Recorded,
    name: String,
}

impl Recorded {
    fn describe(&self, kind: Kind, name: &KeyName) {
        self.0.lock().unwrap().described.insert((kind, name.as_str().to_owned()));
    }

    fn register(&self, kind: Kind, key: &Key) -> Arc<Series> {
        let labels: Vec<String> = key
            .labels()
            .map(|label| {
                assert!(LABELS.contains(&label.key()), "{key} has the label {}", label.key());
                format!("{}={}", label.key(), label.value())
            })
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        let mut state = self.0.lock().unwrap();
        assert!(state.described.contains(&(kind, key.name().to_owned())), "{name} has no description");
        let known = state.series.entry(name.clone()).or_insert((kind, 0.0));
        assert_eq!(known.0, kind, "{name}");
        Arc::new(Series { recorded: self.clone(), name })
    }

    fn all(&self) -> BTreeMap<String, (Kind, f64)> {
        self.0.lock().unwrap().series.clone()
    }

    fn get(&self, name: &str) -> f64 {
        let all = self.all();
        all.get(name).unwrap_or_else(|| panic!("no {name} in {:#?}", all.keys())).1
    }

    #[track_caller]
    fn assert(&self, name: &str, expected: f64) {
        let found = self.get(name);
        assert!((found - expected).abs() < 1e-9, "{name} is {found}, not {expected}");
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(Kind::Counter, &name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(Kind::Gauge, &name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(Kind::Histogram, &name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(Kind::Counter, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(Kind::Gauge, key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(Kind::Histogram, key))
    }
}

impl Series {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(&mut self.recorded.0.lock().unwrap().series.get_mut(&self.name).unwrap().1);
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.change(|value| *value += f64::from(u32::try_from(by).unwrap()));
    }

    fn absolute(&self, _: u64) {
        panic!("{} is set", self.name);
    }
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.change(|value| *value += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| *value -= by);
    }

    fn set(&self, to: f64) {
        self.change(|value| *value = to);
    }
}

impl HistogramFn for Series {
    fn record(&self, duration: f64) {
        assert!((0.0..1e6).contains(&duration), "{}: {duration}", self.name);
        self.change(|count| *count += 1.0);
    }
}

/// Runs a test on one thread, with a new recorder.
fn with_recorder<F: Future<Output = ()>>(test: impl FnOnce(Recorded) -> F) {
    let recorded = Recorded::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorded, || runtime.block_on(test(recorded.clone())));
}

fn quorum(nodes: &[MemoryNode], worker: &str) -> Quorum {
    Quorum::builder().nodes(nodes.iter().cloned()).worker(worker).trust_new_nodes(true).build().unwrap()
}

fn nodes() -> Vec<MemoryNode> {
    (0..3).map(|number| MemoryNode::new(&format!("memory-{number}"))).collect()
}

fn job(name: &str, period: Duration) -> Job {
    Job::new(name, Schedule::every(period).unwrap(), |_| async { Ok::<(), String>(()) })
}

async fn when(quorum: &Quorum, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = quorum.env().now() + 60 * SECOND;
    while !is_so() {
        assert!(quorum.env().now() < deadline, "{what}");
        quorum.env().sleep(SECOND / 100).await;
    }
}

#[test]
fn every_series_exists_at_zero_before_anything_happens() {
    with_recorder(|recorded| async move {
        let quorum = quorum(&nodes(), "w");
        let _claims = Claims::new(&quorum, "orders");
        let scheduler = Scheduler::new(&quorum, "g").job(job("j", SECOND));
        let handle = scheduler.handle();
        let before = recorded.all();
        let mut names: Vec<&str> = before.keys().map(|name| name.split('{').next().unwrap()).collect();
        names.dedup();
        let expected = [
            "quorate_acquire_seconds",
            "quorate_claims_total",
            "quorate_history_write_failures_total",
            "quorate_job_last_success_timestamp_seconds",
            "quorate_job_next_timestamp_seconds",
            "quorate_job_overdue",
            "quorate_job_paused",
            "quorate_job_running",
            "quorate_jobs_without_worker",
            "quorate_leader",
            "quorate_lease_events_total",
            "quorate_lease_remaining_seconds",
            "quorate_ledger_copy_complete",
            "quorate_ledger_copy_missing_records",
            "quorate_node_clock_offset_seconds",
            "quorate_node_quarantined",
            "quorate_node_round_trip_seconds",
            "quorate_node_up",
            "quorate_nodes_required",
            "quorate_nodes_voting",
            "quorate_run_seconds",
            "quorate_runs_total",
            "quorate_terms_total",
            "quorate_tick_lateness_seconds",
            "quorate_workers",
        ];
        assert_eq!(names, expected);
        for (name, (kind, value)) in &before {
            let zero = if name == "quorate_nodes_required{}" { 2.0 } else { 0.0 };
            assert!((value - zero).abs() < f64::EPSILON, "{name} is {value}");
            assert_eq!(name.contains("_total{"), *kind == Kind::Counter, "{name}");
        }
        for outcome in ["done", "failed", "timed-out", "cancelled", "skipped-overlap", "lost"] {
            recorded.assert(&format!("quorate_runs_total{{group=g,job=j,outcome={outcome}}}"), 0.0);
        }
        recorded.assert("quorate_claims_total{set=orders,outcome=dead-lettered}", 0.0);
        recorded.assert("quorate_lease_events_total{group=g,event=lost}", 0.0);
        handle.set_jobs(vec![job("j", SECOND), job("later", SECOND)]).unwrap();
        let after = recorded.all();
        let of = |job: &str| after.keys().filter(|name| name.contains(&format!("job={job}"))).count();
        assert_eq!(after.len() - before.len(), of("later"));
        assert_eq!(of("later"), of("j"));
        quorum.close().await;
    });
}

#[test]
fn nodes_locks_and_claims_are_measured() {
    with_recorder(|recorded| async move {
        let quorum = quorum(&nodes(), "w");
        quorum.met(5 * SECOND).await;
        recorded.assert("quorate_nodes_voting{}", 3.0);
        for node in 0..3 {
            recorded.assert(&format!("quorate_node_up{{node=memory-{node}}}"), 1.0);
            recorded.assert(&format!("quorate_node_quarantined{{node=memory-{node}}}"), 0.0);
        }
        let claims = Claims::new(&quorum, "orders");
        let done = |_| async { Ok::<_, String>(()) };
        assert!(claims.process("order-1", done).await.unwrap().may_ack());
        assert!(claims.process("order-1", done).await.unwrap().may_ack());
        let fails = |_| async { Err::<(), _>("no stock") };
        assert!(claims.process("order-2", fails).await.is_err());
        for (outcome, count) in [("claimed", 2.0), ("done", 1.0), ("in-progress", 0.0), ("failed", 0.0)] {
            recorded.assert(&format!("quorate_claims_total{{set=orders,outcome={outcome}}}"), count);
        }
        let attempts = |outcome: &str| recorded.get(&format!("quorate_acquire_seconds{{outcome={outcome}}}"));
        let lock = quorum.lock("l");
        let lease = lock.try_acquire().await.unwrap().acquired().unwrap();
        assert_eq!((attempts("acquired") as u32, attempts("contended") as u32), (1, 0));
        assert!(lock.try_acquire().await.unwrap().is_contended());
        assert_eq!((attempts("acquired") as u32, attempts("contended") as u32), (1, 1));
        assert!(recorded.get("quorate_node_round_trip_seconds{node=memory-1}") > 0.0);
        // This lease belongs to a lock and not to a leader, so no series of leaders may exist.
        assert!(recorded.all().keys().all(|name| !name.contains("quorate_leader")));
        lease.release().await.unwrap();
        quorum.close().await;
    });
}

#[test]
fn quarantined_and_missing_nodes_are_measured() {
    with_recorder(|recorded| async move {
        let builder = Quorum::builder().nodes(nodes()).node_timeout(SECOND / 10);
        let quorum = builder.build().unwrap();
        quorum.met(5 * SECOND).await;
        when(&quorum, "the new nodes are in quarantine", || {
            recorded.get("quorate_node_quarantined{node=memory-2}") > 0.0
        })
        .await;
        recorded.assert("quorate_nodes_voting{}", 0.0);
        recorded.assert("quorate_nodes_required{}", 2.0);
        quorum.trust_nodes().await.unwrap();
        recorded.assert("quorate_nodes_voting{}", 3.0);
        recorded.assert("quorate_node_quarantined{node=memory-2}", 0.0);
        quorum.close().await;
        recorded.assert("quorate_nodes_voting{}", 0.0);
        recorded.assert("quorate_node_up{node=memory-2}", 0.0);
    });
}

#[test]
fn leadership_and_runs_are_measured() {
    with_recorder(|recorded| async move {
        let quorum = quorum(&nodes(), "w");
        let (leader, remaining) = ("quorate_leader{group=g}", "quorate_lease_remaining_seconds{group=g}");
        let election = Election::new(&quorum, "g").ttl(SECOND);
        let fails =
            Job::new("fails", Schedule::every(SECOND / 10).unwrap(), |_| async { Err::<(), _>("no paper") });
        let scheduler = Scheduler::on(&election).job(job("j", SECOND / 10)).job(fails);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let run = quorum.env().spawn_scoped(scheduler.run().until(stopped));
        when(&quorum, "it leads", || election.is_leader()).await;
        recorded.assert(leader, 1.0);
        recorded.assert("quorate_terms_total{group=g}", 1.0);
        let copy = "quorate_ledger_copy_complete{group=g,node=memory-2}";
        when(&quorum, "each copy is complete", || recorded.get(copy) > 0.0).await;
        recorded.assert("quorate_lease_events_total{group=g,event=elected}", 1.0);
        let runs = |job: &str, outcome: &str| {
            recorded.get(&format!("quorate_runs_total{{group=g,job={job},outcome={outcome}}}"))
        };
        // The worker leads for at least 2 s, so that the lease is extended in this time.
        let until = quorum.env().now() + 2 * SECOND;
        when(&quorum, "it runs and fails", || {
            let left = recorded.get(remaining);
            assert!(left > 0.3 && left <= 1.0, "{left}");
            quorum.env().now() > until && runs("j", "done") >= 2.0 && runs("fails", "failed") >= 2.0
        })
        .await;
        assert!(runs("j", "failed") + runs("fails", "done") < 0.5);
        assert!(recorded.get("quorate_run_seconds{group=g,job=j}") >= 2.0);
        assert!(recorded.get("quorate_tick_lateness_seconds{group=g,job=j}") >= 1.0);
        recorded.assert("quorate_job_last_success_timestamp_seconds{group=g,job=fails}", 0.0);
        let wall = quorum.wall().as_micros() as f64 / 1e6;
        for gauge in ["last_success", "next"] {
            let at = recorded.get(&format!("quorate_job_{gauge}_timestamp_seconds{{group=g,job=j}}"));
            assert!((at - wall).abs() < 2.0, "{gauge}: {at}, now {wall}");
        }
        let jobs = Jobs::new(&quorum, "g").unwrap().requester("me@here");
        let paused = "quorate_job_paused{group=g,job=j}";
        recorded.assert(paused, 0.0);
        jobs.pause("j").await.unwrap();
        recorded.assert(paused, 1.0);
        recorded.assert("quorate_job_next_timestamp_seconds{group=g,job=j}", 0.0);
        stop.send(()).unwrap();
        run.await.unwrap().unwrap();
        for name in [leader, remaining, paused, "quorate_job_running{group=g,job=j}"] {
            recorded.assert(name, 0.0);
        }
        recorded.assert("quorate_lease_events_total{group=g,event=resigned}", 1.0);
        when(&quorum, "it leads no more", || recorded.get(copy) < 1.0).await;
        quorum.close().await;
    });
}

#[test]
fn active_runs_are_counted_and_the_next_leader_knows_the_last_success() {
    with_recorder(|recorded| async move {
        let nodes = nodes();
        let (go_on, going) = tokio::sync::watch::channel(false);
        let hangs = Job::new("hangs", Schedule::every(SECOND / 10).unwrap(), move |_| {
            let mut going = going.clone();
            async move { going.wait_for(|go| *go).await.map(drop) }
        });
        let led = |worker: &str| {
            let quorum = quorum(&nodes, worker);
            let scheduler = Scheduler::new(&quorum, "g").ttl(SECOND).job(hangs.clone());
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let run = quorum.env().spawn_scoped(scheduler.run().until(stopped));
            (quorum, stop, run)
        };
        let (running, last) = (
            "quorate_job_running{group=g,job=hangs}",
            "quorate_job_last_success_timestamp_seconds{group=g,job=hangs}",
        );
        let (quorum, stop, run) = led("first");
        when(&quorum, "it runs", || recorded.all().contains_key(running) && recorded.get(running) > 0.0)
            .await;
        go_on.send(true).unwrap();
        when(&quorum, "it succeeds", || recorded.get(last) > 0.0).await;
        stop.send(()).unwrap();
        run.await.unwrap().unwrap();
        recorded.assert(running, 0.0);
        quorum.close().await;
        // The test now acts as a process that has just started, which has no series. No run ends in its term.
        go_on.send(false).unwrap();
        let succeeded = recorded.get(last);
        recorded.0.lock().unwrap().series.clear();
        let (quorum, _stop, run) = led("second");
        when(&quorum, "it runs", || recorded.all().contains_key(running) && recorded.get(running) > 0.0)
            .await;
        let known = recorded.get(last);
        assert!((known - succeeded).abs() < 2.0, "{known} and {succeeded}");
        drop(run);
        quorum.close().await;
    });
}

/// Returns the names of the metrics that `tracing-opentelemetry` makes of the events during `test`, at every
/// level.
fn metrics_of_events(test: impl FnOnce()) -> BTreeSet<String> {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
    let layer = tracing_subscriber::registry().with(MetricsLayer::new(provider.clone()));
    tracing::subscriber::with_default(layer, test);
    provider.force_flush().unwrap();
    let found = exporter.get_finished_metrics().unwrap();
    let scopes = found.iter().flat_map(ResourceMetrics::scope_metrics);
    scopes.flat_map(ScopeMetrics::metrics).map(|metric| metric.name().to_owned()).collect()
}

/// Neither the recorder nor a subscriber that makes metrics of events gets a series. The jobs keep no
/// history, so that the nodes need not store 10,000 entries.
#[test]
fn ten_thousand_ticks_add_no_series() {
    let found = metrics_of_events(|| {
        run_ten_thousand_ticks();
        tracing::trace!(monotonic_counter.control = 1); // shows that the subscriber is in use
    });
    assert_eq!(found, ["control".to_owned()].into());
}

fn run_ten_thousand_ticks() {
    with_recorder(|recorded| async move {
        let quorum = quorum(&nodes(), "w");
        let jobs = (0..20).map(|number| job(&format!("j-{number}"), SECOND / 100).history(0));
        let scheduler = jobs.fold(Scheduler::new(&quorum, "g"), Scheduler::job);
        drop(scheduler.handle());
        let before: Vec<String> = recorded.all().into_keys().collect();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let run = quorum.env().spawn_scoped(scheduler.run().until(stopped));
        when(&quorum, "10,000 ticks have ended", || {
            let all = recorded.all();
            assert!(all.keys().eq(&before), "{:#?}", all.keys());
            let runs = all.iter().filter(|(name, _)| name.starts_with("quorate_runs_total"));
            runs.map(|(_, (_, count))| count).sum::<f64>() >= 10_000.0
        })
        .await;
        stop.send(()).unwrap();
        run.await.unwrap().unwrap();
        assert!(recorded.all().keys().eq(&before));
        quorum.close().await;
    });
}

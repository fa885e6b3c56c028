//! Tests of the traces and metrics for an OpenTelemetry collector: daemons on real Redis servers, and a
//! collector in this process.

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    resource::v1::Resource,
    trace::v1::{Span, Status, status::StatusCode},
};
use prost::Message;
use quorate::env::{SystemWorld, World};
use quorate_tests::support::{Http, JobBench, PATIENCE, Received, Receiver, Running, until};
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const TOKEN: &str = "Bearer-hush-0123456789";
const PATH: &str = "/otlp-hush";
const FAILS: &str = "traces and metrics are not accepted, and are tried again";

fn bench(settings: &str) -> JobBench {
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), settings);
    bench.program.write("collector-token", &format!("{TOKEN}\n"));
    bench
}

fn start(bench: &JobBench, command: &str) -> Running {
    bench.program.start([command, "--config", &bench.config])
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn requests(receiver: &Receiver, signal: &str) -> Vec<Received> {
    let path = format!("{PATH}/v1/{signal}");
    receiver.requests().into_iter().filter(|request| request.path == path).collect()
}

/// Returns the spans so far, each with its resource.
fn spans(receiver: &Receiver) -> Vec<(Resource, Span)> {
    let decode = |request: Received| {
        ExportTraceServiceRequest::decode(&request.bytes[..]).expect("a message of spans").resource_spans
    };
    let all = requests(receiver, "traces").into_iter().flat_map(decode);
    all.flat_map(|of| {
        let resource = of.resource.expect("a resource");
        of.scope_spans.into_iter().flat_map(|scope| scope.spans).map(move |span| (resource.clone(), span))
    })
    .collect()
}

fn spans_named(receiver: &Receiver, name: &str) -> Vec<Span> {
    spans(receiver).into_iter().map(|(_, span)| span).filter(|span| span.name == name).collect()
}

/// Returns the metrics of the last message.
fn metrics(receiver: &Receiver) -> Vec<Metric> {
    let Some(request) = requests(receiver, "metrics").pop() else { return Vec::new() };
    let message = ExportMetricsServiceRequest::decode(&request.bytes[..]).expect("a message of metrics");
    let scopes = message.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
    scopes.flat_map(|scope| scope.metrics).collect()
}

/// Returns the value of a series in the last message. `labels` are some of its labels.
fn value(receiver: &Receiver, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let metric = metrics(receiver).into_iter().find(|metric| metric.name == name)?;
    let points = match metric.data? {
        Data::Gauge(gauge) => gauge.data_points,
        Data::Sum(sum) => {
            assert!(sum.is_monotonic, "{name}");
            sum.data_points
        }
        other => panic!("{name}: {other:?}"),
    };
    let is_meant =
        |attributes: &[KeyValue]| labels.iter().all(|(label, value)| text(attributes, label) == Some(value));
    match points.into_iter().find(|point| is_meant(&point.attributes))?.value? {
        number_data_point::Value::AsDouble(value) => Some(value),
        number_data_point::Value::AsInt(value) => Some(value as f64),
    }
}

/// Returns how often the daemon has logged that the collector does not accept data.
fn warnings(daemon: &Running) -> usize {
    daemon.stderr().matches(FAILS).count()
}

fn terminate(daemon: Running) -> String {
    daemon.signal(Signal::TERM);
    let ended = daemon.wait(PATIENCE).expect(0);
    ended.stderr + &ended.stdout
}

/// The spans of a leader and the metrics arrive with the secret header, and no output of the program has a
/// secret.
#[test]
fn runs_their_term_and_the_metrics_arrive_at_a_collector() {
    let receiver = Receiver::start(Some(200));
    let settings = format!(
        r#"
worker = "oak"
http = {{ listen = "127.0.0.1:0" }}
otlp = {{ url = "{}", header_files = {{ Authorization = "collector-token" }}, every = "1s" }}
[[job]]
name = "works"
every = "500ms"
command = ["true"]
[[job]]
name = "fails"
every = "500ms"
shell = "exit 3"
"#,
        receiver.url(PATH)
    );
    let bench = bench(&settings);
    let checked = bench.program.run(["run", "--check", "--config", &bench.config]).expect(0).stdout;
    assert!(checked.contains("traces and metrics to http://127.0.0.1:"), "{checked}");
    let daemon = start(&bench, "run");
    let runs = |job: &str| {
        let mut runs = spans_named(&receiver, "run");
        runs.retain(|run| text(&run.attributes, "job") == Some(job));
        runs
    };
    until("runs of both jobs", PATIENCE, || {
        (runs("works").len() > 1 && !runs("fails").is_empty()).then_some(())
    });
    let work = runs("works").remove(0);
    let tick = text(&work.attributes, "tick").expect("a tick");
    assert!(tick.ends_with("(UTC)"), "{tick}");
    assert_eq!(text(&work.attributes, "outcome"), Some("done"));
    assert_ne!(work.status.as_ref().map(Status::code), Some(StatusCode::Error));
    let failed = runs("fails").remove(0);
    let status = failed.status.expect("a status");
    assert_eq!(status.code(), StatusCode::Error);
    assert!(status.message.contains("exit status 3"), "{}", status.message);

    until("the metrics of a leader", PATIENCE, || {
        let leads = value(&receiver, "quorate_leader", &[("group", "g")])? > 0.5;
        let done = [("group", "g"), ("job", "works"), ("outcome", "done")];
        (leads && value(&receiver, "quorate_runs_total", &done)? > 0.5).then_some(())
    });
    let lost = [("group", "g"), ("job", "works"), ("outcome", "lost")];
    assert_eq!(value(&receiver, "quorate_runs_total", &lost), Some(0.0), "every counter starts at zero");
    // Both ways show the same metrics, because both read one recorder.
    let page = Http::of(&daemon).get("/metrics").body;
    let scraped: BTreeSet<String> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0.to_owned()))
        .collect();
    let sent: BTreeSet<String> = metrics(&receiver).into_iter().map(|metric| metric.name).collect();
    assert!(scraped.len() > 15 && sent == scraped, "{scraped:?} and {sent:?}");

    let output = terminate(daemon);
    // The span of a term ends with the term, so it arrives with the last request.
    let terms = spans_named(&receiver, "term");
    assert_eq!(terms.len(), 1, "{terms:?}");
    let term = &terms[0];
    assert_eq!(text(&term.attributes, "group"), Some("g"));
    assert_eq!((&work.parent_span_id, &work.trace_id), (&term.span_id, &term.trace_id));
    assert_eq!(text(&term.attributes, "term"), text(&work.attributes, "term"));
    assert!(!spans_named(&receiver, "acquire").is_empty() && !spans_named(&receiver, "renewal").is_empty());
    for (resource, span) in spans(&receiver) {
        let known = ["service.name", "service.instance.id", "quorate.group"]
            .map(|key| text(&resource.attributes, key).unwrap_or_default().to_owned());
        assert_eq!(known, ["quorate", "oak", "g"], "{span:?}");
    }
    for request in receiver.requests() {
        let head = request.head.to_lowercase();
        assert!(head.contains(&format!("authorization: {}", TOKEN.to_lowercase())), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    }
    for text in [&output, &checked, &page] {
        assert!(!text.contains("hush"), "a secret in {text}");
    }
    assert!(output.contains("traces and metrics are sent to http://127.0.0.1:"), "{output}");
    assert!(!output.contains(FAILS), "{output}");
}

/// Checks that a tick of every half second is in the list, without a gap.
fn assert_no_gap(ticks: &str) {
    let ticks: Vec<i64> = ticks.lines().map(millis).collect();
    assert!(ticks.len() > 3, "{ticks:?}");
    assert!(ticks.windows(2).all(|two| two[1] - two[0] == 500), "{ticks:?}");
}

/// Returns the milliseconds of the hour in a time of RFC 3339, such as 2026-11-23T10:20:30.5Z.
fn millis(time: &str) -> i64 {
    let clock = time.split_once('T').expect("a time").1.trim_end_matches('Z');
    let [hours, minutes, seconds] = &clock.split(':').collect::<Vec<_>>()[..] else { panic!("{time}") };
    let whole = |text: &str| text.parse::<i64>().expect("a number");
    let seconds: f64 = seconds.parse().expect("seconds");
    (whole(hours) * 60 + whole(minutes)) * 60_000 + (seconds * 1_000.0).round() as i64
}

/// The collector refuses data, then accepts it, then hangs. Each change is logged once, and ticks run all the
/// time.
#[test]
fn a_collector_that_refuses_or_hangs_delays_no_tick_and_each_change_is_logged_once() {
    let receiver = Receiver::start(Some(503));
    let settings = format!(
        r#"
otlp = {{ url = "{}", header_files = {{ Authorization = "collector-token" }}, every = "1s" }}
[[job]]
name = "beat"
every = "500ms"
misfire = {{ rule = "skip" }}
history = 1000
shell = "echo $QUORATE_TICK >> ticks"
"#,
        receiver.url(PATH)
    );
    let bench = bench(&settings);
    let daemon = start(&bench, "run");
    let (beats, asked) = (|| bench.program.read("ticks").lines().count(), || receiver.requests().len());
    until("a first tick", PATIENCE, || bench.program.file("ticks").exists().then_some(()));
    until("refused requests", PATIENCE, || (requests(&receiver, "metrics").len() >= 4).then_some(()));
    until("a warning", PATIENCE, || (warnings(&daemon) > 0).then_some(()));
    assert_eq!(warnings(&daemon), 1, "{}", daemon.stderr());

    receiver.answer(Some(200));
    daemon.until_it_says("traces and metrics are accepted again");
    // The spans that ended meanwhile were kept: those of the acquisition arrive too.
    until("the first spans", PATIENCE, || (!spans_named(&receiver, "acquire").is_empty()).then_some(()));

    receiver.answer(None);
    let before = asked();
    until("a request that hangs", PATIENCE, || (asked() > before).then_some(()));
    let ticks = beats();
    until("ticks while a request hangs", PATIENCE, || (beats() >= ticks + 6).then_some(()));
    assert_no_gap(&bench.program.read("ticks"));
    // The daemon gives the last request one second.
    let asked_to_end = SystemWorld.now();
    let output = terminate(daemon);
    let took = asked_to_end.until(SystemWorld.now());
    assert!(took < Duration::from_secs(8), "it ended after {took:?}");
    let changes = output.lines().filter(|line| line.contains("traces and metrics are")).count();
    assert!(output.matches(FAILS).count() <= 2 && changes <= 4, "each change once: {output}");
    assert!(!output.contains("hush"), "a secret in {output}");
}

#[test]
fn quorate_lead_sends_its_terms_and_metrics_too() {
    let receiver = Receiver::start(Some(200));
    let url = receiver.url(PATH);
    let settings =
        format!("http = {{ listen = \"127.0.0.1:0\" }}\n[otlp]\nurl = \"{url}\"\nevery = \"1s\"\n");
    let bench = bench(&settings);
    let daemon = start(&bench, "lead");
    let leads = || value(&receiver, "quorate_leader", &[("group", "g")]);
    until("the metric of a leader", PATIENCE, || (leads()? > 0.5).then_some(()));
    terminate(daemon);
    assert_eq!(spans_named(&receiver, "term").len(), 1);
}

#[test]
fn quorate_web_sends_its_metrics_too() {
    let receiver = Receiver::start(Some(200));
    let url = receiver.url(PATH);
    let settings =
        format!("http = {{ listen = \"127.0.0.1:0\" }}\n[otlp]\nurl = \"{url}\"\nevery = \"1s\"\n");
    let bench = bench(&settings);
    let daemon = start(&bench, "web");
    until("the metric of the nodes", PATIENCE, || {
        let voting = value(&receiver, "quorate_nodes_voting", &[])?;
        (voting > 0.5).then_some(())
    });
    assert!(!terminate(daemon).contains("hush"), "a secret in the output");
}

/// Collects the source files below a directory.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, files),
            false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            false => {}
        }
    }
}

/// Returns the names of fields in `source` of which a subscriber of `tracing-opentelemetry` makes a metric.
fn fields_that_make_metrics(source: &str) -> Vec<&str> {
    let kinds = ["monotonic_counter.", "counter.", "histogram.", "gauge."];
    let words = source.split(|c: char| c.is_whitespace() || ",()%?\"".contains(c));
    let is_field = |word: &&str| {
        kinds.iter().any(|kind| word.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()))
            && source.match_indices(*word).any(|(at, _)| {
                let rest = source[at + word.len()..].trim_start_matches('"').trim_start();
                rest.starts_with('=') && !rest.starts_with("==")
            })
    };
    words.filter(is_field).collect()
}

#[test]
fn no_event_of_the_library_or_the_program_has_a_field_that_makes_a_metric() {
    assert_eq!(
        fields_that_make_metrics("tracing::info!(job, monotonic_counter.runs = 1, \"x\");"),
        ["monotonic_counter.runs"]
    );
    assert_eq!(fields_that_make_metrics("info!(\"histogram.took\" = took)"), ["histogram.took"]);
    assert!(fields_that_make_metrics("self.counter.add_one(); let at = gauge.get() == 1;").is_empty());
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").join("crates");
    let mut files = Vec::new();
    for name in ["quorate", "quorate-cli", "quorate-operator", "quorate-postgres", "quorate-web"] {
        collect(&crates.join(name).join("src"), &mut files);
    }
    assert!(files.len() > 300, "the sources were found: {} files", files.len());
    for file in files {
        let source = fs::read_to_string(&file).expect("UTF-8");
        let found = fields_that_make_metrics(&source);
        assert!(found.is_empty(), "{}: {found:?}", file.display());
    }
}

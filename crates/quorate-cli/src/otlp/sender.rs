use super::{
    health::{Health, Line},
    message::{Messages, Period},
    spans,
};
use crate::recorder::Measurements;
use crate::{
    config::OtlpConfig,
    exit::{FAILURE, Failure},
    log::SubscriberLayer,
    notices::client::{Call, Client},
};
use axum::body::Bytes;
use opentelemetry_sdk::trace::SpanData;
use prost::Message;
use quorate::{
    env::{BootTime, Env, ScopedTask, WallTime},
    plain::plain,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The largest number of ended spans that wait.
const WAITING_MAX: usize = 4_096;
/// The largest number of spans in one request.
const BATCH_MAX: usize = 512;
/// The time for which a span waits for others.
const BATCH_FOR: Duration = Duration::from_secs(1);
/// The number of attempts to send a batch, and the pause between them. After the last one the batch is
/// dropped, so that a batch that the collector refuses does not hold up the others.
const ATTEMPTS: (u32, Duration) = (5, Duration::from_secs(5));
/// The time that the collector has for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for the last spans and metrics, at the end of the process.
const FINISH: Duration = Duration::from_secs(1);
const REASON_MAX: usize = 300;

/// The sender, before there is a quorum. Spans that end meanwhile wait in its queue.
#[derive(Debug)]
pub(crate) struct Otlp {
    config: OtlpConfig,
    messages: Messages,
    ended: mpsc::Receiver<SpanData>,
    lost: Arc<AtomicU64>,
}

/// The task that sends. Dropping it ends the task at once.
#[derive(Debug)]
pub(crate) struct Sending {
    env: Env,
    stop: CancellationToken,
    task: ScopedTask<()>,
}

impl Otlp {
    /// Returns the sender, and the layer that collects the spans for it. `None` in a program without the
    /// feature.
    pub(crate) fn prepare(
        config: &OtlpConfig,
        worker: &str,
        group: Option<&str>,
    ) -> Option<(Self, SubscriberLayer)> {
        let lost = Arc::new(AtomicU64::new(0));
        let (layer, ended) = spans::layer(WAITING_MAX, &lost);
        Some((Self { config: config.clone(), messages: Messages::new(worker, group), ended, lost }, layer))
    }

    /// Starts the task. It also sends the metrics of `recorder`.
    pub(crate) fn start(self, env: &Env, recorder: Measurements) -> Result<Sending, Failure> {
        let Self { config, messages, ended, lost } = self;
        let client = Client::start().map_err(|error| Failure::new(FAILURE, error))?;
        let stop = CancellationToken::new();
        tracing::info!("traces and metrics are sent to {config}");
        let exporter = Exporter {
            env: env.clone(),
            started: env.wall(),
            client,
            config,
            messages,
            recorder,
            lost,
            health: Health::default(),
            batch: None,
        };
        let task = env.spawn_scoped(exporter.serve(ended, stop.clone()));
        Ok(Sending { env: env.clone(), stop, task })
    }
}

impl Sending {
    /// Sends the last spans and metrics, for one second at most.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        let _ = self.env.before(self.env.now() + FINISH, self.task).await;
    }
}

/// Sends batches of spans, and the metrics at intervals, one request after the other.
struct Exporter {
    env: Env,
    /// The time at which the counters of the recorder were zero.
    started: WallTime,
    client: Client,
    config: OtlpConfig,
    messages: Messages,
    recorder: Measurements,
    lost: Arc<AtomicU64>,
    health: Health,
    /// The batch that the collector has not accepted yet.
    batch: Option<Batch>,
}

/// Spans as the body of a request.
struct Batch {
    body: Bytes,
    spans: u64,
    attempts: u32,
}

impl Exporter {
    async fn serve(mut self, mut ended: mpsc::Receiver<SpanData>, stop: CancellationToken) {
        tokio::select! { biased;
            () = stop.cancelled() => {}
            () = self.send_until_stopped(&mut ended) => {}
        }
        // A request that was under way is repeated, because the collector may not have accepted it.
        loop {
            self.fill(&mut ended);
            if self.batch.is_none() || self.send_batch().await.is_err() {
                break;
            }
        }
        self.send_metrics().await;
    }

    async fn send_until_stopped(&mut self, ended: &mut mpsc::Receiver<SpanData>) {
        let env = self.env.clone();
        let mut metrics_at = env.now() + self.config.every.min(BATCH_FOR);
        let mut spans_at = env.now() + BATCH_FOR;
        loop {
            env.sleep_until(spans_at.min(metrics_at)).await;
            if spans_at <= env.now() {
                spans_at = self.send_spans(ended).await;
            }
            if metrics_at <= env.now() {
                self.send_metrics().await;
                metrics_at = env.now() + self.config.every;
            }
        }
    }

    /// Sends the spans that wait, and returns the time of the next attempt.
    async fn send_spans(&mut self, ended: &mut mpsc::Receiver<SpanData>) -> BootTime {
        self.fill(ended);
        while self.batch.is_some() {
            if self.send_batch().await.is_err() {
                return self.env.now() + ATTEMPTS.1;
            }
            // A full batch may leave others behind. A smaller one has taken all that had ended.
            if ended.len() < BATCH_MAX {
                break;
            }
            self.fill(ended);
        }
        self.env.now() + BATCH_FOR
    }

    /// Takes a batch of spans from the queue, unless there is an older batch.
    fn fill(&mut self, ended: &mut mpsc::Receiver<SpanData>) {
        if self.batch.is_some() {
            return;
        }
        let spans: Vec<SpanData> = std::iter::from_fn(|| ended.try_recv().ok()).take(BATCH_MAX).collect();
        if !spans.is_empty() {
            let count = spans.len() as u64;
            let body = self.messages.spans(spans).encode_to_vec().into();
            self.batch = Some(Batch { body, spans: count, attempts: 0 });
        }
    }

    /// Sends the batch. After the last attempt, the batch is dropped and counted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the batch stays.
    async fn send_batch(&mut self) -> Result<(), ()> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        batch.attempts += 1;
        let (body, is_last) = (batch.body.clone(), batch.attempts >= ATTEMPTS.0);
        let result = self.post("/v1/traces", body).await;
        let accepted = result.is_ok();
        if let Some(batch) = self.batch.take_if(|_| accepted || is_last)
            && !accepted
        {
            self.lost.fetch_add(batch.spans, Ordering::Relaxed);
        }
        self.report(result);
        if accepted { Ok(()) } else { Err(()) }
    }

    async fn send_metrics(&mut self) {
        let period = Period { start: self.started, end: self.env.wall() };
        let body = self.messages.metrics(&self.recorder.families(), period).encode_to_vec();
        let result = self.post("/v1/metrics", body.into()).await;
        self.report(result);
    }

    async fn post(&self, suffix: &str, body: Bytes) -> Result<(), String> {
        let OtlpConfig { url, header_files, ca_file, .. } = &self.config;
        let content_type = "application/x-protobuf";
        let call = Call {
            method: "POST",
            url,
            suffix,
            header_files,
            headers: Vec::new(),
            ca_file: ca_file.as_deref(),
            content_type,
            body,
        };
        let answer = self.env.before(self.env.now() + TIMEOUT, self.client.post(call)).await;
        answer.unwrap_or_else(|| Err(format!("no answer within {TIMEOUT:?}")))
    }

    fn report(&mut self, result: Result<(), String>) {
        let result = result.map_err(|why| plain(&why, REASON_MAX));
        let line = self.health.sent(self.env.now(), result, self.lost.load(Ordering::Relaxed));
        let collector = self.config.to_string();
        match line {
            None => {}
            Some(Line::Fails(why)) => {
                tracing::warn!(collector, "traces and metrics are not accepted, and are tried again: {why}");
            }
            Some(Line::Again(0)) => tracing::warn!(collector, "traces and metrics are accepted again"),
            Some(Line::Again(lost)) => {
                tracing::warn!(collector, lost, "traces and metrics are accepted again; spans were lost");
            }
            Some(Line::Lost(lost)) => {
                tracing::warn!(collector, lost, "spans were lost: more ended than could be sent");
            }
        }
    }
}

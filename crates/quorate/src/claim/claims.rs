use super::{
    Claim, ClaimError, ClaimOutcome, DeadLettered, Done, Fingerprint, MessageId,
    begin::{AcquiredMessage, Beginning, begin, payloads},
    crowd::Crowd,
    dead_letter::{DeadLetter, Hook},
    votes::{ClaimData, ClaimTally},
};
use crate::{
    claim::attempts::Payload,
    config::SettingError,
    lease::{
        AcquireError, AskOrder, AttemptResult, LeaseOptions, LeaseParams, attempt_each_with, is_contended,
        lease_options,
    },
    measure::{ClaimMeasures, ClaimResultKind},
    node::Resource,
    quorum::Quorum,
};
use futures_util::{StreamExt, stream};
use std::{fmt, sync::Arc, time::Duration};
use tracing::{Instrument, Span, field::Empty};

/// The number of ids in one chunk of a batch.
pub(super) const CHUNK: usize = 256;
/// The number of chunks of a batch that are in flight at the same time. With two, this worker prepares one
/// chunk while the nodes process the other. With more, the nodes would queue more requests than they can serve
/// within a node timeout.
pub(super) const CHUNKS_AT_ONCE: usize = 2;
/// The number of dead-letter hooks that run at the same time for one batch.
const HOOKS_MAX: usize = 16;

/// Claims on the messages of one set, such as a queue or a topic. If several copies of a service receive the
/// same message, one of them handles it.
///
/// ```
/// use quorate::{Claims, Quorum, node::MemoryNode};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// let claims = Claims::new(&quorum, "orders");
/// let processed = claims
///     .process(42, |claim| async move {
///         let token = claim.fencing_token()?; // pass it to the write
///         Ok::<_, quorate::LeaseLost>(format!("shipped under {token}"))
///     })
///     .await?;
/// if processed.may_ack() {
///     // Tell the source that the message is done. Otherwise leave it: it has to be delivered again.
/// }
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Claims {
    pub(super) quorum: Quorum,
    pub(super) set: Arc<str>,
    options: LeaseOptions,
    pub(super) retention: Duration,
    max_attempts: Option<u32>,
    dead_letter_retention: Option<Duration>,
    pub(super) dead_letter: Option<Hook>,
    measures: ClaimMeasures,
    crowd: Crowd,
}

impl Claims {
    /// Returns claims on the messages of `set`.
    pub fn new(quorum: &Quorum, set: impl AsRef<str>) -> Self {
        Self {
            quorum: quorum.clone(),
            set: set.as_ref().into(),
            options: LeaseOptions::new(),
            retention: Duration::from_secs(24 * 3600),
            max_attempts: None,
            dead_letter_retention: None,
            dead_letter: None,
            measures: ClaimMeasures::new(set.as_ref()),
            crowd: Crowd::default(),
        }
    }

    lease_options!();

    /// Sets how long the nodes remember that a message is done. The count of a message's attempts is kept for
    /// at least the same time after the last attempt began. Default 24 hours. The retention must be at least
    /// the TTL, and longer than the time within which the source may redeliver a message.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the number of attempts without completion, including crashes, after which a message is given up.
    /// The message is then handed to the dead-letter hook, and each later claim returns
    /// [`ClaimOutcome::DeadLettered`].
    ///
    /// An attempt begins when its claim is returned to the caller. A claim that is abandoned or lost
    /// afterwards counts; a claim that is [cancelled before its start](Claim::cancel_before_start) does not.
    ///
    /// By default there is no limit. With a limit, a sink that is unavailable for a minute could cause whole
    /// queues to be given up. A limit also costs one more round trip for every claim: an attempt begins only
    /// once a majority has counted it, so that an attempt that crashes is counted too.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets how long a message stays given up after a dead-letter hook has handled it. The default is
    /// [`Claims::retention`]. [`Claims::reset`] ends this time earlier. A message that no hook has handled
    /// stays given up for as long as the nodes keep the count of its attempts.
    pub fn dead_letter_retention(mut self, time: Duration) -> Self {
        self.dead_letter_retention = Some(time);
        self
    }

    /// Sets the hook for messages that are given up. The hook may, for example, write a row to a table, or a
    /// message to another queue. The hook's result is stored as the note of the dead letter.
    ///
    /// The hook runs under the claim that found the limit reached. The claim is extended meanwhile, so that
    /// only one worker runs the hook. If the worker crashes or the hook fails, the next claim runs the hook
    /// again. So the hook must tolerate a repetition.
    ///
    /// Without a hook, each claim reports that the message is given up, and records nothing. A worker that
    /// gets a hook later can still hand the message over.
    pub fn dead_letter<H, F, T, E>(mut self, hook: H) -> Self
    where
        H: Fn(DeadLetter) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: super::ClaimResult,
        E: fmt::Display,
    {
        self.dead_letter = Some(Hook::new(hook));
        self
    }

    /// Returns the name of the set.
    pub fn set(&self) -> &Arc<str> {
        &self.set
    }

    /// Checks the settings. Every claim does this first.
    ///
    /// # Errors
    /// [`ClaimError::Acquire`], which names the setting, its value, the reason and the fix.
    pub fn validate(&self) -> Result<(), ClaimError> {
        Resource::claim(&self.set, "x").map_err(AcquireError::from)?;
        self.params().map(drop)
    }

    /// Claims one message.
    ///
    /// # Errors
    /// [`ClaimError`] if the id or the settings cannot be used, if too few nodes answered or may vote, or if
    /// the id was used with another payload. A message that another worker holds, or has handled, is not an
    /// error.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the worker releases on each node what this call may have acquired.
    /// Each node receives the release after all other requests of this call, so no request can acquire the
    /// claim after its release.
    pub async fn claim<'a>(&self, message: impl Into<MessageId<'a>>) -> Result<ClaimOutcome, ClaimError> {
        self.claim_one(message.into()).await?.outcome
    }

    /// Claims many messages, even thousands, and returns an outcome for each id, in the order of the ids. The
    /// messages are sent in chunks of 256, two chunks at a time. Each chunk takes a few script calls on each
    /// node.
    ///
    /// If an id is given twice and the call claims the message, the outcome of the second occurrence is *in
    /// progress*.
    ///
    /// # Errors
    /// [`ClaimError`] for an id or settings that cannot be used. In that case nothing has been claimed: one
    /// invalid id refuses the whole call. Check ids that you do not trust with [`Resource::claim`] first.
    /// Every other error (too few nodes answered, another payload) is the outcome of its own id alone.
    ///
    /// # Cancel safety
    /// Safe: dropped attempts send their releases after their own requests, and messages that were claimed
    /// are abandoned.
    pub async fn claim_many<'a, M: Into<MessageId<'a>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<(Arc<str>, Result<ClaimOutcome, ClaimError>)>, ClaimError> {
        let asked = self.asked(messages.into_iter().map(Into::into))?;
        let params = self.params()?;
        let chunks: Vec<_> = asked.chunks(CHUNK).map(|chunk| self.claim_chunk(chunk, params)).collect();
        let verdicts = stream::iter(chunks).buffered(CHUNKS_AT_ONCE).collect::<Vec<_>>().await;
        let ids = asked.iter().map(|asked| Arc::clone(&asked.id));
        let outcomes = verdicts.into_iter().flatten().map(|verdict| verdict.outcome.map(started));
        Ok(ids.zip(outcomes).collect())
    }

    /// Claims one message like [`Claims::claim`], and also returns the tally of a lost attempt.
    pub(super) async fn claim_one(&self, message: MessageId<'_>) -> Result<Verdict, ClaimError> {
        let asked = self.asked([message])?;
        let verdict = self.claim_chunk(&asked, self.params()?).await.pop();
        let Verdict { outcome, tally } = verdict.ok_or(AcquireError::Closed)?;
        Ok(Verdict { outcome: outcome.map(started), tally })
    }

    fn asked<'a>(&self, messages: impl IntoIterator<Item = MessageId<'a>>) -> Result<Vec<Asked>, ClaimError> {
        let asked = messages.into_iter().map(|message| {
            let (id, payload) = message.parts();
            let resource = Resource::claim(&self.set, &id).map_err(AcquireError::from)?;
            Ok(Asked { id, resource, payload })
        });
        asked.collect()
    }

    /// Claims many messages like [`Claims::claim_many`], but neither starts the attempts nor [hands
    /// over](Claims::hand_over) messages that are given up. The caller must do both.
    pub(super) async fn claim_many_unsettled(
        &self,
        messages: impl IntoIterator<Item = MessageId<'_>>,
    ) -> Result<Vec<Result<ClaimOutcome, ClaimError>>, ClaimError> {
        let asked = self.asked(messages)?;
        let params = self.params()?;
        let chunks: Vec<_> = asked.chunks(CHUNK).map(|chunk| self.claim_unsettled(chunk, params)).collect();
        let verdicts = stream::iter(chunks).buffered(CHUNKS_AT_ONCE).collect::<Vec<_>>().await;
        Ok(verdicts.into_iter().flatten().map(|verdict| verdict.outcome).collect())
    }

    async fn claim_chunk(&self, asked: &[Asked], params: LeaseParams) -> Vec<Verdict> {
        let verdicts = self.claim_unsettled(asked, params).await;
        // At most `HOOKS_MAX` dead-letter hooks run at the same time. `buffered` keeps the outcomes in the
        // order of the messages.
        let settled = verdicts.into_iter().map(|verdict| self.settled(verdict));
        stream::iter(settled).buffered(HOOKS_MAX).collect().await
    }

    async fn claim_unsettled(&self, asked: &[Asked], params: LeaseParams) -> Vec<Verdict> {
        let span = self.span(asked);
        let verdicts = self.attempt_claims(asked, params).instrument(span.clone()).await;
        if let ([verdict], false) = (&verdicts[..], span.is_disabled()) {
            span.record("outcome", verdict.kind().as_str());
        }
        verdicts
    }

    /// Returns the span of a call that claims these messages. It names the message if there is only one.
    fn span(&self, asked: &[Asked]) -> Span {
        let (id, messages) = match asked {
            [one] => (Some(&*one.id), None),
            many => (None, Some(many.len())),
        };
        tracing::debug_span!("claim", set = &*self.set, id, messages, outcome = Empty)
    }

    async fn attempt_claims(&self, asked: &[Asked], params: LeaseParams) -> Vec<Verdict> {
        let resources: Vec<Resource> = asked.iter().map(|asked| asked.resource.clone()).collect();
        let data = ClaimData::new(self.quorum.config());
        let order = self.order(asked);
        let attempted = attempt_each_with(self.quorum.inner(), &resources, params, &data, order).await;
        if attempted.iter().any(met_another) {
            self.crowd.met(self.quorum.env().now());
        }
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(asked.len());
        let (mut acquired, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, (attempted, asked)) in attempted.into_iter().zip(asked).enumerate() {
            let verdict = match attempted {
                AttemptResult::Held(lease, tally) => {
                    self.options.bind(&lease, self.quorum.env().now());
                    let (counted_before, payload) = (tally.begun().cloned().collect(), asked.payload.clone());
                    acquired.push(AcquiredMessage { at, lease, counted_before, payload });
                    None
                }
                AttemptResult::Closed => Some(Verdict::of(Err(AcquireError::Closed.into()))),
                AttemptResult::Lost(tally) => Some(self.lost(tally, asked)),
            };
            let in_progress = verdict.as_ref().is_some_and(Verdict::is_in_progress);
            elsewhere.extend((in_progress && asked.payload.is_some()).then_some(at));
            verdicts.push(verdict);
        }
        for (at, beginning) in begin(self.quorum.inner(), acquired, self.max_attempts, params.keep).await {
            verdicts[at] = Some(Verdict::of(self.outcome(&asked[at], beginning)));
        }
        self.compare_payloads(asked, &elsewhere, &mut verdicts).await;
        let closed = || Verdict::of(Err(AcquireError::Closed.into()));
        let verdicts: Vec<_> = verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(closed)).collect();
        verdicts.iter().for_each(|verdict| self.measures.claimed(verdict.kind()));
        verdicts
    }

    /// Returns the order in which the nodes are asked for these messages.
    fn order(&self, asked: &[Asked]) -> AskOrder {
        // An attempt is counted by the nodes that granted it, and then a majority of them all must answer. If only a
        // majority had been asked, the failure of one node would end the attempt.
        let is_counted = self.max_attempts.is_some() || asked.iter().any(|asked| asked.payload.is_some());
        if is_counted { AskOrder::All } else { self.crowd.order(self.quorum.env().now()) }
    }

    /// Returns the outcome of a message that was acquired.
    fn outcome(&self, asked: &Asked, beginning: Beginning) -> Result<ClaimOutcome, ClaimError> {
        match beginning {
            Beginning::Attempt(start) => {
                Ok(ClaimOutcome::Claimed(Claim::new(Arc::clone(&asked.id), start, self.retention)))
            }
            Beginning::GivenUp(start) => {
                let retention = self.dead_letter_retention.unwrap_or(self.retention);
                Ok(ClaimOutcome::Claimed(Claim::new(Arc::clone(&asked.id), start, retention).given_up()))
            }
            Beginning::OtherPayload(stored) => Err(asked.other_payload(Fingerprint::from_node(&stored))),
            Beginning::Overtaken => Ok(ClaimOutcome::InProgress { retry_after: None, holder: None }),
            Beginning::Uncounted(report) => Err(ClaimError::Uncounted { id: Arc::clone(&asked.id), report }),
        }
    }

    async fn settled(&self, verdict: Verdict) -> Verdict {
        match verdict.outcome {
            Ok(ClaimOutcome::Claimed(claim)) if claim.is_given_up() => {
                Verdict::of(Ok(self.hand_over(claim).await))
            }
            _ => verdict,
        }
    }

    /// Checks the payloads of the messages at the indices `places`, which other workers hold. If a message
    /// has another payload than the given one, its verdict becomes an error.
    async fn compare_payloads(&self, asked: &[Asked], places: &[usize], verdicts: &mut [Option<Verdict>]) {
        if places.is_empty() {
            return;
        }
        let given = |&at: &usize| {
            let Asked { resource, payload, .. } = &asked[at];
            payload.as_ref().map(|payload| (at, (resource.clone(), payload.text())))
        };
        let (places, given): (Vec<_>, Vec<_>) = places.iter().filter_map(given).unzip();
        let looks = payloads(self.quorum.pool(), &given).await;
        for (at, (payload, _)) in places.into_iter().zip(looks) {
            // If it is not certain which payload the message has, it counts as in progress, so that the caller
            // tries again.
            if let Payload::Other(other) = payload {
                let error = asked[at].other_payload(Fingerprint::from_node(&other));
                verdicts[at] = Some(Verdict::of(Err(error)));
            }
        }
    }

    fn lost(&self, tally: ClaimTally, asked: &Asked) -> Verdict {
        let outcome = match tally.done() {
            Some(done) => match (asked.other(done.payload.as_ref()), DeadLettered::of(done)) {
                (Some(other), _) => Err(asked.other_payload(other)),
                (None, Some(dead)) => Ok(ClaimOutcome::DeadLettered(dead)),
                (None, None) => Ok(ClaimOutcome::Done(Done::of(done))),
            },
            None if self.quorum.env().stopped().is_cancelled() => Err(AcquireError::Closed.into()),
            None if is_contended(&tally) => Ok(ClaimOutcome::InProgress {
                retry_after: tally.retry_after(),
                holder: tally.holder().cloned(),
            }),
            None => {
                let report = self.quorum.pool().report(tally.outcomes());
                Err(AcquireError::lost(asked.resource.clone(), false, report).into())
            }
        };
        Verdict { outcome, tally: Some(tally) }
    }

    /// Checks the settings, and returns the parameters of a claim's lease.
    pub(super) fn params(&self) -> Result<LeaseParams, ClaimError> {
        let refuse = |error: SettingError| Err(AcquireError::from(error).into());
        let params = self.options.params(self.quorum.config())?;
        if self.max_attempts == Some(0) {
            let reason = "with which no message could ever be handled";
            return refuse(SettingError::new("max_attempts", "0", reason, "give 1 or more, or leave it out"));
        }
        let retentions =
            [("retention", Some(self.retention)), ("dead_letter_retention", self.dead_letter_retention)];
        for (field, time) in retentions {
            if let Some(time) = time.filter(|time| *time < params.ttl) {
                return refuse(SettingError::new(
                    field,
                    format!("{time:?}"),
                    format!("shorter than the claims' ttl {:?}", params.ttl),
                    format!(
                        "a message would be forgotten while its claim may still be held: lengthen {field}, or shorten ttl"
                    ),
                ));
            }
        }
        // The claim's fencing counter must be kept as long as its record. The counter must also be kept for
        // at least `reseed_after`, so that a counter that is started again gives no token twice.
        let keep = self.retention.max(params.ttl * 2).max(self.quorum.config().reseed_after());
        Ok(LeaseParams { keep, ..params })
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("set", &self.set)
            .field("options", &self.options)
            .field("retention", &self.retention)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

/// Returns whether another worker has claimed or handled the message.
fn met_another(attempted: &AttemptResult<ClaimData>) -> bool {
    matches!(attempted, AttemptResult::Lost(tally) if tally.done().is_some() || is_contended(tally))
}

/// A message that a call claims: its id, the name of its claim on the nodes, and its payload's fingerprint.
pub(super) struct Asked {
    id: Arc<str>,
    resource: Resource,
    payload: Option<Fingerprint>,
}

impl Asked {
    /// Returns the fingerprint `stored` if it differs from the one that the caller gave. Returns `None` if they
    /// are equal, or if one is missing.
    fn other(&self, stored: Option<&Arc<str>>) -> Option<Fingerprint> {
        let stored = Fingerprint::from_node(stored?);
        self.payload.as_ref().filter(|given| **given != stored).map(|_| stored)
    }

    fn other_payload(&self, stored: Fingerprint) -> ClaimError {
        let given = self.payload.clone().unwrap_or_else(|| stored.clone());
        ClaimError::OtherPayload { id: Arc::clone(&self.id), given, stored }
    }
}

/// Returns `outcome` for the caller. If the message was claimed, its handler starts now, so its count is no
/// longer withdrawn.
fn started(outcome: ClaimOutcome) -> ClaimOutcome {
    match outcome {
        ClaimOutcome::Claimed(claim) => ClaimOutcome::Claimed(claim.started()),
        other => other,
    }
}

/// The outcome of one message.
pub(super) struct Verdict {
    pub(super) outcome: Result<ClaimOutcome, ClaimError>,
    /// The tally of the attempt, if the attempt was lost.
    pub(super) tally: Option<ClaimTally>,
}

impl Verdict {
    fn of(outcome: Result<ClaimOutcome, ClaimError>) -> Self {
        Self { outcome, tally: None }
    }

    /// Returns the outcome for the measurements. A message that was acquired and is given up was not claimed.
    fn kind(&self) -> ClaimResultKind {
        match &self.outcome {
            Ok(ClaimOutcome::Claimed(claim)) if claim.is_given_up() => ClaimResultKind::DeadLettered,
            Ok(ClaimOutcome::Claimed(_)) => ClaimResultKind::Claimed,
            Ok(ClaimOutcome::InProgress { .. }) => ClaimResultKind::InProgress,
            Ok(ClaimOutcome::Done(_)) => ClaimResultKind::Done,
            Ok(ClaimOutcome::DeadLettered(_)) => ClaimResultKind::DeadLettered,
            Err(_) => ClaimResultKind::Failed,
        }
    }

    fn is_in_progress(&self) -> bool {
        matches!(self.outcome, Ok(ClaimOutcome::InProgress { .. }))
    }
}

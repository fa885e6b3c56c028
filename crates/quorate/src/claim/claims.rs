use super::{
    Claim, ClaimError, ClaimOutcome, DeadLettered, Done, Fingerprint, MessageId,
    begin::{AcquiredMessage, Begun, begin, payloads},
    dead_letter::{DeadLetter, Hook},
    votes::{ClaimData, ClaimTally},
};
use crate::{
    claim::attempts::Payload,
    config::SettingError,
    lease::{AcquireError, AttemptResult, LeaseParams, attempt_each_with, is_contended},
    node::Resource,
    quorum::Quorum,
};
use futures_util::{StreamExt, stream};
use std::{fmt, sync::Arc, time::Duration};

/// Ids that travel together.
pub(super) const CHUNK: usize = 256;
/// How many chunks of a batch are under way at once: the nodes work on one while another is read or written here. With more
/// there would be more in the nodes' queues than they serve within a node timeout.
pub(super) const CHUNKS_AT_ONCE: usize = 2;
/// Poisoned ids of one batch that are handed over at a time.
const HOOKS_MAX: usize = 16;

/// Claims on the messages of one set (a queue, a topic).
#[derive(Clone, Debug)]
pub struct Claims {
    pub(super) quorum: Quorum,
    pub(super) set: Arc<str>,
    ttl: Duration,
    grace: Option<Duration>,
    pub(super) retention: Duration,
    max_attempts: Option<u32>,
    poisoned_for: Option<Duration>,
    pub(super) dead_letter: Option<Hook>,
}

impl Claims {
    /// Claims on the messages of `set`.
    pub fn new(quorum: &Quorum, set: &str) -> Self {
        Self {
            quorum: quorum.clone(),
            set: set.into(),
            ttl: quorum.config().default_ttl(),
            grace: None,
            retention: Duration::from_secs(24 * 3600),
            max_attempts: None,
            poisoned_for: None,
            dead_letter: None,
        }
    }

    /// How long a crashed handler blocks a message, at most. Default 10 s, at most `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long before the loss of a claim its handler is told. Default a fifth of the TTL.
    pub fn step_down_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How long a message is known to be done, and how often it was attempted after the last attempt began. Default
    /// 24 hours; longer than any redelivery, and at least the TTL.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// After how many attempts that nobody completed a message is given up, crashes among them: it is handed to the
    /// dead-letter hook, and whoever claims it is told [`ClaimOutcome::DeadLettered`]. An attempt begins when its claim is given;
    /// a claim that is abandoned or lost counts, one that is [given back](Claim::give_back) does not.
    ///
    /// Default without, since a sink that is away for a minute would have whole queues given up. With it every claim takes one
    /// round trip more: an attempt begins only once a majority has counted it, or a crash would not be counted.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How long a message stays given up once a hook has it. Default as [`Claims::retention`]; [`Claims::reset`] ends it
    /// before. What no hook has stays given up for as long as its attempts are known.
    pub fn poisoned_for(mut self, time: Duration) -> Self {
        self.poisoned_for = Some(time);
        self
    }

    /// What is to become of a message that is given up: a row in a table, a message in another queue. It runs inside
    /// the claim that found the limit reached, which is extended meanwhile, so one worker runs it; where that worker dies, or
    /// it fails, the next claim runs it again: it is to bear being repeated. What it returns is kept as the note. Where there
    /// is no hook the message waits for one: each claim on it says that it is given up, and records nothing.
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

    /// The name of the set.
    pub fn set(&self) -> &Arc<str> {
        &self.set
    }

    /// Whether these settings can be used at all: what every claim checks first.
    ///
    /// # Errors
    /// [`ClaimError::Acquire`], which names the setting, its value, and the mend.
    pub fn validate(&self) -> Result<(), ClaimError> {
        Resource::claim(&self.set, "x").map_err(AcquireError::from)?;
        self.terms().map(drop)
    }

    /// Claims one message.
    ///
    /// # Errors
    /// [`ClaimError`] for an id or settings that cannot be used, where too few nodes answered or may vote, and where
    /// the id was used with another payload. That someone else has it, or had it, is no error.
    ///
    /// # Cancel safety
    /// Safe: a dropped attempt posts its releases behind its own requests.
    pub async fn claim<'a>(&self, message: impl Into<MessageId<'a>>) -> Result<ClaimOutcome, ClaimError> {
        self.claim_one(message.into()).await?.outcome
    }

    /// Claims many messages, thousands if need be: a verdict for each id, in their order. They travel in batches of
    /// 256, two at a time, each a few script calls a node.
    ///
    /// An id that is given twice is in progress the second time.
    ///
    /// # Errors
    /// [`ClaimError`] for an id or settings that cannot be used: nothing has been claimed then, so one bad id refuses them
    /// all (look at ids of strangers with [`Resource::claim`] first). What concerns an id alone (too few nodes answered for it,
    /// another payload) is its own verdict.
    ///
    /// # Cancel safety
    /// Safe: dropped attempts post their releases behind their own requests, and what was claimed is abandoned.
    pub async fn claim_many<'a, M: Into<MessageId<'a>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<(Arc<str>, Result<ClaimOutcome, ClaimError>)>, ClaimError> {
        let asked = self.asked(messages.into_iter().map(Into::into))?;
        let terms = self.terms()?;
        let chunks: Vec<_> = asked.chunks(CHUNK).map(|chunk| self.claim_chunk(chunk, terms)).collect();
        let verdicts = stream::iter(chunks).buffered(CHUNKS_AT_ONCE).collect::<Vec<_>>().await;
        let ids = asked.iter().map(|asked| Arc::clone(&asked.id));
        let outcomes = verdicts.into_iter().flatten().map(|verdict| verdict.outcome.map(given));
        Ok(ids.zip(outcomes).collect())
    }

    /// As [`Claims::claim`], with what the nodes said where it was not won.
    pub(super) async fn claim_one(&self, message: MessageId<'_>) -> Result<Verdict, ClaimError> {
        let asked = self.asked([message])?;
        let verdict = self.claim_chunk(&asked, self.terms()?).await.pop();
        let Verdict { outcome, tally } = verdict.ok_or(AcquireError::Closed)?;
        Ok(Verdict { outcome: outcome.map(given), tally })
    }

    fn asked<'a>(&self, messages: impl IntoIterator<Item = MessageId<'a>>) -> Result<Vec<Asked>, ClaimError> {
        let asked = messages.into_iter().map(|message| {
            let (id, payload) = message.parts();
            let resource = Resource::claim(&self.set, &id).map_err(AcquireError::from)?;
            Ok(Asked { id, resource, payload })
        });
        asked.collect()
    }

    /// As [`Claims::claim_many`], but that what is given up is still to be [handed over](Claims::hand_over).
    pub(super) async fn claim_many_unsettled(
        &self,
        messages: impl IntoIterator<Item = MessageId<'_>>,
    ) -> Result<Vec<Result<ClaimOutcome, ClaimError>>, ClaimError> {
        let asked = self.asked(messages)?;
        let terms = self.terms()?;
        let chunks: Vec<_> = asked.chunks(CHUNK).map(|chunk| self.claim_unsettled(chunk, terms)).collect();
        let verdicts = stream::iter(chunks).buffered(CHUNKS_AT_ONCE).collect::<Vec<_>>().await;
        Ok(verdicts.into_iter().flatten().map(|verdict| verdict.outcome).collect())
    }

    async fn claim_chunk(&self, asked: &[Asked], terms: LeaseParams) -> Vec<Verdict> {
        let verdicts = self.claim_unsettled(asked, terms).await;
        // Those that are given up are handed over, a few at a time; the order is kept.
        let settled = verdicts.into_iter().map(|verdict| self.settled(verdict));
        stream::iter(settled).buffered(HOOKS_MAX).collect().await
    }

    async fn claim_unsettled(&self, asked: &[Asked], terms: LeaseParams) -> Vec<Verdict> {
        let resources: Vec<Resource> = asked.iter().map(|asked| asked.resource.clone()).collect();
        let data = ClaimData::new(self.quorum.config());
        let attempted = attempt_each_with(self.quorum.inner(), &resources, terms, &data).await;
        let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(asked.len());
        let (mut won, mut elsewhere) = (Vec::new(), Vec::new());
        for (at, (attempted, asked)) in attempted.into_iter().zip(asked).enumerate() {
            let verdict = match attempted {
                AttemptResult::Held(lease, tally) => {
                    let standing = tally.begun().cloned().collect();
                    won.push(AcquiredMessage { at, lease, standing, payload: asked.payload.clone() });
                    None
                }
                AttemptResult::Closed => Some(Verdict::of(Err(AcquireError::Closed.into()))),
                AttemptResult::Lost(tally) => Some(self.lost(tally, asked)),
            };
            let in_progress = verdict.as_ref().is_some_and(Verdict::is_in_progress);
            elsewhere.extend((in_progress && asked.payload.is_some()).then_some(at));
            verdicts.push(verdict);
        }
        for (at, begun) in begin(self.quorum.inner(), won, self.max_attempts, terms.keep).await {
            verdicts[at] = Some(Verdict::of(self.begun(&asked[at], begun)));
        }
        self.look_elsewhere(asked, &elsewhere, &mut verdicts).await;
        let closed = || Verdict::of(Err(AcquireError::Closed.into()));
        verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(closed)).collect()
    }

    /// What a message that was won is to whoever asked for it.
    fn begun(&self, asked: &Asked, begun: Begun) -> Result<ClaimOutcome, ClaimError> {
        match begun {
            Begun::Attempt(start) => {
                Ok(ClaimOutcome::Claimed(Claim::new(Arc::clone(&asked.id), start, self.retention)))
            }
            Begun::GivenUp(start) => {
                let retention = self.poisoned_for.unwrap_or(self.retention);
                Ok(ClaimOutcome::Claimed(Claim::new(Arc::clone(&asked.id), start, retention).given_up()))
            }
            Begun::OtherPayload(standing) => Err(asked.other_payload(Fingerprint::from_node(&standing))),
            Begun::Overtaken => Ok(ClaimOutcome::InProgress { retry_after: None, holder: None }),
            Begun::Uncounted(report) => Err(ClaimError::Uncounted { id: Arc::clone(&asked.id), report }),
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

    /// Somebody holds these: whether with the payload that was asked for.
    async fn look_elsewhere(&self, asked: &[Asked], places: &[usize], verdicts: &mut [Option<Verdict>]) {
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
            // What is not known for certain is in progress, and looked at again.
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
                (None, Some(poisoned)) => Ok(ClaimOutcome::DeadLettered(poisoned)),
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

    pub(super) fn terms(&self) -> Result<LeaseParams, ClaimError> {
        let refuse = |text: String| Err(AcquireError::from(SettingError(text)).into());
        if self.max_attempts == Some(0) {
            return refuse(
                "max_attempts is 0: no message could ever be handled; give 1 or more, or leave it out"
                    .to_owned(),
            );
        }
        let lasting = [("retention", Some(self.retention)), ("poisoned_for", self.poisoned_for)];
        for (name, time) in lasting {
            if let Some(time) = time.filter(|time| *time < self.ttl) {
                return refuse(format!(
                    "{name} is {time:?}, shorter than the claims' ttl {:?}: a message would be as new while its claim \
                     may still stand; lengthen {name}, or shorten ttl",
                    self.ttl
                ));
            }
        }
        // A claim's counter dies with its record, but not before it can be seeded anew.
        let keep = self.retention.max(self.ttl * 2).max(self.quorum.config().reseed_after());
        let params = LeaseParams::checked(self.quorum.config(), self.ttl, self.grace, None, true)
            .map_err(AcquireError::from)?;
        Ok(LeaseParams { keep, ..params })
    }
}

/// One message that is asked for.
pub(super) struct Asked {
    id: Arc<str>,
    resource: Resource,
    payload: Option<Fingerprint>,
}

impl Asked {
    /// What stands there, if it is the fingerprint of another payload.
    fn other(&self, standing: Option<&Arc<str>>) -> Option<Fingerprint> {
        let standing = Fingerprint::from_node(standing?);
        self.payload.as_ref().filter(|given| **given != standing).map(|_| standing)
    }

    fn other_payload(&self, standing: Fingerprint) -> ClaimError {
        let given = self.payload.clone().unwrap_or_else(|| standing.clone());
        ClaimError::OtherPayload { id: Arc::clone(&self.id), given, standing }
    }
}

/// The same, for whoever asked: a claim is theirs to begin from now on.
fn given(outcome: ClaimOutcome) -> ClaimOutcome {
    match outcome {
        ClaimOutcome::Claimed(claim) => ClaimOutcome::Claimed(claim.begins()),
        other => other,
    }
}

/// What came of one of them.
pub(super) struct Verdict {
    pub(super) outcome: Result<ClaimOutcome, ClaimError>,
    /// What the nodes said, where it was lost.
    pub(super) tally: Option<ClaimTally>,
}

impl Verdict {
    fn of(outcome: Result<ClaimOutcome, ClaimError>) -> Self {
        Self { outcome, tally: None }
    }

    fn is_in_progress(&self) -> bool {
        matches!(self.outcome, Ok(ClaimOutcome::InProgress { .. }))
    }
}

//! One try at one tick: the claim, *started* where nothing stands, the work, its end.

use super::{
    names,
    plan::{Came, Try},
    record::{Doubt, Meaning, SpreadRecord, doubted, meaning},
};
use crate::{
    claim::{Claim, ClaimError, ClaimOutcome, Claims},
    env::WallTime,
    lease::AcquireError,
    ledger::{Ledger, LedgerError},
    node::{FencingToken, Record},
    quorum::Quorum,
    schedule::{
        Delivery, Job, TickCause, TickEnd, TickHistory, TickKey,
        counts::Counts,
        work::{Cancel, Hold, Work, WorkEnd, Worked},
    },
};
use std::{sync::Arc, time::Duration};

/// Between attempts to write without a majority.
const WRITE_AGAIN: Duration = Duration::from_millis(50);
/// How many different records may stand in the way of one start.
const STANDING_MAX: usize = 16;

/// A tick about to be tried.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) job: Arc<Job>,
    pub(super) tried: Try,
    pub(super) claims: Claims,
    /// The ledger of spread ticks.
    pub(super) ledger: Ledger,
    pub(super) worker: Arc<str>,
    pub(super) quorum: Quorum,
    pub(super) cancel: Cancel,
    /// How long a run that is told to stop has to end.
    pub(super) grace: Duration,
    /// The longest time after which a claim that somebody else holds is asked for again.
    pub(super) ttl: Duration,
    pub(super) counts: Counts,
}

/// What a record is written for, before anything has run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// To run the tick.
    Start,
    /// To know that nobody has started it.
    Probe,
    /// To have it end so, without a run.
    Skip(TickEnd),
}

/// What came of it.
enum Begun {
    /// Over another's start, or where nothing stood.
    Started {
        over: bool,
    },
    /// Nobody has started it.
    Clear,
    /// Nobody has started it, and nobody will: so says the record.
    Skipped(SpreadRecord),
    /// It has ended, and somebody has said so in its history.
    Ended,
    /// It is not to be run, says this record, which may not be the only one: a start may have stood elsewhere, that the
    /// own one has been written `over`.
    Skip {
        skip: Record,
        over: bool,
    },
    /// Somebody has started it, and it is to be run again.
    Owed(Record),
    /// Somebody has started it, and it is not.
    Lost(Record),
    Forgotten,
    NotNow,
    ClaimLost,
}

impl Attempt {
    /// Tries the tick. Dropping it drops the work and gives the claim up; the tick then stands as started.
    pub(super) async fn run(mut self) -> (Came, Option<TickHistory>) {
        let claim = match self.claims.claim(&names::id(&self.job.name, self.tried.tick)).await {
            Ok(ClaimOutcome::Claimed(claim)) => claim,
            // All that held it were asking for it as well, and have let go of it by now.
            Ok(ClaimOutcome::InProgress { holder: None, .. }) => return (Came::Contended, None),
            Ok(ClaimOutcome::InProgress { retry_after, .. }) => {
                return (Came::Elsewhere(retry_after.unwrap_or(self.ttl).min(self.ttl)), None);
            }
            Ok(_) => return (Came::Ended, None),
            Err(ClaimError::Acquire(AcquireError::Closed)) => return (Came::Ended, None),
            Err(error) => {
                tracing::debug!(job = &*self.job.name, "a spread tick cannot be claimed yet: {error}");
                return (Came::NotNow, None);
            }
        };
        let random = [self.quorum.env().random(), self.quorum.env().random()];
        let own = SpreadRecord::started(&self.worker, claim.token(), random, self.quorum.wall());
        let started = own.clone().into_record(self.tried.tick);
        let begun = match self.tried.too_late {
            Some(end) => self.give_up(&claim, &own, &started, end).await,
            None => self.begin(&claim, &started, None, Aim::Start).await,
        };
        let begun = match begun {
            Begun::Skip { skip, over } => self.doubt(&claim, &started, &skip, over).await,
            other => other,
        };
        match begun {
            Begun::Started { over } => {
                self.tried.made_up |= over;
                self.work(claim, own, started).await
            }
            Begun::Skipped(by) => {
                let end = by.end.unwrap_or(TickEnd::SkippedMisfire);
                let history = self.entry(&by, end, &by.reason, None, FencingToken::default());
                self.close(claim, end).await;
                (Came::Ended, Some(history))
            }
            Begun::Ended => {
                self.close(claim, TickEnd::Done).await;
                (Came::Ended, None)
            }
            Begun::Lost(standing) => self.lose(claim, &own, standing).await,
            Begun::Forgotten => {
                let why = "too few nodes remember that time";
                let history = self.entry(&own, TickEnd::Lost, why, None, FencingToken::default());
                self.close(claim, TickEnd::Lost).await;
                (Came::Ended, Some(history))
            }
            Begun::NotNow => (Came::NotNow, None),
            Begun::ClaimLost | Begun::Owed(_) | Begun::Clear | Begun::Skip { .. } => (Came::Contended, None),
        }
    }

    /// Brings the tick to this `end`, unless it was started: then it owes a run, or is lost.
    ///
    /// A skip is the last word at a node that takes it, also where another node has a start. So at least once it is
    /// not written before a majority has said, by taking a start, that there is none; at most once the skip itself asks.
    async fn give_up(&self, claim: &Claim, own: &SpreadRecord, started: &Record, end: TickEnd) -> Begun {
        let skipped = own.ended(end, why(end)).into_record(self.tried.tick);
        let (probe, seen) = match self.job.delivery {
            Delivery::AtLeastOnce => {
                (self.begin(claim, started, None, Aim::Probe).await, Some(started.clone()))
            }
            Delivery::AtMostOnce => (Begun::Clear, None),
        };
        let given_up = match probe {
            Begun::Clear => self.begin(claim, &skipped, seen, Aim::Skip(end)).await,
            other => other,
        };
        match given_up {
            // It was started in time.
            Begun::Owed(seen) => self.begin(claim, started, Some(seen), Aim::Start).await,
            other => other,
        }
    }

    /// A `skip` stands in the way: whoever wrote it may not have reached a majority, and another start may have.
    async fn doubt(&self, claim: &Claim, started: &Record, skip: &Record, over: bool) -> Begun {
        let answers = match self.ledger.read().await {
            Ok(answers) => answers,
            Err(error) => {
                tracing::debug!(job = &*self.job.name, "a spread tick cannot be read yet: {error}");
                return Begun::NotNow;
            }
        };
        let key = self.key();
        let records = answers.iter().flat_map(|answer| answer.state.records.iter());
        let standing: Vec<&Record> = records.filter(|(at, _)| *at == key).map(|(_, record)| record).collect();
        match doubted(&standing, started, self.job.delivery) {
            Doubt::Ended => Begun::Ended,
            Doubt::Lost(start) => Begun::Lost(start),
            Doubt::Skipped if over => Begun::Started { over },
            Doubt::Skipped => SpreadRecord::parse(skip).map_or(Begun::Ended, Begun::Skipped),
            // A majority may not take the start any more; but that it was started is known, and that nobody else has it.
            Doubt::Owed(start) => match self.begin(claim, started, Some(start), Aim::Start).await {
                Begun::Skip { .. } => Begun::Started { over: true },
                other => other,
            },
        }
    }

    /// Writes the `first` record of the tick until a majority of the nodes that remember has it: where nothing stands,
    /// or over a start that is to be run again.
    async fn begin(&self, claim: &Claim, first: &Record, mut seen: Option<Record>, aim: Aim) -> Begun {
        let key = self.key();
        let mut standing = 0;
        loop {
            if claim.fencing_token().is_err() || (self.cancel.is_cancelled() && !self.cancel.is_for_good()) {
                return Begun::ClaimLost;
            }
            let reached = |over| match aim {
                Aim::Start => Begun::Started { over },
                Aim::Probe => Begun::Clear,
                Aim::Skip(_) => SpreadRecord::parse(first).map_or(Begun::Ended, Begun::Skipped),
            };
            match self.ledger.write(&key, seen.as_ref(), first).await {
                // A pause may lie between the write and here: somebody else may have the tick by now.
                Ok(()) if claim.fencing_token().is_err() => return Begun::ClaimLost,
                Ok(()) => return reached(seen.is_some()),
                Err(LedgerError::Standing(other)) => match meaning(&other, self.job.delivery) {
                    Meaning::Over => return Begun::Ended,
                    Meaning::Skip => {
                        return Begun::Skip { skip: other, over: aim == Aim::Start && seen.is_some() };
                    }
                    Meaning::Lost => return Begun::Lost(other),
                    Meaning::Again if aim != Aim::Start => return Begun::Owed(other),
                    Meaning::Again if standing >= STANDING_MAX => return Begun::ClaimLost,
                    Meaning::Again => {
                        standing += 1;
                        seen = Some(other);
                    }
                },
                // What may have been started runs, and what has just been asked for was not.
                Err(LedgerError::Forgotten(_))
                    if self.job.delivery == Delivery::AtLeastOnce && aim != Aim::Probe =>
                {
                    return reached(seen.is_some());
                }
                Err(LedgerError::Forgotten(_)) => return Begun::Forgotten,
                Err(error) => {
                    tracing::debug!(job = &*self.job.name, "a spread tick is not started yet: {error}");
                    self.quorum.env().sleep(WRITE_AGAIN).await;
                }
            }
        }
    }

    async fn work(&self, claim: Claim, own: SpreadRecord, started: Record) -> (Came, Option<TickHistory>) {
        let began = self.quorum.wall();
        if !self.tried.made_up {
            self.counts.late(&self.job.name, self.job.jitters().ripe(self.tried.tick).until(began));
        }
        let handle = claim.handle();
        let cause = if self.tried.made_up { TickCause::MadeUp } else { TickCause::Scheduled };
        let work = Work {
            job: Arc::clone(&self.job),
            tick: self.tried.tick,
            cause,
            hold: Hold::Claim(handle.clone(), self.quorum.env().clone()),
            state: None,
            cancel: self.cancel.clone(),
            grace: self.grace,
        };
        let worked = tokio::select! { biased;
            worked = work.run() => Some(worked),
            () = handle.lost_token().cancelled() => None,
        };
        let Some(worked) = worked else { return self.cut_off(&own, &started, began).await };
        let again = match worked.end {
            WorkEnd::Interrupted => true,
            // At a shutdown: others are there.
            WorkEnd::Cancelled => self.job.delivery == Delivery::AtLeastOnce && !self.cancel.is_for_good(),
            _ => false,
        };
        if again {
            if let Err(error) = claim.abandon().await {
                tracing::debug!(job = &*self.job.name, "a spread tick is given back late: {error}");
            }
            return (Came::Interrupted, None);
        }
        let end = match worked.end {
            WorkEnd::Done => TickEnd::Done,
            WorkEnd::Failed => TickEnd::Failed,
            WorkEnd::TimedOut => TickEnd::TimedOut,
            WorkEnd::Cancelled | WorkEnd::Interrupted => TickEnd::Cancelled,
        };
        let last = own.ended(end, &worked.reason).into_record(self.tried.tick);
        self.write_last(&claim, &started, &last).await;
        let history = self.entry(&own, end, &worked.reason, Some((began, &worked)), claim.token());
        self.close(claim, end).await;
        (Came::Ended, Some(history))
    }

    /// The claim was lost and the work dropped with it. At most once that is the tick's end, and nobody else's to tell
    /// if it can be told now.
    async fn cut_off(
        &self,
        own: &SpreadRecord,
        started: &Record,
        began: WallTime,
    ) -> (Came, Option<TickHistory>) {
        let why = "its claim was lost while it ran";
        if self.job.delivery == Delivery::AtLeastOnce {
            return (Came::Elsewhere(self.ttl), None);
        }
        let last = own.ended(TickEnd::Cancelled, why).into_record(self.tried.tick);
        match self.ledger.write(&self.key(), Some(started), &last).await {
            Ok(()) => {
                let entry = self.entry(own, TickEnd::Cancelled, why, None, own.token);
                (Came::Ended, Some(TickHistory { started: Some(began), attempts: 1, ..entry }))
            }
            // Whoever claims it next finds it started, and enters it as lost.
            Err(_) => (Came::Elsewhere(self.ttl), None),
        }
    }

    /// Somebody has started the tick and has it no more: it is entered as lost, by whoever says so to a majority.
    async fn lose(
        &self,
        claim: Claim,
        own: &SpreadRecord,
        mut standing: Record,
    ) -> (Came, Option<TickHistory>) {
        let key = self.key();
        let started = SpreadRecord::parse(&standing).unwrap_or_else(|| own.clone());
        let why = format!("{} started it and never said how it ended", started.worker);
        let lost = started.ended(TickEnd::Lost, &why).into_record(self.tried.tick);
        for _ in 0..STANDING_MAX {
            if claim.fencing_token().is_err() {
                return (Came::Contended, None);
            }
            match self.ledger.write(&key, Some(&standing), &lost).await {
                Ok(()) | Err(LedgerError::Forgotten(_)) => {
                    let entry = self.entry(&started, TickEnd::Lost, &why, None, started.token);
                    self.close(claim, TickEnd::Lost).await;
                    return (Came::Ended, Some(TickHistory { started: Some(started.at), ..entry }));
                }
                // Somebody gave it up who did not know of the start.
                Err(LedgerError::Standing(other)) if meaning(&other, self.job.delivery) == Meaning::Skip => {
                    let entry = self.entry(&started, TickEnd::Lost, &why, None, started.token);
                    self.close(claim, TickEnd::Lost).await;
                    return (Came::Ended, Some(TickHistory { started: Some(started.at), ..entry }));
                }
                // Its worker was only slow to say so.
                Err(LedgerError::Standing(other)) if other.last => {
                    self.close(claim, TickEnd::Done).await;
                    return (Came::Ended, None);
                }
                Err(LedgerError::Standing(other)) => standing = other,
                Err(_) => self.quorum.env().sleep(WRITE_AGAIN).await,
            }
        }
        (Came::NotNow, None)
    }

    /// Writes the last word while the claim lasts. Short of it, an at-least-once tick runs again.
    async fn write_last(&self, claim: &Claim, started: &Record, last: &Record) {
        let key = self.key();
        loop {
            match self.ledger.write(&key, Some(started), last).await {
                Ok(()) => return,
                Err(LedgerError::NoMajority(_)) if claim.fencing_token().is_ok() => {
                    self.quorum.env().sleep(WRITE_AGAIN).await;
                }
                Err(error) => {
                    tracing::warn!(job = &*self.job.name, "a spread tick's end is not recorded: {error}");
                    return;
                }
            }
        }
    }

    /// Nobody needs to look at the tick any more.
    async fn close(&self, claim: Claim, end: TickEnd) {
        if let Err(error) = claim.complete(end.as_str()).await {
            tracing::debug!(job = &*self.job.name, "a spread tick's claim is not completed: {error}");
        }
    }

    fn entry(
        &self,
        by: &SpreadRecord,
        end: TickEnd,
        reason: &str,
        ran: Option<(WallTime, &Worked)>,
        token: FencingToken,
    ) -> TickHistory {
        TickHistory {
            job: Arc::clone(&self.job.name),
            tick: self.tried.tick,
            until: None,
            cause: if self.tried.made_up { TickCause::MadeUp } else { TickCause::Scheduled },
            end,
            reason: reason.into(),
            worker: Arc::clone(&by.worker),
            term: token,
            started: ran.map(|(began, _)| began),
            took: ran.map(|(_, worked)| worked.took),
            attempts: ran.map_or(0, |(_, worked)| worked.attempts),
            output: ran.and_then(|(_, worked)| worked.output.clone()),
        }
    }

    fn key(&self) -> Arc<str> {
        TickKey::new(&self.job.name, self.tried.tick).key()
    }
}

fn why(end: TickEnd) -> &'static str {
    match end {
        TickEnd::SkippedOverlap => "every worker was busy with the job, and a later tick came due",
        _ => "nobody ran it in time",
    }
}

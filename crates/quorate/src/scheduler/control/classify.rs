//! What is to be done with the requests in an inbox: a pure function of what the nodes say, of what was done before,
//! and of the time.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{JobAction, JobRequest, JobResponse, JobRow, RecordError, RequestId, plan::verdict::rank},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// What the keys of requests begin with.
const INBOX_PREFIX: &str = "ask/";
/// How long requests and answers stay.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// An answer that does not reach a node, one without memory left for instance, is written again so often at most.
const ANSWER_AGAIN: Duration = Duration::from_secs(2);
/// A request is never valid for longer, whatever it says: it must not outlive the memory of its answer.
pub(super) const VALID_MAX: Duration = Duration::from_secs(1800);

/// The key of a request, and of what is answered to it.
pub(super) fn key(id: RequestId) -> Arc<str> {
    format!("{INBOX_PREFIX}{id}").into()
}

/// The record of a request.
pub(super) fn asking(request: &JobRequest) -> Record {
    let value = serde_json::to_string(request).unwrap_or_default().into();
    Record { at: request.at.as_micros(), term: FencingToken::default(), last: false, value }
}

/// The record of an answer, which takes the place of the request's.
pub(super) fn answering(request: &JobRequest, answer: &JobResponse) -> Record {
    let value = serde_json::to_string(answer).unwrap_or_default().into();
    Record { at: request.at.as_micros(), term: FencingToken::default(), last: true, value }
}

fn too_late(request: &JobRequest) -> JobResponse {
    let valid_for = request.valid_for.min(VALID_MAX);
    let why = format!(
        "too late: nobody led, or could be reached, while it was valid, for {valid_for:.0?}; ask again"
    );
    JobResponse::Refused { why: why.into() }
}

/// What is said to a request that was not heard in time, by the group's ledger: an earlier leader may have carried it
/// out, and not lived to answer.
pub(super) fn late(ledger: &[Answered], request: &JobRequest) -> JobResponse {
    taken_up(ledger, request).unwrap_or_else(|| match request.what {
        JobAction::Cancel { .. } => {
            let why = "too late to be heard; a leader may have told what ran to stop before it could answer: look at \
                       what runs, and ask again";
            JobResponse::Refused { why: why.into() }
        }
        _ => too_late(request),
    })
}

/// What an earlier leader has said to a request that it took up and did not live to answer.
fn taken_up(ledger: &[Answered], request: &JobRequest) -> Option<JobResponse> {
    #[derive(serde::Deserialize)]
    struct Row {
        answer: JobResponse,
    }
    let found = |key: Arc<str>| {
        let records = ledger.iter().flat_map(|answer| &answer.state.records);
        records.filter(move |(other, _)| *other == key).map(|(_, record)| &record.value)
    };
    match &request.what {
        JobAction::Trigger { .. } | JobAction::Backfill { .. } => found(key(request.id))
            .find_map(|value| serde_json::from_str::<Row>(value).ok())
            .map(|row| row.answer),
        // Of a cancel on the leader nothing is written; of one that the workers have to read, their job's row says so.
        JobAction::Pause { job } | JobAction::Resume { job } | JobAction::Cancel { job, .. } => {
            found(JobRow::key(job))
                .filter_map(|value| JobRow::parse(value).ok())
                .any(|row| row.asked.contains(&request.id))
                .then(|| JobResponse::Accepted { text: "done, by an earlier leader".into(), count: 0 })
        }
    }
}

/// Until when a request may be taken up.
pub(super) fn valid_until(request: &JobRequest) -> WallTime {
    request.at + request.valid_for.min(VALID_MAX)
}

/// Something to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Hand it to the leader.
    Ask(JobRequest),
    /// Write this over it, on every node that has the request still.
    Answer(JobRequest, JobResponse),
    /// It was not heard in time: say so, unless an earlier leader has taken it up.
    TooLate(JobRequest),
    /// Say once that this cannot be read; then leave it alone.
    Unreadable(Arc<str>, RecordError),
}

/// What this leader has done about requests so far.
#[derive(Debug, Default)]
pub(super) struct Classification {
    known: BTreeMap<RequestId, Known>,
    unreadable: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct Known {
    asked_at: WallTime,
    /// The answer, once there is one.
    answer: Option<JobResponse>,
    /// When it was last written.
    written_at: WallTime,
}

impl Classification {
    /// Takes in what the nodes say at `now`: what is to be done, in the order in which it was asked.
    pub(super) fn look(&mut self, answers: &[Answered], now: WallTime) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut requests = BTreeMap::new();
        let mut answered: BTreeMap<RequestId, (&Record, JobResponse)> = BTreeMap::new();
        for (key, record) in answers.iter().flat_map(|answer| &answer.state.records) {
            match read(key, record) {
                Ok(None) => {}
                Ok(Some((id, InboxItem::Answer(answer)))) => {
                    if answered.get(&id).is_none_or(|(known, _)| rank(record) > rank(known)) {
                        answered.insert(id, (record, answer));
                    }
                }
                Ok(Some((id, InboxItem::Request(request)))) => {
                    drop(requests.insert((request.at, id), request));
                }
                Err(error) => {
                    if self.unreadable.insert(Arc::clone(key)) {
                        steps.push(Step::Unreadable(Arc::clone(key), error));
                    }
                }
            }
        }
        for ((_, id), request) in requests {
            steps.extend(self.decide(id, request, answered.remove(&id).map(|(_, answer)| answer), now));
        }
        let gone = now - 2 * KEPT;
        self.known.retain(|_, known| known.asked_at >= gone);
        let stands = |key: &Arc<str>| {
            answers.iter().flat_map(|answer| &answer.state.records).any(|(other, _)| other == key)
        };
        self.unreadable.retain(stands);
        steps
    }

    /// One request that stands on some node still, and what another node has been told of it already.
    fn decide(
        &mut self,
        id: RequestId,
        request: JobRequest,
        told: Option<JobResponse>,
        now: WallTime,
    ) -> Option<Step> {
        let late = now > valid_until(&request);
        let known = self.known.entry(id);
        let is_new = matches!(known, std::collections::btree_map::Entry::Vacant(_));
        let asked_at = request.at;
        let known = known.or_insert(Known { asked_at, answer: None, written_at: WallTime::default() });
        if told.is_some() {
            known.answer = told;
        }
        match &known.answer {
            Some(answer) if now < known.written_at || known.written_at + ANSWER_AGAIN <= now => {
                known.written_at = now;
                Some(Step::Answer(request, answer.clone()))
            }
            Some(_) => None,
            None if is_new && late => {
                known.written_at = now;
                Some(Step::TooLate(request))
            }
            None if is_new => Some(Step::Ask(request)),
            // With the leader.
            None => None,
        }
    }

    /// The leader's answer to a request that was handed to it; `None` where it gave none.
    pub(super) fn answered(&mut self, id: RequestId, answer: Option<JobResponse>) {
        match (answer, self.known.get_mut(&id)) {
            (Some(answer), Some(known)) => known.answer = Some(answer),
            _ => drop(self.known.remove(&id)),
        }
    }
}

/// Whether something in the inbox is old enough to be forgotten, and below what time: no write where there is nothing.
pub(super) fn prune_below(answers: &[Answered], now: WallTime) -> Option<u64> {
    let below = (now - KEPT).as_micros();
    let old = answers.iter().flat_map(|answer| &answer.state.records).any(|(_, record)| record.at < below);
    old.then_some(below)
}

/// Returns the answer to a request that the nodes have; `None` while none has one. Where nodes have different answers,
/// this is the one that a leader [repeats](Classification::look).
pub(super) fn answer_to(answers: &[Answered], id: RequestId) -> Option<Result<JobResponse, RecordError>> {
    let key = key(id);
    let records = answers.iter().flat_map(|answer| &answer.state.records);
    let answered = records.filter(|(other, record)| *other == key && record.last).map(|(_, record)| record);
    answered.max_by_key(|record| rank(record)).map(|record| parse_answer(&record.value))
}

enum InboxItem {
    Request(JobRequest),
    Answer(JobResponse),
}

/// Reads one record; `None` for what is no request's.
fn read(key: &str, record: &Record) -> Result<Option<(RequestId, InboxItem)>, RecordError> {
    let Some(id) = key.strip_prefix(INBOX_PREFIX) else { return Ok(None) };
    let id: RequestId =
        id.parse().map_err(|error| RecordError::new("request's key", key, &format!("{error}")))?;
    if record.last {
        return Ok(Some((id, InboxItem::Answer(parse_answer(&record.value)?))));
    }
    let request: JobRequest = serde_json::from_str(&record.value)
        .map_err(|error| RecordError::new("request", &record.value, &error.to_string()))?;
    if request.id != id || request.at.as_micros() != record.at {
        return Err(RecordError::new("request", &record.value, "it stands under another one's key or time"));
    }
    Ok(Some((id, InboxItem::Request(request))))
}

fn parse_answer(value: &str) -> Result<JobResponse, RecordError> {
    serde_json::from_str(value).map_err(|error| RecordError::new("answer", value, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Memory, node::LedgerState};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn request(id: u128, asked: u64) -> JobRequest {
        JobRequest {
            id: RequestId::from_u128(id),
            by: "me@oak".into(),
            at: at(asked),
            valid_for: 60 * SECOND,
            what: JobAction::Trigger { job: "j".into() },
        }
    }

    fn yes() -> JobResponse {
        JobResponse::Accepted { text: "one run".into(), count: 1 }
    }

    fn node(records: &[(Arc<str>, Record)]) -> Answered {
        let memory = Memory { since: WallTime::default(), max_clock_offset: SECOND };
        let mut records = records.to_vec();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Answered { memory, state: LedgerState { records, ..LedgerState::default() } }
    }

    fn asked(request: &JobRequest) -> (Arc<str>, Record) {
        (key(request.id), asking(request))
    }

    fn told(request: &JobRequest) -> (Arc<str>, Record) {
        (key(request.id), answering(request, &yes()))
    }

    #[test]
    fn a_request_is_handed_on_once_and_requests_in_the_order_of_their_asking() {
        let mut triage = Classification::default();
        let (first, second) = (request(9, 1), request(2, 3));
        // The first has reached one node only, the second all: whoever asked may still try the others.
        let nodes = [node(&[asked(&second)]), node(&[asked(&first), asked(&second)])];
        assert_eq!(triage.look(&nodes, at(4)), [Step::Ask(first.clone()), Step::Ask(second)]);
        assert_eq!(triage.look(&nodes, at(5)), [], "they are with the leader");
        assert_eq!(triage.look(&nodes, at(500)), [], "and stay there");
        triage.answered(first.id, Some(yes()));
        assert_eq!(
            triage.look(&nodes, at(501)),
            [Step::Answer(first.clone(), yes())],
            "what stands is written over"
        );
        assert_eq!(triage.look(&nodes, at(502)), [], "though a node that cannot take it is not pestered");
        assert_eq!(triage.look(&nodes, at(503)), [Step::Answer(first, yes())]);
    }

    #[test]
    fn what_the_leader_dropped_unanswered_is_handed_on_again() {
        let mut triage = Classification::default();
        let one = request(1, 1);
        let nodes = [node(&[asked(&one)])];
        assert_eq!(triage.look(&nodes, at(2)), [Step::Ask(one.clone())]);
        triage.answered(one.id, None);
        assert_eq!(triage.look(&nodes, at(3)), [Step::Ask(one)]);
    }

    #[test]
    fn too_late_is_answered_so_and_never_handed_on() {
        let mut triage = Classification::default();
        let one = request(1, 0);
        let nodes = [node(&[asked(&one)])];
        let steps = triage.look(&nodes, at(61));
        assert_eq!(steps, [Step::TooLate(one.clone())]);
        let JobResponse::Refused { why } = too_late(&one) else { panic!("late is refused") };
        assert!(why.contains("too late") && why.contains("for 60s"), "{why}");
        triage.answered(one.id, Some(too_late(&one)));
        assert_eq!(triage.look(&nodes, at(62)), [], "it is being written");
        assert_eq!(
            triage.look(&nodes, at(63)),
            [Step::Answer(one.clone(), too_late(&one))],
            "it did not arrive"
        );
        let mut fresh = Classification::default();
        assert_eq!(fresh.look(&nodes, at(60)), [Step::Ask(one)], "to the last moment it is in time");
        let long = JobRequest { valid_for: Duration::MAX, ..request(1, 0) };
        let steps = Classification::default().look(&[node(&[asked(&long)])], at(1801));
        assert!(matches!(steps[..], [Step::TooLate(_)]), "{steps:?}");
    }

    #[test]
    fn what_one_node_knows_the_answer_to_is_not_asked_again_by_the_next_leader() {
        let one = request(1, 0);
        let nodes = [node(&[asked(&one)]), node(&[told(&one)]), node(&[])];
        for now in [at(1), at(500)] {
            assert_eq!(Classification::default().look(&nodes, now), [Step::Answer(one.clone(), yes())]);
        }
        assert_eq!(
            Classification::default().look(&[node(&[told(&one)]), node(&[])], at(1)),
            [],
            "nothing stands"
        );
    }

    #[test]
    fn of_two_answers_the_leader_and_the_asker_take_the_same_in_either_node_order() {
        let one = request(1, 0);
        let refused = JobResponse::Refused { why: "paused".into() };
        let (yes, no) = (told(&one), (key(one.id), answering(&one, &refused)));
        let nodes = |first: &(Arc<str>, Record), second: &(Arc<str>, Record)| {
            [node(std::slice::from_ref(first)), node(&[asked(&one)]), node(std::slice::from_ref(second))]
        };
        let [ahead, behind] = [nodes(&yes, &no), nodes(&no, &yes)].map(|nodes| {
            let answer = answer_to(&nodes, one.id).expect("there are two").expect("both can be read");
            assert_eq!(
                Classification::default().look(&nodes, at(1)),
                [Step::Answer(one.clone(), answer.clone())]
            );
            answer
        });
        assert_eq!(ahead, behind);
    }

    #[test]
    fn what_cannot_be_read_is_told_once_and_left_alone() {
        let one = request(1, 0);
        let spoilt = |key: &str, record: Record| (Arc::<str>::from(key), record);
        let garbage = Record { value: "?".into(), ..asking(&one) };
        let moved = Record { at: 7, ..asking(&one) };
        let nodes = [node(&[
            spoilt("ask/xyz", garbage.clone()),
            spoilt(&key(one.id), garbage.clone()),
            spoilt(&key(RequestId::from_u128(2)), asking(&one)),
            spoilt(&key(RequestId::from_u128(3)), Record { last: true, ..garbage.clone() }),
            spoilt(&key(RequestId::from_u128(4)), moved),
            spoilt("other/thing", garbage),
        ])];
        let mut triage = Classification::default();
        let steps = triage.look(&nodes, at(1));
        assert_eq!(steps.len(), 5, "{steps:?}");
        assert!(steps.iter().all(|step| matches!(step, Step::Unreadable(..))), "{steps:?}");
        assert_eq!(triage.look(&nodes, at(2)), []);
    }

    #[test]
    fn what_is_older_than_an_hour_is_pruned_and_nothing_is_written_where_nothing_is() {
        let nodes = [node(&[]), node(&[told(&request(1, 10))])];
        assert_eq!(prune_below(&nodes, at(3609)), None);
        assert_eq!(prune_below(&nodes, at(3610)), None, "an hour old is not older");
        assert_eq!(prune_below(&nodes, at(3611)), Some(at(11).as_micros()));
    }

    #[test]
    fn what_an_earlier_leader_accepted_is_known_by_the_ledger() {
        let one = request(1, 0);
        let value = format!(r#"{{"answer":{},"more":1}}"#, serde_json::to_string(&yes()).unwrap()).into();
        let row = (key(one.id), Record { value, ..asking(&one) });
        assert_eq!(late(&[node(&[]), node(&[row])], &one), yes());
        assert_eq!(late(&[node(&[asked(&one)])], &one), too_late(&one));
    }

    #[test]
    fn a_pause_that_an_earlier_leader_carried_out_is_not_refused_as_late() {
        let job: Arc<str> = "j".into();
        let pause = JobRequest { what: JobAction::Pause { job: job.clone() }, ..request(7, 0) };
        let mut row = JobRow { schedule: "every 1s".into(), ..JobRow::default() };
        let stands = |row: &JobRow| {
            let record = Record { value: row.to_value(), ..asking(&pause) };
            [node(&[]), node(&[(JobRow::key("j"), record)])]
        };
        assert_eq!(late(&stands(&row), &pause), too_late(&pause));
        row.changed_by(pause.id);
        // Resumed since: it was paused all the same.
        row.changed_by(RequestId::from_u128(8));
        assert!(matches!(late(&stands(&row), &pause), JobResponse::Accepted { .. }));
        let cancel = JobRequest { what: JobAction::Cancel { job, tick: None }, ..request(9, 0) };
        let JobResponse::Refused { why } = late(&stands(&row), &cancel) else {
            panic!("nothing is known of it")
        };
        row.changed_by(cancel.id);
        assert!(
            matches!(late(&stands(&row), &cancel), JobResponse::Accepted { .. }),
            "of a job that is spread it is"
        );
        assert!(why.contains("may have told what ran to stop"), "{why}");
    }

    #[test]
    fn an_answer_is_found_on_any_node() {
        let one = request(1, 0);
        assert!(answer_to(&[node(&[asked(&one)])], one.id).is_none());
        assert_eq!(answer_to(&[node(&[asked(&one)]), node(&[told(&one)])], one.id), Some(Ok(yes())));
        let garbage = Record { value: "?".into(), ..answering(&one, &yes()) };
        assert!(answer_to(&[node(&[(key(one.id), garbage)])], one.id).is_some_and(|read| read.is_err()));
    }
}

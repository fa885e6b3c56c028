//! Decides how the leader handles the requests in its group's inbox. The inbox is the part of the group's
//! ledger to which callers write requests. The decisions depend only on the records on the nodes, on the
//! earlier decisions of this leader, and on the time.

use crate::{
    env::WallTime,
    ledger::Answered,
    node::{FencingToken, Record},
    scheduler::{
        job::RequestId,
        store::{JobRequest, JobResponse, RecordError},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

/// The time for which requests and answers stay in the inbox.
pub(super) const KEPT: Duration = Duration::from_secs(3600);
/// The shortest time between two writes of the same answer. The leader repeats the write for nodes that did not
/// store the answer, for example because they had no free memory.
const ANSWER_AGAIN: Duration = Duration::from_secs(2);
pub(super) fn request_record(request: &JobRequest) -> Record {
    let value = serde_json::to_string(request).unwrap_or_default().into();
    Record { at: request.at.as_micros(), term: FencingToken::default(), last: false, value }
}

/// Returns the record of an answer, which replaces the record of the request.
pub(super) fn answer_record(request: &JobRequest, answer: &JobResponse) -> Record {
    let value = serde_json::to_string(answer).unwrap_or_default().into();
    Record { at: request.at.as_micros(), term: FencingToken::default(), last: true, value }
}

/// A step that the leader takes because of a record in the inbox.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Passes the request to the planner, which decides on it.
    PassOn(JobRequest),
    /// Writes the answer over the request, on every node that still stores the request.
    Answer(JobRequest, JobResponse),
    /// Logs once that this record cannot be read, and ignores the record.
    Unreadable(Arc<str>, RecordError),
}

/// The decisions of this leader about the requests in the inbox so far.
#[derive(Debug, Default)]
pub(super) struct Classification {
    known: BTreeMap<RequestId, KnownRequest>,
    unreadable: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct KnownRequest {
    at: WallTime,
    /// The leader's answer. `None` until the leader has decided on the request.
    answer: Option<JobResponse>,
    /// The time at which the answer was last written to the nodes.
    written_at: WallTime,
}

impl Classification {
    /// Decides on the records that the nodes have in the inbox at `now`. Returns the next steps, ordered by the
    /// times of the requests.
    pub(super) fn update(&mut self, answers: &[Answered], now: WallTime) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut requests = BTreeMap::new();
        let mut answered: BTreeMap<RequestId, (&Record, JobResponse)> = BTreeMap::new();
        for (key, record) in records(answers) {
            match read(key, record) {
                Ok(None) => {}
                Ok(Some((id, InboxItem::Answer(answer)))) => {
                    if answered.get(&id).is_none_or(|(known, _)| record.value > known.value) {
                        answered.insert(id, (record, answer));
                    }
                }
                Ok(Some((id, InboxItem::Request(request)))) => {
                    requests.insert((request.at, id), request);
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
        let oldest = now - 2 * KEPT;
        self.known.retain(|_, known| known.at >= oldest);
        self.unreadable.retain(|key| records(answers).any(|(other, _)| other == key));
        steps
    }

    /// Decides on a request that at least one node stores. If another node already stores an answer to it,
    /// `stored` is that answer.
    fn decide(
        &mut self,
        id: RequestId,
        request: JobRequest,
        stored: Option<JobResponse>,
        now: WallTime,
    ) -> Option<Step> {
        let known = self.known.entry(id);
        let is_new = matches!(known, Entry::Vacant(_));
        let at = request.at;
        let known = known.or_insert(KnownRequest { at, answer: None, written_at: WallTime::default() });
        if stored.is_some() {
            known.answer = stored;
        }
        match &known.answer {
            Some(answer) if now < known.written_at || known.written_at + ANSWER_AGAIN <= now => {
                known.written_at = now;
                Some(Step::Answer(request, answer.clone()))
            }
            Some(_) => None,
            // An expired request is passed on too. The leader refuses it, unless an earlier leader has accepted
            // it.
            None if is_new => Some(Step::PassOn(request)),
            // The request was passed to the leader before, and the leader has not answered yet.
            None => None,
        }
    }

    /// Handles the leader's answer to a request that was passed on. If there is no answer (`None`), the next
    /// call of [`Classification::update`] passes the request on again.
    pub(super) fn answered(&mut self, id: RequestId, answer: Option<JobResponse>) {
        match (answer, self.known.get_mut(&id)) {
            (Some(answer), Some(known)) => known.answer = Some(answer),
            _ => drop(self.known.remove(&id)),
        }
    }
}

/// Returns the time before which the inbox may be pruned, or `None` if no record is old enough.
pub(super) fn prune_below(answers: &[Answered], now: WallTime) -> Option<u64> {
    let below = (now - KEPT).as_micros();
    records(answers).any(|(_, record)| record.at < below).then_some(below)
}

/// Returns the stored answer to a request, or `None` if no node has an answer. If the nodes have different
/// answers, returns the answer of the highest rank. A leader [repeats](Classification::update) the same one.
pub(super) fn answer_to(answers: &[Answered], id: RequestId) -> Option<Result<JobResponse, RecordError>> {
    let key = id.key();
    let found =
        records(answers).filter(|(other, record)| **other == key && record.last).map(|(_, record)| record);
    found.max_by_key(|record| &record.value).map(|record| parse_answer(&record.value))
}

fn records(answers: &[Answered]) -> impl Iterator<Item = (&Arc<str>, &Record)> {
    answers.iter().flat_map(|answer| &answer.state.records).map(|(key, record)| (key, record))
}

enum InboxItem {
    Request(JobRequest),
    Answer(JobResponse),
}

/// Reads a record as a request or an answer. Returns `None` if the key does not belong to a request.
fn read(key: &str, record: &Record) -> Result<Option<(RequestId, InboxItem)>, RecordError> {
    let Some(id) = key.strip_prefix(RequestId::PREFIX) else { return Ok(None) };
    let id = RequestId::parse(id)
        .ok_or_else(|| RecordError::new("request's key", key, "it does not end with a request id"))?;
    if record.last {
        return Ok(Some((id, InboxItem::Answer(parse_answer(&record.value)?))));
    }
    let request: JobRequest = serde_json::from_str(&record.value)
        .map_err(|error| RecordError::new("request", &record.value, &error.to_string()))?;
    if request.id != id || request.at.as_micros() != record.at {
        let reason = "the key or the time of its record belongs to another request";
        return Err(RecordError::new("request", &record.value, reason));
    }
    Ok(Some((id, InboxItem::Request(request))))
}

fn parse_answer(value: &str) -> Result<JobResponse, RecordError> {
    serde_json::from_str(value).map_err(|error| RecordError::new("answer", value, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::LedgerState, scheduler::store::JobAction};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> WallTime {
        WallTime::from_micros(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    fn request(id: u128, sent: u64) -> JobRequest {
        JobRequest {
            id: RequestId::from_u128(id),
            by: "me@oak".into(),
            at: at(sent),
            valid_for: 60 * SECOND,
            what: JobAction::trigger("j"),
        }
    }

    fn accepted() -> JobResponse {
        JobResponse::Accepted { text: "one run".into(), count: 1 }
    }

    fn node(records: &[(Arc<str>, Record)]) -> Answered {
        let mut records = records.to_vec();
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Answered { state: LedgerState { records, ..LedgerState::default() }, ..Answered::default() }
    }

    fn stored(request: &JobRequest) -> (Arc<str>, Record) {
        (request.id.key(), request_record(request))
    }

    fn stored_answer(request: &JobRequest) -> (Arc<str>, Record) {
        (request.id.key(), answer_record(request, &accepted()))
    }

    #[test]
    fn each_request_is_passed_on_once_in_the_order_of_the_times() {
        let mut inbox = Classification::default();
        let (first, second) = (request(9, 1), request(2, 3));
        // The first request is stored on one node only, because its sender is still sending it. The second
        // request is stored on both nodes.
        let nodes = [node(&[stored(&second)]), node(&[stored(&first), stored(&second)])];
        assert_eq!(inbox.update(&nodes, at(4)), [Step::PassOn(first.clone()), Step::PassOn(second)]);
        assert_eq!(inbox.update(&nodes, at(5)), [], "the leader has them");
        assert_eq!(inbox.update(&nodes, at(500)), [], "and keeps them");
        inbox.answered(first.id, Some(accepted()));
        assert_eq!(
            inbox.update(&nodes, at(501)),
            [Step::Answer(first.clone(), accepted())],
            "the stored request is overwritten"
        );
        assert_eq!(inbox.update(&nodes, at(502)), [], "but not at once on a node that did not take it");
        assert_eq!(inbox.update(&nodes, at(503)), [Step::Answer(first, accepted())]);
    }

    #[test]
    fn a_request_that_the_leader_dropped_unanswered_is_passed_on_again() {
        let mut inbox = Classification::default();
        let one = request(1, 1);
        let nodes = [node(&[stored(&one)])];
        assert_eq!(inbox.update(&nodes, at(2)), [Step::PassOn(one.clone())]);
        inbox.answered(one.id, None);
        assert_eq!(inbox.update(&nodes, at(3)), [Step::PassOn(one)]);
    }

    /// Tests that an expired request is not refused here. An earlier leader may have accepted it, and only the
    /// leader's event loop can find that out.
    #[test]
    fn an_expired_request_is_passed_on_too() {
        let one = request(1, 0);
        let steps = Classification::default().update(&[node(&[stored(&one)])], at(61));
        assert_eq!(steps, [Step::PassOn(one)]);
        let long = JobRequest { valid_for: Duration::MAX, ..request(1, 0) };
        assert_eq!(long.valid_until(), at(1_800), "no request outlives the record of its answer");
    }

    #[test]
    fn a_request_that_one_node_has_an_answer_to_is_not_passed_to_the_next_leader() {
        let one = request(1, 0);
        let nodes = [node(&[stored(&one)]), node(&[stored_answer(&one)]), node(&[])];
        for now in [at(1), at(500)] {
            assert_eq!(
                Classification::default().update(&nodes, now),
                [Step::Answer(one.clone(), accepted())]
            );
        }
        assert_eq!(
            Classification::default().update(&[node(&[stored_answer(&one)]), node(&[])], at(1)),
            [],
            "no request is stored"
        );
    }

    #[test]
    fn of_two_answers_the_leader_and_the_sender_take_the_same_in_either_node_order() {
        let one = request(1, 0);
        let refused = JobResponse::Refused { why: "paused".into() };
        let (accepting, refusing) = (stored_answer(&one), (one.id.key(), answer_record(&one, &refused)));
        let nodes = |first: &(Arc<str>, Record), second: &(Arc<str>, Record)| {
            [node(std::slice::from_ref(first)), node(&[stored(&one)]), node(std::slice::from_ref(second))]
        };
        let [one_order, other_order] =
            [nodes(&accepting, &refusing), nodes(&refusing, &accepting)].map(|nodes| {
                let answer = answer_to(&nodes, one.id).expect("there are two").expect("both can be read");
                assert_eq!(
                    Classification::default().update(&nodes, at(1)),
                    [Step::Answer(one.clone(), answer.clone())]
                );
                answer
            });
        assert_eq!(one_order, other_order);
    }

    #[test]
    fn an_unreadable_record_is_reported_once_and_ignored() {
        let one = request(1, 0);
        let entry = |key: &str, record: Record| (Arc::<str>::from(key), record);
        let garbage = Record { value: "?".into(), ..request_record(&one) };
        let moved = Record { at: 7, ..request_record(&one) };
        let nodes = [node(&[
            entry("ask/xyz", garbage.clone()),
            entry(&one.id.key(), garbage.clone()),
            entry(&RequestId::from_u128(2).key(), request_record(&one)),
            entry(&RequestId::from_u128(3).key(), Record { last: true, ..garbage.clone() }),
            entry(&RequestId::from_u128(4).key(), moved),
            entry("other/thing", garbage),
        ])];
        let mut inbox = Classification::default();
        let steps = inbox.update(&nodes, at(1));
        assert_eq!(steps.len(), 5, "{steps:?}");
        assert!(steps.iter().all(|step| matches!(step, Step::Unreadable(..))), "{steps:?}");
        assert_eq!(inbox.update(&nodes, at(2)), []);
    }

    #[test]
    fn records_older_than_an_hour_are_pruned_and_a_new_inbox_is_not_written() {
        let nodes = [node(&[]), node(&[stored_answer(&request(1, 10))])];
        assert_eq!(prune_below(&nodes, at(3609)), None);
        assert_eq!(prune_below(&nodes, at(3610)), None, "an hour old is not older");
        assert_eq!(prune_below(&nodes, at(3611)), Some(at(11).as_micros()));
    }

    #[test]
    fn an_answer_is_found_on_any_node() {
        let one = request(1, 0);
        assert!(answer_to(&[node(&[stored(&one)])], one.id).is_none());
        assert_eq!(
            answer_to(&[node(&[stored(&one)]), node(&[stored_answer(&one)])], one.id),
            Some(Ok(accepted()))
        );
        let garbage = Record { value: "?".into(), ..answer_record(&one, &accepted()) };
        assert!(answer_to(&[node(&[(one.id.key(), garbage)])], one.id).is_some_and(|read| read.is_err()));
    }
}

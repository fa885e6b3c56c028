use crate::{
    ActionError, Verb,
    error::{NAME_MAX, TEXT_MAX},
};
use quorate::{
    FencingToken,
    claim::ClaimError,
    election::{Leader, ResignError},
    internals::JobAction,
    plain::plain,
    scheduler::{Accepted, JobsError},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The result of an action.
#[derive(Debug)]
pub struct Done {
    /// The document for programs, also of an action that failed.
    pub answer: Answer,
    /// The reason why the action failed.
    pub error: Option<ActionError>,
    /// The reason why the audit list lacks the action.
    pub unaudited: Option<String>,
}

/// The document that describes the result of an action.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Of a request to the leader.
    Request(Request),
    /// Of a request to resign.
    Resignation(Resignation),
    /// Of a reset.
    Reset(Reset),
}

/// The result of a request to the leader.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Request {
    /// The group.
    pub group: String,
    /// The job. Empty for an action on all jobs.
    pub job: String,
    /// The kind of the action, such as `trigger`.
    pub action: &'static str,
    /// True if the leader accepted the request.
    pub accepted: bool,
    /// The id of the request. The history of the job contains it.
    pub id: Option<String>,
    /// The answer of the leader.
    pub text: Option<String>,
    /// The number of runs that the request starts, or cancels.
    pub count: Option<u64>,
    /// The reason why the request was not accepted.
    pub error: Option<String>,
}

/// The result of a request to resign.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Resignation {
    /// The group.
    pub group: String,
    /// True if the leader has resigned.
    pub resigned: bool,
    /// The leader that was asked to resign. If another term was named, this is the present leader, which was not asked.
    pub leader: Option<String>,
    /// The term of that leader.
    pub term: Option<u64>,
    /// The leader after the resignation.
    pub successor: Option<String>,
    /// The term of the leader after the resignation.
    pub successor_term: Option<u64>,
    /// The reason why the leader has not resigned.
    pub error: Option<String>,
}

/// The result of a reset.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Reset {
    /// The set of claims.
    pub set: String,
    /// The message.
    pub id: String,
    /// True if the message counts as new.
    pub reset: bool,
    /// The reason why it does not.
    pub error: Option<String>,
}

impl Done {
    pub(crate) fn of_request(group: &str, what: &JobAction, answer: Result<Accepted, JobsError>) -> Self {
        let accepted = answer.as_ref().ok();
        let id = match &answer {
            Ok(accepted) => Some(accepted.id),
            Err(
                JobsError::Refused { id, .. }
                | JobsError::Unanswered { id, .. }
                | JobsError::AnswerUnread { id, .. }
                | JobsError::PerhapsPosted { id, .. },
            ) => Some(*id),
            Err(_) => None,
        };
        let request = Request {
            group: plain(group, NAME_MAX),
            job: plain(what.job(), NAME_MAX),
            action: Verb::of(what).name(),
            accepted: accepted.is_some(),
            id: id.map(|id| id.to_string()),
            text: accepted.map(|accepted| plain(&accepted.text, 1_000)),
            count: accepted.map(|accepted| accepted.count),
            error: answer.as_ref().err().map(ToString::to_string),
        };
        let error = answer.err().map(ActionError::Jobs);
        Self { answer: Answer::Request(request), error, unaudited: None }
    }

    /// Returns the result of a request to resign that was sent to the leader, or found none.
    pub fn of_resignation(
        group: &str,
        result: Result<(Leader, Option<Leader>), ActionError>,
        unaudited: Option<String>,
    ) -> Self {
        let (leader, successor) = match &result {
            Ok((leader, successor)) => (Some(leader), successor.as_ref()),
            Err(ActionError::Resign(
                ResignError::OtherTerm { leader, .. } | ResignError::LeadsOn { leader, .. },
            )) => (Some(leader), None),
            Err(_) => (None, None),
        };
        let name = |leader: &Leader| plain(&leader.worker, NAME_MAX);
        let term = |leader: &Leader| leader.term.map(FencingToken::get);
        let resignation = Resignation {
            group: group.to_owned(),
            resigned: result.is_ok(),
            leader: leader.map(name),
            term: leader.and_then(term),
            successor: successor.map(name),
            successor_term: successor.and_then(term),
            error: result.as_ref().err().map(ToString::to_string),
        };
        Self { answer: Answer::Resignation(resignation), error: result.err(), unaudited }
    }

    pub(crate) fn of_reset(
        (set, id): (&str, &str),
        result: Result<(), ClaimError>,
        unaudited: Option<String>,
    ) -> Self {
        let reset = Reset {
            set: plain(set, NAME_MAX * 5),
            id: plain(id, NAME_MAX * 5),
            reset: result.is_ok(),
            error: result.as_ref().err().map(|error| plain(&error.to_string(), TEXT_MAX)),
        };
        Self { answer: Answer::Reset(reset), error: result.err().map(ActionError::Claims), unaudited }
    }
}

impl Answer {
    /// Returns what was done, in one line for people.
    pub fn text(&self) -> String {
        match self {
            Self::Request(request) => request.text_for_people(),
            Self::Resignation(resignation) => resignation.text_for_people(),
            Self::Reset(Reset { set, id, .. }) => format!("{set}: the message {id} counts as new"),
        }
    }
}

impl Request {
    fn text_for_people(&self) -> String {
        let text = self.text.as_deref().unwrap_or_default();
        let id = self.id.as_deref().unwrap_or_default();
        let what = if self.job.is_empty() { &self.group } else { &self.job };
        let note = match self.action {
            "freeze" => "; no tick starts until the end, and active runs continue",
            _ => "",
        };
        format!("{what}: {text}{note} (request {id})")
    }
}

impl Resignation {
    fn text_for_people(&self) -> String {
        let shown = |name: &str, term: Option<u64>| {
            let term = term.map_or_else(String::new, |term| format!(" (term {term})"));
            format!("{name}{term}")
        };
        let leader = shown(self.leader.as_deref().unwrap_or("the leader"), self.term);
        let now = match &self.successor {
            Some(successor) => format!("{} leads now", shown(successor, self.successor_term)),
            None => "there is no new leader yet".to_owned(),
        };
        format!("{}: {leader} has resigned; {now}", plain(&self.group, NAME_MAX))
    }
}

use super::{MaybeRfc3339, RunEnd, Text, name};
use quorate::{
    env::WallTime,
    plain::plain,
    scheduler::{Explanation, Zone},
};
use schemars::JsonSchema;
use serde::Serialize;

/// The longest text that is shown, in bytes.
const TEXT_MAX: usize = 4_096;

/// The reason why a job did or did not run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
pub struct WhyView {
    /// The group.
    pub group: String,
    /// The job.
    pub job: String,
    /// The time of the question; `null` for now.
    #[serde(with = "MaybeRfc3339")]
    pub asked: Option<WallTime>,
    /// The reason in one word.
    pub reason: &'static str,
    /// The tick that the answer is about.
    #[serde(with = "MaybeRfc3339")]
    pub tick: Option<WallTime>,
    /// The answer in a sentence.
    pub text: String,
    /// The facts behind it.
    pub evidence: Vec<String>,
    /// What to do.
    pub action: String,
    /// The outcome of the tick, if it is recorded.
    pub entry: Option<RunEnd>,
    /// The next tick.
    #[serde(with = "MaybeRfc3339")]
    pub next: Option<WallTime>,
    /// The zone of the times in the texts.
    #[serde(with = "Text")]
    pub zone: Zone,
}

impl WhyView {
    /// Returns the view of an answer about a job of `group`, which was asked about a time.
    pub fn new(job: &str, asked: Option<WallTime>, group: &str, found: &Explanation) -> Self {
        Self {
            group: name(group),
            job: name(job),
            asked,
            reason: found.reason.as_str(),
            tick: found.tick,
            text: plain(&found.text, TEXT_MAX),
            evidence: found.evidence.iter().map(|fact| plain(fact, TEXT_MAX)).collect(),
            action: plain(&found.action, TEXT_MAX),
            entry: found.entry.as_ref().map(RunEnd::new),
            next: found.next,
            zone: found.zone.clone(),
        }
    }

    /// Returns the answer for people, in one line.
    pub fn summary(&self) -> String {
        format!("{}: {}: {}", self.job, self.reason, self.text)
    }

    /// Returns the evidence and the advice as names and values.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let time = |name, at: &Option<WallTime>| at.map(|at| (name, self.zone.rfc3339(at)));
        let mut fields: Vec<(&str, String)> = time("tick", &self.tick).into_iter().collect();
        fields.extend(self.evidence.iter().map(|fact| ("evidence", fact.clone())));
        fields.push(("to do", self.action.clone()));
        fields.extend(time("next", &self.next));
        fields
    }
}

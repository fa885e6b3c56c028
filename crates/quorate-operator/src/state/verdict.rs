//! The judgement of a snapshot: the one sentence of a page, what an operator must do, and what to know. Pure.

use super::{JobsView, Leadership, SeenNode, Snapshot};
use crate::view::{JobState, JobView, Pause, RunEnd, Vote, text};
use quorate::{
    env::WallTime,
    ledger::{CopyState, Waiting},
};

/// The importance of news, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to do.
    Well,
    /// Something to know, or to do soon.
    Warn,
    /// Something does not work.
    Bad,
}

/// The judgement of a snapshot.
#[derive(Debug)]
pub struct Verdict {
    /// The importance of the worst news.
    pub level: Level,
    /// The sentence of the `h1`: the worst news decides it.
    pub headline: String,
    /// Problems that an operator must fix.
    pub needs: Vec<Problem>,
    /// Facts that resolve themselves.
    pub know: Vec<Problem>,
}

/// A problem, or a fact that an operator should know.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The importance.
    pub level: Level,
    /// The picture beside it.
    pub icon: ProblemIcon,
    /// One or two words, such as `Failed`.
    pub kind: &'static str,
    /// The name of the node or job.
    pub subject: String,
    /// Where it is explained.
    pub target: Target,
    /// What has happened.
    pub text: String,
    /// The time of the event, or since when it lasts.
    pub since: Option<WallTime>,
    /// The time at which it resolves itself, or the next run.
    pub next: Option<(&'static str, WallTime)>,
    /// The command that shows or fixes it.
    pub command: String,
}

/// The picture of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemIcon {
    /// A run has failed.
    Failed,
    /// Something else does not work.
    Alert,
    /// It takes time.
    Clock,
    /// Runs were stopped by a person.
    Paused,
    /// It is not known how a run ended.
    Lost,
}

/// The page on which a problem is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The nodes.
    Nodes,
    /// The jobs.
    Jobs,
    /// The leadership.
    Leadership,
    /// The page of the job with this name.
    Job(String),
}

/// Judges a snapshot.
pub fn judge(state: &Snapshot) -> Verdict {
    let (mut needs, mut know) = (Vec::new(), Vec::new());
    nodes(state, &mut needs, &mut know);
    copies(state, &mut needs, &mut know);
    leader(state, &mut needs);
    frozen(state, &mut know);
    unread(state, &mut needs);
    let (failed, overdue) = jobs(state.jobs.as_deref(), &mut needs, &mut know);
    needs.sort_by_key(|problem| std::cmp::Reverse(problem.level));
    let (level, headline) = headline(state, (&failed, &overdue), &needs, &know);
    Verdict { level, headline, needs, know }
}

/// Returns the sentence for the worst news.
fn headline(
    state: &Snapshot,
    (failed, overdue): (&[String], &[String]),
    needs: &[Problem],
    know: &[Problem],
) -> (Level, String) {
    if !state.has_quorum() {
        let (voting, refusing) = (voting(state), refusing(state));
        return (
            Level::Bad,
            format!("No quorum: {voting}{refusing}. No worker can lead, and no job starts."),
        );
    }
    match &state.leadership {
        Leadership::Vacant { .. } => {
            let refusing = refusing(state);
            return (
                Level::Bad,
                format!("There is no leader, so no job starts. There is a quorum{refusing}."),
            );
        }
        Leadership::Unknown => {
            let text = "It is not known who leads: too few nodes answered in time.";
            return (Level::Bad, text.to_owned());
        }
        Leadership::Leader { .. } => {}
    }
    if state.copies().is_some_and(|copies| copies.waiting().is_some()) {
        let text = "No job starts: too few nodes have all records of the jobs. There is a quorum.";
        return (Level::Bad, text.to_owned());
    }
    let job = match (failed, overdue) {
        ([], []) => None,
        ([job], []) => Some(format!("one job needs you: {job} failed.")),
        ([], [job]) => Some(format!("one job needs you: {job} is overdue.")),
        (jobs, []) => Some(format!("{} jobs need you: they failed.", jobs.len())),
        ([], jobs) => Some(format!("{} jobs need you: they are overdue.", jobs.len())),
        (failed, overdue) => {
            let (failed, overdue) = (failed.len(), overdue.len());
            Some(format!("{} jobs need you: {failed} failed, {overdue} overdue.", failed + overdue))
        }
    };
    if let Some(job) = job {
        return (Level::Bad, format!("Leadership is safe, but {job}"));
    }
    if state.jobs.as_ref().is_some_and(|jobs| jobs.error.is_some()) {
        return (Level::Bad, "The jobs cannot be read now.".to_owned());
    }
    if state.spare() == 0 && state.nodes.len() > 1 {
        let text = format!("None may be lost: {}. Jobs run.", voting(state));
        return (Level::Warn, text);
    }
    if let [first, ..] = needs {
        let more = needs.len() - 1;
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        return (
            Level::Warn,
            format!("Jobs run, but {} needs you: {}{more}.", first.subject, lower(first.kind)),
        );
    }
    if let Some(jobs) = state.jobs.as_ref().filter(|jobs| jobs.unread > 0) {
        let (unread, all) = (jobs.unread, jobs.list.len());
        let text =
            format!("No failure is known yet: the runs of {unread} of {all} jobs are still being read.");
        return (Level::Warn, text);
    }
    if let Some(first) = know.iter().find(|problem| problem.level == Level::Warn) {
        return (Level::Warn, format!("All runs. Good to know: {} – {}.", first.subject, lower(first.kind)));
    }
    match state.nodes.len() {
        1 => (Level::Well, "All is well, on one node.".to_owned()),
        _ => (Level::Well, "All is well.".to_owned()),
    }
}

fn lower(kind: &str) -> String {
    kind.to_lowercase()
}

/// Returns how many nodes vote, and how many are needed.
pub fn voting(state: &Snapshot) -> String {
    let (voting, all, needed) = (state.voting(), state.nodes.len(), state.needed());
    let verb = if voting == 1 { "votes" } else { "vote" };
    let nodes = if all == 1 { "node" } else { "nodes" };
    let are = if needed == 1 { "is" } else { "are" };
    format!("{voting} of {all} {nodes} {verb}, {needed} {are} needed")
}

/// Returns the part of a sentence that says how many nodes refuse, which only an operator can mend, and why the first does.
fn refusing(state: &Snapshot) -> String {
    let refused: Vec<&SeenNode> = state.nodes.iter().filter(|node| node.vote == Vote::Refused).collect();
    // The fix follows the cause, and is among what needs an operator.
    let cause = |node| why(node).split("; ").next().unwrap_or_default().to_owned();
    match refused[..] {
        [] => String::new(),
        [node] => format!(", and {} refuses: {}", node.name, cause(node)),
        [node, ..] => format!(", and {} refuse: {}: {}", refused.len(), node.name, cause(node)),
    }
}

fn nodes(state: &Snapshot, needs: &mut Vec<Problem>, know: &mut Vec<Problem>) {
    let level = if state.has_quorum() { Level::Warn } else { Level::Bad };
    for node in state.nodes.iter().filter(|node| node.vote != Vote::Votes) {
        let problem = |kind, icon, level| Problem {
            level,
            icon,
            kind,
            subject: node.name.clone(),
            target: Target::Nodes,
            text: why(node),
            since: Some(node.since),
            next: node.votes_at.map(|at| ("Votes again", at)),
            command: "quorate doctor".to_owned(),
        };
        match node.vote {
            Vote::Quarantine => know.push(problem("Quarantine", ProblemIcon::Clock, Level::Warn)),
            Vote::Connecting => know.push(problem("Connecting", ProblemIcon::Clock, Level::Warn)),
            Vote::Refused => needs.push(problem("Refused", ProblemIcon::Alert, level)),
            _ => needs.push(problem("Unreachable", ProblemIcon::Alert, level)),
        }
    }
    if state.nodes.len() == 1 {
        know.push(Problem {
            level: Level::Well,
            icon: ProblemIcon::Alert,
            kind: "One node",
            subject: state.nodes[0].name.clone(),
            target: Target::Nodes,
            text: "is the only node: while it is away, no worker leads".to_owned(),
            since: None,
            next: None,
            command: "quorate doctor".to_owned(),
        });
    }
}

/// Adds the nodes without a complete copy of the records of the jobs.
fn copies(state: &Snapshot, needs: &mut Vec<Problem>, know: &mut Vec<Problem>) {
    let Some(copies) = state.copies() else { return };
    let problem = |level, kind, subject, text| Problem {
        level,
        icon: if level == Level::Bad { ProblemIcon::Alert } else { ProblemIcon::Clock },
        kind,
        subject,
        target: Target::Nodes,
        text,
        since: None,
        next: None,
        command: "quorate doctor".to_owned(),
    };
    if let Some(Waiting { why, fix }) = copies.waiting() {
        let subject = state.group.to_string();
        needs.push(problem(Level::Bad, "Waits", subject, text(&format!("{why}; {fix}"))));
        return;
    }
    for (at, node) in state.nodes.iter().enumerate().filter(|(_, node)| node.vote == Vote::Votes) {
        let Some(copy @ CopyState::Incomplete(_)) = state.copy(at) else { continue };
        let text = format!("its copy of the records of the jobs is {copy}: the leader copies the rest");
        know.push(problem(Level::Warn, "Incomplete", node.name.clone(), text));
    }
}

fn why(node: &SeenNode) -> String {
    node.reason.clone().unwrap_or_else(|| node.vote.word().to_owned())
}

fn leader(state: &Snapshot, needs: &mut Vec<Problem>) {
    let Leadership::Vacant { since } = state.leadership else { return };
    if !state.has_quorum() {
        return;
    }
    needs.push(Problem {
        level: Level::Bad,
        icon: ProblemIcon::Alert,
        kind: "No leader",
        subject: state.group.to_string(),
        target: Target::Leadership,
        text: "has no leader: no worker campaigns, none reaches the nodes, or the nodes refuse what a leader writes"
            .to_owned(),
        since: Some(since),
        next: None,
        command: format!("quorate status election/{}", state.group),
    });
}

/// Adds the error of the list of jobs. Without a quorum, the nodes' own problems explain it.
fn unread(state: &Snapshot, needs: &mut Vec<Problem>) {
    let Some(jobs) = state.jobs.as_ref().filter(|_| state.has_quorum()) else { return };
    let Some(error) = &jobs.error else { return };
    needs.push(Problem {
        level: Level::Bad,
        icon: ProblemIcon::Alert,
        kind: "Unreadable",
        subject: state.group.to_string(),
        target: Target::Jobs,
        text: format!("the jobs cannot be read: {error}"),
        since: None,
        next: None,
        command: format!("quorate jobs list --group {}", shell(&state.group)),
    });
}

/// Adds the problems of the jobs. Returns the names of those that failed, and of those that are overdue.
fn jobs(
    jobs: Option<&JobsView>,
    needs: &mut Vec<Problem>,
    know: &mut Vec<Problem>,
) -> (Vec<String>, Vec<String>) {
    let (mut failed, mut overdue) = (Vec::new(), Vec::new());
    for job in jobs.iter().flat_map(|jobs| &jobs.list) {
        let state = job.state();
        if state == JobState::Failed {
            failed.push(job.shown());
            needs.push(problem(job, Level::Bad, ProblemIcon::Failed, "Failed", "history"));
        }
        if let Some(since) = job.overdue.filter(|_| state != JobState::Failed) {
            overdue.push(job.shown());
            needs.push(Problem {
                text: "has not succeeded in the time that is expected of it".to_owned(),
                since: Some(since),
                ..problem(job, Level::Bad, ProblemIcon::Clock, "Overdue", "why")
            });
        }
        if state == JobState::Lost {
            know.push(problem(job, Level::Warn, ProblemIcon::Lost, "Lost", "history"));
        }
        if let Some(paused) = job.own_pause() {
            know.push(Problem {
                text: stopped("paused", paused),
                since: Some(paused.at),
                next: paused.until.map(|at| ("Resumes", at)),
                ..problem(job, Level::Warn, ProblemIcon::Paused, "Paused", "resume")
            });
        }
    }
    (failed, overdue)
}

/// Says that all jobs are frozen.
fn frozen(state: &Snapshot, know: &mut Vec<Problem>) {
    let Some(freeze) = state.jobs.as_ref().and_then(|jobs| jobs.freeze.as_ref()) else { return };
    know.push(Problem {
        level: Level::Warn,
        icon: ProblemIcon::Paused,
        kind: "Frozen",
        subject: state.group.to_string(),
        target: Target::Jobs,
        text: format!("all jobs {}", stopped("frozen", freeze)),
        since: Some(freeze.at),
        next: freeze.until.map(|at| ("Ends", at)),
        command: format!("quorate unfreeze --group {}", shell(&state.group)),
    });
}

/// Says who stopped jobs, and why.
fn stopped(word: &str, paused: &Pause) -> String {
    let reason = paused.reason.as_ref().map_or_else(String::new, |reason| format!(" “{reason}”,"));
    format!("{word},{reason} by {}", paused.by)
}

fn problem(
    job: &JobView,
    level: Level,
    icon: ProblemIcon,
    kind: &'static str,
    verb: &'static str,
) -> Problem {
    let end = job.last_run();
    let reason = end.map_or_else(String::new, RunEnd::explanation);
    let attempts = end.map_or(0, |end| end.attempts);
    let after = if attempts > 1 { format!(" after {attempts} attempts") } else { String::new() };
    Problem {
        level,
        icon,
        kind,
        subject: job.shown(),
        target: Target::Job(job.name.to_string()),
        text: match end {
            None => "has failed, and has not succeeded since".to_owned(),
            Some(end) if reason.is_empty() => format!("{}{after}", end.outcome.as_str()),
            Some(_) => format!("{reason}{after}"),
        },
        since: end.map(RunEnd::ended).or(job.failing),
        next: job.next.map(|at| ("Next run", at)),
        command: format!("quorate jobs {verb} {}", shell(&job.shown())),
    }
}

/// Returns a name as a word of a command line.
pub fn shell(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use quorate::ledger::Copied;

    #[test]
    fn the_worst_news_decides_the_headline() {
        let mut state = testing::state(3);
        let headline = |state: &Snapshot| judge(state).headline;
        assert_eq!(headline(&state), "All is well.");
        testing::pause(&mut state, 1);
        assert!(headline(&state).contains("paused"), "{}", headline(&state));
        state.nodes[2].node.vote = Vote::Quarantine;
        assert!(headline(&state).starts_with("None may be lost: 2 of 3 nodes vote"), "{}", headline(&state));
        testing::fail(&mut state, 0);
        assert!(headline(&state).contains("one job needs you: job-0 failed"), "{}", headline(&state));
        testing::fail(&mut state, 2);
        assert!(headline(&state).contains("2 jobs need you"), "{}", headline(&state));
        state.leadership = Leadership::Vacant { since: state.at };
        assert!(headline(&state).starts_with("There is no leader"), "{}", headline(&state));
        state.nodes[0].node.vote = Vote::Unreachable;
        assert!(
            headline(&state).starts_with("No quorum: 1 of 3 nodes votes, 2 are needed"),
            "{}",
            headline(&state)
        );
        let verdict = judge(&state);
        assert_eq!(verdict.level, Level::Bad);
        assert_eq!(verdict.needs.len(), 3, "{:?}", verdict.needs);
        assert_eq!(verdict.know.len(), 2, "{:?}", verdict.know);
    }

    #[test]
    fn the_headline_says_why_nodes_refuse() {
        let mut state = testing::state(3);
        let refuse = |state: &mut Snapshot, at: usize| {
            let node = &mut state.nodes[at].node;
            (node.vote, node.reason) = (Vote::Refused, Some("it is a replica; use its primary".to_owned()));
        };
        refuse(&mut state, 2);
        let verdict = judge(&state);
        assert!(verdict.headline.starts_with("None may be lost: 2 of 3"), "{}", verdict.headline);
        let needs = &verdict.needs[0];
        assert_eq!(
            (needs.kind, needs.level, &*needs.text),
            ("Refused", Level::Warn, "it is a replica; use its primary")
        );
        state.leadership = Leadership::Vacant { since: state.at };
        let name = state.nodes[2].name.clone();
        let text = format!("There is a quorum, and {name} refuses: it is a replica.");
        assert!(judge(&state).headline.ends_with(&text), "{}", judge(&state).headline);
        refuse(&mut state, 1);
        let verdict = judge(&state);
        let name = &state.nodes[1].name;
        let text =
            format!("1 of 3 nodes votes, 2 are needed, and 2 refuse: {name}: it is a replica. No worker");
        assert!(verdict.headline.contains(&text), "{}", verdict.headline);
        assert_eq!(verdict.needs.iter().filter(|problem| problem.level == Level::Bad).count(), 2);
    }

    #[test]
    fn an_overdue_job_needs_an_operator_and_a_frozen_group_does_not() {
        let mut state = testing::state(3);
        testing::pause(&mut state, 1);
        testing::freeze(&mut state);
        let verdict = judge(&state);
        let kinds: Vec<&str> = verdict.know.iter().map(|problem| problem.kind).collect();
        assert_eq!((verdict.needs.len(), kinds), (0, vec!["Frozen", "Paused"]), "one entry for the group");
        assert!(verdict.know[0].text.contains("all jobs frozen, “a migration”, by ada@ops2"));
        testing::jobs_of(&mut state).list[0].overdue = Some(state.at);
        let verdict = judge(&state);
        assert_eq!((verdict.level, verdict.needs[0].kind), (Level::Bad, "Overdue"));
        assert!(verdict.headline.contains("one job needs you: job-0 is overdue"), "{}", verdict.headline);
        testing::fail(&mut state, 2);
        assert!(judge(&state).headline.contains("2 jobs need you: 1 failed, 1 overdue"));
        // The history of a job of a long list may not have been read yet.
        testing::jobs_of(&mut state).list[2].ends.clear();
        assert!(judge(&state).headline.contains("is overdue"));
        testing::jobs_of(&mut state).list[2].failing = Some(testing::before(60));
        let verdict = judge(&state);
        assert!(verdict.headline.contains("2 jobs need you: 1 failed, 1 overdue"), "{}", verdict.headline);
        let failed = verdict.needs.iter().find(|problem| problem.kind == "Failed").expect("a failure");
        assert_eq!(
            (&*failed.text, failed.since),
            ("has failed, and has not succeeded since", Some(testing::before(60)))
        );
    }

    #[test]
    fn a_node_that_is_away_needs_an_operator_and_a_quarantine_does_not() {
        let mut state = testing::state(5);
        state.nodes[1].node.vote = Vote::Quarantine;
        assert!(judge(&state).needs.is_empty());
        state.nodes[1].node.vote = Vote::Unreachable;
        let verdict = judge(&state);
        assert_eq!((verdict.level, verdict.needs[0].kind), (Level::Warn, "Unreachable"));
        assert!(verdict.headline.contains("needs you: unreachable"), "{}", verdict.headline);
    }

    #[test]
    fn an_incomplete_copy_is_good_to_know_and_too_few_complete_ones_stop_the_jobs() {
        let mut state = testing::state(3);
        let (whole, part) = (CopyState::Complete, CopyState::Incomplete(Some(Copied { records: 3, of: 8 })));
        testing::copies(&mut state, &[whole, whole, whole]);
        assert_eq!(judge(&state).level, Level::Well);
        testing::copies(&mut state, &[whole, whole, part]);
        let verdict = judge(&state);
        let text =
            "its copy of the records of the jobs is incomplete, 3 of 8 records: the leader copies the rest";
        assert_eq!((verdict.needs.len(), &*verdict.know[0].text), (0, text));
        testing::copies(&mut state, &[whole, CopyState::Unknown, part]);
        let verdict = judge(&state);
        assert!(verdict.headline.starts_with("No job starts"), "{}", verdict.headline);
        assert!(
            verdict.needs[0].text.contains("wait for redis://redis-1:6379/0: 1 of 3"),
            "{:?}",
            verdict.needs
        );
        assert!(verdict.needs[0].text.contains("quorate nodes replace"), "{:?}", verdict.needs);
    }

    #[test]
    fn one_node_is_well_and_a_run_that_is_active_hides_a_failure() {
        let mut state = testing::state(1);
        let verdict = judge(&state);
        assert_eq!((verdict.level, &*verdict.headline), (Level::Well, "All is well, on one node."));
        assert_eq!(verdict.know[0].kind, "One node");
        testing::fail(&mut state, 0);
        testing::start(&mut state, 0);
        assert_eq!(judge(&state).level, Level::Well);
    }

    #[test]
    fn jobs_that_cannot_be_read_are_not_well() {
        let mut state = testing::state(5);
        testing::jobs_of(&mut state).error = Some("no answer within 2s".to_owned());
        // A node that is away matters less.
        state.nodes[1].node.vote = Vote::Unreachable;
        let verdict = judge(&state);
        assert_eq!((verdict.level, &*verdict.headline), (Level::Bad, "The jobs cannot be read now."));
        assert_eq!((verdict.needs[0].kind, &verdict.needs[0].target), ("Unreadable", &Target::Jobs));
        assert!(verdict.needs[0].text.contains("no answer within 2s"), "{:?}", verdict.needs);
        // The old list stays, and with it a failure that an operator can fix.
        testing::fail(&mut state, 0);
        assert!(judge(&state).headline.contains("job-0 failed"));
        state.nodes.iter_mut().for_each(|node| node.node.vote = Vote::Unreachable);
        let verdict = judge(&state);
        assert!(verdict.headline.starts_with("No quorum"), "{}", verdict.headline);
        assert!(verdict.needs.iter().all(|problem| problem.kind != "Unreadable"), "{:?}", verdict.needs);
    }

    #[test]
    fn histories_that_are_not_read_yet_may_hide_a_failure() {
        let mut state = testing::state(3);
        testing::jobs_of(&mut state).unread = 2;
        let verdict = judge(&state);
        let text = "No failure is known yet: the runs of 2 of 3 jobs are still being read.";
        assert_eq!((verdict.level, &*verdict.headline), (Level::Warn, text));
        testing::pause(&mut state, 1);
        assert_eq!(judge(&state).headline, text, "a pause is known, and matters less");
        testing::fail(&mut state, 0);
        assert!(judge(&state).headline.contains("job-0 failed"));
        let mut state = testing::state(3);
        testing::jobs_of(&mut state).unread = 0;
        assert_eq!(judge(&state).headline, "All is well.");
    }

    #[test]
    fn a_name_is_one_word_of_a_command() {
        assert_eq!(shell("nightly-report"), "nightly-report");
        assert_eq!(shell("a b; rm -rf ~'"), r"'a b; rm -rf ~'\'''");
    }
}

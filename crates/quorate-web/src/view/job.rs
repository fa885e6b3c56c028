use super::{
    context::{Context, command},
    forms,
    parts::{self, sentence},
};
use crate::time::{self, Zone, element, span};
use maud::{Markup, html};
use quorate::scheduler::Placement;
use quorate_operator::state::{JobDetail, Level, Missing, cron_words, shell};
use quorate_operator::time::rfc3339;
use quorate_operator::view::{JobState, JobView, RunEnd, WhyView, name, text};

/// The number of runs in the table.
const RUNS: usize = 50;

pub(super) fn job(
    wanted: &str,
    at: Option<&str>,
    detail: Result<&JobDetail, &Missing>,
    context: &Context<'_>,
) -> (String, Markup) {
    let shown = name(wanted);
    let detail = match detail {
        Ok(detail) => detail,
        Err(Missing::Unknown(why)) => return missing(&shown, "There is no such job.", why, context),
        Err(Missing::Unread(why)) => return missing(&shown, "The job cannot be read now.", why, context),
    };
    let job = &detail.job;
    let zone = Zone::of(&job.zone);
    let (level, headline) = verdict(job);
    let body = html! {
        p.crumb { a href=(context.link("/jobs")) { "Jobs" } " / " (shown) }
        (sentence(level, &headline, &about(job, context)))
        @if context.operate { (forms::job(job, context)) }
        div.cols {
            div {
                @if let Some(end) = job.last_run().filter(|end| !end.explanation().is_empty() || end.output.is_some()) {
                    (last_end(end, context))
                }
                (why(at, detail, &zone, context))
            }
            div { (when(detail, &zone, context)) (rules(job, context)) (durations(detail, context)) }
        }
        (runs(detail, &zone, context))
    };
    (format!("{shown}: {}", job.state().word()), body)
}

/// Returns the page of a job that has not been read yet.
pub(super) fn unread(wanted: &str, context: &Context<'_>) -> (String, Markup) {
    missing(&name(wanted), "The job cannot be read now.", "the nodes did not answer in time", context)
}

fn missing(shown: &str, headline: &str, why: &str, context: &Context<'_>) -> (String, Markup) {
    let body = html! {
        p.crumb { a href=(context.link("/jobs")) { "Jobs" } " / " (shown) }
        (sentence(Level::Bad, headline, &html! { (text(why)) }))
        p { a href=(context.link("/jobs")) { "All jobs" } }
    };
    (shown.to_owned(), body)
}

fn verdict(job: &JobView) -> (Level, String) {
    let shown = job.shown();
    match job.state() {
        JobState::Running => {
            let workers: Vec<&str> =
                job.running.iter().filter(|run| !run.orphaned).map(|run| &*run.worker).collect();
            (Level::Well, format!("{shown} runs now, on {}.", workers.join(", ")))
        }
        JobState::Failed => (Level::Bad, format!("{shown} failed.")),
        JobState::Lost => (Level::Warn, format!("The end of the last run of {shown} is unknown.")),
        JobState::Paused => (Level::Warn, format!("{shown} is paused.")),
        JobState::Frozen => (Level::Warn, format!("{shown} is frozen with its group.")),
        JobState::Idle if job.waits_for.is_some() => (Level::Warn, format!("No worker can run {shown} now.")),
        JobState::Idle if job.last_run().is_none() => (Level::Well, format!("{shown} has not run yet.")),
        JobState::Idle => (Level::Well, format!("{shown} is well.")),
    }
}

fn about(job: &JobView, context: &Context<'_>) -> Markup {
    html! {
        @if let Some(since) = job.overdue {
            "Overdue since " (context.at(since)) ": it has not succeeded in the time that is expected of it. "
        }
        @if let Some(why) = &job.waits_for { "It waits: " (why) ". " }
        @if let Some(stored) = &job.stored {
            "Stored on the nodes by " (stored.by) " " (context.ago(stored.at)) "; handler "
            (stored.handler.as_deref().unwrap_or("?")) ". "
        }
        @if let Some(freeze) = &job.freeze { "All jobs of the group are frozen " (context.pause(freeze)) ". " }
        @if let Some(paused) = job.own_pause() { "Paused " (context.pause(paused)) ". " }
        @for run in &job.running {
            @if run.orphaned { "The run of " (context.at(run.tick)) " lost its leader. " }
        }
        @if let Some(end) = job.last_run() { "Last end " (context.ago(end.ended())) ": " (end.outcome.as_str()) ". " }
        @if let Some(next) = job.next { "Next run " (context.until(next)) "." }
    }
}

fn last_end(end: &RunEnd, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="out" {
            h2 id="out" { "The last end" }
            p { (parts::outcome(end.outcome)) ", " (context.ago(end.ended())) ", on " (end.worker)
                @if end.attempts > 1 { ", after " (end.attempts) " attempts" } }
            @if !end.explanation().is_empty() { p.box.bad[end.outcome != quorate::scheduler::RunOutcome::Done] { (end.explanation()) } }
            @if let Some(output) = end.output.as_ref().filter(|output| !output.trim().is_empty()) {
                p.small.soft.below { "The end of its output:" }
                pre tabindex="0" role="region" aria-label="Output of the last run" { (output) }
            }
        }
    }
}

fn why(at: Option<&str>, detail: &JobDetail, zone: &Zone, context: &Context<'_>) -> Markup {
    let job = &detail.job;
    html! {
        section aria-labelledby="why" {
            h2 id="why" { "Why did it not run at …?" }
            form.ask method="get" action=(context.link("/job")) {
                input type="hidden" name="name" value=(job.name);
                label { "Time in " (zone.name()) ", the job’s zone; empty: now"
                    input type="datetime-local" name="at" value=(at.unwrap_or_default()); }
                button { "Ask" }
            }
            @match &detail.why {
                Some(found) => (answer(found, job, zone, context.now)),
                None => p.soft { "Not known: the nodes did not answer, or the time cannot be read." },
            }
        }
    }
}

fn answer(found: &WhyView, job: &JobView, zone: &Zone, now: quorate::env::WallTime) -> Markup {
    let at = found.tick.map_or_else(String::new, |tick| format!(" --at {}", rfc3339(tick)));
    html! {
        div.box.gap {
            p { b { (found.reason) } ": " (found.text) }
            @if let Some(tick) = found.tick { p.small { "About the tick of " (element(tick, &zone.long(tick, now))) " " (zone.name()) "." } }
            @for fact in &found.evidence { p.small.soft { (fact) } }
            @if !found.action.is_empty() { p { "What to do: " (found.action) } }
            p.small { span.soft { "The same from the command line: " } (command(&format!("quorate jobs why {}{at}", shell(&job.shown())))) }
        }
    }
}

fn when(detail: &JobDetail, zone: &Zone, context: &Context<'_>) -> Markup {
    let job = &detail.job;
    let same = zone.name() == context.zone.name();
    html! {
        section aria-labelledby="when" {
            h2 id="when" { "When" }
            p { @if let Some(words) = cron_words(&job.schedule) { (words) ", in " (zone.name()) ". " } code { (job.schedule) } }
            @if detail.next.is_empty() {
                p.soft { "No next run is known." }
            } @else {
                table {
                    caption { "The next runs" }
                    thead { tr {
                        th scope="col" { (zone.name()) ", the job’s zone" }
                        @if !same { th scope="col" { (context.zone.name()) ", yours" } }
                        th.wide-only scope="col" { "In" }
                    } }
                    tbody {
                        @for at in &detail.next {
                            tr {
                                th scope="row" { (element(*at, &zone.long(*at, context.now))) }
                                @if !same { td { (context.zone.long(*at, context.now)) } }
                                td.wide-only.nw { (time::until(*at, context.now).trim_start_matches("in ")) }
                            }
                        }
                    }
                }
                @if let Some((word, _)) = job.stopped() { p.small.soft { "It is " (word) ": ticks before its end are skipped." } }
            }
        }
    }
}

fn rules(job: &JobView, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="rules" {
            h2 id="rules" { "Rules" }
            dl.facts {
                dt { "Rules" } dd { (job.rules) }
                dt { "Runs on" } dd { (match job.placement {
                    Placement::AnyWorker => "any worker",
                    Placement::EveryWorker => "every worker",
                    _ => "the leader",
                }) }
                dt { "Ticks count from" } dd { (context.at(job.registered)) }
            }
        }
    }
}

fn durations(detail: &JobDetail, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="dur" {
            h2 id="dur" { "How long it took" }
            (parts::chart(&detail.ends, |tick| context.zone.short(tick, context.now)))
            p.small.soft { "The newest on the right. Outlined: not done." }
        }
    }
}

fn runs(detail: &JobDetail, zone: &Zone, context: &Context<'_>) -> Markup {
    let job = &detail.job;
    html! {
        section aria-labelledby="runs" {
            div.head { h2 id="runs" { "Runs" } (parts::strip(job)) }
            @if let Some(error) = &detail.unread_history {
                p.box role="status" { "The history cannot be read now; older runs are missing. " (text(error)) }
            }
            @if detail.ends.is_empty() && job.running.is_empty() {
                @if detail.unread_history.is_none() { p.soft { "No run has ended yet." } }
            } @else {
                table.stack role="table" {
                    caption { "The newest " (detail.ends.len().min(RUNS)) " of " (detail.ends.len()) " kept. Late is how long after its tick it started." }
                    (parts::head_with(&[
                        (&format!("Tick ({})", zone.name()), false), ("End", false), ("Cause", false), ("Late", true), ("Took", true),
                        ("Attempts", true), ("Worker", false), ("Reason and output", false),
                    ]))
                    tbody role="rowgroup" {
                        @for run in &job.running {
                            tr role="row" data-key={ "run " (rfc3339(run.tick)) } {
                                th scope="row" role="rowheader" { (element(run.tick, &zone.long(run.tick, context.now))) }
                                td.at role="cell" { @if run.orphaned { span.st.warn { "orphaned" } } @else { (parts::job_state(JobState::Running)) } }
                                td.none role="cell" {} td.num.none role="cell" {} td.num.none role="cell" {} td.num.none role="cell" {}
                                td data-l="on" role="cell" { (run.worker) }
                                td.none role="cell" {}
                            }
                        }
                        @for end in detail.ends.iter().take(RUNS) { (run(end, zone, context)) }
                    }
                }
            }
            p.small { (command(&format!("quorate jobs history {} --limit 100", shell(&job.shown())))) }
        }
    }
}

fn run(end: &RunEnd, zone: &Zone, context: &Context<'_>) -> Markup {
    let dash = || html! { span.soft { "–" } };
    let attempts = if end.attempts > 1 { "num half-l" } else { "num none" };
    let key = format!("{} {} {}", rfc3339(end.tick), end.cause, end.started.map(rfc3339).unwrap_or_default());
    html! {
        tr role="row" data-key=(super::context::row_key(&key)) {
            th scope="row" role="rowheader" {
                (element(end.tick, &zone.long(end.tick, context.now)))
                @if zone.name() != context.zone.name() { " " span.inl { (context.zone.short(end.tick, context.now)) " yours" } }
            }
            td.at role="cell" { (parts::outcome(end.outcome)) }
            td.half-l role="cell" { (end.cause) }
            td.num.half-r data-l="late" role="cell" { @match end.delay() { Some(late) => (span(late)), None => (dash()) } }
            td.num.half-l data-l="took" role="cell" { @match end.took { Some(took) => (span(took)), None => (dash()) } }
            td class=(attempts) data-l="attempts" role="cell" { (end.attempts) }
            td.half-r data-l="on" role="cell" { (end.worker) }
            td role="cell" {
                (end.explanation())
                @if let Some(output) = end.output.as_ref().filter(|output| !output.trim().is_empty()) {
                    details { summary { "output" span.vh { " of " (zone.long(end.tick, context.now)) } } pre { (output) } }
                }
            }
        }
    }
}

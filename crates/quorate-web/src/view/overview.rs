use super::{
    context::{Context, command},
    jobs, leases, parts,
};
use crate::time::{self, element, span};
use maud::{Markup, html};
use quorate_operator::state::{
    JobsView, Leadership, Level, Problem, Snapshot, Target, Verdict, judge, shell, voting,
};
use quorate_operator::view::{JobState, JobView, LeaderView};

/// The number of jobs in the table of the overview. Jobs in trouble come first.
const JOBS_MAX: usize = 20;
/// The number of facts that are good to know.
const KNOW_MAX: usize = 5;
/// The number of coming runs that are listed.
const NEXT_MAX: usize = 6;

/// Returns the page that answers whether all is well.
pub(super) fn overview(state: &Snapshot, context: &Context<'_>) -> (String, Markup) {
    let verdict = judge(state);
    let title = match verdict.needs.len() {
        0 => verdict.headline.trim_end_matches('.').to_owned(),
        1 => "1 needs you".to_owned(),
        count => format!("{count} need you"),
    };
    let body = html! {
        (parts::sentence(verdict.level, &verdict.headline, &detail(state, context)))
        div.cols {
            div { (problems(&verdict, context)) @if let Some(jobs) = &state.jobs { (coming(jobs, context)) } }
            div { (quorum(state, context)) (leader(state, context)) (shards(state)) }
        }
        @if let Some(jobs) = &state.jobs { (job_table(jobs, context)) }
        @if let Some(held) = &state.leases { (leases::table(held, context)) }
    };
    (title, body)
}

fn detail(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        @match &state.leadership {
            Leadership::Leader { leader, since } => {
                b.nw { (leader.worker) } " leads, seen since " (context.at(*since)) ". "
                (voting(state))
                @match state.spare() {
                    0 => ", so none may be lost.",
                    1 => ", so one more may be lost.",
                    spare => { ", so " (spare) " more may be lost." }
                }
            }
            Leadership::Vacant { since } => { "No leader since " (context.at(*since)) ". " (voting(state)) "." }
            Leadership::Unknown => { (voting(state)) "." }
        }
    }
}

fn problems(verdict: &Verdict, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="needs" {
            h2 id="needs" { "Needs you " span.soft { (verdict.needs.len()) } }
            @if verdict.needs.is_empty() {
                p.soft { "Nothing." }
            } @else {
                ul.probs { @for problem in verdict.needs.iter().take(JOBS_MAX) { (one(problem, context)) } }
                @if verdict.needs.len() > JOBS_MAX {
                    p.small { "and " (verdict.needs.len() - JOBS_MAX) " more: " a href=(context.link("/jobs?show=trouble")) { "all jobs in trouble" } }
                }
            }
            @if !verdict.know.is_empty() {
                h3.tier { "Good to know " span.soft { (verdict.know.len()) } }
                ul.probs.mild { @for problem in verdict.know.iter().take(KNOW_MAX) { (one(problem, context)) } }
                @if verdict.know.len() > KNOW_MAX {
                    p.small { "and " (verdict.know.len() - KNOW_MAX) " more: " a href=(context.link("/jobs?show=paused")) { "all paused jobs" } }
                }
            }
        }
    }
}

fn one(problem: &Problem, context: &Context<'_>) -> Markup {
    let link = match &problem.target {
        Target::Nodes => context.link("/nodes#what-to-do"),
        Target::Jobs => context.link("/jobs"),
        Target::Leadership => context.link("/leadership#what-to-do"),
        Target::Job(name) => context.job_link(name),
    };
    let class = match problem.level {
        Level::Bad => "bad",
        Level::Warn => "warn",
        Level::Well => "soft",
    };
    let subject = match &problem.target {
        Target::Nodes => parts::short_name(&problem.subject),
        _ => &problem.subject,
    };
    html! {
        li {
            (parts::problem_icon(problem.icon, problem.level))
            div {
                p { b class=(class) { (problem.kind) ":" } " " a href=(link) { (subject) } ", " (problem.text) }
                p.soft.small {
                    @if let Some(since) = problem.since { (context.ago(since)) ". " }
                    @if let Some((what, at)) = problem.next { (what) " " (context.until(at)) "." }
                }
            }
            p.do.small { a href=(link) { "What to do" span.vh { " about " (subject) } } (command(&problem.command)) }
        }
    }
}

fn quorum(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="q" {
            div.head { h2 id="q" { "Quorum" } a.small href=(context.link("/nodes")) { "Nodes" } }
            (parts::quorum(&state.nodes, state.needed(), context.now))
        }
    }
}

fn leader(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="l" {
            div.head { h2 id="l" { "Leader" } a.small href=(context.link("/leadership")) { "Leadership" } }
            (lease(state, context))
        }
    }
}

/// Shows the sets of balanced shards, if there are any.
fn shards(state: &Snapshot) -> Markup {
    html! {
        @if !state.shards.is_empty() {
            section aria-labelledby="s" {
                div.head { h2 id="s" { "Shards" } }
                @for set in state.shards.iter() {
                    div.pair {
                        span { b { (set.name) } }
                        span { b { (set.owned) " of " (set.count) } " owned, by " (set.workers.len()) " workers" }
                    }
                    p.small.soft.below {
                        (set.state_text()) ". " @if let Some(leader) = &set.leader { "Assigned by " (leader) ". " }
                        (command(&format!("quorate shards list --set {}", shell(&set.name))))
                    }
                }
            }
        }
    }
}

/// Shows the leader, and how much of its lease is left.
pub(super) fn lease(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        @match &state.leadership {
            Leadership::Leader { leader: LeaderView { worker, remaining, .. }, since } => {
                div.pair {
                    span { "Lease of " b { (worker) } }
                    @match remaining {
                        Some(left) => span { b { (span(*left)) } @if let Some(ttl) = state.ttl { " " span.soft { "of " (span(ttl)) } } " left" },
                        None => span.soft { "without an end" },
                    }
                }
                @if let (Some(left), Some(ttl)) = (remaining, state.ttl) { (parts::lease(*left, ttl)) }
                p.small.soft.below { "Seen leading since " (element(*since, &context.zone.short(*since, context.now))) ", " (time::ago(*since, context.now)) "." }
            }
            Leadership::Vacant { since } => p { b.bad { "There is no leader" } ", as seen since " (context.ago(*since)) "." },
            Leadership::Unknown => p { b.bad { "Not known:" } " too few nodes answered." },
        }
    }
}

fn coming(jobs: &JobsView, context: &Context<'_>) -> Markup {
    let mut next: Vec<_> = jobs.list.iter().filter_map(|job| Some((job.next?, job))).collect();
    next.sort_by_key(|(at, _)| *at);
    html! {
        @if !next.is_empty() {
            section aria-labelledby="next" {
                div.head { h2 id="next" { "Next" } a.small href=(context.link("/jobs?show=next")) { "All by next run" } }
                ol.events {
                    @for (at, job) in next.iter().take(NEXT_MAX) {
                        li {
                            (element(*at, &context.zone.short(*at, context.now)))
                            span { a href=(context.job_link(&job.name)) { (job.shown()) } ", " (time::until(*at, context.now)) }
                        }
                    }
                }
            }
        }
    }
}

fn job_table(jobs: &JobsView, context: &Context<'_>) -> Markup {
    let all = jobs.list.len();
    // In a long list, a job that is idle says nothing here.
    let is_quiet =
        |job: &JobView| matches!(job.state(), JobState::Idle | JobState::Frozen) && job.overdue.is_none();
    let is_shown = |job: &&JobView| all <= JOBS_MAX || !is_quiet(job);
    let mut list: Vec<_> = jobs.list.iter().filter(is_shown).collect();
    list.sort_by(|one, other| one.by_trouble(other));
    let (found, is_whole) = (list.len(), list.len() == all);
    list.truncate(JOBS_MAX);
    html! {
        section aria-labelledby="jobs" {
            div.head {
                h2 id="jobs" { "Jobs " span.soft { (all) } }
                @if all > list.len() { a.small href=(context.link("/jobs")) { "All " (all) " jobs" } }
            }
            (jobs::freshness(jobs, context))
            @if all == 0 {
                (jobs::none(jobs))
            } @else if list.is_empty() {
                p.soft { "None of them runs, is paused, or is in trouble." }
            } @else {
                (jobs::table(&list, context))
            }
            @if !is_whole {
                p.small {
                    @if found > list.len() { "The first " (list.len()) " of " (found) " that run, are paused, or are in trouble. " }
                    @else if found > 0 { "Those that run, are paused, or are in trouble. " }
                    "Idle jobs are not shown here."
                }
            }
        }
    }
}

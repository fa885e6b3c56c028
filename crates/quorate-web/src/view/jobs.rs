use super::{
    context::{Context, JobsQuery, Show},
    forms,
    parts::{self, sentence},
};
use crate::time::{Zone, span};
use maud::{Markup, html};
use quorate_operator::state::{JobsView, Level, Snapshot, cron_words};
use quorate_operator::view::{JobState, JobView, Pause, WorkerView};
use url::form_urlencoded;

/// The number of jobs on a page.
pub(super) const PAGE: usize = 50;

pub(super) fn jobs(query: &JobsQuery, state: &Snapshot, context: &Context<'_>) -> (String, Markup) {
    let Some(jobs) = &state.jobs else {
        return ("No jobs here".to_owned(), html! { div.verdict { h1 { "This page shows no jobs." } } });
    };
    let (level, headline) = verdict(jobs);
    let all = jobs.list.len();
    let found = select(jobs, query);
    let pages = found.len().div_ceil(PAGE).max(1);
    let page = query.page.min(pages - 1);
    let shown: Vec<&JobView> = found.iter().copied().skip(page * PAGE).take(PAGE).collect();
    let body = html! {
        (sentence(level, &headline, &html! { (all) (if all == 1 { " job" } else { " jobs" }) " of the group " (state.group) "." }))
        @if let Some(freeze) = &jobs.freeze { (frozen(freeze, context)) }
        @if context.operate && !jobs.list.is_empty() { (forms::group(jobs, context)) }
        @if context.operate { (forms::store(context)) }
        @if !jobs.list.is_empty() { (filters(query, jobs, context)) (forms::find(query, context)) }
        section aria-labelledby="j" {
            h2.vh id="j" { "Jobs" }
            (freshness(jobs, context))
            @if jobs.list.is_empty() {
                (none(jobs))
            } @else if shown.is_empty() {
                p { "No job matches. " a href=(context.link("/jobs")) { "Show all" } }
            } @else {
                (table(&shown, context))
                (pager(query, page, pages, found.len(), context))
                (parts::legend())
            }
        }
        (workers(jobs))
    };
    (headline.trim_end_matches('.').to_owned(), body)
}

/// Shows the live workers, if one of them has labels or handlers.
fn workers(jobs: &JobsView) -> Markup {
    let list = |names: &[String]| if names.is_empty() { "–".to_owned() } else { names.join(", ") };
    html! {
        @if jobs.workers.iter().any(WorkerView::is_special) {
            section aria-labelledby="w" {
                h2 id="w" { "Workers " span.soft { (jobs.workers.len()) } }
                table {
                    thead { tr { th scope="col" { "Worker" } th scope="col" { "Labels" } th scope="col" { "Handlers" } } }
                    tbody {
                        @for worker in &jobs.workers {
                            tr { td { b { (worker.worker) } } td { (list(&worker.labels)) } td { (list(&worker.handlers)) } }
                        }
                    }
                }
            }
        }
    }
}

fn verdict(jobs: &JobsView) -> (Level, String) {
    let count = |state| jobs.list.iter().filter(|job| job.state() == state).count();
    let (failed, paused, running) =
        (count(JobState::Failed), count(JobState::Paused), count(JobState::Running));
    let stopped = if jobs.freeze.is_some() { "all frozen".to_owned() } else { format!("{paused} paused") };
    let tail = match (paused, running) {
        (0, 0) if jobs.freeze.is_none() => String::new(),
        (_, running) => format!("; {stopped}, {running} running"),
    };
    match (failed, jobs.list.len()) {
        (0, 0) if jobs.read_at.is_none() => (Level::Bad, "The jobs could not be read yet.".to_owned()),
        (0, 0) => (Level::Well, "There are no jobs yet.".to_owned()),
        (0, _) if jobs.error.is_some() => (Level::Bad, "The jobs cannot be read now.".to_owned()),
        (0, 1) => (Level::Well, format!("The one job does not need you{tail}.")),
        (0, all) => (Level::Well, format!("None of {all} jobs needs you{tail}.")),
        (1, all) => (Level::Bad, format!("One of {all} jobs needs you: it failed{tail}.")),
        (failed, all) => (Level::Bad, format!("{failed} of {all} jobs need you: they failed{tail}.")),
    }
}

fn is_shown(job: &JobView, show: Show) -> bool {
    match show {
        Show::All | Show::ByNextRun => true,
        Show::Trouble => job.overdue.is_some() || matches!(job.state(), JobState::Failed | JobState::Lost),
        Show::Running => job.is_running(),
        Show::Paused => job.stopped().is_some(),
    }
}

/// Returns the jobs that match, in trouble first, or by their next run.
pub(super) fn select<'a>(jobs: &'a JobsView, query: &JobsQuery) -> Vec<&'a JobView> {
    let find = query.find.to_lowercase();
    let matches = |job: &&JobView| is_shown(job, query.show) && job.name.to_lowercase().contains(&find);
    let mut found: Vec<&JobView> = jobs.list.iter().filter(matches).collect();
    if query.show == Show::ByNextRun {
        found.sort_by_key(|job| (job.next.is_none(), job.next, &job.name));
    } else {
        found.sort_by(|one, other| one.by_trouble(other));
    }
    found
}

fn address(query: &JobsQuery, show: Show, page: usize, context: &Context<'_>) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    if show != Show::All {
        pairs.append_pair("show", show.name());
    }
    if !query.find.is_empty() {
        pairs.append_pair("find", &query.find);
    }
    if page > 0 {
        pairs.append_pair("page", &(page + 1).to_string());
    }
    let pairs = pairs.finish();
    context.link(&if pairs.is_empty() { "/jobs".to_owned() } else { format!("/jobs?{pairs}") })
}

fn filters(query: &JobsQuery, jobs: &JobsView, context: &Context<'_>) -> Markup {
    let count = |show| jobs.list.iter().filter(|job| is_shown(job, show)).count();
    let word = |show| match show {
        Show::All => format!("All {}", count(show)),
        Show::Trouble => format!("In trouble {}", count(show)),
        Show::Running => format!("Running {}", count(show)),
        Show::Paused => format!("Paused {}", count(show)),
        Show::ByNextRun => "By next run".to_owned(),
    };
    html! {
        nav.filter aria-label="Filter jobs" {
            @for show in Show::ALL {
                a href=(address(query, show, 0, context)) aria-current=[(show == query.show).then_some("true")] { (word(show)) }
            }
        }
    }
}

fn pager(query: &JobsQuery, page: usize, pages: usize, found: usize, context: &Context<'_>) -> Markup {
    html! {
        @if pages > 1 {
            nav.filter aria-label="Pages of the list" {
                span { (page * PAGE + 1) " to " ((page * PAGE + PAGE).min(found)) " of " (found) }
                @if page > 0 { a rel="prev" href=(address(query, query.show, page - 1, context)) { "Previous" } }
                @if page + 1 < pages { a rel="next" href=(address(query, query.show, page + 1, context)) { "Next" } }
            }
        }
    }
}

/// Says that all jobs are frozen.
pub(super) fn frozen(freeze: &Pause, context: &Context<'_>) -> Markup {
    html! {
        div.box.warn.below role="note" {
            p { "All jobs are frozen " (context.pause(freeze)) "." }
            @if !context.operate { p.small { "To end it: " (super::context::command("quorate unfreeze")) } }
        }
    }
}

/// Says that the list could not be read again.
pub(super) fn freshness(jobs: &JobsView, context: &Context<'_>) -> Markup {
    html! {
        @if jobs.unread > 0 {
            p.box {
                "The runs of " (jobs.unread) " of the " (jobs.list.len()) " jobs are still being read. A failure among them is not shown yet."
            }
        }
        @if let Some(error) = &jobs.error {
            div.box.bad role="note" {
                p {
                    @match jobs.read_at {
                        Some(at) => { "This is the list of " (context.ago(at)) ". It cannot be read again: " (error) }
                        None => { "The list cannot be read: " (error) }
                    }
                }
            }
        }
    }
}

/// Explains an empty list.
pub(super) fn none(jobs: &JobsView) -> Markup {
    html! {
        @if jobs.read_at.is_some() {
            p { "No worker has registered a job. A job is registered when a worker that has it first leads the group." }
            p.small.soft { "Start one: " (super::context::command("quorate run --config quorate.toml")) }
        }
    }
}

pub(super) fn table(jobs: &[&JobView], context: &Context<'_>) -> Markup {
    html! {
        table.stack role="table" {
            caption { "Those in trouble first. Times in " (context.zone.name()) " unless another zone is named." }
            (parts::head(&["Job and schedule", "State", "Last runs", "Last end", "Next run", "Worker"]))
            tbody role="rowgroup" { @for job in jobs { (row(job, context)) } }
        }
    }
}

fn row(job: &JobView, context: &Context<'_>) -> Markup {
    let words = cron_words(&job.schedule);
    let zone = words.is_some().then(|| Zone::of(&job.zone));
    let worker = job.running.first().map(|run| &run.worker).or_else(|| job.last_run().map(|end| &end.worker));
    html! {
        tr role="row" data-key=(super::context::row_key(&job.name)) {
            th scope="row" role="rowheader" {
                a href=(context.job_link(&job.name)) { (job.shown()) }
                span.sub { @if let Some(words) = &words { (words) span.wide-only { " · " } } code.wide-only[words.is_some()] { (job.schedule) } }
                @if let Some(paused) = job.own_pause() {
                    span.sub.warn { "paused " (context.pause(paused)) }
                }
            }
            td.at role="cell" { @if job.overdue.is_some() { span.st.bad { "overdue" } " " } (parts::job_state(job.state())) }
            td.strip-cell role="cell" { (parts::strip(job)) }
            td data-l="ended" role="cell" { (last(job, context)) }
            td.nx data-l="next" role="cell" { (next(job, zone.as_ref(), context)) }
            td.none role="cell" { span.soft { @match worker { Some(worker) => (worker), None => "–" } } }
        }
    }
}

fn last(job: &JobView, context: &Context<'_>) -> Markup {
    html! {
        @match job.last_run() {
            None => span.soft { "–" },
            Some(end) => {
                (context.ago(end.ended()))
                span.sub {
                    (end.outcome.as_str())
                    @if let Some(took) = end.took { " in " (span(took)) }
                    @if !end.explanation().is_empty() { ": " (quorate::plain::plain(&end.explanation(), 80)) }
                }
            }
        }
    }
}

fn next(job: &JobView, zone: Option<&Zone>, context: &Context<'_>) -> Markup {
    let zone = zone.filter(|zone| zone.name() != context.zone.name());
    html! {
        @match (job.next, job.stopped()) {
            (Some(at), _) => {
                (context.until(at))
                @if let Some(zone) = zone { span.sub.wide-only { (zone.short(at, context.now)) " " (zone.name()) } }
            }
            (None, Some((word, _))) => span.soft { "none while " (word) },
            (None, None) => span.soft { "–" },
        }
    }
}

//! The forms of the actions. Each says what it will do, and needs no script.

use super::{Context, JobsQuery};
use crate::snapshot::{JobView, JobsView, Snapshot};
use maud::{Markup, html};

/// The zones that the foot of a page offers, after the viewer's own.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "Europe/Kyiv", "America/New_York", "Asia/Tokyo", "Australia/Sydney"];
/// The longest reason, in characters. It is the limit of a pause's reason.
const REASON_MAX: usize = 200;

/// Returns a form that sends an action, with the fields that each form needs.
fn form(context: &Context<'_>, action: &str, inside: &Markup) -> Markup {
    html! {
        form method="post" action=(context.link(action)) {
            input type="hidden" name="form" value=(context.form_token);
            input type="hidden" name="back" value=(context.here);
            input type="hidden" name="in-zone" value=(context.zone.name());
            (inside)
        }
    }
}

/// Returns an action: a form that opens and asks before it is sent to `path`. The key keeps an open form when an update
/// of the page adds or removes another action.
fn action(context: &Context<'_>, path: &str, summary: &str, about: &str, inside: &Markup) -> Markup {
    html! {
        details data-key=(path) {
            summary { (summary) @if !about.is_empty() { span.vh { " " (about) } } }
            (form(context, path, inside))
        }
    }
}

/// Returns the actions for one job.
pub(super) fn job(job: &JobView, context: &Context<'_>) -> Markup {
    let name = job.shown();
    let field = html! { input type="hidden" name="job" value=(job.name); };
    let one = |path: &str, summary: &str, text: &str, inside: &Markup, button: &str| {
        let inside = html! { p { (text) } (field) (inside) button { (button) } };
        action(context, path, summary, &name, &inside)
    };
    let empty = html! {};
    let pause = html! {
        label { "Reason" input name="reason" maxlength=(REASON_MAX) required; }
        label { "Until (in " (context.zone.name()) "; empty: until it is resumed)" input type="datetime-local" name="until"; }
    };
    let span = html! {
        label { "From, inclusive (in " (context.zone.name()) ")" input type="datetime-local" name="from" required; }
        label { "Until, exclusive" input type="datetime-local" name="until" required; }
    };
    let resumed = match job.freeze {
        Some(_) => "Its own pause ends. It stays frozen until the freeze of its group ends.",
        None => "Its ticks run again from the next one. Those that were skipped stay skipped.",
    };
    html! {
        div.acts role="group" aria-label="Actions" {
            (one("/do/trigger", "Run now…", "It runs once, now, on the leader's order. Its schedule does not change.", &empty, "Run it now"))
            @if job.freeze.is_some() { (unfreeze(context)) }
            @if job.paused.is_some() {
                (one("/do/resume", "Resume…", resumed, &empty, "Resume it"))
            } @else {
                (one("/do/pause", "Pause…", "Its ticks are skipped. A run that is active goes on.", &pause, "Pause it"))
            }
            @if job.is_running() {
                (one("/do/cancel", "Cancel…", "Its active runs are asked to stop, and end as cancelled.", &empty, "Cancel the active runs"))
            }
            (one("/do/backfill", "Back-fill…", "It runs once for each tick of its schedule in this span.", &span, "Run the ticks of the span"))
        }
    }
}

/// Returns the actions for all jobs of the group.
pub(super) fn group(jobs: &JobsView, context: &Context<'_>) -> Markup {
    let inside = html! {
        p { "The ticks of all jobs are skipped, under every leader. Runs that are active go on. A freeze that exists is replaced." }
        label { "Reason" input name="reason" maxlength=(REASON_MAX) required; }
        label { "Until (in " (context.zone.name()) ")" input type="datetime-local" name="until" required; }
        button { "Freeze all " (jobs.list.len()) " jobs" }
    };
    html! {
        div.acts role="group" aria-label="Actions for all jobs" {
            @if jobs.freeze.is_some() { (unfreeze(context)) }
            (action(context, "/do/freeze", "Freeze all jobs…", "", &inside))
        }
    }
}

/// Returns the action that ends the freeze of the group.
fn unfreeze(context: &Context<'_>) -> Markup {
    let inside = html! {
        p { "The ticks of all jobs of the group run again from the next one, apart from jobs that are paused themselves." }
        button { "End the freeze" }
    };
    action(context, "/do/unfreeze", "Unfreeze all jobs…", "", &inside)
}

/// Returns the action that asks the leader to resign.
pub(super) fn resign(state: &Snapshot, worker: &str, term: Option<u64>, context: &Context<'_>) -> Markup {
    let running = state.jobs.iter().flat_map(|jobs| &jobs.list).filter(|job| job.is_running()).count();
    let inside = html! {
        p {
            "Another worker leads then. "
            @if running > 0 { "The runs on the leader (" (running) " jobs run now) must stop, and run again under the next leader if their rules say so." }
        }
        @if let Some(term) = term { input type="hidden" name="term" value=(term); }
        button { "Ask " (worker) " to resign" }
    };
    html! {
        div.acts role="group" aria-label="Actions" {
            (action(context, "/do/resign", "Ask it to resign…", worker, &inside))
        }
    }
}

/// Returns the action that resets a dead letter.
pub(super) fn reset(set: &str, id: &str, context: &Context<'_>) -> Markup {
    let shown = crate::snapshot::name(&format!("{set}/{id}"));
    let inside = html! {
        p.small { "It will be claimed and handled again, from attempt 1." }
        input type="hidden" name="set" value=(set);
        input type="hidden" name="id" value=(id);
        button { "Reset " (shown) }
    };
    html! { div.plain { (action(context, "/do/reset", "Reset…", &shown, &inside)) } }
}

/// Returns the form that sets the zone of the viewer.
pub(super) fn zone(context: &Context<'_>) -> Markup {
    let own = context.zone.name();
    let inside = html! {
        label.inline for="zone" { "Your zone" }
        select id="zone" name="zone" {
            option { (own) }
            @for zone in ZONES.iter().filter(|zone| **zone != own) { option { (zone) } }
        }
        button { "Set" }
    };
    form(context, "/do/zone", &inside)
}

pub(super) fn sign_out(context: &Context<'_>) -> Markup {
    form(context, "/sign-out", &html! { button { "Sign out" } })
}

/// Returns the form with which a viewer signs in.
pub(super) fn sign_in(context: &Context<'_>) -> Markup {
    let inside = html! {
        label { "Token" input type="password" name="token" autocomplete="current-password" required; }
        button { "Sign in" }
    };
    html! { div.signin { (form(context, "/sign-in", &inside)) } }
}

/// Returns the form that filters jobs by name.
pub(super) fn find(query: &JobsQuery, context: &Context<'_>) -> Markup {
    html! {
        form.ask method="get" action=(context.link("/jobs")) role="search" {
            @if query.show != super::Show::All { input type="hidden" name="show" value=(query.show.name()); }
            label { "Name contains" input name="find" value=(query.find) maxlength="100"; }
            button { "Find" }
        }
    }
}

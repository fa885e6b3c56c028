//! The forms of the actions. Each says what it will do, and needs no script.

use super::context::{Context, JobsQuery};
use maud::{Markup, html};
use quorate_operator::state::{JobsView, Snapshot};
use quorate_operator::view::{JobView, LeaderView};
use quorate_operator::{Field, Kind, Need, Verb};

/// The zones that the foot of a page offers, after the viewer's own.
const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "Europe/Kyiv", "America/New_York", "Asia/Tokyo", "Australia/Sydney"];
/// The longest reason, in characters. It is the limit of a pause's reason.
const REASON_MAX: usize = 200;
/// The longest name of a job, in characters.
const NAME_MAX: usize = 128;
/// The longest payload, in characters. Its limit in bytes is the same.
const PAYLOAD_MAX: usize = 8_192;

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

/// The part of a form that differs from one target to the other.
struct Ask<'a> {
    /// The target, for people who hear the page.
    about: &'a str,
    /// The effect, if it is another one than usual.
    effect: Option<&'a str>,
    /// The text of the button, if it names the target.
    confirm: Option<String>,
    /// The fields with the names of the target.
    target: &'a [(&'a str, &'a str)],
}

/// Returns an action: a form that opens and asks before it is sent. The key keeps an open form when an update of the
/// page adds or removes another action.
fn action(context: &Context<'_>, verb: Verb, ask: &Ask<'_>) -> Markup {
    action_with(context, verb, ask, &html! {})
}

/// Returns an action whose form begins with these fields.
fn action_with(context: &Context<'_>, verb: Verb, ask: &Ask<'_>, first: &Markup) -> Markup {
    let (path, words) = (format!("/do/{}", verb.name()), verb.words());
    let inside = html! {
        p { (ask.effect.unwrap_or(words.effect)) }
        @for (name, value) in ask.target { input type="hidden" name=(name) value=(value); }
        (first)
        @for asked in verb.fields().iter().filter(|field| field.is_asked()) { (field(asked, context)) }
        button { @match &ask.confirm { Some(text) => (text), None => (words.confirm) } }
    };
    html! {
        details data-key=(path) {
            summary { (words.label) "…" @if !ask.about.is_empty() { span.vh { " " (ask.about) } } }
            (form(context, &path, &inside))
        }
    }
}

fn field(field: &Field, context: &Context<'_>) -> Markup {
    let required = matches!(field.need, Need::Required | Need::Wanted);
    let zone = context.zone.name();
    html! {
        @match field.kind {
            Kind::Time | Kind::End => label {
                (field.label) " (in " (zone) @if !required { "; " (field.about) } ")"
                input type="datetime-local" name=(field.name) required[required];
            },
            _ => label {
                (field.label)
                input name=(field.name) maxlength=(longest(field)) required[required] placeholder=[hint(field)];
            },
        }
    }
}

/// Returns the largest number of characters of a field.
fn longest(field: &Field) -> usize {
    if field.name == "payload" { PAYLOAD_MAX } else { REASON_MAX }
}

/// Returns the meaning of a field that people may leave out.
fn hint(field: &Field) -> Option<&'static str> {
    (field.need == Need::Optional && field.kind == Kind::Text && field.name != "reason")
        .then_some(field.about)
}

/// Returns the action that stores a job on the nodes.
pub(super) fn store(context: &Context<'_>) -> Markup {
    let ask = Ask { about: "", effect: None, confirm: None, target: &[] };
    let name = html! { label { "Name" input name="job" maxlength=(NAME_MAX) required; } };
    html! {
        div.acts role="group" aria-label="A new job" { (action_with(context, Verb::Put, &ask, &name)) }
    }
}

pub(super) fn job(job: &JobView, context: &Context<'_>) -> Markup {
    let name = job.shown();
    let target = [("job", &*job.name)];
    let frozen = "Its own pause ends. It stays frozen until the freeze of its group ends.";
    let one = |verb: Verb| {
        let effect = (verb == Verb::Resume && job.freeze.is_some()).then_some(frozen);
        action(context, verb, &Ask { about: &name, effect, confirm: None, target: &target })
    };
    html! {
        div.acts role="group" aria-label="Actions" {
            (one(Verb::Trigger))
            @if job.freeze.is_some() { (unfreeze(context)) }
            (one(if job.own_pause().is_some() { Verb::Resume } else { Verb::Pause }))
            @if job.is_running() { (one(Verb::Cancel)) }
            (one(Verb::Backfill))
            @if job.stored.is_some() { (one(Verb::Remove)) }
        }
    }
}

/// Returns the actions for all jobs of the group.
pub(super) fn group(jobs: &JobsView, context: &Context<'_>) -> Markup {
    let confirm = Some(format!("Freeze all {} jobs", jobs.list.len()));
    html! {
        div.acts role="group" aria-label="Actions for all jobs" {
            @if jobs.freeze.is_some() { (unfreeze(context)) }
            (action(context, Verb::Freeze, &Ask { about: "", effect: None, confirm, target: &[] }))
        }
    }
}

/// Returns the action that ends the freeze of the group.
fn unfreeze(context: &Context<'_>) -> Markup {
    action(context, Verb::Unfreeze, &Ask { about: "", effect: None, confirm: None, target: &[] })
}

/// Returns the action that asks the leader to resign.
pub(super) fn resign(state: &Snapshot, leader: &LeaderView, context: &Context<'_>) -> Markup {
    let running = state.jobs.iter().flat_map(|jobs| &jobs.list).filter(|job| job.is_running()).count();
    let effect = format!(
        "{} The runs on the leader ({running} jobs run now) must stop, and run again under the next leader if their \
         rules say so.",
        Verb::Resign.words().effect
    );
    let term = leader.term.map(|term| term.to_string());
    let target: Vec<(&str, &str)> = term.iter().map(|term| ("term", &**term)).collect();
    let effect = (running > 0).then_some(&*effect);
    let confirm = Some(format!("Ask {} to resign", leader.worker));
    html! {
        div.acts role="group" aria-label="Actions" {
            (action(context, Verb::Resign, &Ask { about: &leader.worker, effect, confirm, target: &target }))
        }
    }
}

/// Returns the action that resets a dead letter.
pub(super) fn reset(set: &str, id: &str, context: &Context<'_>) -> Markup {
    let shown = quorate_operator::view::name(&format!("{set}/{id}"));
    let (confirm, target) = (Some(format!("Reset {shown}")), [("set", set), ("id", id)]);
    html! {
        div.plain { (action(context, Verb::Reset, &Ask { about: &shown, effect: None, confirm, target: &target })) }
    }
}

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
            @if query.show != super::context::Show::All { input type="hidden" name="show" value=(query.show.name()); }
            label { "Name contains" input name="find" value=(query.find) maxlength="100"; }
            button { "Find" }
        }
    }
}

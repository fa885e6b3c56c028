//! The frame of each page: the head, the navigation, the notice of an action, and the foot.

use super::{
    context::{Context, View},
    forms, parts,
};
use crate::time::element;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use quorate_operator::state::{Snapshot, judge};

/// Returns a document of these parts.
pub(super) fn document(
    title: &str,
    group: Option<&str>,
    header: &Markup,
    main: &Markup,
    footer: &Markup,
    context: &Context<'_>,
) -> String {
    let group = group.map_or_else(String::new, |group| format!(" – {group}"));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) (group) " – Quorate" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(context.link("/style.css"));
                script src=(context.link("/page.js")) defer {}
            }
            body data-events=(context.link("/events")) data-here=(context.here) {
                a.skip href="#main" { "Skip to the content" }
                header.top { div { (header) } }
                p.gone id="gone" role="status" {}
                @if let Some(notice) = context.notice {
                    div.notice.bad[notice.is_bad] role=(if notice.is_bad { "alert" } else { "status" }) {
                        p { (notice.text) }
                    }
                }
                main id="main" { (main) }
                footer { div { (footer) } }
            }
        }
    }
    .into_string()
}

pub(super) fn mark(context: &Context<'_>, group: &str) -> Markup {
    html! {
        a.mark href=(context.link("/")) {
            svg.logo width="22" height="14" viewBox="0 0 22 14" aria-hidden="true" {
                circle cx="3" cy="7" r="3" class="f-ok" {}
                circle cx="11" cy="7" r="3" class="f-ok" {}
                path d="M15 0v14" class="s-ink" stroke-dasharray="3 1.5" {}
                circle cx="19.5" cy="7" r="2" class="s-soft f-none" {}
            }
            "Quorate " span.soft { (group) }
        }
    }
}

pub(super) fn header(view: &View, state: &Snapshot, context: &Context<'_>) -> Markup {
    let verdict = judge(state);
    let failed = verdict
        .needs
        .iter()
        .filter(|problem| matches!(problem.target, quorate_operator::state::Target::Job(_)));
    let failed = failed.count();
    let away = state.nodes.len() - state.voting();
    let entry = |path: &str, name: &str, badge: Markup| {
        html! {
            li { a href=(context.link(path)) aria-current=[(view.path() == path).then_some("page")] { (name) (badge) } }
        }
    };
    let none = || PreEscaped(String::new());
    html! {
        (mark(context, &state.group))
        nav aria-label="Pages" {
            ul {
                (entry("/", "Overview", none()))
                (entry("/nodes", "Nodes", html! { @if away > 0 { " " b.w { (away) span.vh { " not voting" } } } }))
                @if state.jobs.is_some() {
                    (entry("/jobs", "Jobs", html! { @if failed > 0 { " " b { (failed) span.vh { " need you" } } } }))
                }
                (entry("/leadership", "Leadership", none()))
                (entry("/messages", "Messages", none()))
            }
        }
        p.live id="live" {
            (parts::live_mark())
            span { span.word { "read at" } " " (element(state.at, &context.zone.short(state.at, context.now)))
                " " abbr title=(context.zone.name()) { (context.zone.name()) } }
        }
    }
}

pub(super) fn footer(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        (forms::zone(context))
        @if context.operate {
            span { "You may operate." }
        } @else {
            span { "You may read." }
        }
        @if context.signed_in {
            (forms::sign_out(context))
        } @else if context.can_sign_in {
            a href=(context.link("/sign-in")) { "Sign in to operate" }
        }
        span { "Served by " (quorate_operator::view::name(&state.worker)) }
        span { "Quorate " (env!("CARGO_PKG_VERSION")) }
    }
}

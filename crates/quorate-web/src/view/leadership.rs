use super::{
    context::{Context, command},
    forms, overview, parts, time_line,
};
use crate::time::span;
use maud::{Markup, html};
use quorate::election::TermEndCause;
use quorate_operator::state::{Leadership, LeadershipPast, Level, Snapshot, shell, voting};
use quorate_operator::view::{AuditEntry, TermView, name, text};

/// Returns the page that answers who leads, and who changed what.
pub(super) fn leadership(
    state: &Snapshot,
    past: Option<Result<&LeadershipPast, &String>>,
    context: &Context<'_>,
) -> (String, Markup) {
    let (level, headline) = match &state.leadership {
        Leadership::Leader { leader, .. } => {
            (Level::Well, format!("{} leads the group {}.", leader.worker, state.group))
        }
        Leadership::Vacant { .. } if state.has_quorum() => (Level::Bad, "There is no leader.".to_owned()),
        _ => (Level::Bad, format!("No worker can lead: {}.", voting(state))),
    };
    let title = headline.trim_end_matches('.').to_owned();
    let body = html! {
        (parts::sentence(level, &headline, &html! { (voting(state)) "." }))
        section aria-labelledby="ln" {
            h2 id="ln" { "Now" }
            (overview::lease(state, context))
            (facts(state, context))
        }
        @if !matches!(state.leadership, Leadership::Leader { .. }) { (advice(state)) }
        @match past {
            None => p.soft { "The terms and changes are not read yet." },
            Some(Err(why)) => p.box.bad { "The terms and changes cannot be read: " (text(why)) },
            Some(Ok(past)) => { (terms(past, state, context)) (changes(past, context)) }
        }
    };
    (title, body)
}

fn facts(state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        dl.facts {
            dt { "Group" } dd { (state.group) }
            @if let Leadership::Leader { leader, since } = &state.leadership {
                dt { "Leader" } dd { (leader.worker) ", seen leading since " (context.at(*since)) }
                @if let Some(term) = leader.term { dt { "Term" } dd.mono { (term) } }
            }
            dt { "Nodes" } dd { (voting(state)) }
        }
        @if let (true, Leadership::Leader { leader, .. }) = (context.operate, &state.leadership) {
            (forms::resign(state, leader, context))
        }
    }
}

fn advice(state: &Snapshot) -> Markup {
    html! {
        section aria-labelledby="what-to-do" {
            h2 id="what-to-do" { "What to do" }
            div.box.bad {
                ol.steps {
                    @if state.has_quorum() {
                        li { span { "Is a worker of this group up? On its machine: " (command("systemctl status quorate")) } }
                        li { span { "Does it reach the nodes? On its machine: " (command("quorate doctor")) } }
                    } @else {
                        li { span { "First bring back a quorum: the page Nodes says why each node does not vote." } }
                    }
                }
            }
        }
    }
}

fn terms(past: &LeadershipPast, state: &Snapshot, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="terms" {
            div.head { h2 id="terms" { "Who led" } (command(&format!("quorate leader history --group {}", shell(&state.group)))) }
            @if past.terms.is_empty() {
                p.soft { "No term is recorded." }
            } @else {
                (time_line::time_line(&past.terms, context))
                table.stack role="table" {
                    caption.vh { "The terms of the group, newest first" }
                    (parts::head(&["Began", "Leader", "Lasted", "Ended because"]))
                    tbody role="rowgroup" { @for term in &past.terms { (term_row(term, context)) } }
                }
            }
        }
    }
}

fn term_row(term: &TermView, context: &Context<'_>) -> Markup {
    let until = term.ended.or(term.leads.then_some(context.now));
    html! {
        tr role="row" data-key={ "term-" (term.term) } {
            th scope="row" role="rowheader" { (context.at(term.began)) span.sub.mono { "term " (term.term) } }
            td.at role="cell" { (term.holder) }
            td data-l="lasted" role="cell" { @match until { Some(at) => (span(term.began.until(at))), None => "–" } }
            td data-l="ended because" role="cell" {
                @match (term.cause, term.leads) {
                    (Some(cause), _) => {
                        span.st.warn[is_trouble(cause)] { (cause.to_string()) }
                        @if let Some(reason) = term.reason.as_ref().filter(|reason| !reason.is_empty()) { span.sub { (reason) } }
                    },
                    (None, true) => "leads now",
                    (None, false) => span.soft { "no end is recorded, and no worker has led since" },
                }
            }
        }
    }
}

/// Returns whether a term with this cause ended against the leader's will.
fn is_trouble(cause: TermEndCause) -> bool {
    use TermEndCause::{ForcedRelease, LeaseLost, Unhealthy, Unknown, WorkFailed};
    matches!(cause, LeaseLost | Unknown | WorkFailed | Unhealthy | ForcedRelease)
}

fn changes(past: &LeadershipPast, context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="audit" {
            div.head { h2 id="audit" { "Who changed what" } (command("quorate audit")) }
            @if past.changes.is_empty() {
                p.soft { "No leader has answered a request to its jobs, and no operator has changed the nodes." }
            } @else {
                (table(&past.changes, context))
            }
        }
    }
}

fn table(changes: &[AuditEntry], context: &Context<'_>) -> Markup {
    html! {
        table.stack role="table" {
            caption.vh { "Requests to the jobs, and operations on the nodes, newest first" }
            (parts::head(&["When", "Who", "What", "Reason", "Answer"]))
            tbody role="rowgroup" {
                @for change in changes {
                    tr role="row" data-key=(key(change)) {
                        th scope="row" role="rowheader" { (context.at(change.at)) }
                        td.at role="cell" { (change.by) }
                        td role="cell" {
                            (change.line()) " "
                            @match (&change.job, &change.leader) {
                                (Some(job), _) => a href=(context.job_link(job)) { (name(job)) },
                                (None, Some(_)) => "all jobs",
                                (None, None) => (change.target),
                            }
                        }
                        td role="cell" { @match &change.reason { Some(reason) => (reason), None => "–" } }
                        td role="cell" {
                            (change.answer_line())
                            @if let Some(leader) = &change.leader { span.sub { "by " (leader) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the key of the row of a change, different for each.
fn key(change: &AuditEntry) -> String {
    let of_operation = || format!("{} {} {}", change.at.as_micros(), change.action, change.target);
    super::context::row_key(&change.id.clone().unwrap_or_else(of_operation))
}

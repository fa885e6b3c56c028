use super::{
    context::{Context, row_key},
    parts,
};
use crate::time::{element, span};
use maud::{Markup, html};
use quorate_operator::view::ClientLease;

/// The number of leases that are shown.
const SHOWN_MAX: usize = 200;
/// The number of names of a lease that are shown.
const NAMES_MAX: usize = 3;

/// Returns the leases of this process's clients, by client.
pub(super) fn table(leases: &[ClientLease], context: &Context<'_>) -> Markup {
    html! {
        section aria-labelledby="leases" {
            h2 id="leases" { "Leases of clients " span.soft { (leases.len()) } }
            @if leases.is_empty() {
                p.soft { "No client holds a lease." }
            } @else {
                table.stack.even role="table" {
                    (parts::head_with(&[
                        ("Client", false), ("Holds", false), ("Since", false), ("age", true), ("silent for", true), ("left", true),
                    ]))
                    tbody role="rowgroup" { @for lease in leases.iter().take(SHOWN_MAX) { (row(lease, context)) } }
                }
                @if leases.len() > SHOWN_MAX { p.small { "and " (leases.len() - SHOWN_MAX) " more" } }
                p.small.soft {
                    "A lease ends by itself when its client sends no request. " code { "quorate lock release NAME --force" }
                    " ends it now; the client learns of it."
                }
            }
        }
    }
}

fn row(lease: &ClientLease, context: &Context<'_>) -> Markup {
    let names = lease.names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = lease.names.len().saturating_sub(NAMES_MAX);
    let key = format!("{} {names} {:?}", lease.client, lease.token);
    html! {
        tr role="row" data-key=(row_key(&key)) {
            th scope="row" role="rowheader" { (lease.client) }
            td role="cell" {
                (names) @if more > 0 { " and " (more) " more" }
                @if lease.kind != "exclusive" { span.sub { (lease.kind) } }
                @if lease.state != "held" { span.sub.warn { "asked to finish" } }
            }
            td.half-l data-l="since" role="cell" { (element(lease.since, &context.zone.short(lease.since, context.now))) }
            td.num.half-l data-l="age" role="cell" { (span(lease.age)) }
            td.num.half-r data-l="silent for" role="cell" { (span(lease.quiet)) }
            td.num.half-l data-l="left" role="cell" { (span(lease.remaining)) }
        }
    }
}

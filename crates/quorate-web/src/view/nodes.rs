use super::{
    context::{Context, command},
    parts::{self, sentence},
};
use crate::time::{self, span};
use maud::{Markup, html};
use quorate::ledger::CopyState;
use quorate_operator::state::{Examination, Level, NodeFacts, SeenNode, Snapshot, judge, voting};
use quorate_operator::view::Vote;

/// Returns the page that answers who votes, who does not, and why.
pub(super) fn nodes(state: &Snapshot, context: &Context<'_>) -> (String, Markup) {
    let spare = state.spare();
    let (level, headline) = match (state.has_quorum(), spare, state.nodes.len()) {
        (false, ..) => (Level::Bad, format!("No quorum: {}.", voting(state))),
        (true, 0, 1) => (Level::Well, "There is a quorum of one node. It may not be lost.".to_owned()),
        (true, 0, _) => (Level::Warn, format!("There is a quorum, but none may be lost: {}.", voting(state))),
        (true, 1, _) => (Level::Well, format!("There is a quorum: {}, one more may be lost.", voting(state))),
        (true, ..) => {
            (Level::Well, format!("There is a quorum: {}, {spare} more may be lost.", voting(state)))
        }
    };
    let level = match judge(state).level {
        Level::Bad if level == Level::Well => level,
        _ if state.voting() < state.nodes.len() => level.max(Level::Warn),
        _ => level,
    };
    let title = voting(state);
    let body = html! {
        (sentence(level, &headline, &html! { "As " (quorate_operator::view::name(&state.worker)) " sees them." }))
        section aria-labelledby="q" {
            div.half {
                div { h2 id="q" { "Quorum" } (parts::quorum(&state.nodes, state.needed(), context.now)) }
                div.gap { h2 { "If one went away now" } (what_if(state)) }
            }
        }
        section aria-labelledby="n" { h2 id="n" { "Nodes" } (table(state, context)) }
        @if let Some(examination) = &state.examination { (doctor(examination)) }
        (advice(state))
    };
    (title, body)
}

/// Says what the loss of one node would do.
fn what_if(state: &Snapshot) -> Markup {
    let (spare, voting) = (state.spare(), state.voting());
    html! {
        @if !state.has_quorum() {
            p { b { "There is no quorum." } " No worker can acquire or extend a lease until " (state.needed()) " nodes vote." }
        } @else if spare == 0 {
            p { b { "Any node that votes: " } "no quorum. The leader must stop its jobs before its lease runs out, and no worker leads until "
                (state.needed()) " nodes vote again." }
        } @else {
            p { b { "Any node that votes: " } (voting - 1) " of " (state.nodes.len()) " still vote, and the leader leads on"
                @if spare == 1 { ", but then none may be lost." } @else { "." } }
            p { b { (spare + 1) " of them: " } "no quorum. The leader must stop its jobs before its lease runs out." }
        }
        @if voting < state.nodes.len() {
            p { b { "A node that does not vote: " } "nothing changes." }
        }
    }
}

fn table(state: &Snapshot, context: &Context<'_>) -> Markup {
    let facts = |at: usize| state.examination.as_ref().and_then(|examination| examination.nodes.get(at));
    let has_facts = state.examination.is_some();
    html! {
        table.stack.even role="table" {
            caption { "In the order of the configuration. The line shows the last round trips, each on its own scale." }
            (parts::head_with(&columns(has_facts)))
            tbody role="rowgroup" {
                @for (at, node) in state.nodes.iter().enumerate() {
                    (row((node, state.copy(at)), has_facts, facts(at), context))
                }
            }
        }
    }
}

/// Returns the columns of the table of nodes, each with whether it has numbers.
fn columns(has_facts: bool) -> Vec<(&'static str, bool)> {
    let facts = ["Remembers since", "Clock", "Memory"];
    let numbers = ["now", "worst", "Clock", "Memory"];
    let all =
        ["Node", "Vote", "Remembers since", "Round trips", "now", "worst", "Clock", "Version", "Memory"];
    let shown = all.into_iter().filter(|name| has_facts || !facts.contains(name));
    shown.map(|name| (name, numbers.contains(&name))).collect()
}

fn row(
    (node, copy): (&SeenNode, Option<CopyState>),
    has_facts: bool,
    facts: Option<&NodeFacts>,
    context: &Context<'_>,
) -> Markup {
    let worst = node.trips.iter().max();
    let unknown = NodeFacts::default();
    let facts = facts.unwrap_or(&unknown);
    let dash = || html! { span.soft { "–" } };
    html! {
        tr role="row" data-key=(super::context::row_key(&node.name)) {
            th scope="row" role="rowheader" { (parts::short_name(&node.name)) span.sub.mono.addr { (node.name) } }
            td.at role="cell" { (parts::vote(node.vote)) (state_text(node, context)) (copy_text(copy)) }
            @if has_facts {
                td.half-l data-l="remembers since" role="cell" {
                    @match facts.remembers_since { Some(at) => (context.at(at)), None => (dash()) }
                    @if let Some(uptime) = facts.uptime { span.sub { "up " (span(uptime)) } }
                }
            }
            td.strip-cell role="cell" { (parts::sparkline(&node.trips)) }
            td.num.half-l data-l="now" role="cell" {
                @match node.round_trip { Some(trip) => (span(trip)), None => (dash()) }
                @if let Some(p99) = node.round_trip_p99 { span.sub { "p99 " (span(p99)) } }
            }
            td.num.half-r data-l="worst" role="cell" { @match worst { Some(trip) => (span(*trip)), None => (dash()) } }
            @if has_facts {
                td.num.half-l data-l="clock" role="cell" {
                    @match facts.clock_ahead_ms { Some(ms) => (clock(ms)), None => (dash()) }
                }
            }
            td.half-r data-l="version" role="cell" { @match &node.version { Some(version) => (version), None => (dash()) } }
            @if has_facts {
                td.num.half-l data-l="memory" role="cell" { @match facts.memory { Some(bytes) => (memory(bytes)), None => (dash()) } }
            }
        }
    }
}

fn state_text(node: &SeenNode, context: &Context<'_>) -> Markup {
    html! {
        @match (node.vote, node.votes_at, &node.reason) {
            (Vote::Votes, ..) => {}
            (_, Some(at), _) => {
                span.sub { "votes " (time::until(at, context.now)) ", at " (context.at(at)) }
                @if let Some(reason) = &node.reason { span.sub { (reason) } }
            }
            (_, None, reason) => {
                @if let Some(reason) = reason { span.sub { (reason) } }
                span.sub { "since " (context.at(node.since)) }
            }
        }
    }
}

/// Says whether the node has all records of the jobs, if that is known.
fn copy_text(copy: Option<CopyState>) -> Markup {
    html! { @if let Some(copy) = copy { span.sub { "copy of the jobs' records: " (copy) } } }
}

/// Returns how far a clock is ahead of this machine's.
fn clock(ms: f64) -> String {
    match ms.round() {
        0.0 => "same".to_owned(),
        ms if ms > 0.0 => format!("{ms:+} ms"),
        ms => format!("−{} ms", -ms),
    }
}

fn memory(bytes: u64) -> String {
    match bytes {
        0..=1_048_575 => format!("{} KiB", bytes / 1_024),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn doctor(examination: &Examination) -> Markup {
    html! {
        section aria-labelledby="dr" {
            div.head { h2 id="dr" { "What the doctor says " span.soft { (examination.findings.len()) } } (command("quorate doctor")) }
            @if examination.findings.is_empty() {
                p.soft { "Nothing." }
            } @else {
                table.stack role="table" {
                    caption.vh { "Findings of quorate doctor, the most severe first" }
                    (parts::head(&["Weight", "Node", "What", "Fix"]))
                    tbody role="rowgroup" {
                        @for finding in &examination.findings {
                            tr role="row" {
                                th scope="row" role="rowheader" { (parts::severity(finding.severity)) }
                                td.at role="cell" {
                                    @match &finding.node { Some(node) => (quorate_operator::view::name(parts::short_name(node))), None => "all" }
                                }
                                td role="cell" { (quorate_operator::view::text(&finding.problem)) }
                                td role="cell" { (quorate_operator::view::text(&finding.fix)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn advice(state: &Snapshot) -> Markup {
    let any = |vote| state.nodes.iter().any(|node| node.vote == vote);
    let (away, refused, waiting) = (any(Vote::Unreachable), any(Vote::Refused), any(Vote::Quarantine));
    html! {
        @if away || refused || waiting {
            section aria-labelledby="what-to-do" {
                h2 id="what-to-do" { "What to do" }
                div.box.gap.bad[!state.has_quorum()].warn[state.has_quorum()] {
                    ol.steps {
                        @if away { li { span { "Unreachable: is the server up, and does the network let this machine reach it? " (command("quorate doctor")) } } }
                        @if refused { li { span { "Refused: the reason in the table says what to change. Such a node does not vote until then." } } }
                        @if waiting { li { span { "Quarantine: wait. The node lost its memory, and may have granted a lease that it no longer knows of." } } }
                        @if waiting { li { span { "To end the wait, only if no worker has used the node before: " (command("quorate nodes trust")) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_short() {
        assert_eq!(clock(0.3), "same");
        assert_eq!(clock(-4.2), "−4 ms");
        assert_eq!(clock(12.0), "+12 ms");
        assert_eq!(memory(1_048_576 * 3 / 2), "1.5 MiB");
        assert_eq!(memory(4_096), "4 KiB");
    }
}

use super::{
    context::{Context, command},
    forms,
    parts::sentence,
};
use crate::time::span;
use maud::{Markup, html};
use quorate::claim::ClaimState;
use quorate_operator::state::{Level, Message, Messages, Snapshot, Verdict, shell};
use quorate_operator::view::{name, text};

/// The number of rows of each table.
const ROWS: usize = 100;

/// Returns the page that answers which messages are in progress or given up.
pub(super) fn messages(
    set: Option<&str>,
    list: Option<Result<&Messages, &String>>,
    state: &Snapshot,
    context: &Context<'_>,
) -> (String, Markup) {
    let shown = set.map(name);
    let (level, headline) = match (&shown, &list) {
        (None, _) => (Level::Well, "Which set of messages?".to_owned()),
        (Some(set), None) => (Level::Warn, format!("The messages of {set} have not been read yet.")),
        (Some(set), Some(Err(_))) => (Level::Bad, format!("The messages of {set} cannot be read.")),
        (Some(set), Some(Ok(list))) => match (dead(list).count(), list.list.len()) {
            (0, 0) => (Level::Well, format!("The nodes store no message of {set}.")),
            (0, _) => (Level::Well, format!("No message of {set} was given up.")),
            (1, _) => (Level::Warn, format!("One message of {set} was given up and waits for you.")),
            (many, _) => (Level::Warn, format!("{many} messages of {set} were given up and wait for you.")),
        },
    };
    let title = headline.trim_end_matches('.').to_owned();
    let verdict = Verdict { level, headline, needs: Vec::new(), know: Vec::new() };
    let body = html! {
        (sentence(&verdict, &html! { "A set is a stream of messages that workers claim one by one." }))
        form.ask method="get" action=(context.link("/messages")) {
            label { "Set" input name="set" list="sets" value=(set.unwrap_or_default()) maxlength="200" required; }
            @if !context.sets.is_empty() { datalist id="sets" { @for known in context.sets { option value=(known) {} } } }
            button { "Show" }
        }
        @match (set, list) {
            (Some(set), Some(Ok(list))) => (tables(set, list, context)),
            (Some(_), Some(Err(why))) => p.box.bad { (text(why)) },
            _ => {}
        }
    };
    let _ = state;
    (title, body)
}

fn dead(list: &Messages) -> impl Iterator<Item = &Message> {
    list.list.iter().filter(|message| matches!(message.state, ClaimState::DeadLettered(_)))
}

fn tables(set: &str, list: &Messages, context: &Context<'_>) -> Markup {
    let of = |wanted: fn(&ClaimState) -> bool| list.list.iter().filter(move |message| wanted(&message.state));
    let claimed = |state: &ClaimState| matches!(state, ClaimState::Claimed { .. });
    let done = of(|state| matches!(state, ClaimState::Done(_))).count();
    let free = of(|state| matches!(state, ClaimState::Free { .. })).count();
    html! {
        p.small.soft {
            (done) " done, " (of(claimed).count()) " in progress, " (dead(list).count()) " dead letters, " (free) " waiting for a next attempt. "
            @if !list.complete { "The nodes store more messages than are read here (" (list.list.len()) "). " }
            @for node in &list.missing { "Not asked: " (text(node)) ". " }
        }
        section aria-labelledby="dead" {
            div.head { h2 id="dead" { "Dead letters " span.soft { (dead(list).count()) } }
                (command(&format!("quorate claims dead-letters {}", shell(&name(set))))) }
            @if dead(list).next().is_none() { p.soft { "None." } } @else { (dead_letters(set, list, context)) }
        }
        section aria-labelledby="ip" {
            div.head { h2 id="ip" { "In progress " span.soft { (of(claimed).count()) } }
                (command(&format!("quorate claims show {}", shell(&name(set))))) }
            @if of(claimed).next().is_none() { p.soft { "None." } } @else { (in_progress(list)) }
        }
        section aria-labelledby="done" {
            h2 id="done" { "Done " span.soft { (done) } }
            @if done == 0 { p.soft { "None." } } @else { (finished(list, context)) }
        }
    }
}

fn head(columns: &[&str]) -> Markup {
    html! { thead role="rowgroup" { tr role="row" { @for column in columns { th scope="col" role="columnheader" { (column) } } } } }
}

fn dead_letters(set: &str, list: &Messages, context: &Context<'_>) -> Markup {
    html! {
        table.stack role="table" {
            caption { "Given up after as many attempts as may begin. They stay until an operator resets them." }
            (head(&["Message", "Given up", "Attempts", "Note of the hook", "Action"]))
            tbody role="rowgroup" {
                @for message in dead(list).take(ROWS) {
                    @if let ClaimState::DeadLettered(letter) = &message.state {
                        tr role="row" data-key=(super::context::row_key(&message.id)) {
                            th scope="row" role="rowheader" { (name(&message.id)) }
                            td.at role="cell" { @match letter.at { Some(at) => (context.ago(at)), None => "–" } }
                            td data-l="attempts" role="cell" { (letter.attempts) }
                            td role="cell" { (text(&letter.note)) }
                            td role="cell" {
                                @if context.operate { (forms::reset(set, &message.id, context)) }
                                @else { (command(&format!("quorate claims reset {} {}", shell(&name(set)), shell(&name(&message.id))))) }
                            }
                        }
                    }
                }
            }
        }
        div.box.warn.gap id="what-to-do" {
            h3 { "What to do about dead letters" }
            ol.steps {
                li { span { "Fix what the note names first, or they come back." } }
                li { span { "Then reset each, so that a worker handles it again from attempt 1." } }
            }
        }
    }
}

fn in_progress(list: &Messages) -> Markup {
    html! {
        table.stack role="table" {
            caption.vh { "Messages that a worker has claimed and not completed" }
            (head(&["Message", "Worker", "Attempts begun", "Claim left"]))
            tbody role="rowgroup" {
                @for message in list.list.iter().filter(|message| matches!(message.state, ClaimState::Claimed { .. })).take(ROWS) {
                    @if let ClaimState::Claimed { by, remaining, attempts, .. } = &message.state {
                        tr role="row" data-key=(super::context::row_key(&message.id)) {
                            th scope="row" role="rowheader" { (name(&message.id)) }
                            td.at role="cell" { @match by { Some(owner) => (name(owner.worker())), None => "not known" } }
                            td data-l="attempts" role="cell" { (attempts) }
                            td data-l="left" role="cell" { @match remaining { Some(left) => (span(*left)), None => "–" } }
                        }
                    }
                }
            }
        }
    }
}

fn finished(list: &Messages, context: &Context<'_>) -> Markup {
    let mut done: Vec<(&Message, &quorate::claim::Done)> = list
        .list
        .iter()
        .filter_map(|message| match &message.state {
            ClaimState::Done(done) => Some((message, done)),
            _ => None,
        })
        .collect();
    done.sort_by_key(|(_, done)| std::cmp::Reverse(done.at));
    html! {
        table.stack role="table" {
            caption { "The newest " (done.len().min(ROWS)) " of " (done.len()) " that were read." }
            (head(&["Message", "Done", "Result"]))
            tbody role="rowgroup" {
                @for (message, done) in done.iter().take(ROWS) {
                    tr role="row" data-key=(super::context::row_key(&message.id)) {
                        th scope="row" role="rowheader" { (name(&message.id)) }
                        td.at role="cell" { (context.ago(done.at)) }
                        td role="cell" { (text(&done.result)) }
                    }
                }
            }
        }
    }
}

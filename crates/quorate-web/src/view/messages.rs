use super::{
    context::{Context, command},
    forms,
    parts::{head, sentence},
};
use crate::time::span;
use maud::{Markup, html};
use quorate_operator::state::{Level, Messages, shell};
use quorate_operator::view::{MessageState, MessageView, name, text};

/// The number of rows of each table.
const ROWS: usize = 100;

/// Returns the page that answers which messages are in progress or given up.
pub(super) fn messages(
    set: Option<&str>,
    list: Option<Result<&Messages, &String>>,
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
    let body = html! {
        (sentence(level, &headline, &html! { "A set is a stream of messages that workers claim one by one." }))
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
    (title, body)
}

fn of(list: &Messages, state: MessageState) -> impl Iterator<Item = &MessageView> {
    list.list.iter().filter(move |message| message.state == state)
}

fn dead(list: &Messages) -> impl Iterator<Item = &MessageView> {
    of(list, MessageState::DeadLettered)
}

fn tables(set: &str, list: &Messages, context: &Context<'_>) -> Markup {
    let count = |state| of(list, state).count();
    let (claimed, done, free) =
        (count(MessageState::Claimed), count(MessageState::Done), count(MessageState::Free));
    html! {
        p.small.soft {
            (done) " done, " (claimed) " in progress, " (dead(list).count()) " dead letters, " (free) " waiting for a next attempt. "
            @if !list.complete { "The nodes store more messages than are read here (" (list.list.len()) "). " }
            @for node in &list.missing { "Not asked: " (text(node)) ". " }
        }
        section aria-labelledby="dead" {
            div.head { h2 id="dead" { "Dead letters " span.soft { (dead(list).count()) } }
                (command(&format!("quorate claims dead-letters {}", shell(&name(set))))) }
            @if dead(list).next().is_none() { p.soft { "None." } } @else { (dead_letters(set, list, context)) }
        }
        section aria-labelledby="ip" {
            div.head { h2 id="ip" { "In progress " span.soft { (claimed) } }
                (command(&format!("quorate claims show {}", shell(&name(set))))) }
            @if claimed == 0 { p.soft { "None." } } @else { (in_progress(list)) }
        }
        section aria-labelledby="done" {
            h2 id="done" { "Done " span.soft { (done) } }
            @if done == 0 { p.soft { "None." } } @else { (finished(list, context)) }
        }
    }
}

fn dead_letters(set: &str, list: &Messages, context: &Context<'_>) -> Markup {
    html! {
        table.stack role="table" {
            caption { "Given up after as many attempts as may begin. They stay until an operator resets them." }
            (head(&["Message", "Given up", "Attempts", "Note of the hook", "Action"]))
            tbody role="rowgroup" {
                @for message in dead(list).take(ROWS) {
                    tr role="row" data-key=(super::context::row_key(&message.id)) {
                        th scope="row" role="rowheader" { (name(&message.id)) }
                        td.at role="cell" { @match message.at { Some(at) => (context.ago(at)), None => "–" } }
                        td data-l="attempts" role="cell" { (message.attempts.unwrap_or_default()) }
                        td role="cell" { (message.result.as_deref().unwrap_or_default()) }
                        td role="cell" {
                            @if context.operate { (forms::reset(set, &message.id, context)) }
                            @else { (command(&format!("quorate claims reset {} {}", shell(&name(set)), shell(&name(&message.id))))) }
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
                @for message in of(list, MessageState::Claimed).take(ROWS) {
                    tr role="row" data-key=(super::context::row_key(&message.id)) {
                        th scope="row" role="rowheader" { (name(&message.id)) }
                        td.at role="cell" { (message.holder.as_deref().unwrap_or("not known")) }
                        td data-l="attempts" role="cell" { (message.attempts.unwrap_or_default()) }
                        td data-l="left" role="cell" { @match message.remaining { Some(left) => (span(left)), None => "–" } }
                    }
                }
            }
        }
    }
}

fn finished(list: &Messages, context: &Context<'_>) -> Markup {
    let mut done: Vec<&MessageView> = of(list, MessageState::Done).collect();
    done.sort_by_key(|message| std::cmp::Reverse(message.at));
    html! {
        table.stack role="table" {
            caption { "The newest " (done.len().min(ROWS)) " of " (done.len()) " that were read." }
            (head(&["Message", "Done", "Result"]))
            tbody role="rowgroup" {
                @for message in done.iter().take(ROWS) {
                    tr role="row" data-key=(super::context::row_key(&message.id)) {
                        th scope="row" role="rowheader" { (name(&message.id)) }
                        td.at role="cell" { @match message.at { Some(at) => (context.ago(at)), None => "–" } }
                        td role="cell" { (message.result.as_deref().unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

//! Draws the details of a job, the questions, and the list of the keys.

use super::{
    clock::relative,
    question::Question,
    view::{View, bold, first_line, scrolled},
};
use crate::{jobs::tone, table::fields_within, terminal::Tone};
use quorate_operator::{state::JobDetail, view::name as shown};
use ratatui::{
    Frame,
    layout::{Constraint, Flex, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, Clear, Paragraph, Wrap},
};

const KEYS: &str = "\
Up Down k j     choose a job, or scroll
PgUp PgDn Home End
Enter           show the runs of the job, and why it did or did not run
Esc             go back; drop the filter
/               filter by name, state or last outcome
s  S            change the order; reverse it
Tab             show all sections, or only nodes, runs, events, leases
t               trigger the job: run it once now
p               pause the job, with a reason and until a time
r               resume the job
c               cancel the active runs of the job
b               back-fill: run the job for each tick of a span
q  Ctrl-C       quit";

/// Draws the details of the open job.
pub(super) fn details(frame: &mut Frame<'_>, area: Rect, view: &View<'_>) {
    let state = view.state;
    let Some(name) = &state.open else { return };
    let mut lines = vec![bold(shown(name))];
    let fields = |rows: Vec<(&'static str, String)>| {
        let text = fields_within(area.width, rows);
        text.lines().map(|line| Line::from(line.to_owned())).collect::<Vec<_>>()
    };
    let job = state.jobs().and_then(|jobs| jobs.list.iter().find(|job| job.name == *name));
    match job {
        // The list of the outcomes is below.
        Some(job) => {
            lines.extend(fields(
                job.fields(&job.zone).into_iter().filter(|(name, _)| *name != "ended").collect(),
            ));
        }
        None => lines.push(Line::from("  the nodes do not store this job")),
    }
    lines.push(Line::default());
    match &state.detail {
        None => lines.push(Line::from("asking the nodes")),
        Some(detail) => {
            if let Some(stale) = view.stale(detail.read, None) {
                lines.push(Line::from(stale));
            }
            match &detail.value {
                Ok(detail) => {
                    match &detail.why {
                        Some(why) => {
                            lines.push(bold(format!("WHY  {}", why.summary())));
                            lines.extend(fields(why.fields()));
                        }
                        None => lines.push(bold("WHY  the reason could not be read".to_owned())),
                    }
                    lines.push(Line::default());
                    history(view, detail, &mut lines);
                }
                Err(error) => lines.push(trouble(view, error)),
            }
        }
    }
    scrolled(frame, area, view, lines);
}

fn history<'a>(view: &View<'_>, detail: &JobDetail, lines: &mut Vec<Line<'a>>) {
    if let Some(error) = &detail.unread_history {
        lines.push(trouble(view, error));
    }
    lines.push(bold(format!("HISTORY  the newest {} outcomes", detail.ends.len())));
    for end in &detail.ends {
        let age = relative(end.tick, view.now.wall);
        lines.push(Line::from(vec![
            Span::raw(format!("  {age:>11}  ")),
            Span::styled(end.line(&detail.job.zone), view.palette.of(tone(end))),
            Span::raw(format!("  [{}]", end.worker)),
        ]));
    }
}

fn trouble<'a>(view: &View<'_>, error: &str) -> Line<'a> {
    Line::styled(first_line(error), view.palette.of(Tone::Trouble))
}

/// Draws a question about an action.
pub(super) fn question(frame: &mut Frame<'_>, area: Rect, question: &Question) {
    let words = question.verb.words();
    let mut text = format!("{}: {}\n{}\n\n", words.label, shown(&question.job), words.effect);
    for (at, (field, hint, typed)) in question.fields().enumerate() {
        let cursor = if at == question.at { "_" } else { "" };
        text += &format!("{}: {typed}{cursor}", field.label);
        if typed.is_empty() {
            text += &format!("  ({hint})");
        }
        text.push('\n');
    }
    if let Some(problem) = &question.problem {
        text += &format!("\n{problem}\n");
    }
    text += &match question.typed.is_empty() {
        true => "y: yes   any other key: no".to_owned(),
        false => format!("\nTab: other field   Enter: {}   Esc: do not", words.confirm),
    };
    window(frame, area, &text, 70);
}

/// Draws the list of the keys.
pub(super) fn help(frame: &mut Frame<'_>, area: Rect) {
    window(frame, area, &format!("{KEYS}\n\nany key closes this list"), 78);
}

fn window(frame: &mut Frame<'_>, area: Rect, text: &str, width: u16) {
    let paragraph = Paragraph::new(text.to_owned()).wrap(Wrap { trim: false });
    let inner = width.min(area.width).saturating_sub(2).max(1);
    let lines: usize =
        text.lines().map(|line| Line::from(line).width().div_ceil(usize::from(inner)).max(1)).sum();
    // One more line, because words are not cut where a line is wrapped.
    let height = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(3);
    let [row] = Layout::vertical([Constraint::Length(height)]).flex(Flex::Center).areas(area);
    let [window] = Layout::horizontal([Constraint::Length(width)]).flex(Flex::Center).areas(row);
    frame.render_widget(Clear, window);
    frame.render_widget(paragraph.block(Block::bordered()), window);
}

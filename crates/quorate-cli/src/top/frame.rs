//! Draws the live view. On a small terminal, the sections give way in this order: first the list of runs, then
//! columns of the jobs, then all but three lines of the events, and problems and shards below the verdict. The first three
//! lines and the jobs stay.

use super::{
    clock::time_of_day,
    dialog,
    news::{Dated, Moment},
    state::{Dialog, Known, Section, State},
    view::{Palette, View, first_line},
};
use crate::terminal::Tone;
use quorate_operator::{
    state::{Leadership, Level, Problem, Target, voting},
    view::{LeaderView, ShardSetView, WorkerView, text},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};
use std::collections::BTreeMap;

/// The height of the screen for each line about a problem, and for each about a set of shards.
const ROWS_A_LINE: u16 = 8;
/// The largest number of problems that are shown below the verdict.
const NEEDS_MAX: usize = 3;
/// The number of sets of shards that are shown.
const SETS_MAX: usize = 3;

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Moment, palette: Palette) {
    let lines = heading(state, now, palette, frame.area());
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(height), Constraint::Fill(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(lines), head);
    let view = View { state, now, palette };
    if state.open.is_some() {
        dialog::details(frame, body, &view);
    } else {
        match state.section {
            Section::All => view.all(frame, body),
            Section::Nodes => view.nodes(frame, body, true),
            Section::Runs => view.runs(frame, body),
            Section::Leases => view.leases(frame, body),
            Section::Events => {
                view.events(frame, body, state.scroll_within(state.events.len(), body.height));
            }
        }
    }
    frame.render_widget(Paragraph::new(footer(state, palette)), foot);
    match &state.dialog {
        Some(Dialog::Help) => dialog::help(frame, frame.area()),
        Some(Dialog::Ask(question)) => dialog::question(frame, frame.area(), question),
        Some(Dialog::Filter(_)) | None => {}
    }
}

fn heading<'a>(
    state: &State,
    now: Moment,
    palette: Palette,
    Rect { width, height, .. }: Rect,
) -> Vec<Line<'a>> {
    let known = state.known.as_ref().map(|known| &known.value);
    let (level, headline, voting) = match &state.known {
        None => (Level::Well, "asking the nodes".to_owned(), String::new()),
        Some(Dated { value: Known { verdict, .. }, read }) if state.is_stale(*read, now) => {
            let since = time_of_day(read.wall);
            (Level::Bad, format!("NOT UPDATED since {since}: {}", verdict.headline), String::new())
        }
        Some(Dated { value: Known { verdict, state, .. }, .. }) => {
            // The headline says how many nodes vote if that is the news.
            let voting = voting(state);
            let is_news = verdict.headline.contains(&voting);
            let voting = if is_news { String::new() } else { format!("  {voting}") };
            (verdict.level, verdict.headline.clone(), voting)
        }
    };
    let group = format!("quorate top  group {}{voting}", state.group);
    let clock = time_of_day(now.wall);
    let gap = usize::from(width).saturating_sub(Line::from(&*group).width() + clock.len()).max(1);
    let first = Line::from(vec![
        Span::styled(group, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(" ".repeat(gap)),
        Span::raw(clock),
    ]);
    let verdict = Line::styled(headline, palette.of(tone_of(level)));
    // The list of the nodes has their problems.
    let needs = known.iter().flat_map(|known| &known.verdict.needs);
    let room = usize::from(height / ROWS_A_LINE);
    let needs = needs.filter(|problem| problem.target != Target::Nodes).take(NEEDS_MAX.min(room));
    let needs = needs.map(|problem| need(problem, palette));
    let shards = known.iter().flat_map(|known| known.state.shards.iter()).take(SETS_MAX.min(room));
    let shards = shards.map(|set| shards_line(set, palette));
    let workers = state.jobs().and_then(|jobs| workers_line(&jobs.workers)).map(Line::raw);
    let leader = leadership(state, now, palette);
    [first, verdict].into_iter().chain(needs).chain([leader]).chain(workers).chain(shards).collect()
}

/// Returns the line about the live workers: those of each label. Returns `None` if no worker has a label.
fn workers_line(workers: &[WorkerView]) -> Option<String> {
    let mut by_label = BTreeMap::<&str, Vec<&str>>::new();
    for worker in workers {
        worker.labels.iter().for_each(|label| by_label.entry(label).or_default().push(&worker.worker));
    }
    let labels = by_label.iter().map(|(label, workers)| format!("; {label}: {}", workers.join(", ")));
    (!by_label.is_empty()).then(|| format!("workers {}{}", workers.len(), labels.collect::<String>()))
}

/// Returns the line about a set of shards.
fn shards_line<'a>(set: &ShardSetView, palette: Palette) -> Line<'a> {
    let (owned, count, workers) = (set.owned, set.count, set.workers.len());
    let tone = if owned < count { Tone::Caution } else { Tone::Plain };
    let text =
        format!("shards {}: {owned} of {count} owned, {workers} workers; {}", set.name, set.state_text());
    Line::styled(text, palette.of(tone))
}

/// Returns the line about a problem that an operator must fix.
fn need<'a>(problem: &Problem, palette: Palette) -> Line<'a> {
    Line::from(vec![
        Span::styled(format!("  {}", problem.kind), palette.of(tone_of(problem.level))),
        Span::raw(format!("  {}: {}; {}", problem.subject, first_line(&problem.text), problem.command)),
    ])
}

fn tone_of(level: Level) -> Tone {
    match level {
        Level::Well => Tone::Plain,
        Level::Warn => Tone::Caution,
        Level::Bad => Tone::Trouble,
    }
}

fn leadership<'a>(state: &State, now: Moment, palette: Palette) -> Line<'a> {
    let known = state.known.as_ref().map(|known| &known.value.state);
    let error = known.and_then(|known| known.unread_leader.as_deref()).map(first_line);
    let waiting = known.and_then(|known| known.copies()?.waiting());
    let Some(leader) = &state.leader else {
        return Line::raw(
            error.map_or("leader: asking the nodes".to_owned(), |error| format!("leader: {error}")),
        );
    };
    let read = leader.read;
    let (worker, known) = match &leader.value {
        Leadership::Leader { leader: LeaderView { worker, term, remaining }, .. } => {
            let term = term.map_or_else(String::new, |term| format!(" (term {term})"));
            let left = remaining.map(|left| left.saturating_sub(now.boot.since(read.boot)));
            let left = left.map_or_else(String::new, |left| {
                format!(", lease ends in {:.1} s if not extended", left.as_secs_f64())
            });
            (Some(&**worker), format!("leader {worker}{term}{left}"))
        }
        Leadership::Vacant { .. } | Leadership::Unknown => (None, "NO LEADER".to_owned()),
    };
    if error.is_some() || state.is_stale(read, now) {
        let worker = worker.unwrap_or("no worker");
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let text = format!("leader NOT UPDATED since {} (then {worker}){error}", time_of_day(read.wall));
        return Line::styled(text, palette.of(Tone::Trouble));
    }
    match (worker, waiting) {
        (None, _) => Line::styled(known, palette.of(Tone::Trouble)),
        (Some(_), Some(waiting)) => {
            Line::styled(format!("{known}; {}", text(&waiting.why)), palette.of(Tone::Trouble))
        }
        (Some(_), None) => Line::styled(known, palette.of(Tone::Plain)),
    }
}

fn footer<'a>(state: &State, palette: Palette) -> Line<'a> {
    if matches!(state.dialog, Some(Dialog::Filter(_))) {
        return Line::from(format!("filter: {}_  Enter keeps it, Esc does not", state.filter));
    }
    if state.pending > 0 {
        return Line::from(format!("waiting for the leader's answer to {} action(s)", state.pending));
    }
    if let Some((text, tone)) = &state.message {
        return Line::styled(first_line(text), palette.of(*tone));
    }
    Line::from(match state.open {
        Some(_) => "Esc back  t trigger  p pause  r resume  c cancel  b back-fill  q quit  ? keys",
        None => "Enter details  / filter  s sort  Tab section  t p r c b actions  q quit  ? keys",
    })
}

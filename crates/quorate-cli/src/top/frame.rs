//! Draws the live view. On a small terminal, the sections give way in this order: first the list of runs, then
//! columns of the jobs, then all but three lines of the events. The first two lines and the jobs stay.

use super::{
    clock::time_of_day,
    dialog,
    news::Moment,
    state::{Dialog, Section, State},
    view::{Palette, View, first_line},
};
use crate::terminal::Tone;
use quorate_operator::state::{Level, Problem, Target};
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::{Line, Span},
    widgets::Paragraph,
};

/// The number of problems that are shown below the verdict.
const NEEDS_MAX: usize = 3;
/// The number of sets of shards that are shown.
const SETS_MAX: usize = 3;

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, now: Moment, palette: Palette) {
    let lines = heading(state, now, palette, frame.area().width);
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

fn heading<'a>(state: &State, now: Moment, palette: Palette, width: u16) -> Vec<Line<'a>> {
    let (level, headline, voting) = match &state.verdict {
        None => (Level::Well, "asking the nodes", String::new()),
        // The headline says how many nodes vote if that is the news.
        Some((verdict, voting)) if verdict.headline.contains(voting.as_str()) => {
            (verdict.level, &*verdict.headline, String::new())
        }
        Some((verdict, voting)) => (verdict.level, &*verdict.headline, format!("  {voting}")),
    };
    let group = format!("quorate top  group {}{voting}", state.group);
    let clock = time_of_day(now.wall);
    let gap = usize::from(width).saturating_sub(Line::from(&*group).width() + clock.len()).max(1);
    let first = Line::from(vec![
        Span::styled(group, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(" ".repeat(gap)),
        Span::raw(clock),
    ]);
    let verdict = Line::styled(headline.to_owned(), palette.of(tone_of(level)));
    // The list of the nodes has their problems.
    let needs = state.verdict.iter().flat_map(|(verdict, _)| &verdict.needs);
    let needs = needs.filter(|problem| problem.target != Target::Nodes).take(NEEDS_MAX);
    let needs = needs.map(|problem| need(problem, palette));
    let shards = state.shards.iter().take(SETS_MAX);
    let shards = shards.map(|(text, tone)| Line::styled(text.clone(), palette.of(*tone)));
    let workers = state.workers.iter().map(|text| Line::raw(text.clone()));
    let leader = leadership(state, now, palette);
    [first, verdict].into_iter().chain(needs).chain([leader]).chain(workers).chain(shards).collect()
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
    let Some(leader) = &state.leader else {
        let text = if state.is_leader_unknown { "leader: not known" } else { "leader: asking the nodes" };
        return Line::raw(text);
    };
    let known = match &leader.value {
        None => "NO LEADER".to_owned(),
        Some(known) => {
            let term = known.term.map_or_else(String::new, |term| format!(" (term {term})"));
            let left = known.remaining.map(|left| left.saturating_sub(leader.age(now)));
            let left = left.map_or_else(String::new, |left| {
                format!(", lease ends in {:.1} s if not extended", left.as_secs_f64())
            });
            format!("leader {}{term}{left}", known.worker)
        }
    };
    if state.is_leader_unknown || state.is_stale(leader, now) {
        let worker = leader.value.as_ref().map_or("no worker", |known| &known.worker);
        let text = format!("leader NOT UPDATED since {} (then {worker})", time_of_day(leader.read.wall));
        return Line::styled(text, palette.of(Tone::Trouble));
    }
    match leader.value.as_ref().map(|leader| &leader.waiting) {
        None => Line::styled(known, palette.of(Tone::Trouble)),
        Some(Some(why)) => Line::styled(format!("{known}; {why}"), palette.of(Tone::Trouble)),
        Some(None) => Line::styled(known, palette.of(Tone::Plain)),
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

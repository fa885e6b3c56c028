//! The time line of terms: a lane for each worker that led, and one for the times without a leader. Positions are
//! percentages, so that the text keeps its size on a narrow screen.

use super::{context::Context, parts};
use crate::time::span;
use maud::{Markup, html};
use quorate::env::WallTime;
use quorate_operator::view::TermView;

/// The number of terms that are drawn.
const TERMS: usize = 12;
/// The most lanes of workers.
const LANES: usize = 6;
/// The shortest time that is drawn, in microseconds.
const SHORTEST: u64 = 60_000_000;
/// The least width of a bar, and the width from which a bar has room for the cause of its end, in percent.
const WIDTH: (f64, f64) = (0.4, 14.0);

/// The time that is drawn.
#[derive(Clone, Copy)]
struct Window {
    from: WallTime,
    to: WallTime,
}

/// The worker of a lane, with its terms, the newest first.
struct Lane<'a> {
    holder: &'a str,
    terms: Vec<&'a TermView>,
}

impl Window {
    /// Returns the position of a time, in percent.
    fn place(self, at: WallTime) -> f64 {
        let all = self.from.until(self.to).as_secs_f64().max(f64::EPSILON);
        (self.from.until(at).as_secs_f64() / all * 100.0).clamp(0.0, 100.0)
    }

    fn quarter(self, number: u32) -> WallTime {
        self.from + self.from.until(self.to) / 4 * number
    }
}

/// Draws the newest terms, which begin with the newest.
pub(super) fn time_line(terms: &[TermView], context: &Context<'_>) -> Markup {
    let terms = &terms[..terms.len().min(TERMS)];
    let Some(oldest) = terms.last() else { return html! {} };
    let shortest = WallTime::from_micros(context.now.as_micros().saturating_sub(SHORTEST));
    let window = Window { from: oldest.began.min(shortest), to: context.now };
    let mut lanes: Vec<Lane<'_>> = Vec::new();
    for term in terms {
        let holder = &*term.holder;
        match lanes.iter().position(|lane| lane.holder == holder) {
            Some(at) => lanes[at].terms.push(term),
            None if lanes.len() < LANES => lanes.push(Lane { holder, terms: vec![term] }),
            None => {}
        }
    }
    let gaps = gaps(terms, context.now);
    html! {
        div.lanes {
            @for lane in &lanes { (draw(lane, window, context)) }
            @if !gaps.is_empty() { (vacant(&gaps, window, context)) }
            div.scale aria-hidden="true" {
                @for number in 0..4 { span { (context.zone.short(window.quarter(number), context.now)) } }
                span { "now" }
            }
        }
    }
}

/// Returns the times without a leader, the newest first.
fn gaps(terms: &[TermView], now: WallTime) -> Vec<(WallTime, WallTime)> {
    let between = terms.windows(2).filter_map(|pair| Some((pair.get(1)?.ended?, pair.first()?.began)));
    let last = terms.first().and_then(|term| term.ended).map(|end| (end, now));
    last.into_iter().chain(between).filter(|(from, to)| from < to).collect()
}

fn draw(lane: &Lane<'_>, window: Window, context: &Context<'_>) -> Markup {
    let shown = |at| context.zone.short(at, context.now);
    let describe = |term: &&TermView| match term.ended.zip(term.cause) {
        _ if term.leads => format!("leads since {}", shown(term.began)),
        Some((end, cause)) => format!("led from {} to {}, {cause}", shown(term.began), shown(end)),
        None => format!("led from {}, no end is recorded", shown(term.began)),
    };
    let told: Vec<String> = lane.terms.iter().map(describe).collect();
    html! {
        span.lane { b { (lane.holder) } @if lane.terms.iter().any(|term| term.leads) { " " span.soft { "leads" } } }
        svg.wide height="22" role="img" aria-label={ (lane.holder) ": " (told.join("; ")) } {
            rect y="11" width="100%" height="1" class="f-line" {}
            @for term in &lane.terms { (bar(term, window)) }
        }
    }
}

fn bar(term: &TermView, window: Window) -> Markup {
    let until = if term.leads { window.to } else { term.ended.unwrap_or(term.began) };
    let width = (window.place(until) - window.place(term.began)).max(WIDTH.0);
    let from = window.place(term.began).min(100.0 - width);
    let class = if term.leads { "f-ok" } else { "f-raise s-soft" };
    html! {
        rect x=(percent(from)) y="2" width=(percent(width)) height="18" class=(class) {}
        @if let Some(cause) = term.cause.filter(|_| width >= WIDTH.1) {
            svg x=(percent(from + width)) y="15.5" { text.c x="-6" text-anchor="end" { (cause.to_string()) } }
        }
    }
}

fn vacant(gaps: &[(WallTime, WallTime)], window: Window, context: &Context<'_>) -> Markup {
    let describe = |(from, to): &(WallTime, WallTime)| {
        format!("{} at {}", span(from.until(*to)), context.zone.short(*from, context.now))
    };
    let told: Vec<String> = gaps.iter().map(describe).collect();
    html! {
        span.lane.bad { (parts::trouble()) " no leader" }
        svg.wide height="22" role="img" aria-label={ "No leader: " (told.join("; ")) } {
            rect y="11" width="100%" height="1" class="f-line" {}
            @for (from, to) in gaps {
                @let width = (window.place(*to) - window.place(*from)).max(WIDTH.0);
                rect x=(percent(window.place(*from).min(100.0 - width))) y="0" width=(percent(width)) height="22" class="f-bad" {}
            }
        }
    }
}

fn percent(part: f64) -> String {
    format!("{part:.2}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Zone;
    use quorate::{
        FencingToken,
        election::{PastTerm, TermEnd, TermEndCause},
    };
    use quorate_operator::testing::{NOW, before};
    use std::time::Duration;

    /// Returns a term that has ended, or whose worker leads.
    fn term(number: u64, holder: &str, began: u64, ended: Option<u64>) -> TermView {
        let end = |ago| TermEnd { at: before(ago), cause: TermEndCause::Resigned, reason: "".into() };
        let (term, began) = (FencingToken::new(number), before(began));
        let past = PastTerm { term, holder: holder.into(), began, priority: 0, end: ended.map(end) };
        TermView::new(&past, ended.is_none().then_some(term), NOW)
    }

    fn shown(terms: &[TermView]) -> String {
        let zone = Zone::utc();
        time_line(terms, &super::super::tests::context(&zone)).into_string()
    }

    #[test]
    fn each_worker_has_a_lane_and_so_has_a_time_without_a_leader() {
        let terms = [term(3, "a", 100, None), term(2, "b", 500, Some(120)), term(1, "a", 1_000, Some(500))];
        let line = shown(&terms);
        assert_eq!(line.matches("class=\"lane\"").count(), 2, "{line}");
        assert!(line.contains("a: leads since 02:11:00; led from 01:56:00 to 02:04:20, resigned"), "{line}");
        assert!(
            line.contains("x=\"90.00%\" y=\"2\" width=\"10.00%\""),
            "the present term is the last tenth: {line}"
        );
        assert!(
            line.contains("No leader: 20 s at 02:10:40")
                && line.contains("x=\"88.00%\" y=\"0\" width=\"2.00%\"")
        );
        assert!(shown(&terms[..1]).contains("width=\"100.00%\""));
        let young = shown(&[term(3, "a", 15, None)]);
        assert!(young.contains("x=\"75.00%\" y=\"2\" width=\"25.00%\""), "a minute is drawn: {young}");
        // The group has had no leader since the last term ended.
        assert!(shown(&terms[1..]).contains("No leader: 2 min at 02:10:40"));
        assert_eq!(shown(&[]), "");
    }

    #[test]
    fn nothing_is_drawn_outside_of_its_lane() {
        let mut terms: Vec<_> = (1..=40)
            .map(|number| term(number, &format!("w{number}"), 5_000 - number, Some(4_999 - number)))
            .collect();
        terms.reverse();
        // A clock that is ahead.
        terms[0].began = NOW + Duration::from_secs(30);
        let line = shown(&terms);
        assert_eq!(line.matches("class=\"lane\"").count(), LANES);
        for part in line.split("<rect x=\"").skip(1) {
            let number = |text: &str| text.split('%').next().and_then(|text| text.parse::<f64>().ok());
            let from = number(part).expect("a place");
            let width = number(part.split("width=\"").nth(1).expect("a width")).expect("a width");
            assert!(from >= 0.0 && from + width <= 100.01, "{part}");
        }
    }
}

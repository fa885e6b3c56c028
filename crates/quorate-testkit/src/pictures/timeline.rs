//! Lanes of spans and marks over time, as SVG.

use std::{fmt::Write as _, time::Duration};

const WIDTH: f64 = 960.0;
/// The place of the lanes' names.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 42.0;
const BAR: f64 = 20.0;
const TOP: f64 = 16.0;
/// The smallest width of a bar whose text is drawn, for each character.
const CHARACTER: f64 = 6.6;

/// The kind of a span, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first worker, and what it holds.
    First,
    /// The second worker, and what it holds.
    Second,
    /// A state before the end.
    Ending,
    Stopped,
}

/// A state that lasted for some time.
#[derive(Clone, Debug)]
struct Span {
    lane: usize,
    from: Duration,
    until: Duration,
    kind: Kind,
    text: String,
}

/// A picture with time from left to right.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    title: String,
    lanes: Vec<String>,
    length: Duration,
    spans: Vec<Span>,
    marks: Vec<(usize, Duration, String)>,
}

impl Timeline {
    pub(super) fn new(title: &str, lanes: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            lanes: lanes.iter().map(|&lane| lane.to_owned()).collect(),
            length: Duration::ZERO,
            spans: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Enters the state of a lane between `from` and `until`. A state that continues extends its span.
    pub(super) fn state(&mut self, lane: usize, (from, until): (Duration, Duration), kind: Kind, text: &str) {
        self.length = self.length.max(until);
        let last = self.spans.iter_mut().rev().find(|span| span.lane == lane);
        match last {
            Some(span) if span.until == from && span.kind == kind && span.text == text => span.until = until,
            _ => self.spans.push(Span { lane, from, until, kind, text: text.to_owned() }),
        }
    }

    /// Marks an instant.
    pub(super) fn mark(&mut self, lane: usize, at: Duration, text: &str) {
        self.marks.push((lane, at, text.to_owned()));
    }

    /// Enters that the picture lasts until this time.
    pub(super) fn lasts(&mut self, until: Duration) {
        self.length = self.length.max(until);
    }

    pub(super) fn svg(&self) -> String {
        let height = TOP + LANE * self.lanes.len() as f64 + 30.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            escaped(&self.title)
        );
        self.axis(&mut svg);
        for (lane, name) in self.lanes.iter().enumerate() {
            let y = TOP + LANE * lane as f64 + LANE / 2.0;
            text(&mut svg, (8.0, y + 4.0), "start", name);
        }
        for span in &self.spans {
            self.bar(&mut svg, span);
        }
        for (lane, at, note) in &self.marks {
            self.stroke(&mut svg, *lane, self.x(*at), note);
        }
        svg + "</svg>\n"
    }

    /// Draws a mark: a short stroke, or a long one with a note above the bar.
    fn stroke(&self, svg: &mut String, lane: usize, x: f64, note: &str) {
        let bottom = TOP + LANE * lane as f64 + (LANE + BAR) / 2.0;
        let height = if note.is_empty() { 6.0 } else { BAR + 4.0 };
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {bottom:.1}v-{height}\" stroke=\"#111111\" stroke-width=\"2\"/>"
        );
        if !note.is_empty() {
            text(svg, (x, bottom - height - 2.0), "start", note);
        }
    }

    fn axis(&self, svg: &mut String) {
        let bottom = TOP + LANE * self.lanes.len() as f64;
        for second in 0..=self.length.as_secs() {
            let x = self.x(Duration::from_secs(second));
            let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#dddddd\"/>");
            if second % 2 == 0 {
                text(svg, (x, bottom + 18.0), "middle", &format!("{second} s"));
            }
        }
    }

    fn bar(&self, svg: &mut String, span: &Span) {
        let (x, y) = (self.x(span.from), TOP + LANE * span.lane as f64 + (LANE - BAR) / 2.0);
        let width = self.x(span.until) - x;
        let fill = match span.kind {
            Kind::First => "#9ec5f4",
            Kind::Second => "#f6c48a",
            Kind::Ending => "#f4a6a0",
            Kind::Stopped => "#d0d0d0",
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\"/>"
        );
        if width > CHARACTER * span.text.chars().count() as f64 {
            text(svg, (x + 4.0, y + BAR / 2.0 + 4.0), "start", &span.text);
        }
    }

    fn x(&self, at: Duration) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at.as_secs_f64() / self.length.as_secs_f64().max(1.0)
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#111111\">{}</text>",
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

//! The order of the jobs, and the filter.

use crate::{jobs::JobPage, terminal::Tone, time};
use quorate::env::WallTime;
use std::cmp::Ordering;

/// The column by which the jobs are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Name,
    /// Jobs that run first, then paused jobs, then the others.
    State,
    /// The job that is due next first.
    Next,
    /// The job whose last run failed first, then the job that ran most recently.
    Last,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::State,
            Self::State => Self::Next,
            Self::Next => Self::Last,
            Self::Last => Self::Name,
        }
    }

    /// Returns the heading of the column.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::State => "STATE",
            Self::Next => "NEXT",
            Self::Last => "LAST",
        }
    }

    fn compare(self, a: &JobPage, b: &JobPage) -> Ordering {
        let order = match self {
            Self::Name => Ordering::Equal,
            Self::State => state(a).cmp(&state(b)),
            // A job that is never due is the last.
            Self::Next => (a.next.is_none(), next(a)).cmp(&(b.next.is_none(), next(b))),
            Self::Last => last(a).cmp(&last(b)).then_with(|| ended(b).cmp(&ended(a))),
        };
        order.then_with(|| a.name.cmp(&b.name))
    }
}

/// Returns the jobs whose name, state or last outcome contains `filter`, in an order.
pub(super) fn rows<'a>(
    jobs: &'a [JobPage],
    filter: &str,
    order: Order,
    is_reversed: bool,
) -> Vec<&'a JobPage> {
    let filter = filter.to_lowercase();
    let selected = |job: &&JobPage| {
        let outcome = job.last.first().map_or("", |end| &end.outcome);
        [&*job.name, &job.state(), outcome].iter().any(|text| text.to_lowercase().contains(&filter))
    };
    let mut rows: Vec<&JobPage> = jobs.iter().filter(selected).collect();
    rows.sort_by(|a, b| order.compare(a, b));
    if is_reversed {
        rows.reverse();
    }
    rows
}

fn state(job: &JobPage) -> u8 {
    match (job.running.is_empty(), job.paused.is_some()) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    }
}

fn last(job: &JobPage) -> u8 {
    match job.last.first() {
        Some(end) if end.tone() == Tone::Trouble => 0,
        Some(_) => 1,
        None => 2,
    }
}

fn next(job: &JobPage) -> Option<WallTime> {
    job.next.as_ref().and_then(|next| time::parse(next).ok())
}

fn ended(job: &JobPage) -> Option<WallTime> {
    job.last.first().and_then(|end| time::parse(&end.tick).ok())
}

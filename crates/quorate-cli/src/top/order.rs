//! The order of the jobs, and the filter.

use crate::{jobs::tone, terminal::Tone};
use quorate_operator::view::JobView;
use std::cmp::Ordering;

/// The column by which the jobs are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// The order of the page: jobs that failed first, then overdue ones, then by state.
    #[default]
    State,
    Name,
    /// The job that is due next first.
    Next,
    /// The job whose last run failed first, then the job that ran most recently.
    Last,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::State => Self::Name,
            Self::Name => Self::Next,
            Self::Next => Self::Last,
            Self::Last => Self::State,
        }
    }

    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::State => "STATE",
            Self::Next => "NEXT",
            Self::Last => "LAST",
        }
    }

    fn compare(self, a: &JobView, b: &JobView) -> Ordering {
        let order = match self {
            Self::Name => Ordering::Equal,
            Self::State => return a.by_trouble(b),
            // A job that is never due is the last.
            Self::Next => (a.next.is_none(), a.next).cmp(&(b.next.is_none(), b.next)),
            Self::Last => {
                let ended = |job: &JobView| job.ends.first().map(|end| end.tick);
                last(a).cmp(&last(b)).then_with(|| ended(b).cmp(&ended(a)))
            }
        };
        order.then_with(|| a.name.cmp(&b.name))
    }
}

/// Returns the jobs whose name, state or last outcome contains `filter`, in an order.
pub(super) fn rows<'a>(
    jobs: &'a [JobView],
    filter: &str,
    order: Order,
    is_reversed: bool,
) -> Vec<&'a JobView> {
    let filter = filter.to_lowercase();
    let selected = |job: &&JobView| {
        let outcome = job.ends.first().map_or("", |end| end.outcome.as_str());
        let doing = job.doing(|until| format!("until {}", job.zone.rfc3339(until)));
        [&*job.name, &doing, outcome].iter().any(|text| text.to_lowercase().contains(&filter))
    };
    let mut rows: Vec<&JobView> = jobs.iter().filter(selected).collect();
    rows.sort_by(|a, b| order.compare(a, b));
    if is_reversed {
        rows.reverse();
    }
    rows
}

fn last(job: &JobView) -> u8 {
    match job.ends.first() {
        Some(end) if tone(end) == Tone::Trouble => 0,
        Some(_) => 1,
        None => 2,
    }
}

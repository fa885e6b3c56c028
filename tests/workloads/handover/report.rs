use super::WAITED;
use std::{fmt, str::FromStr, time::Duration};

/// One contender's turn, in nanoseconds of the boot clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// It began to ask.
    pub(super) asked: u64,
    /// It had the lease.
    pub(super) had: u64,
    /// It began to release it.
    pub(super) gave: u64,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.asked, self.had, self.gave)
    }
}

impl FromStr for Turn {
    type Err = String;
    fn from_str(line: &str) -> Result<Self, String> {
        let parts: Vec<u64> = line.split(' ').filter_map(|part| part.parse().ok()).collect();
        let [asked, had, gave] = parts[..] else { return Err(format!("no turn: {line}")) };
        Ok(Self { asked, had, gave })
    }
}

/// What the turns come to.
#[derive(Debug)]
pub(super) struct Report {
    turns: usize,
    times: Vec<Duration>,
    asked: u64,
}

impl Report {
    pub(super) fn of(mut turns: Vec<Turn>, asked: u64) -> Self {
        turns.sort_by_key(|turn| turn.had);
        let handed = turns.windows(2).filter_map(|pair| {
            let (before, after) = (pair[0], pair[1]);
            assert!(before.gave <= after.had, "two held at once");
            let waited = before.gave.saturating_sub(after.asked);
            (waited >= WAITED.as_nanos() as u64).then(|| Duration::from_nanos(after.had - before.gave))
        });
        let mut times: Vec<Duration> = handed.collect();
        times.sort_unstable();
        Self { turns: turns.len(), times, asked }
    }

    fn at(&self, share: f64) -> Duration {
        let last = self.times.len().saturating_sub(1);
        self.times.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, nearly, all] = [0.5, 0.9, 0.99, 1.0].map(|share| self.at(share));
        write!(f, "{} hand-overs, p50 {half:.2?}, p90 {most:.2?}, p99 {nearly:.2?}, ", self.times.len())?;
        write!(f, "max {all:.2?}; {:.1} script calls a turn", self.asked as f64 / self.turns.max(1) as f64)
    }
}

//! Sets of numbers in words.

use std::collections::BTreeSet;

/// A set with fewer values than this is always a [`Numbers::List`], never a range or steps.
const RUN_MIN: usize = 3;

/// The shape of a set of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// At least three consecutive numbers.
    Range(u32, u32),
    /// At least three numbers with the same distance from one to the next. The distance is greater than 1.
    Steps { first: u32, step: u32, last: u32 },
    /// Any other set, as ranges of consecutive numbers.
    List(Vec<(u32, u32)>),
}

impl Numbers {
    pub(super) fn of(values: &BTreeSet<u32>) -> Self {
        let numbers: Vec<u32> = values.iter().copied().collect();
        if let [first, second, .., last] = *numbers.as_slice()
            && numbers.len() >= RUN_MIN
        {
            let step = second - first;
            if numbers.windows(2).all(|pair| pair[1] - pair[0] == step) {
                return if step == 1 { Self::Range(first, last) } else { Self::Steps { first, step, last } };
            }
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => runs.push((number, number)),
            }
        }
        Self::List(runs)
    }

    /// Returns the numbers as a list, such as `1, 5 and 9 to 12`.
    pub(super) fn list(&self) -> String {
        match self {
            Self::Range(first, last) => format!("{first} to {last}"),
            Self::Steps { first, step, last } => {
                let step = usize::try_from(*step).unwrap_or(usize::MAX);
                join((*first..=*last).step_by(step).map(|number| number.to_string()))
            }
            Self::List(runs) => join(runs.iter().flat_map(|(first, last)| run(*first, *last))),
        }
    }
}

fn run(first: u32, last: u32) -> Vec<String> {
    match last - first {
        0 => vec![first.to_string()],
        1 => vec![first.to_string(), last.to_string()],
        _ => vec![format!("{first} to {last}")],
    }
}

/// Returns the first number and the distance, if each number has the same distance to the next one. In a cycle
/// of `length` numbers, the last number must also have this distance to the first number of the next cycle.
pub(super) fn cycle(values: &BTreeSet<u32>, length: u32) -> Option<(u32, u32)> {
    let mut numbers = values.iter().copied();
    let (first, second) = (numbers.next()?, numbers.next()?);
    let step = second - first;
    let follows = values.iter().zip(values.iter().skip(1)).all(|(one, next)| next - one == step);
    let last = values.last().copied()?;
    (follows && first + length == last + step).then_some((first, step))
}

/// Joins the items of a list with commas and `and`.
pub(super) fn join(items: impl IntoIterator<Item = String>) -> String {
    let mut items: Vec<String> = items.into_iter().collect();
    let last = items.pop().unwrap_or_default();
    if items.is_empty() { last } else { format!("{} and {last}", items.join(", ")) }
}

/// Returns the number as `1st`, `2nd`, `3rd` or `11th`.
pub(super) fn ordinal(number: u32) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Returns the name at `index`, with a capital letter.
pub(super) fn title(names: &[&str], index: u32) -> String {
    let name = usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default();
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

use super::{Moment, Operation, Specification};

/// The least number of operations of a part. A history is not split more finely, because a search has a cost of its
/// own.
const LEAST: usize = 64;

/// The end of an operation of unknown result.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// A part of the history of one object, with the state in which it begins.
#[derive(Debug)]
pub(super) struct Part<'a, S: Specification> {
    pub(super) first: S::State,
    pub(super) operations: Vec<&'a Operation<S::Call>>,
    /// True if the next part begins with the same operations, because the specification does not know the state after
    /// them.
    pub(super) is_repeated: bool,
}

impl<S: Specification> Part<'_, S> {
    /// Returns the largest number of operations that are open at one moment. The search may have to try every set of
    /// them.
    pub(super) fn width(&self) -> usize {
        let mut ends: Vec<Moment> = Vec::new();
        let mut width = 0;
        for operation in &self.operations {
            ends.retain(|end| *end >= operation.begin);
            ends.push(operation.end.unwrap_or(NEVER));
            width = width.max(ends.len());
        }
        width
    }
}

/// Splits the history of one object where no operation is open, and where the specification knows the state.
/// `operations` must be sorted by their beginnings.
///
/// If the specification does not know the state, the part goes on. It is then also returned as it is so far, whenever
/// its size has doubled: a violation in it is found before the part is too large to be searched.
pub(super) fn split<S: Specification>(operations: &[Operation<S::Call>]) -> Vec<Part<'_, S>> {
    let mut parts = Vec::new();
    let mut part = Part::<S> { first: S::initial(), operations: Vec::new(), is_repeated: false };
    let (mut open_until, mut enough) = (Moment::default(), LEAST);
    for operation in operations {
        if part.operations.len() >= enough && operation.begin > open_until {
            let calls: Vec<&S::Call> = part.operations.iter().map(|operation| &operation.call).collect();
            let rest = match S::settled(&part.first, &calls) {
                Some(first) => {
                    enough = LEAST;
                    Part { first, operations: Vec::new(), is_repeated: false }
                }
                None => {
                    enough *= 2;
                    part.is_repeated = true;
                    Part {
                        first: part.first.clone(),
                        operations: part.operations.clone(),
                        is_repeated: false,
                    }
                }
            };
            parts.push(std::mem::replace(&mut part, rest));
        }
        part.operations.push(operation);
        open_until = open_until.max(operation.end.unwrap_or(NEVER));
    }
    parts.push(part);
    parts
}

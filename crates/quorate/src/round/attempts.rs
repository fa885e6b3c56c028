//! When an attempt on a claim may begin, and when its id is given up: pure, and shared with the model of it
//! (`quorate-testkit`, `model::poison`).
//!
//! # What is not guaranteed
//!
//! A node that forgets forgets its counts: then more attempts than the limit may begin, but no id is given up for
//! less.
//!
//! # The rule
//!
//! A grant tells how many attempts its node has counted. Who has a majority of grants takes the largest of these: at the
//! limit the id is given up. Below it, one more is written wherever the claimer is still the owner and fewer have been
//! counted ([`counts_more`](crate::node::engine::counts_more)); the handler begins once a majority has it. (Counted with the grant itself, attempts would count that nobody
//! won. Not refusing where as many are counted, one count would stand for two attempts: the majority that counts need
//! not be the one that granted.)

/// What a majority of grants means for the attempt that has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The handler may begin once a majority has counted that this is attempt so and so.
    Begins(u32),
    /// As many as may begin have begun: the id is given up.
    GivenUp(u32),
}

/// Whose turn it is where the granting nodes have counted so many attempts, of which `limit` may begin.
pub fn turn(counted: impl IntoIterator<Item = u32>, limit: Option<u32>) -> Turn {
    let most = counted.into_iter().max().unwrap_or_default();
    match limit {
        Some(limit) if most >= limit => Turn::GivenUp(most),
        _ => Turn::Begins(most.saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_decides() {
        assert_eq!(turn([0, 0], Some(3)), Turn::Begins(1));
        assert_eq!(turn([0, 2, 1], Some(3)), Turn::Begins(3));
        assert_eq!(turn([0, 3], Some(3)), Turn::GivenUp(3));
        assert_eq!(turn([9], Some(3)), Turn::GivenUp(9), "the limit was lowered");
        assert_eq!(turn([9], None), Turn::Begins(10));
        assert_eq!(turn([u32::MAX], None), Turn::Begins(u32::MAX));
    }
}

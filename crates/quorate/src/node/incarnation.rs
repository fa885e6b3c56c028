use super::NodeTime;
use std::fmt;

/// The beginning of the line of a node's marker that contains the id.
const KEY: &str = "memory=";

/// The id of one memory of a node: the time from which the node has forgotten nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Incarnation(u64);

impl Incarnation {
    /// Draws the id of a memory that begins at `since` in the run `run_id`, with the random number `seed` of one worker.
    /// The result differs for each memory, because one worker never begins two memories of one run at the same time.
    pub(crate) fn draw(seed: u64, run_id: &str, since: NodeTime) -> Self {
        // Each step is the finalizer of SplitMix64.
        let mix = |state: u64, part: u64| {
            let mut bits = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        Self(run_id.bytes().fold(mix(mix(0, seed), since.as_micros()), |state, byte| mix(state, byte.into())))
    }

    /// Returns the id of the memory in which a node stored this marker. Zero if the text has none.
    pub(crate) fn of_marker(text: &str) -> Self {
        text.lines().find_map(|line| Self::parse(line.strip_prefix(KEY)?)).unwrap_or_default()
    }

    /// Returns the id with this number, for tests and models.
    #[doc(hidden)]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Reads the text of the id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_id =
            text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_memory_has_an_id_of_its_own() {
        let at = NodeTime::from_micros;
        let ids = [(1, "a", at(1)), (2, "a", at(1)), (1, "b", at(1)), (1, "a", at(2))];
        let ids = ids.map(|(seed, run_id, since)| Incarnation::draw(seed, run_id, since).to_string());
        assert!((1..ids.len()).all(|n| !ids[..n].contains(&ids[n])), "{ids:?}");
    }

    #[test]
    fn a_marker_shows_the_memory_in_which_it_was_stored() {
        let marker = "quorate-marker 3\nrun=a\ndata=\nmemory=00000000000000ff\nnodes=b";
        assert_eq!(Incarnation::of_marker(marker), Incarnation(255));
        assert_eq!(Incarnation::of_marker("memory=ff"), Incarnation::default());
    }
}

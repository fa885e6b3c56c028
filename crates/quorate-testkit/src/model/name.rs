use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

/// A node's name in a printed history. Two names always compare as equal, because nodes are interchangeable.
/// States that differ only in the order of the nodes therefore count as one state.
#[derive(Clone, Copy, Default)]
pub struct Name(pub u8);

impl PartialEq for Name {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'x' + self.0))
    }
}

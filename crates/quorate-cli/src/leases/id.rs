use std::fmt;

/// The id of a lease: 128 random bits. Who knows it may use and release the lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseId(u128);

impl LeaseId {
    pub(super) fn new((high, low): (u64, u64)) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Reads an id. Only the text of [`fmt::Display`] is one, so that a lease has one path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_text_of_an_id_is_one() {
        let id = LeaseId(u128::MAX >> 7);
        let text = id.to_string();
        assert_eq!(text.len(), 32);
        assert!(
            LeaseId::parse(&text) == Some(id) && LeaseId::parse(&LeaseId(7).to_string()) == Some(LeaseId(7))
        );
        for wrong in
            ["", "7", &text[1..], &text.to_uppercase(), &format!("+{}", &text[1..]), &format!("0{text}")]
        {
            assert!(LeaseId::parse(wrong).is_none(), "{wrong}");
        }
    }
}

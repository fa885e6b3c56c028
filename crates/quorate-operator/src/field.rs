/// A field of an action, as a person or a program fills it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in forms and in the API.
    pub name: &'static str,
    /// The name for people.
    pub label: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The parties that give it.
    pub need: Need,
    /// The meaning, for people.
    pub about: &'static str,
}

/// The kind of the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A point in time.
    Time,
    /// A point in time, or a length from now on.
    End,
    /// A length of time.
    Length,
    /// The number of a term.
    Term,
}

/// The parties that give the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Everybody.
    Required,
    /// A page asks people for it; a program may leave it out.
    Wanted,
    /// People and programs may leave it out.
    Optional,
    /// Programs may give it, and people are not asked for it.
    Programs,
}

impl Field {
    /// The reason of a change, which the audit list shows.
    pub(crate) const REASON: Self =
        Self::new("reason", "Reason", Kind::Text, Need::Optional, "Why; shown in the audit list");

    pub(crate) const fn new(
        name: &'static str,
        label: &'static str,
        kind: Kind,
        need: Need,
        about: &'static str,
    ) -> Self {
        Self { name, label, kind, need, about }
    }

    /// Returns whether people are asked for it.
    pub fn is_asked(&self) -> bool {
        self.need != Need::Programs
    }
}

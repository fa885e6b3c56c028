use serde_json::{Value, json};

/// A parameter of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) is_required: bool,
}

/// The type of a parameter in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Flag,
    /// A list of strings.
    List,
}

impl Parameter {
    pub(super) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, is_required: false }
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }
}

impl Kind {
    /// Returns the schema of the parameter.
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Number => json!({ "type": "integer" }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::List => json!({ "type": "array", "items": { "type": "string" } }),
        }
    }
}

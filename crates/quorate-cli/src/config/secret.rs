use std::fmt;

/// A value that is not shown.
#[derive(Clone, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(transparent)]
pub struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

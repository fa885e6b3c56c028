use std::borrow::Cow;

/// An error about a setting or a name that cannot be used: the setting, its value, the reason and the fix.
///
/// ```
/// use quorate::{Quorum, QuorumConfig, node::MemoryNode};
///
/// let config = QuorumConfig { drift_rate: 2.0, ..QuorumConfig::default() };
/// let error = Quorum::builder().config(config).node(MemoryNode::new("a")).build().unwrap_err();
/// assert_eq!(error.field(), "drift_rate");
/// assert_eq!(error.to_string(), "drift_rate is 2, not between 0 and 0.5; give it 0 to 0.5 (default 0.01)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, {reason}; {fix}")]
pub struct SettingError {
    field: Cow<'static, str>,
    value: String,
    reason: String,
    fix: String,
}

impl SettingError {
    /// Returns an error about the setting `field`. `value` is the value of the setting, as text.
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
        reason: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.into(), reason: reason.into(), fix: fix.into() }
    }

    /// Returns the name of the setting, as [`QuorumConfig`](crate::QuorumConfig), the builders and
    /// configuration files call it.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns the value that was given, as text.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the reason why the value cannot be used.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the change that makes the setting usable.
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

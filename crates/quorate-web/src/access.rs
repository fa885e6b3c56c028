use std::{fmt, sync::Arc};

/// The rights of a viewer, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// See every page.
    Read,
    /// Also trigger, pause, resume, back-fill, cancel and freeze jobs, make the leader resign, and reset dead letters.
    Operate,
}

/// A viewer whom the service that mounts the router has already identified.
///
/// A middleware inserts it as a request extension. The viewer has these rights without signing in.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// The rights. `None` if the viewer must sign in first.
    pub access: Option<Access>,
    /// The name under which the viewer's requests are recorded, such as `ada@proxy`.
    pub name: Arc<str>,
}

/// Returns what the owner of a token may do; `None` for a token that is not valid.
pub(crate) type CheckToken = dyn Fn(&str) -> Option<Access> + Send + Sync;

/// The ways to get access.
#[derive(Clone)]
pub(crate) struct AccessRules {
    /// True if every client may read.
    pub(crate) open: bool,
    pub(crate) check_token: Option<Arc<CheckToken>>,
}

impl fmt::Debug for AccessRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.check_token.is_some();
        f.debug_struct("AccessRules").field("open", &self.open).field("tokens", &tokens).finish()
    }
}

//! The past of a group: its terms, the requests to its jobs, and the operations without a leader.

use crate::view::{AuditEntry, TermView, text};
use quorate::{election::Observer, quorum::Quorum, scheduler::Jobs};

/// The number of terms that are shown.
const TERMS: usize = 50;
/// The number of changes that are shown.
const CHANGES: usize = 50;

/// The state that only the page about the leadership shows. Each list has the newest entry first.
#[derive(Clone, Debug, Default)]
pub struct LeadershipPast {
    /// The terms.
    pub terms: Vec<TermView>,
    /// What operators have changed.
    pub changes: Vec<AuditEntry>,
}

impl LeadershipPast {
    /// Reads the newest terms and changes of the group. The error is a text for people.
    pub async fn read(
        quorum: &Quorum,
        observer: &mut Observer,
        jobs: Option<&Jobs>,
        group: &str,
    ) -> Result<Self, String> {
        let terms = TermView::newest(observer, TERMS, quorum.wall())
            .await
            .map_err(|error| text(&error.to_string()))?;
        let changes = AuditEntry::newest(quorum, jobs, Some(group), CHANGES).await;
        Ok(Self { terms, changes: changes.map_err(|error| text(&error.to_string()))? })
    }
}

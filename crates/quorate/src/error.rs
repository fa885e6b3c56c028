//! The one error into which `?` converts every other error of this crate.

#[cfg(feature = "claims")]
use crate::claim::{ClaimError, ProcessError};
#[cfg(feature = "scheduler")]
use crate::scheduler::{InvalidSchedule, JobsError};
use crate::{
    config::SettingError,
    election::{ElectionError, ResignError},
    lease::{AcquireError, LeaseError, LeaseLost},
    vote::NoMajority,
};
use std::convert::Infallible;

/// Any error of this crate. Each other error converts to it, so `?` works in a function that uses locks, elections, claims
/// and jobs together.
///
/// ```
/// use quorate::{Cron, Error, Quorum, node::MemoryNode};
///
/// async fn report(quorum: &Quorum) -> Result<(), Error> {
///     let nightly = Cron::parse("0 3 * * *")?;
///     let lease = quorum.lock("report").acquire().await?;
///     println!("{nightly}, under token {}", lease.fencing_token()?);
///     lease.release().await?;
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let nodes = (0..3).map(|i| MemoryNode::new(&format!("memory-{i}")));
/// # let quorum = Quorum::builder().nodes(nodes).trust_new_nodes(true).build()?;
/// match report(&quorum).await {
///     Err(error) if error.is_retryable() => println!("later: {}", error.short()),
///     other => other?,
/// }
/// quorum.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or a name cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A lock was not acquired.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// A lease has ended. The work under it must write nothing more.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// Too few nodes agreed.
    #[error(transparent)]
    NoMajority(#[from] NoMajority),
    /// The quorum has been closed.
    #[error("the quorum is closed")]
    Closed,
    /// A candidate of the same group is already running on this quorum.
    #[error("{}", ElectionError::<Infallible>::AlreadyRunning { group: group.clone() })]
    AlreadyRunning {
        /// The group.
        group: String,
    },
    /// A leader has not resigned.
    #[error(transparent)]
    Resign(#[from] ResignError),
    /// A message was not claimed, completed, abandoned or reset.
    #[cfg(feature = "claims")]
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A message was not processed.
    #[cfg(feature = "claims")]
    #[error(transparent)]
    Process(Box<ProcessError<Self>>),
    /// A schedule cannot be used.
    #[cfg(feature = "scheduler")]
    #[error(transparent)]
    Timing(#[from] InvalidSchedule),
    /// A question about jobs, or a request to their leader, failed.
    #[cfg(feature = "scheduler")]
    #[error(transparent)]
    Jobs(#[from] JobsError),
}

impl Error {
    /// Returns whether the same call may succeed later, without a change of the code, of settings or of the nodes. A call
    /// that may have had its effect, such as a request to a leader that was not answered, is not retryable.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Setting(_) | Self::Closed | Self::AlreadyRunning { .. } => false,
            Self::Acquire(error) => !error.is_permanent(),
            Self::Lost(_) => true,
            Self::NoMajority(report) | Self::Resign(ResignError::NoMajority(report)) => {
                !report.is_permanent()
            }
            Self::Resign(error) => !matches!(error, ResignError::OtherTerm { .. }),
            #[cfg(feature = "claims")]
            Self::Claim(error) => !error.is_permanent(),
            #[cfg(feature = "claims")]
            Self::Process(error) => match &**error {
                ProcessError::Claim(error) | ProcessError::NotRecorded(error) => !error.is_permanent(),
                ProcessError::Handler(error) => error.is_retryable(),
                ProcessError::StillInProgress { .. } | ProcessError::Lost(_) => true,
                ProcessError::DeadLettered { .. } => false,
            },
            #[cfg(feature = "scheduler")]
            Self::Timing(_) => false,
            #[cfg(feature = "scheduler")]
            Self::Jobs(JobsError::NoMajority(report) | JobsError::NotPosted { report }) => {
                !report.is_permanent()
            }
            #[cfg(feature = "scheduler")]
            Self::Jobs(_) => false,
        }
    }

    /// Returns the outcome of each node, if too few nodes agreed.
    pub fn report(&self) -> Option<&NoMajority> {
        match self {
            Self::Acquire(error) => error.report(),
            Self::NoMajority(report) | Self::Resign(ResignError::NoMajority(report)) => Some(report),
            #[cfg(feature = "claims")]
            Self::Claim(error) => error.report(),
            #[cfg(feature = "claims")]
            Self::Process(error) => match &**error {
                ProcessError::Claim(error) | ProcessError::NotRecorded(error) => error.report(),
                ProcessError::Handler(error) => error.report(),
                _ => None,
            },
            #[cfg(feature = "scheduler")]
            Self::Jobs(error) => error.report(),
            _ => None,
        }
    }

    /// Returns the text of the error without the outcome of each node, for a line of a log or an answer to a caller.
    pub fn short(&self) -> String {
        let text = self.to_string();
        match self.report() {
            Some(report) => text.replace(&report.to_string(), &report.short()),
            None => text,
        }
    }
}

impl From<LeaseError> for Error {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Acquire(error) => Self::Acquire(error),
            LeaseError::Lost(lost) => Self::Lost(lost),
            LeaseError::Successor(error) => Self::Setting(error),
            LeaseError::NoMajority(report) => Self::NoMajority(report),
            LeaseError::Closed => Self::Closed,
        }
    }
}

impl<E: Into<Self>> From<ElectionError<E>> for Error {
    fn from(error: ElectionError<E>) -> Self {
        match error {
            ElectionError::Acquire(error) => Self::Acquire(error),
            ElectionError::AlreadyRunning { group } => Self::AlreadyRunning { group },
            ElectionError::Work(error) => error.into(),
        }
    }
}

#[cfg(feature = "claims")]
impl From<ProcessError<Self>> for Error {
    fn from(error: ProcessError<Self>) -> Self {
        Self::Process(Box::new(error))
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{node::Cause, vote::NodeOutcome};

    fn report() -> NoMajority {
        let silent = NodeOutcome::Unreachable(Cause::TimedOut);
        NoMajority::new(
            2,
            vec![("a".into(), NodeOutcome::Granted), ("b".into(), silent.clone()), ("c".into(), silent)],
        )
    }

    #[test]
    fn the_short_text_has_no_nodes() {
        let resource = crate::node::Resource::lock("x").unwrap();
        let error = Error::from(AcquireError::Unreachable { resource, report: report() });
        assert!(error.to_string().contains("b: "), "{error}");
        assert_eq!(error.short(), "no quorum for x: 1 of 3 nodes agreed, 2 needed");
        assert_eq!(Error::from(LeaseLost).short(), LeaseLost.to_string());
    }

    #[test]
    fn only_a_call_that_may_succeed_later_is_retryable() {
        let setting = crate::node::Resource::lock("").unwrap_err();
        assert!(Error::from(report()).is_retryable());
        assert!(Error::from(LeaseLost).is_retryable());
        assert!(!Error::from(setting).is_retryable());
        assert!(!Error::from(LeaseError::Closed).is_retryable());
        let running = ElectionError::<LeaseLost>::AlreadyRunning { group: "g".to_owned() };
        assert!(!Error::from(running).is_retryable());
        assert!(Error::from(ElectionError::Work(LeaseLost)).is_retryable(), "the work's own error decides");
    }

    #[cfg(feature = "scheduler")]
    #[test]
    fn a_request_that_a_leader_may_still_carry_out_is_not_retryable() {
        let (id, until) = (crate::scheduler::RequestId::from_u128(1), crate::env::WallTime::default());
        assert!(Error::from(JobsError::NotPosted { report: report() }).is_retryable());
        assert!(!Error::from(JobsError::Unanswered { id, leader: None, until }).is_retryable());
    }
}

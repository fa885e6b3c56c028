//! What several commands on jobs share.

use crate::{args::GroupArgs, config::Config, connect, exit::Failure, failures, operate, terminal::Tone};
use quorate::{
    quorum::Quorum,
    scheduler::{Jobs, RunOutcome, Zone},
};
use quorate_operator::view::RunEnd;

/// Returns the zone in which the times of a job are shown.
pub(super) fn zone_of(of_job: &Zone, utc: bool) -> Zone {
    if utc { Zone::UTC } else { of_job.clone() }
}

/// Returns the importance of an outcome.
pub(crate) fn tone(end: &RunEnd) -> Tone {
    match end.outcome {
        RunOutcome::Done => Tone::Plain,
        RunOutcome::Failed | RunOutcome::Lost | RunOutcome::TimedOut => Tone::Trouble,
        _ => Tone::Caution,
    }
}

/// Connects to the nodes to read, without writing anything to them.
pub(super) async fn look(args: &GroupArgs, config: &Config) -> Result<(Quorum, Jobs), Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    let quorum = connect::looking(config).await?;
    let jobs = operate::jobs_of(&quorum, group)?;
    Ok((quorum, jobs))
}

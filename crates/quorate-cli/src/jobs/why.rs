//! `quorate jobs why`.

use super::common::look;
use crate::{
    args::WhyArgs,
    config::Config,
    exit::{Failure, NO_QUORUM, NOT_FOUND},
    failures, show,
    table::fields,
};
use quorate::{
    env::WallTime,
    scheduler::{Jobs, Reason, Zone},
};
use quorate_operator::view::WhyView;

/// Shows why the job did or did not run.
pub(super) async fn why(args: &WhyArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, mut jobs) = look(&args.group, config).await?;
    if args.utc {
        jobs = jobs.times_in(Zone::UTC);
    }
    let found = asked(&jobs, args, quorum.wall()).await;
    quorum.close().await;
    let (page, reason) = found?;
    show::print_page(args.group.json, &page, || format!("{}\n{}", page.summary(), fields(page.fields())))?;
    Ok(match reason {
        Reason::NoQuorum => NO_QUORUM,
        Reason::NotRegistered => NOT_FOUND,
        _ => 0,
    })
}

/// Asks for the reason at the time that the arguments name.
async fn asked(jobs: &Jobs, args: &WhyArgs, now: WallTime) -> Result<(WhyView, Reason), Failure> {
    let at = match args.at {
        None => None,
        Some(moment) => Some(moment.tick(jobs, &args.job, now).await),
    };
    of_job(jobs, &args.job, at).await
}

/// Asks why the job did or did not run at a time, or by default at its latest tick.
pub(super) async fn of_job(
    jobs: &Jobs,
    job: &str,
    at: Option<WallTime>,
) -> Result<(WhyView, Reason), Failure> {
    let found = jobs.why(job, at).await.map_err(|error| failures::of_jobs(&error))?;
    Ok((WhyView::new(job, at, jobs.group(), &found), found.reason))
}

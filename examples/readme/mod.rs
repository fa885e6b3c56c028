//! The code that the repository's README shows: `tests/guide` compares both.

use crate::Failure;
use quorate::{
    Claims, Cron, Election, FencingToken, Job, Quorum, Scheduler, Term, claim::ClaimHandle, env::WallTime,
    scheduler::RunContext, shutdown_signal,
};
use tokio_util::sync::CancellationToken;

/// A service that leads, runs a job and handles a message, until SIGTERM or Ctrl-C.
///
/// # Errors
/// If too few of the servers can be used, or if the work fails.
pub async fn service() -> Result<(), Failure> {
    let quorum = Quorum::connect(["redis://a", "redis://b", "redis://c"]).await?;

    let leader = async {
        let work =
            |term: Term| async move { charge_cards(term.fencing_token()?, term.step_down_token()).await };
        Election::new(&quorum, "billing").run(work).until(shutdown_signal()).await?; // SIGTERM or Ctrl-C
        Ok::<_, Failure>(())
    };
    let cron_job = async {
        let report =
            |run: RunContext| async move { write_report(run.scheduled_at(), run.fencing_token()?).await };
        let nightly = Job::new("nightly-report", Cron::parse("0 3 * * *")?.zone("Europe/Kyiv")?, report);
        Scheduler::new(&quorum, "reports").job(nightly).run().until(shutdown_signal()).await?;
        Ok::<_, Failure>(())
    };
    let message = async {
        let ship = |claim: ClaimHandle| async move { ship_order("order-17", claim.fencing_token()?).await };
        if Claims::new(&quorum, "orders").process("order-17", ship).await?.may_ack() {
            acknowledge("order-17").await?; // done by this copy, or before
        }
        Ok::<_, Failure>(())
    };
    tokio::try_join!(leader, cron_job, message)?;

    quorum.close().await;
    Ok(())
}

async fn charge_cards(token: FencingToken, stop: &CancellationToken) -> Result<(), Failure> {
    println!("charging cards under token {token}");
    stop.cancelled().await;
    Ok(())
}

async fn write_report(of: WallTime, token: FencingToken) -> Result<(), Failure> {
    println!("the report of {of}, under token {token}");
    Ok(())
}

async fn ship_order(id: &str, token: FencingToken) -> Result<(), Failure> {
    println!("shipping {id} under token {token}");
    Ok(())
}

async fn acknowledge(id: &str) -> Result<(), Failure> {
    println!("{id} may leave the broker");
    Ok(())
}

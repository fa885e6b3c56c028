//! Measures the time from one leader to the next: after a resignation, and after a crash.

use super::{cycles::runtime, handover::join};
use crate::{
    measure::{Samples, ms, now},
    plan::Plan,
    report::Row,
    rivals::{TTL, quorum, spawn},
    servers::Servers,
};
use quorate::{election::Election, env::BootTime, quorum::Quorum};
use std::{sync::Arc, time::Duration};
use tokio::{runtime::Runtime, sync::mpsc};
use tokio_util::sync::CancellationToken;

/// The TTL of a leader that crashes. The next leader must wait until this TTL ends.
const CRASH_TTL: Duration = Duration::from_secs(2);

/// The time at which a leader was elected, and the token whose cancellation makes that leader resign.
type Elected = (BootTime, CancellationToken);

pub(crate) fn run(plan: &Plan, servers: &Servers) -> Result<Vec<Row>, String> {
    let graceful = runtime(2)?.block_on(graceful(plan, servers))?;
    let crashes = crashes(plan, servers)?;
    let row = |figure: &str, value| Row::new("quorate", figure, "ms", ms(value));
    Ok(vec![
        row("resignation to next election, p50", graceful.quantile(0.5)),
        row("resignation to next election, p99", graceful.quantile(0.99)).at_most(10.0),
        row("crash to next election, beyond the remaining TTL, p50", crashes.quantile(0.5)),
        row("crash to next election, beyond the remaining TTL, longest", crashes.longest()).at_most(50.0),
    ])
}

/// Measures resignations. Two candidates alternate: when the leader's campaign is shut down, the other
/// candidate wins, and the first one campaigns again.
async fn graceful(plan: &Plan, servers: &Servers) -> Result<Samples, String> {
    let (elected, mut elections) = mpsc::unbounded_channel::<Elected>();
    let over = CancellationToken::new();
    let mut tasks = Vec::new();
    for name in ["a", "b"] {
        let quorum = quorum(servers.urls(), name).await?;
        let (elected, over) = (elected.clone(), over.clone());
        tasks.push(spawn(async move {
            while !over.is_cancelled() {
                campaign_once(&quorum, "succession", TTL, &elected, over.child_token()).await?;
                // The sleep gives the other candidate time to win first.
                quorum.env().sleep(Duration::from_millis(20)).await;
            }
            quorum.close().await;
            Ok(())
        }));
    }
    let mut gaps = Samples::default();
    let mut resigned: Option<BootTime> = None;
    while gaps.len() < plan.successions {
        let Some((at, resign)) = elections.recv().await else {
            return Err("no candidate was elected".to_owned());
        };
        if let Some(resigned) = resigned {
            gaps.add(resigned.until(at));
        }
        // The sleep is long enough for the other candidate to begin to wait.
        quorate::env::Env::system().sleep(Duration::from_millis(50)).await;
        resigned = Some(now());
        resign.cancel();
    }
    over.cancel();
    join(tasks).await?;
    Ok(gaps)
}

/// Measures crashes. The runtime of a leader is no longer polled, so the leader sends nothing more. The
/// measured time is that from the expiry of the leader's key to the election of the waiting candidate.
fn crashes(plan: &Plan, servers: &Servers) -> Result<Samples, String> {
    let mut beyond = Samples::default();
    let successor = runtime(2)?;
    for turn in 0..plan.successions.div_ceil(4) {
        let group = format!("crash-{turn}");
        let leader: Runtime = runtime(1)?;
        let (elected, mut elections) = mpsc::unbounded_channel();
        let first =
            leader.block_on(async {
                let quorum = quorum(servers.urls(), "first").await?;
                let campaign = {
                    let group = group.clone();
                    async move {
                        campaign_once(&quorum, &group, CRASH_TTL, &elected, CancellationToken::new()).await
                    }
                };
                spawn(campaign);
                elections.recv().await.ok_or_else(|| "no candidate was elected".to_owned())
            })?;
        drop(first);
        // From here on, no code polls the runtime `leader`. So the leader sends nothing more, and its key
        // expires.
        let (elected, mut elections) = mpsc::unbounded_channel();
        let at =
            successor.block_on(async {
                let quorum = quorum(servers.urls(), "second").await?;
                let campaign = spawn({
                    let (quorum, group) = (quorum.clone(), group.clone());
                    async move {
                        campaign_once(&quorum, &group, CRASH_TTL, &elected, CancellationToken::new()).await
                    }
                });
                let ends = expiry(servers, &group)?;
                let at = elections.recv().await.ok_or_else(|| "no candidate was elected".to_owned());
                quorum.close().await;
                campaign.abort();
                at.map(|(at, _)| ends.until(at))
            })?;
        beyond.add(at);
        leader.shutdown_background();
    }
    Ok(beyond)
}

/// Returns the time at which the key of the group's leader expires on a majority of the servers. Computes this
/// time from the remaining times that the servers report now.
fn expiry(servers: &Servers, group: &str) -> Result<BootTime, String> {
    let mut ends = Vec::new();
    for url in servers.urls() {
        let left = || -> redis::RedisResult<i64> {
            let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
            redis::cmd("PTTL").arg(format!("quorate:election/{group}")).query(&mut connection)
        };
        let left = left().map_err(|error| error.to_string())?;
        ends.push(now() + Duration::from_millis(u64::try_from(left).unwrap_or(0)));
    }
    ends.sort_unstable();
    Ok(ends[ends.len() / 2])
}

/// Campaigns for `group` until `resign` is cancelled. Sends each election to `elected`, with the token
/// `resign`.
async fn campaign_once(
    quorum: &Quorum,
    group: &str,
    ttl: Duration,
    elected: &mpsc::UnboundedSender<Elected>,
    resign: CancellationToken,
) -> Result<(), String> {
    let elected = elected.clone();
    let token = resign.clone();
    let work = move |term: quorate::election::Term| {
        let _ = elected.send((now(), token.clone()));
        async move {
            term.step_down_token().cancelled().await;
            Ok::<(), Arc<str>>(())
        }
    };
    let campaign = Election::new(quorum, group).ttl(ttl).run(work);
    campaign.until(resign.cancelled_owned()).await.map_err(|error| error.to_string())
}

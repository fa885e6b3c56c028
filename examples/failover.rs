//! Failover: one of three copies of a service works. Each time its work fails, the copy releases the lease,
//! and another copy takes over. The copy whose work failed campaigns again after a pause.

use quorate::{
    election::{Election, Term},
    quorum::Quorum,
};
use quorate_examples::{Failure, quorum};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The work of a leader: it runs until the term steps down, or until it fails.
async fn serve(name: &'static str, term: Term) -> Result<(), Failure> {
    println!("{name} leads, term {}", term.fencing_token()?);
    let env = term.quorum().env().clone();
    for beat in 0.. {
        // Before a write to an external system, check that the term is still held. Pass the token on to that
        // system.
        let token = term.fencing_token()?;
        println!("  {name} writes beat {beat} under token {token}");
        if beat == 2 {
            return Err(format!("{name} fails").into());
        }
        tokio::select! { biased;
            () = term.step_down_token().cancelled() => break,
            () = env.sleep(Duration::from_millis(50)) => {}
        }
    }
    Ok(())
}

async fn copy(name: &'static str, quorum: Quorum, shutdown: CancellationToken) {
    let election = Election::new(&quorum, "billing").ttl(Duration::from_secs(2));
    let election = election.restart_backoff(Duration::from_millis(300), Duration::from_secs(5));
    let ended = election.run(|term| serve(name, term)).until(shutdown.cancelled_owned()).await;
    println!("{name} ended: {ended:?}");
    // Sends the pending requests, and ends every task.
    quorum.close().await;
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let shutdown = CancellationToken::new();
    let (a, b, c) = (quorum("a")?, quorum("b")?, quorum("c")?);
    let env = c.env().sibling();
    let stop = async {
        env.sleep(Duration::from_secs(1)).await;
        shutdown.cancel();
    };
    tokio::join!(
        copy("a", a, shutdown.clone()),
        copy("b", b, shutdown.clone()),
        copy("c", c, shutdown.clone()),
        stop
    );
    Ok(())
}

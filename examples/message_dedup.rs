//! Three consumers that all see every message. Only one consumer handles each message.

use quorate::claim::{Claims, Processed};
use quorate_examples::{Failure, quorum};
use std::sync::{Arc, Mutex, PoisonError};

const MESSAGES: usize = 20;

async fn consumer(name: &'static str, handled: Arc<Mutex<Vec<String>>>) -> Result<(), Failure> {
    let quorum = quorum(name)?;
    let claims = Claims::new(&quorum, "orders");
    for id in (0..MESSAGES).map(|i| format!("order-{i}")) {
        let outcome = claims.process(&id, |claim| {
            let (id, handled) = (id.clone(), Arc::clone(&handled));
            async move {
                // Compare the token in the transaction of the effect: a claim alone does not guarantee
                // exactly-once effects.
                let token = claim.fencing_token()?;
                println!("{name} handles {id} under token {token}");
                handled.lock().unwrap_or_else(PoisonError::into_inner).push(id);
                Ok::<(), Failure>(())
            }
        });
        match outcome.await? {
            Processed::Handled => {}
            other => println!("{name} leaves {id}: {other:?}"),
        }
    }
    quorum.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let handled = Arc::new(Mutex::new(Vec::new()));
    tokio::try_join!(
        consumer("a", Arc::clone(&handled)),
        consumer("b", Arc::clone(&handled)),
        consumer("c", Arc::clone(&handled))
    )?;
    let mut handled = handled.lock().unwrap_or_else(PoisonError::into_inner);
    let times = handled.len();
    handled.sort();
    handled.dedup();
    println!("{} of {MESSAGES} messages handled, {} of them twice", handled.len(), times - handled.len());
    if handled.len() == MESSAGES && times == MESSAGES { Ok(()) } else { Err("lost or handled twice".into()) }
}

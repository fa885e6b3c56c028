//! Several workers claim notifications from a table in batches, with one round trip for each batch.

use quorate::claim::{ClaimOutcome, Claims};
use quorate_examples::{Failure, quorum};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

const ROWS: usize = 100;
const BATCH: usize = 25;

/// The outbox, in which each notification has the number of times that it was sent.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<String, u32>>>);

impl Table {
    fn pending(&self) -> Vec<String> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().filter(|(_, sent)| **sent == 0).map(|(id, _)| id.clone()).take(BATCH).collect()
    }

    fn sent(&self, id: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default() += 1;
    }
}

async fn worker(name: &'static str, table: Table) -> Result<(), Failure> {
    let quorum = quorum(name)?;
    let claims = Claims::new(&quorum, "notifications");
    loop {
        let batch = table.pending();
        if batch.is_empty() {
            break;
        }
        let mut sent = 0;
        for (id, outcome) in claims.claim_many(batch.iter().map(String::as_str)).await? {
            match outcome? {
                ClaimOutcome::Claimed(claim) => {
                    claim.fencing_token()?;
                    table.sent(&id);
                    claim.complete("sent").await?;
                    sent += 1;
                }
                // Another worker has claimed the notification, or has completed it.
                _ => continue,
            }
        }
        println!("{name} sent {sent} of a batch of {}", batch.len());
        tokio::task::yield_now().await;
    }
    quorum.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let table = Table::default();
    let rows = (0..ROWS).map(|i| (format!("notification-{i:03}"), 0));
    table.0.lock().unwrap_or_else(PoisonError::into_inner).extend(rows);
    tokio::try_join!(worker("a", table.clone()), worker("b", table.clone()), worker("c", table.clone()))?;
    let rows = table.0.lock().unwrap_or_else(PoisonError::into_inner);
    let once = rows.values().filter(|&&sent| sent == 1).count();
    println!("{once} of {ROWS} notifications were sent once");
    if once == ROWS { Ok(()) } else { Err("lost or sent twice".into()) }
}

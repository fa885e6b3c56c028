//! A sink (an external store) that refuses an old fencing token. A holder may be paused between the check of
//! its lease and its write, and no lock can prevent that. The sink then refuses the late write.

use quorate::node::FencingToken;
use quorate_examples::{Failure, quorum};
use std::time::Duration;

/// An external store. It stores the newest token that it has seen in the same transaction as the value.
#[derive(Default)]
struct Store {
    newest: FencingToken,
    value: String,
}

impl Store {
    fn write(&mut self, value: &str, token: FencingToken) -> Result<(), String> {
        if token < self.newest {
            return Err(format!("token {token} is older than {}", self.newest));
        }
        self.newest = token;
        value.clone_into(&mut self.value);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (a, b) = (quorum("a")?, quorum("b")?);
    let mut store = Store::default();

    // A checks its lease, and is paused before it writes, for longer than the lease lasts.
    let paused = a.lock("invoice-42").ttl(Duration::from_millis(500)).auto_extend(false).acquire().await?;
    let looked = paused.fencing_token()?;
    paused.lost_token().cancelled().await;

    // B takes over, with a larger token, and writes.
    let lease = b.lock("invoice-42").acquire().await?;
    store.write("by B", lease.fencing_token()?)?;

    // A continues, and writes with the token from its check.
    let refused = store.write("by A", looked).err().ok_or("the store took an old token")?;
    println!("A's late write is refused: {refused}");
    println!("the value is {:?}", store.value);
    lease.release().await?;
    a.close().await;
    b.close().await;
    if store.value == "by B" { Ok(()) } else { Err("the old holder's write landed".into()) }
}

//! Three consumers of one Redis stream. One of them ends in the middle of a message, and each order is
//! shipped once.
//!
//! The stream is on a broker, which is an ordinary Redis server: the server at `BROKER=redis://…`, or a
//! server that this example starts.

use quorate::claim::{
    Claims,
    stream::{Ended, Message, Outcome, Received},
};
use quorate::redis::streams::{StreamMessage, StreamSource};
use quorate_examples::{Failure, quorum};
use quorate_testkit::redis::RedisServer;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const ORDERS: usize = 30;
/// The time after which the consumer of a pending entry counts as dead, if no consumer has touched the entry.
const DEAD_AFTER: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
struct Shop {
    shipped: Arc<Mutex<Vec<String>>>,
    /// Cancelled once all orders have been shipped.
    all: CancellationToken,
}

impl Shop {
    fn ship(&self, order: &str) {
        let mut shipped = self.shipped.lock().unwrap_or_else(PoisonError::into_inner);
        shipped.push(order.to_owned());
        if shipped.len() >= ORDERS {
            self.all.cancel();
        }
    }
}

/// Runs a consumer. If `doom` is given, the consumer cancels it in the middle of its fifth order, and the
/// caller then drops the consumer.
async fn consumer(
    name: &'static str,
    (broker, stream): (&str, &str),
    shop: Shop,
    doom: Option<CancellationToken>,
) -> Result<(), Failure> {
    let quorum = quorum(name)?;
    let (env, done) = (quorum.env().clone(), shop.all.clone());
    let source = StreamSource::new(broker, stream, "shipping")?.consumer(name);
    let source = source.id_field("order").min_idle(DEAD_AFTER).batch(4);
    let begun = Arc::new(AtomicUsize::new(0));
    let handle = move |order: Received<StreamMessage>| {
        let (env, shop, doom) = (env.clone(), shop.clone(), doom.clone());
        let begun = begun.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            env.sleep(Duration::from_millis(20)).await;
            if let Some(doom) = doom.filter(|_| begun == 5) {
                println!("{name} dies with {} in hand", order.message().id()?);
                doom.cancel();
                std::future::pending::<()>().await;
            }
            // Compare the token in the transaction of the effect: a claim alone does not guarantee
            // exactly-once effects.
            let token = order.fencing_token()?;
            println!("{name} ships {} under token {token}", order.message().id()?);
            shop.ship(order.message().id()?);
            Ok::<_, Failure>(())
        }
    };
    let dead_letter = |entry: Arc<StreamMessage>, reason: Outcome, _claim| async move {
        println!("entry {} cannot be handled: {reason}", entry.entry_id());
        Ok::<_, Failure>(())
    };
    let claims = Claims::new(&quorum, "orders");
    let consumer = claims.try_consume(source.messages(), handle).concurrency(4).on_dead(dead_letter);
    let consumer = consumer.on_end(move |ended: &Ended<StreamMessage>| {
        println!("{name}: entry {}: {}", ended.message.entry_id(), ended.outcome);
    });
    println!("{name}: {:?}", consumer.until(done.cancelled_owned()).await?);
    quorum.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (_own, broker) = match std::env::var("BROKER") {
        Ok(url) => (None, url),
        Err(_) => {
            let server = RedisServer::start()?;
            let url = server.url();
            (Some(server), url)
        }
    };
    let stream = format!("orders-{}", std::process::id());
    let mut talk = redis::Client::open(&*broker)?.get_multiplexed_async_connection().await?;
    for order in (0..ORDERS).map(|number| format!("order-{number}")).chain([String::new()]) {
        let mut add = redis::cmd("XADD");
        add.arg(&stream).arg("*").arg("order").arg(order);
        add.query_async::<()>(&mut talk).await?;
    }
    let shop = Shop::default();
    let (place, doom) = ((&*broker, &*stream), CancellationToken::new());
    // The consumer is dropped while it handles messages, as if its process had been killed.
    let dies = async {
        tokio::select! { biased;
            () = doom.cancelled() => Ok(()),
            ended = consumer("c", place, shop.clone(), Some(doom.clone())) => ended,
        }
    };
    tokio::try_join!(
        consumer("a", place, shop.clone(), None),
        consumer("b", place, shop.clone(), None),
        dies
    )?;
    redis::cmd("DEL").arg(&stream).query_async::<()>(&mut talk).await?;
    let mut shipped = shop.shipped.lock().unwrap_or_else(PoisonError::into_inner);
    let times = shipped.len();
    shipped.sort();
    shipped.dedup();
    println!("{} of {ORDERS} orders shipped, {} of them twice", shipped.len(), times - shipped.len());
    if shipped.len() == ORDERS && times == ORDERS { Ok(()) } else { Err("lost or shipped twice".into()) }
}

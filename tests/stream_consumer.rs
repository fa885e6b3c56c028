//! A consumer of a Redis stream, for the tests to kill: `stream-consumer NAME BROKER NODE…`.
//!
//! It writes three kinds of lines to standard output: `handling ID` when its handler begins, `effect ID` when
//! the message's effect is in the broker's list `effects`, and `ended ID OUTCOME ACKED` when the message has
//! ended. It ends at SIGTERM.

#![expect(clippy::expect_used, reason = "a program for tests")]

use quorate::{
    claim::{
        Claims,
        stream::{Ended, Message, Outcome, Received},
    },
    quorum::Quorum,
    redis::streams::{StreamMessage, StreamSource},
};
use redis::aio::MultiplexedConnection;
use std::{error::Error, io::Write, process::ExitCode, time::Duration};
use tokio::signal::unix::{SignalKind, signal};

/// The TTL of the claims. It is also the time after which other consumers take over the messages of a dead
/// consumer.
const TTL: Duration = Duration::from_millis(1500);
/// The time that a handler works before its effect, and again after its effect.
const WORKS: Duration = Duration::from_millis(40);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match consume(std::env::args().skip(1).collect()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stream-consumer: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn consume(args: Vec<String>) -> Result<(), Failure> {
    let [name, broker, nodes @ ..] = &*args else { return Err("too few arguments".into()) };
    let quorum = Quorum::redis(nodes)?.worker(name).max_ttl(TTL).trust_new_nodes(true).build()?;
    let source = StreamSource::new(broker, "orders", "billing")?.consumer(name).id_field("order");
    let source = source.min_idle(TTL).batch(8);
    let effects = redis::Client::open(&**broker)?.get_multiplexed_async_connection().await?;
    let (lists, env) = (effects.clone(), quorum.env().clone());
    let handler = move |order: Received<StreamMessage>| {
        let (mut effects, env) = (effects.clone(), env.clone());
        async move {
            let id = order.message().id()?.to_owned();
            say(&format!("handling {id}"));
            env.sleep(WORKS).await;
            order.fencing_token()?;
            push(&mut effects, "effects", &id).await?;
            say(&format!("effect {id}"));
            env.sleep(WORKS).await;
            Ok::<_, Failure>(())
        }
    };
    let dead_letter = move |_message, reason: Outcome, _claim| {
        let mut lists = lists.clone();
        async move { push(&mut lists, "dead", &reason.to_string()).await }
    };
    let note = |ended: &Ended<StreamMessage>| {
        let id = ended.message.id().map_or("?", |id| if id.len() > 100 { "?" } else { id }).to_owned();
        say(&format!("ended {id} {:?} {:?}", ended.outcome.to_string(), ended.acked));
    };
    let mut told = signal(SignalKind::terminate())?;
    let end = async {
        told.recv().await;
    };
    let claims = Claims::new(&quorum, "orders").ttl(TTL);
    let consumer = claims.try_consume(source.messages(), handler).concurrency(4);
    let consumer = consumer.on_end(note).on_dead(dead_letter).on_source_error(|error| eprintln!("{error}"));
    let consumed = consumer.max_wait(Duration::from_millis(500)).grace(TTL).until(end).await?;
    say(&format!("{consumed:?}"));
    quorum.close().await;
    Ok(())
}

async fn push(connection: &mut MultiplexedConnection, list: &str, value: &str) -> Result<(), Failure> {
    Ok(redis::cmd("RPUSH").arg(list).arg(value).query_async(connection).await?)
}

/// Writes one line with a single call. When the call returns, the line is in the kernel and survives a kill.
fn say(what: &str) {
    std::io::stdout().write_all(format!("{what}\n").as_bytes()).expect("a pipe");
}

//! Tests that a leader whose database connection is cut leads again, with a real PostgreSQL and nodes in
//! memory.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use quorate::{
    election::{Election, Term},
    env::Env,
    node::MemoryNode,
    quorum::Quorum,
};
use quorate_postgres::Fences;
use quorate_testkit::postgres::PostgresServer;
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio_postgres::{Client, Error, NoTls};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{filter::LevelFilter, util::SubscriberInitExt};

/// A time limit that no correct run of the test reaches.
const BOUND: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self, text: &str) -> Vec<String> {
        let log = self.0.lock().expect("no panic");
        let lines = str::from_utf8(&log).expect("text").lines();
        lines.filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a client of the server at `url`. A task drives the client's connection, and ends when the client is
/// dropped.
async fn client(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "the driver's own way; it ends with its client")]
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

/// Returns the texts of an error and of its causes. The driver's own text does not contain the server's
/// report.
fn with_causes(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

/// The work of a leader. The work inserts one row after the other into `beats`, each under the term's fencing
/// token, until its connection is cut.
async fn beats(url: Arc<str>, term: Term) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut client = client(&url).await?;
    let stop = term.step_down_token().clone();
    loop {
        let token = term.fencing_token()?;
        let transaction = client.transaction().await?;
        Fences.admit(&transaction, "beats", token).await?;
        let number = i64::try_from(token.get())?;
        transaction
            .execute("INSERT INTO beats (term, pid) VALUES ($1, pg_backend_pid())", &[&number])
            .await?;
        transaction.commit().await?;
        tokio::select! { biased;
            () = stop.cancelled() => return Ok(()),
            () = term.quorum().env().sleep(Duration::from_millis(20)) => {}
        }
    }
}

/// Waits for a row in `beats` of a later term than `after`. Returns its term, and the process id of its
/// connection.
async fn next_beat(env: &Env, observer: &Client, after: i64) -> (i64, i32) {
    let query = "SELECT term, pid FROM beats WHERE term > $1 ORDER BY term DESC LIMIT 1";
    let beat = async {
        loop {
            if let Some(row) = observer.query_opt(query, &[&after]).await.expect("an answer") {
                return (row.get(0), row.get(1));
            }
            env.sleep(Duration::from_millis(20)).await;
        }
    };
    env.before(env.now() + BOUND, beat).await.expect("the group has a leader that writes")
}

#[tokio::test]
async fn a_leader_whose_connection_is_cut_three_times_leads_again_each_time() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(LevelFilter::WARN);
    let _subscribed = subscriber.with_writer(move || written.clone()).set_default();

    let server = PostgresServer::start().expect("a server");
    let observer = client(&server.url()).await.expect("a connection");
    Fences.create(&observer).await.expect("a table");
    observer.batch_execute("CREATE TABLE beats (term bigint, pid integer)").await.expect("a table");
    let nodes = (0..3).map(|number| MemoryNode::new(&format!("memory-{number}")));
    let quorum = Quorum::builder().worker("a").nodes(nodes).trust_new_nodes(true).build().expect("a setup");
    let election = Election::new(&quorum, "beats").ttl(Duration::from_secs(10));
    let url: Arc<str> = server.url().into();
    let stop = CancellationToken::new();
    // The campaign uses the default pauses after a failure of its work.
    let campaign = election.run(move |term| {
        let beats = beats(Arc::clone(&url), term);
        async move { beats.await.map_err(|error| with_causes(&*error)) }
    });
    let campaign = quorum.env().spawn_scoped(campaign.until(stop.clone().cancelled_owned()));

    let env = quorum.env();
    let mut last = 0;
    for _ in 0..3 {
        let (term, pid) = next_beat(env, &observer, last).await;
        let cut = observer.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("an answer");
        assert!(cut.get::<_, bool>(0), "the connection of term {term} is cut");
        last = term;
    }
    next_beat(env, &observer, last).await;
    assert!(election.is_leader());
    let failures = log.lines("the work failed");
    assert_eq!(failures.len(), 3, "{log:?}");
    for line in &failures {
        assert!(line.contains("WARN") && line.contains("beats"), "{line}");
        // The driver reports that the server ended the connection, or that the connection was already closed.
        assert!(line.contains("terminating connection") || line.contains("closed"), "{line}");
    }
    stop.cancel();
    campaign.await.expect("no panic").expect("a shutdown is no error");
    quorum.close().await;
}

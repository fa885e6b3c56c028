//! Tests on a real PostgreSQL: a committed effect happens once, and a rolled-back one does not happen.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use futures_util::future::join_all;
use quorate::node::FencingToken;
use quorate_postgres::{Effects, Error, Fences, Once};
use quorate_testkit::postgres::PostgresServer;
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

const fn token(number: u64) -> FencingToken {
    FencingToken::new(number)
}

/// Opens another client of `server`. A task drives the client's connection, and ends when the client is
/// dropped.
async fn client(server: &PostgresServer) -> Client {
    connect(&server.url()).await
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    #[expect(clippy::disallowed_methods, reason = "the driver's own way; it ends with its client")]
    tokio::spawn(async { drop(connection.await) });
    client
}

/// Starts a server, and opens two clients of it.
async fn clients() -> (PostgresServer, Client, Client) {
    let server = PostgresServer::start().expect("a server");
    let (first, second) = (client(&server).await, client(&server).await);
    Effects::new("any").create(&first).await.expect("a table");
    Effects::new("any").create(&first).await.expect("again, without effect");
    Fences.create(&first).await.expect("a table");
    (server, first, second)
}

#[tokio::test]
async fn a_committed_effect_happens_once_and_a_rolled_back_one_does_not() {
    let (_server, mut client, _) = clients().await;
    let (orders, letters) = (Effects::new("orders"), Effects::new("letters"));
    let transaction = client.transaction().await.expect("begins");
    assert_eq!(orders.once(&transaction, "m-1", token(1)).await.expect("a verdict"), Once::First);
    assert_eq!(
        orders.once(&transaction, "m-1", token(2)).await.expect("a verdict"),
        Once::Before(token(1)),
        "in the same transaction too"
    );
    transaction.rollback().await.expect("ends");
    for (at, expected) in [(3, Once::First), (4, Once::Before(token(3)))] {
        let transaction = client.transaction().await.expect("begins");
        assert_eq!(orders.once(&transaction, "m-1", token(at)).await.expect("a verdict"), expected);
        transaction.commit().await.expect("ends");
    }
    let transaction = client.transaction().await.expect("begins");
    assert_eq!(
        letters.once(&transaction, "m-1", token(5)).await.expect("a verdict"),
        Once::First,
        "a set each"
    );
    let many = [("m-3", token(9)), ("m-1", token(8)), ("m-2", token(6)), ("m-3", token(7))];
    let verdicts = orders.once_each(&transaction, &many).await.expect("verdicts");
    assert_eq!(verdicts, [Once::First, Once::Before(token(3)), Once::First, Once::Before(token(7))]);
    transaction.commit().await.expect("ends");
    assert_eq!(orders.forget_before(&client, Duration::from_secs(3600)).await.expect("deletes"), 0);
    assert_eq!(orders.forget_before(&client, Duration::ZERO).await.expect("deletes"), 3);
}

/// Starts several replicas at once on an empty database. With `CREATE TABLE IF NOT EXISTS` alone, most of them
/// would fail.
#[tokio::test]
async fn replicas_that_start_together_create_the_tables_once() {
    let server = PostgresServer::start().expect("a server");
    let admin = client(&server).await;
    for round in 0..10 {
        let database = format!("round_{round}");
        admin.batch_execute(&format!("CREATE DATABASE {database}")).await.expect("a database");
        let url = format!("{}/{database}", server.url().trim_end_matches("/postgres"));
        let clients = join_all((0..6).map(|_| connect(&url))).await;
        let effects = Effects::new("orders");
        let creates = join_all(clients.iter().map(async |client| {
            effects.create(client).await?;
            Fences.create(client).await
        }));
        for created in creates.await {
            created.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        // The replicas create the tables again, each in a transaction of its own.
        let mut clients = clients;
        clients[0].batch_execute("DROP TABLE quorate_effects, quorate_fences").await.expect("dropped");
        let creates = join_all(clients.iter_mut().map(async |client| {
            let transaction = client.transaction().await?;
            Fences.create(&transaction).await?;
            effects.create(&transaction).await?;
            Ok::<_, Error>(transaction.commit().await?)
        }));
        for created in creates.await {
            created.unwrap_or_else(|error| panic!("round {round}, in transactions: {error}"));
        }
        let locks = admin.query_one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", &[]).await;
        assert_eq!(locks.expect("a count").get::<_, i64>(0), 0, "a lock is left");
    }
}

#[tokio::test]
async fn an_error_includes_the_report_of_the_server_and_no_password() {
    let (server, admin, _) = clients().await;
    admin.batch_execute("CREATE ROLE app LOGIN PASSWORD 'sesame'").await.expect("a role");
    let url = server.url().replace("postgres@", "app:sesame@");
    let app = connect(&url).await;
    let refused = Fences.create(&app).await.expect_err("it may not create tables");
    let text = format!("{refused} {refused:?}");
    assert!(refused.to_string().starts_with("PostgreSQL: ERROR 42501: permission denied"), "{text}");
    assert!(!text.contains("sesame"), "{text}");
    let unknown = admin.batch_execute("INSERT INTO quorate_fences VALUES ('a', 1), ('a', 2)").await;
    let text = Error::from(unknown.expect_err("a duplicate")).to_string();
    assert!(
        text.contains("23505: duplicate key") && text.contains("(Key (resource)=(a) already exists.)"),
        "{text}"
    );
    let mut gone = connect(&server.url()).await;
    let ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
    admin.batch_execute(ends).await.expect("ended");
    let lost = match gone.transaction().await {
        Ok(transaction) => {
            Effects::new("s").once(&transaction, "m", token(1)).await.expect_err("no connection")
        }
        Err(error) => error.into(),
    };
    assert_ne!(lost.to_string(), "PostgreSQL: db error", "{lost:?}");
}

/// Waits until the server reports a transaction that waits for a lock. Returns false if there is none after
/// many queries.
async fn a_transaction_waits(observer: &Client) -> bool {
    for _ in 0..10_000 {
        let waiting = observer.query_one("SELECT count(*) FROM pg_locks WHERE NOT granted", &[]).await;
        if waiting.expect("a count").get::<_, i64>(0) > 0 {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn one_of_two_concurrent_transactions_has_the_effect() {
    let (server, mut first, mut second) = clients().await;
    let observer = client(&server).await;
    let orders = Effects::new("orders");
    for (id, commits) in [("kept", true), ("undone", false)] {
        let ahead = first.transaction().await.expect("begins");
        assert_eq!(orders.once(&ahead, id, token(1)).await.expect("a verdict"), Once::First);
        let behind = second.transaction().await.expect("begins");
        let verdict = {
            let mut waits = std::pin::pin!(orders.once(&behind, id, token(2)));
            tokio::select! { biased;
                verdict = &mut waits => panic!("it did not wait: {verdict:?}"),
                waits = a_transaction_waits(&observer) => assert!(waits, "no transaction waits"),
            }
            let end_first = async { if commits { ahead.commit().await } else { ahead.rollback().await } };
            let (verdict, ended) = tokio::join!(waits, end_first);
            ended.expect("ends");
            verdict.expect("a verdict")
        };
        assert_eq!(verdict, if commits { Once::Before(token(1)) } else { Once::First });
        behind.commit().await.expect("ends");
    }
}

#[tokio::test]
async fn a_transaction_under_an_older_token_is_refused() {
    let (_server, mut client, _) = clients().await;
    for number in [5, 5, 7] {
        let transaction = client.transaction().await.expect("begins");
        Fences.admit(&transaction, "billing", token(number)).await.expect("none is later");
        transaction.commit().await.expect("ends");
    }
    let transaction = client.transaction().await.expect("begins");
    Fences.admit(&transaction, "other", token(1)).await.expect("a fence each");
    let stale = Fences.admit(&transaction, "billing", token(6)).await.expect_err("7 was used");
    match &stale {
        Error::Stale { token: late, standing, .. } => assert_eq!((*late, *standing), (token(6), token(7))),
        other => panic!("{other}"),
    }
    assert_eq!(
        stale.to_string(),
        "the write to \"billing\" under token 6 is refused: token 7 has been used, so the lease was lost; roll back"
    );
    drop(transaction);
    let transaction = client.transaction().await.expect("begins");
    Fences.admit(&transaction, "billing", token(9)).await.expect("later than any");
    transaction.rollback().await.expect("ends");
    let transaction = client.transaction().await.expect("begins");
    Fences.admit(&transaction, "billing", token(8)).await.expect("9 was rolled back");
    transaction.commit().await.expect("ends");
    // The rows of resources that have not been written for some time can be removed.
    assert_eq!(Fences.forget_before(&client, Duration::from_secs(3600)).await.expect("deletes"), 0);
    assert_eq!(Fences.forget_before(&client, Duration::ZERO).await.expect("deletes"), 1);
}

#[tokio::test]
async fn an_invalid_name_is_refused_with_the_reason() {
    let (_server, mut client, _) = clients().await;
    let transaction = client.transaction().await.expect("begins");
    let long = "x".repeat(1025);
    for (id, why) in [("", "empty"), (&*long, "1024 bytes"), ("a\0b", "NUL")] {
        let refused = Effects::new("orders").once(&transaction, id, token(1)).await.expect_err("a bad id");
        assert!(refused.to_string().contains(why), "{refused}");
        let refused = Fences.admit(&transaction, id, token(1)).await.expect_err("a bad name");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let refused = Effects::new("").once(&transaction, "m", token(1)).await.expect_err("a bad set");
    assert!(refused.to_string().starts_with("the set \"\" cannot be used"), "{refused}");
    let verdict = Effects::new("orders").once(&transaction, "ü/{}\n", token(1)).await;
    assert_eq!(verdict.expect("any text will do"), Once::First, "the table is intact");
}

//! The listeners and their connections.
//!
//! A connection lasts for a minute at most. Then an answer that is due may still be sent: for operators within a second, and for
//! clients of leases, whose requests wait, within the longest time of a request. The head of a request must arrive within five seconds, and must be
//! shorter than 16 KiB. While too many connections are open, a new one takes the place of the oldest: see [`Places`].

use super::{
    door::{Door, Stream},
    guard::ANSWER,
    places::{CLIENTS, PLACES, Peer, Places},
    router::{api_router, router},
    site::Site,
    tokens::Tokens,
};
use crate::{
    config::{Config, HttpConfig, ServeConfig},
    exit::Failure,
    leases::Leases,
    recorder::Measurements,
};
use axum::{Extension, Router};
use futures_util::future::join_all;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use quorate::{
    election::Election,
    env::{Env, ScopedTask},
    quorum::Quorum,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::task::{JoinSet, yield_now};
use tokio_util::sync::CancellationToken;

/// The longest time until the head of a request has arrived.
const HEAD: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// The longest time of a connection.
const CONNECTION: Duration = Duration::from_secs(60);
/// The longest time for which a connection that must end may finish its answer.
const FINISH: Duration = Duration::from_secs(1);
/// The pause after a failure to accept a connection, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The listeners, before there is a quorum. Clients that connect wait until the server is started.
#[derive(Debug)]
pub(crate) struct Listener {
    doors: Vec<Door>,
    tokens: Tokens,
    exporter: Measurements,
}

/// A server that runs. Dropping it ends it at once.
#[derive(Debug)]
pub(crate) struct Server {
    site: Arc<Site>,
    stop: CancellationToken,
    task: ScopedTask<()>,
}

impl Listener {
    /// Reads the tokens and listens for operators. The server will show the measurements of `exporter`.
    pub(crate) async fn bind(http: &HttpConfig, exporter: Measurements) -> Result<Self, Failure> {
        Self::bind_all(Some(http), None, exporter).await
    }

    /// Reads the tokens and listens for operators and for clients of leases.
    pub(crate) async fn bind_all(
        http: Option<&HttpConfig>,
        serve: Option<&ServeConfig>,
        exporter: Measurements,
    ) -> Result<Self, Failure> {
        let tokens = Tokens::read(http, serve)?;
        let mut doors = Vec::new();
        if let Some(http) = http {
            doors.push(Door::for_operators(http.listen).await?);
        }
        if let Some(serve) = serve {
            doors.extend(Door::for_clients(serve).await?);
        }
        Ok(Self { doors, tokens, exporter })
    }

    /// Starts the server.
    ///
    /// # Errors
    /// A [`Failure`] if the name of the group cannot be used.
    pub(crate) fn start(
        self,
        quorum: &Quorum,
        election: &Election,
        config: &Config,
        has_jobs: bool,
    ) -> Result<Server, Failure> {
        self.start_with((quorum, election), config, has_jobs, None)
    }

    /// Starts the server like [`Listener::start`], with the leases of clients.
    pub(crate) fn start_with(
        self,
        of: (&Quorum, &Election),
        config: &Config,
        has_jobs: bool,
        leases: Option<Arc<Leases>>,
    ) -> Result<Server, Failure> {
        let Self { doors, tokens, exporter } = self;
        let site = Arc::new(Site::new(of, config, has_jobs, leases, tokens, exporter));
        let stop = CancellationToken::new();
        // The page shows what all clients hold, so it is for operators alone.
        let (page, api) = (router(&site)?, api_router(&site));
        let each = doors.into_iter().map(|door| {
            let router = if door.is_for_clients { api.clone() } else { page.clone() };
            serve(door, router, Arc::clone(&site), stop.clone())
        });
        let all: Vec<_> = each.collect();
        let task = of.0.env().spawn_scoped(async {
            join_all(all).await;
        });
        Ok(Server { site, stop, task })
    }
}

impl Server {
    /// Records that the daemon's loop runs.
    pub(crate) fn beat(&self) {
        self.site.beat();
    }

    /// Records that the daemon has been asked to stop: from now on `/readyz` answers 503.
    pub(crate) fn stopping(&self) {
        self.site.stopping.cancel();
    }

    /// Stops the server, and waits for the answers that are being sent, for one second at most.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("the HTTP server panicked");
        }
    }
}

/// Serves until `stop` is cancelled.
async fn serve(door: Door, router: Router, site: Arc<Site>, stop: CancellationToken) {
    let env = site.env().clone();
    let is_client = door.is_for_clients;
    let (places, mut connections) = (Places::new(if is_client { CLIENTS } else { PLACES }), JoinSet::new());
    loop {
        tokio::select! { biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = door.accept() => match accepted {
                Ok((stream, from)) => {
                    let peer = Peer { from, is_client, place: places.enter(from) };
                    connections.spawn(connection(env.clone(), stream, router.clone(), peer, stop.clone()));
                    // Among many new connections, each may answer a request before its place is taken.
                    yield_now().await;
                }
                Err(error) => {
                    tracing::debug!("cannot accept a connection: {error}");
                    env.sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
    drop(door);
    env.before(env.now() + FINISH, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection. A client's error ends its connection, and is not logged.
async fn connection(env: Env, stream: Stream, router: Router, peer: Peer, stop: CancellationToken) {
    let (place, finish) = (Arc::clone(&peer.place), if peer.is_client { ANSWER } else { FINISH });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut served = pin!(protocol.serve_connection(TokioIo::new(stream), service));
    tokio::select! { biased;
        _ = served.as_mut() => return,
        () = place.taken() => return,
        () = stop.cancelled() => {}
        () = env.sleep(CONNECTION) => {
            served.as_mut().graceful_shutdown();
            tokio::select! { biased;
                _ = env.before(env.now() + finish, served.as_mut()) => return,
                () = place.taken() => return,
                () = stop.cancelled() => {}
            }
        }
    }
    served.as_mut().graceful_shutdown();
    env.before(env.now() + FINISH, served).await;
}

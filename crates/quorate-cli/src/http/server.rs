//! The listener and its connections.
//!
//! A connection lasts for a minute at most. The head of a request must arrive within five seconds, and must be
//! shorter than 16 KiB. While too many connections are open, a new one takes the place of the oldest: see [`Places`].

use super::{
    places::{Peer, Places},
    router::router,
    site::Site,
    tokens::Tokens,
};
use crate::recorder::Measurements;
use crate::{
    config::{Config, HttpConfig},
    exit::{FAILURE, Failure},
};
use axum::{Extension, Router};
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
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinSet, yield_now},
};
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

/// A listener, before there is a quorum. Clients that connect wait until the server is started.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
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
    /// Reads the tokens and listens. The server will show the measurements of `exporter`.
    pub(crate) async fn bind(config: &HttpConfig, exporter: Measurements) -> Result<Self, Failure> {
        let tokens = Tokens::read(config)?;
        let failed = |error: std::io::Error| {
            let text = format!(
                "http.listen {}: cannot listen: {error}; choose another address, or end the program that uses it",
                config.listen
            );
            Failure::new(FAILURE, text)
        };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!("listening for HTTP on http://{address}");
        Ok(Self { listener, tokens, exporter })
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
        let Self { listener, tokens, exporter } = self;
        let site = Arc::new(Site::new((quorum, election), config, has_jobs, tokens, exporter));
        let stop = CancellationToken::new();
        let router = router(&site)?;
        let task = quorum.env().spawn_scoped(serve(listener, router, Arc::clone(&site), stop.clone()));
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
async fn serve(listener: TcpListener, router: Router, site: Arc<Site>, stop: CancellationToken) {
    let env = site.env().clone();
    let (places, mut connections) = (Arc::new(Places::default()), JoinSet::new());
    loop {
        tokio::select! { biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let peer = Peer { address, place: places.enter() };
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
    drop(listener);
    env.before(env.now() + FINISH, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection. A client's error ends its connection, and is not logged.
async fn connection(env: Env, stream: TcpStream, router: Router, peer: Peer, stop: CancellationToken) {
    let place = Arc::clone(&peer.place);
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
        () = env.sleep(CONNECTION) => {}
    }
    served.as_mut().graceful_shutdown();
    env.before(env.now() + FINISH, served).await;
}

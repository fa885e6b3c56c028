use super::{
    pump::{Pump, PumpEnd},
    rules::{Rules, Way},
};
use crate::sim::SeedRng;
use quorate::env::Env;
use rustix::net::{Shutdown, shutdown, sockopt::set_socket_linger};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The pause after an accept that failed, for example because too many files are open.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// The state that the proxy's tasks share.
#[derive(Clone)]
pub(super) struct ProxyState {
    pub(super) env: Env,
    pub(super) upstream: SocketAddr,
    pub(super) rules: watch::Sender<Rules>,
    pub(super) accepted: Arc<AtomicU64>,
    pub(super) seed: u64,
}

/// Accepts clients until the proxy is stopped.
pub(super) async fn accept(proxy_state: &ProxyState, listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let accepted = tokio::select! { biased;
            () = proxy_state.env.stopped().cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((client, _)) = accepted else {
            proxy_state.env.sleep(AFTER_ERROR).await;
            continue;
        };
        let number = proxy_state.accepted.fetch_add(1, Ordering::Relaxed);
        // The subscription begins before the rules are read, so that a `sever` in between is noticed.
        let rules = proxy_state.rules.subscribe();
        let (refused, severed) = {
            let rules = rules.borrow();
            (rules.refuses, rules.severed)
        };
        if refused {
            reset(&client);
        } else {
            proxy_state.env.spawn(carry(proxy_state.clone(), client, severed, number));
        }
    }
}

/// Forwards one client's connection until it ends. `severed` is the value of [`Rules::severed`] when the
/// client was accepted.
async fn carry(proxy_state: ProxyState, client: TcpStream, severed: u64, number: u64) {
    let env = &proxy_state.env;
    let mut rules = proxy_state.rules.subscribe();
    let broken = async move {
        // `wait_for` fails only if the sender of the rules was dropped. The sender is a field of `proxy_state`,
        // which lives for the whole wait.
        let _ = rules.wait_for(|rules| rules.severed != severed).await;
    };
    tokio::pin!(broken);
    let server = tokio::select! { biased;
        () = env.stopped().cancelled() => return reset(&client),
        () = &mut broken => return reset(&client),
        server = connect(proxy_state.upstream) => server,
    };
    let Ok(server) = server else {
        // The server has refused the connection. While the direction to the client is cut, the client must not
        // learn this.
        let mut rules = proxy_state.rules.subscribe();
        tokio::select! { biased;
            () = env.stopped().cancelled() => {}
            () = &mut broken => {}
            _ = rules.wait_for(|rules| !rules.is_cut(Way::Back)) => {}
        }
        return reset(&client);
    };
    let _ = client.set_nodelay(true);
    let rng = |label| SeedRng::new(proxy_state.seed ^ number, label);
    let mut there = Pump::new(env, &client, &server, Way::There, &proxy_state.rules, rng("there"));
    let mut back = Pump::new(env, &server, &client, Way::Back, &proxy_state.rules, rng("back"));
    let end = tokio::select! { biased;
        () = env.stopped().cancelled() => PumpEnd::Broken,
        () = &mut broken => PumpEnd::Broken,
        end = both(&mut there, &mut back) => end,
    };
    match end {
        // The client must still receive the bytes that the proxy forwarded to it, and then the end of the
        // stream. The proxy therefore closes the client's connection without a reset.
        PumpEnd::ReplyCut => {
            let _ = shutdown(&client, Shutdown::Write);
            reset(&server);
        }
        PumpEnd::Broken => {
            reset(&client);
            reset(&server);
        }
        PumpEnd::Finished => {}
    }
}

async fn connect(upstream: SocketAddr) -> io::Result<TcpStream> {
    let server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Runs both directions until both have ended, or one of them has failed.
async fn both(there: &mut Pump<'_>, back: &mut Pump<'_>) -> PumpEnd {
    let (there, back) = (there.run(), back.run());
    tokio::pin!(there, back);
    let (first, other) = tokio::select! { biased;
        end = &mut there => (end, &mut back as &mut (dyn Future<Output = PumpEnd> + Unpin + Send)),
        end = &mut back => (end, &mut there as _),
    };
    match first {
        PumpEnd::Finished => other.await,
        end => end,
    }
}

/// Makes the peer of `stream` see a broken connection (RST) once this end is dropped.
fn reset(stream: &TcpStream) {
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

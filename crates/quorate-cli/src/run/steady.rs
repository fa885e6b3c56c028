//! The main loops of the daemons that run no jobs of a file. Each turn is a beat for the page, for systemd and for the
//! leases, so a process that is stuck or stopped loses what it holds.

use super::{
    daemon::{BEATS, SignalAction, Signals, stalled},
    notify::Notifier,
};
use crate::http::Server;
use quorate::{env::Env, lease::Heartbeat};
use std::{pin::pin, time::Duration};
use tokio_util::sync::CancellationToken;

/// The texts of a daemon about itself.
pub(crate) struct Sayings<S> {
    /// The state, for systemd.
    pub(crate) status: S,
    /// The work that a signal to stop begins.
    pub(crate) stopping: &'static str,
    /// Why a signal to reload has no effect.
    pub(crate) reload: &'static str,
}

/// Serves until a signal to stop. `stopping` is what the daemon then does.
pub(crate) async fn serve_until_signal(
    env: &Env,
    every: Duration,
    signals: &mut Signals,
    server: &Server,
    stopping: impl Fn() -> String,
) {
    let mut notifier = Notifier::from_env();
    notifier.ready();
    loop {
        server.beat();
        notifier.beat(env);
        let beat_at = env.now() + every;
        let wake = notifier.beat_at().map_or(beat_at, |at| at.min(beat_at));
        tokio::select! { biased;
            action = signals.next() => match action {
                SignalAction::Stop(name) => {
                    tracing::info!("{name}: {}", stopping());
                    notifier.stopping();
                    server.stopping();
                    return;
                }
                SignalAction::Reload => tracing::info!("SIGHUP: there is nothing to reload without jobs"),
            },
            () = env.sleep_until(wake) => {}
        }
    }
}

/// Works until `work` has ended, which a signal to stop asks for by `stop`. The leases are extended only while this loop
/// runs.
pub(crate) async fn work_until_signal<T>(
    (env, server): (&Env, Option<&Server>),
    heartbeat: &Heartbeat,
    mut signals: Signals,
    stop: &CancellationToken,
    work: impl Future<Output = T>,
    says: Sayings<impl Fn() -> String>,
) -> T {
    let (mut notifier, mut work) = (Notifier::from_env(), pin!(work));
    notifier.ready();
    let mut last_beat = env.now();
    loop {
        let now = env.now();
        if let Some(warning) = stalled(last_beat.until(now), heartbeat.max_silence()) {
            tracing::warn!("{warning}");
        }
        last_beat = now;
        heartbeat.beat();
        notifier.beat(env);
        server.into_iter().for_each(Server::beat);
        if !stop.is_cancelled() {
            notifier.status(&(says.status)());
        }
        let beat_at = now + heartbeat.max_silence() / BEATS;
        let wake = notifier.beat_at().map_or(beat_at, |at| at.min(beat_at));
        tokio::select! { biased;
            ended = &mut work => return ended,
            action = signals.next() => match action {
                SignalAction::Stop(name) => {
                    if !stop.is_cancelled() {
                        tracing::info!("{name}: {}", says.stopping);
                        notifier.stopping();
                        server.into_iter().for_each(Server::stopping);
                    }
                    stop.cancel();
                }
                SignalAction::Reload => tracing::info!("SIGHUP: {}", says.reload),
            },
            () = env.sleep_until(wake) => {}
        }
    }
}

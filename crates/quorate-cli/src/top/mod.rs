//! The command `quorate top`: a live view of a group in the terminal.
//!
//! [`state::State`] decides and [`frame::draw`] draws, both without a clock or a terminal. This module connects
//! them with the terminal and with the [poller](poller::Poller).
//!
//! # What is not guaranteed
//!
//! The view shows what the nodes answered at the last update. Runs that begin and end between two updates appear only
//! as outcomes, and events from before its start do not appear.

mod clock;
mod dialog;
mod events;
mod frame;
mod news;
mod order;
mod poller;
mod question;
mod screen;
mod sidecar;
mod state;
#[cfg(test)]
mod tests;
mod view;

use crate::{
    args::TopArgs,
    config::{Config, Environment},
    exit::{FAILURE, Failure},
    failures, operator, show,
    terminal::wants_colour,
};
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use news::Moment;
use poller::{Poller, Settings};
use quorate::env::Env;
use quorate_operator::{Action, Operator};
use screen::Screen;
pub(crate) use screen::check_terminal;
use sidecar::Sidecar;
use state::{Effect, State};
use std::{sync::Arc, time::Duration};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};
use view::Palette;

/// The number of updates that may wait for the view.
const NEWS_MAX: usize = 64;
/// The number of actions that may wait for the one before.
const ACTIONS_MAX: usize = 16;
/// The longest time without a new frame. The times on the screen count in seconds.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// The longest name of a group that is shown, in bytes.
const NAME_MAX: usize = 200;

/// Shows the view until it is ended, and returns the exit status.
pub(crate) async fn top(args: &TopArgs, config: &Config) -> Result<u8, Failure> {
    let group = failures::group(args.group.as_deref(), config)?;
    let settings = Settings {
        every: args.every,
        wait: args.wait,
        sidecar: args.sidecar.clone().map(|address| Sidecar { address, token_file: args.token_file.clone() }),
        by: Operator::named(&operator::name(None, config), None),
    };
    let (news, updates) = mpsc::channel(NEWS_MAX);
    let (act, actions) = mpsc::channel(ACTIONS_MAX);
    let (follow, followed) = watch::channel(None);
    let poller = Poller::new(config, group, settings, news)?;
    let environment = Environment::process();
    // A hook for the test that a panic restores the screen. A released program does not have it.
    let panics = cfg!(debug_assertions) && environment.env.contains_key("TEST_QUORATE_TOP_PANICS");
    let shell = Shell {
        env: Env::system(),
        palette: Palette { colour: wants_colour(|name| environment.env.get(name).cloned()) },
        state: State::new(&show::line(group, NAME_MAX), args.every),
        act,
        follow,
        panics,
    };
    let signals = Signals::catch()?;
    let screen = Screen::enter()?;
    let ended = tokio::select! { biased;
        ended = shell.run(screen, signals, updates) => ended,
        () = poller.run(actions, followed) => Ok(0),
    };
    poller.close().await;
    ended
}

/// Connects the state with the terminal and the poller.
struct Shell {
    env: Env,
    palette: Palette,
    state: State,
    act: mpsc::Sender<Action>,
    follow: watch::Sender<Option<Arc<str>>>,
    panics: bool,
}

impl Shell {
    /// Draws, and takes in keys, news and signals, until one of them ends the view. Returns the exit status.
    #[expect(clippy::panic, reason = "a test checks that a panic restores the screen")]
    async fn run(
        mut self,
        mut screen: Screen,
        mut signals: Signals,
        mut updates: mpsc::Receiver<news::News>,
    ) -> Result<u8, Failure> {
        let mut keys = EventStream::new();
        loop {
            let now = self.now();
            let drawn = screen.terminal.draw(|frame| frame::draw(frame, &self.state, now, self.palette));
            drawn.map_err(|error| screen::failure(&error))?;
            if self.panics {
                panic!("TEST_QUORATE_TOP_PANICS is set");
            }
            tokio::select! { biased;
                () = screen.panicked.cancelled() => {
                    return Err(Failure::new(FAILURE, "a part of the program has panicked"));
                }
                signal = signals.next() => return Ok(128 + signal),
                key = keys.next() => match key {
                    Some(Ok(Event::Key(key))) => {
                        let effects = self.state.press(key, self.now());
                        if !effects.into_iter().all(|effect| self.apply(effect)) {
                            return Ok(0);
                        }
                    }
                    // Another size needs only a new frame.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(screen::failure(&error)),
                    None => return Err(Failure::new(FAILURE, "the input of the terminal has ended")),
                },
                Some(news) = updates.recv() => {
                    let now = self.now();
                    self.state.learn(news, now);
                    while let Ok(news) = updates.try_recv() {
                        self.state.learn(news, now);
                    }
                }
                () = self.env.sleep(DRAW_EVERY) => {}
            }
        }
    }

    fn now(&self) -> Moment {
        Moment { boot: self.env.now(), wall: self.env.wall() }
    }

    /// Carries out a step. Returns false if the view ends.
    fn apply(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::Quit => return false,
            Effect::Follow(job) => {
                self.follow.send_replace(job);
            }
            Effect::Act(action) => {
                if let Err(error) = self.act.try_send(action) {
                    let target = error.into_inner().target(&self.state.group);
                    let text = format!("{target}: too many actions wait for an answer");
                    self.state.learn(news::News::Answer(Err(text)), self.now());
                }
            }
        }
        true
    }
}

/// The signals that end the view.
struct Signals([(u8, Signal); 4]);

impl Signals {
    fn catch() -> Result<Self, Failure> {
        let catch = |number: u8, kind: SignalKind| match signal(kind) {
            Ok(signal) => Ok((number, signal)),
            Err(error) => Err(Failure::new(FAILURE, format!("cannot catch signal {number}: {error}"))),
        };
        Ok(Self([
            catch(1, SignalKind::hangup())?,
            catch(2, SignalKind::interrupt())?,
            catch(3, SignalKind::quit())?,
            catch(15, SignalKind::terminate())?,
        ]))
    }

    /// Waits for a signal, and returns its number.
    async fn next(&mut self) -> u8 {
        let waits = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                // The stream of a signal does not end.
                signal.recv().await;
                *number
            })
        });
        futures_util::future::select_all(waits).await.0
    }
}

//! A line about work in progress, on standard error. It appears where the work takes longer than a second, only on
//! a terminal, and is removed when the work has ended. So it never reaches a pipe, a file or the terminal of a command
//! that this program runs.

use crate::{log, supervisor::own_group};
use quorate::{
    env::{BootTime, Env},
    plain::plain,
};
use ratatui::text::Span;
use rustix::termios;
use std::{
    cell::{Cell, RefCell},
    io::{IsTerminal, stderr},
    pin::pin,
    time::Duration,
};

/// The time without a line, in which most work ends.
const QUIET: Duration = Duration::from_secs(1);
/// The time between two versions of the line.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// The longest description of the work, in bytes.
const TEXT_MAX: usize = 400;
/// The number of characters of the bar.
const BAR: u32 = 20;
/// Work in progress.
#[derive(Debug)]
pub(crate) struct Progress {
    env: Env,
    is_terminal: bool,
    work: RefCell<Work>,
    is_shown: Cell<bool>,
}

#[derive(Debug)]
struct Work {
    what: String,
    began: BootTime,
    /// The time after which the work ends, if it is known.
    total: Option<Duration>,
}

impl Progress {
    /// Returns the progress of work that begins now. `total` is the time after which it ends, if it is known.
    pub(crate) fn new(env: &Env, what: &str, total: Option<Duration>) -> Self {
        let work = Work { what: plain(what, TEXT_MAX), began: env.now(), total };
        Self {
            env: env.clone(),
            is_terminal: stderr().is_terminal(),
            work: RefCell::new(work),
            is_shown: Cell::new(false),
        }
    }

    /// Begins another part of the work.
    pub(crate) fn next(&self, what: &str, total: Option<Duration>) {
        self.clear();
        *self.work.borrow_mut() = Work { what: plain(what, TEXT_MAX), began: self.env.now(), total };
    }

    /// Removes the line. It appears again if the work continues.
    pub(crate) fn clear(&self) {
        if self.is_shown.replace(false) {
            log::erase();
        }
    }

    /// Shows the progress until `work` has ended.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.is_terminal {
            return work.await;
        }
        let mut work = pin!(work);
        loop {
            tokio::select! { biased;
                done = &mut work => {
                    self.clear();
                    return done;
                }
                () = self.env.sleep(DRAW_EVERY) => self.draw(),
            }
        }
    }

    fn draw(&self) {
        let work = self.work.borrow();
        let took = self.env.now().since(work.began);
        // A shell may have started this program in the background. Its terminal then belongs to another program.
        let in_foreground = termios::tcgetpgrp(stderr()).is_ok_and(|group| Some(group) == own_group());
        if took < QUIET || !in_foreground {
            return;
        }
        let width = termios::tcgetwinsize(stderr()).map_or(80, |size| size.ws_col);
        self.is_shown.set(true);
        log::draw(&line(&work.what, took, work.total, width));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Returns the line, which is shorter than the terminal is wide.
fn line(what: &str, took: Duration, total: Option<Duration>, width: u16) -> String {
    let seconds = took.as_secs();
    let end = match total {
        None => format!(" {seconds} s"),
        Some(total) => {
            let part = took.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
            let done = (part.min(1.0) * f64::from(BAR)) as usize;
            let left = total.saturating_sub(took).as_secs();
            format!(" [{}{}] {left} s left", "#".repeat(done), ".".repeat(BAR as usize - done))
        }
    };
    // A line as wide as the terminal would wrap on some terminals.
    let room = usize::from(width).saturating_sub(1);
    let mut text = cut(what, room.saturating_sub(end.len()));
    text += &end;
    cut(&text, room)
}

/// Returns the beginning of `text` that fits into `width` columns.
fn cut(text: &str, width: usize) -> String {
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if Span::raw(&*cut).width() > width {
            cut.pop();
            break;
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_and_fits_the_terminal() {
        let second = Duration::from_secs(1);
        assert_eq!(line("waiting for x", 3 * second, None, 80), "waiting for x 3 s");
        assert_eq!(
            line("waiting", 15 * second, Some(30 * second), 80),
            "waiting [##########..........] 15 s left"
        );
        assert_eq!(
            line("waiting", 45 * second, Some(30 * second), 80),
            "waiting [####################] 0 s left"
        );
        assert_eq!(line("waiting for 日本語", 3 * second, None, 20), "waiting for 日 3 s");
        for width in [0, 1, 2, 10, 30] {
            let text = line("日本語日本語", 15 * second, Some(Duration::ZERO), width);
            assert!(Span::raw(&*text).width() < usize::from(width).max(1), "{width}: {text}");
        }
    }
}

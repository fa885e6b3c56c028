//! The screen of the terminal: raw mode and the alternate screen, left again whatever ends the program.

use crate::exit::{CONFIG, FAILURE, Failure};
use crossterm::{
    cursor::Show,
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, backend::CrosstermBackend};
use std::{
    io::{self, IsTerminal, Stdout, stdin, stdout},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// The screen. Dropping this value restores the terminal.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Is cancelled by a panic in any thread.
    pub(super) panicked: CancellationToken,
    usage: Arc<Usage>,
}

/// The use of the whole screen. It ends once: a second end would move the cursor back over what was printed since.
struct Usage(AtomicBool);

/// Checks that standard input and output are a terminal.
///
/// # Errors
/// A failure that names the commands without a terminal.
pub(crate) fn check_terminal() -> Result<(), Failure> {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if stdin().is_terminal() && stdout().is_terminal() && !dumb {
        return Ok(());
    }
    Err(Failure::new(
        CONFIG,
        "`quorate top` needs a terminal for standard input and output; without one, use `quorate status`, `quorate jobs \
         list` and `quorate jobs why`, also with --json",
    ))
}

impl Screen {
    /// Begins to use the whole screen.
    ///
    /// # Errors
    /// The terminal does not permit it.
    pub(super) fn enter() -> Result<Self, Failure> {
        let panicked = CancellationToken::new();
        let usage = Arc::new(Usage(AtomicBool::new(true)));
        let (token, used) = (panicked.clone(), Arc::clone(&usage));
        let print = panic::take_hook();
        // The message of a panic is only visible on the normal screen.
        panic::set_hook(Box::new(move |info| {
            used.end();
            print(info);
            token.cancel();
        }));
        let open = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(stdout()))
        };
        match open() {
            Ok(terminal) => Ok(Self { terminal, panicked, usage }),
            Err(error) => {
                usage.end();
                Err(failure(&error))
            }
        }
    }
}

/// Returns the failure of a write to the terminal.
pub(super) fn failure(error: &io::Error) -> Failure {
    Failure::new(FAILURE, format!("cannot use the terminal: {error}"))
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.usage.end();
    }
}

impl Usage {
    /// Leaves the alternate screen, shows the cursor and ends raw mode. A failure has no remedy: the terminal may be
    /// gone.
    fn end(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            let _ = execute!(stdout(), LeaveAlternateScreen, Show);
            let _ = disable_raw_mode();
        }
    }
}

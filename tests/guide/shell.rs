//! A shell that is fed through a pipe, one command after the other.

use quorate::env::{SystemWorld, World};
use std::{
    fs::File,
    io::{Read, Write},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// The character before the exit status that ends the output of a command. No command prints it.
const END: char = '\u{1e}';

/// The longest time of a command.
const PATIENCE: Duration = Duration::from_secs(90);

/// The time between two looks at the output.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running shell.
#[derive(Debug)]
pub(crate) struct Shell {
    input: File,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Shell {
    /// Takes over the ends of the shell's pipes.
    pub(crate) fn new(input: File, mut output: File) -> Self {
        let read = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&read);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                to.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
            }
        });
        Self { input, output: read, reader: Some(reader) }
    }

    /// Runs the command, and returns its exit status and output. It runs in the shell itself, so that
    /// variables, the directory and background processes stay.
    pub(crate) fn run(&mut self, command: &str) -> Result<(i32, String), String> {
        let line = format!("{{ {command}\n}} </dev/null 2>&1; printf '\\n{END}%d\\n' $?\n");
        self.input.write_all(line.as_bytes()).map_err(|error| format!("the shell has ended: {error}"))?;
        let give_up = SystemWorld.now() + PATIENCE;
        loop {
            let late = SystemWorld.now() >= give_up;
            match self.ended() {
                Some(ended) => return Ok(ended),
                None if late => {
                    return Err(format!(
                        "`{command}` has not ended in {PATIENCE:?}; output:\n{}",
                        self.said()
                    ));
                }
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Waits until the shell has closed its output. The caller has ended its processes.
    pub(crate) fn join(mut self) {
        drop(self.input);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn ended(&self) -> Option<(i32, String)> {
        let said = self.said();
        let (output, rest) = said.split_once(END)?;
        let (status, after) = rest.split_once('\n')?;
        let status = status.parse().expect("an exit status");
        let ended = (status, output.strip_suffix('\n').unwrap_or(output).to_owned());
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = after.as_bytes().to_vec();
        Some(ended)
    }
}

//! The output of the commands to standard output. Text of other parties is printed without the characters that
//! control a terminal.

pub(crate) use crate::clean::{json_text, line, page};

use crate::{
    exit::{FAILURE, Failure},
    terminal::{Output, keep_colours},
};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Prints a [`page`] to standard output.
///
/// A closed pipe (`| head`) is not an error, because the reader needs no more output.
///
/// # Errors
/// Every other failed write, such as a full disk: the output is incomplete.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    written(write(&mut io::stdout().lock(), text)).map_err(incomplete)
}

fn incomplete(error: io::Error) -> Failure {
    Failure::new(FAILURE, format!("cannot write to standard output: {error}; the output is incomplete"))
}

/// Prints the program's own bytes, which contain no text from outside, to standard output.
///
/// # Errors
/// As those of [`print`].
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush())).map_err(incomplete)
}

/// Prints `page` as one JSON document if `as_json` is true, otherwise the text for people.
pub(crate) fn print_page(
    as_json: bool,
    page: &impl Serialize,
    for_people: impl FnOnce() -> String,
) -> Result<(), Failure> {
    print(&if as_json { json(page)? } else { for_people() })
}

/// Writes `text` and flushes the output, so that an error still affects the exit status.
fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    let text = if Output::stdout().colour { keep_colours(text, page) } else { page(text) };
    to.write_all(text.as_bytes())?;
    to.flush()
}

fn written(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Returns `value` as one line of JSON. Characters that control a terminal are escaped in ASCII.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value).map_err(|error| Failure::new(FAILURE, error))?;
    Ok(json_text(&json) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::plain::steers;

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        let failed = |kind: ErrorKind| written(Err(kind.into())).map_err(|error| error.kind());
        assert_eq!(failed(ErrorKind::BrokenPipe), Ok(()));
        assert_eq!(failed(ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
        assert_eq!(failed(ErrorKind::Other), Err(ErrorKind::Other));
    }

    #[test]
    fn json_in_ascii_has_the_same_value() {
        let hostile = "a\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}ü\n\"\\";
        let text = json(&[hostile]).unwrap();
        assert!(!text.trim_end().contains(steers), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [hostile]);
    }
}

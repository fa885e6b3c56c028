//! A file that a person changes in an editor.

use crate::{
    config::Environment,
    exit::{CONFIG, FAILURE, Failure},
    log,
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::Command,
};

/// The variables that name the editor, the first that is set.
const EDITORS: [&str; 2] = ["VISUAL", "EDITOR"];

/// A text after the editor has ended. Its file is removed with this value, unless it is kept.
pub(super) struct Edited {
    pub(super) text: String,
    file: Temporary,
}

/// A file in the directory for temporary files.
struct Temporary {
    path: PathBuf,
    is_kept: std::cell::Cell<bool>,
}

/// Lets a person change `text`. The editor is a line for the shell, as git and crontab take it.
pub(super) fn edit(text: &str, environment: &Environment<'_>) -> Result<Edited, Failure> {
    let Some(editor) =
        EDITORS.iter().find_map(|name| environment.env.get(*name).filter(|line| !line.is_empty()))
    else {
        return Err(Failure::new(CONFIG, "no editor is known; set EDITOR, or use `quorate jobs put FILE`"));
    };
    let file = Temporary::new(text)
        .map_err(|error| Failure::new(FAILURE, format!("cannot write a file for the editor: {error}")))?;
    let line = format!("{editor} \"$1\"");
    let status = Command::new("/bin/sh").args(["-c", &line, "quorate-edit"]).arg(&file.path).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(Failure::new(FAILURE, format!("the editor ended with {status}; nothing was stored")));
        }
        Err(error) => return Err(Failure::new(FAILURE, format!("cannot start the editor: {error}"))),
    }
    let text = fs::read_to_string(&file.path)
        .map_err(|error| Failure::new(FAILURE, format!("cannot read the file of the editor: {error}")))?;
    Ok(Edited { text, file })
}

impl Edited {
    /// Keeps the file, and returns the failure with its name.
    pub(super) fn keep(&self, error: &str) -> Failure {
        self.file.is_kept.set(true);
        Failure::new(
            CONFIG,
            format!(
                "{error}\nyour text is kept in {}; correct it, and store it by `quorate jobs put`",
                self.file.path.display()
            ),
        )
    }

    /// Keeps the file, and says so.
    pub(super) fn say_kept(&self) {
        self.file.is_kept.set(true);
        log::say(&format!("quorate: your text is kept in {}", self.file.path.display()));
    }
}

impl Temporary {
    fn new(text: &str) -> io::Result<Self> {
        for number in 0..100 {
            let name = format!("quorate-{}-{number}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            // Others may not read a payload, or put another file in its place.
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    file.write_all(text.as_bytes())?;
                    return Ok(Self { path, is_kept: std::cell::Cell::new(false) });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

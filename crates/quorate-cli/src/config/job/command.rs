//! What a job runs, and what of it counts as a failure.

use super::JobCheck;
use crate::config::{ConfigError, source::COMMAND_VARIABLES};
use toml::Spanned;

/// The shell that runs a `shell` line.
const SHELL: &str = "/bin/sh";
/// The most that may be kept of a run's output, in bytes.
const OUTPUT_MAX: usize = 4 << 10;

impl JobCheck<'_> {
    /// Program and arguments, of `command` or of `shell`.
    pub(super) fn command(&self) -> Result<Vec<String>, ConfigError> {
        match (&self.told.command, &self.told.shell) {
            (Some(command), None) => self.argv(command),
            (None, Some(line)) => self.shell(line),
            (Some(_), Some(line)) => {
                Err(self.fail(line.span(), "has a `command` and a `shell` line; keep one of them"))
            }
            (None, None) => Err(self.fail(
                self.at.clone(),
                "has nothing to run; add command = [\"./report.sh\", \"--all\"] or shell = \"./report.sh | mail ops\"",
            )),
        }
    }

    fn argv(&self, command: &Spanned<Vec<String>>) -> Result<Vec<String>, ConfigError> {
        let words = command.as_ref();
        if words.first().is_none_or(|program| program.trim().is_empty()) {
            let why = "has an empty command; give program and arguments, like [\"./report.sh\", \"--all\"]";
            return Err(self.fail(command.span(), why));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(self.fail(command.span(), "has a command with a NUL in it; take it out"));
        }
        Ok(words.clone())
    }

    fn shell(&self, line: &Spanned<String>) -> Result<Vec<String>, ConfigError> {
        let text = line.as_ref();
        if text.trim().is_empty() {
            return Err(self
                .fail(line.span(), "has an empty `shell` line; write one, like \"./report.sh | mail ops\""));
        }
        if text.contains('\0') {
            return Err(self.fail(line.span(), "has a `shell` line with a NUL in it; take it out"));
        }
        Ok([SHELL, "-c", text].map(str::to_owned).to_vec())
    }

    pub(super) fn check_env(&self) -> Result<(), ConfigError> {
        let wrong =
            |name: &str, value: &str| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if let Some((name, _)) = self.told.env.iter().find(|(name, value)| wrong(name, value)) {
            let why = format!(
                "has an `env` name {name:?} that no environment can hold; names are not empty and have no `=` and no NUL, values no NUL"
            );
            return Err(self.fail(self.at.clone(), &why));
        }
        if let Some(name) = self.told.env.keys().find(|name| COMMAND_VARIABLES.contains(&name.as_str())) {
            let why = format!("has an `env` name {name} that each run is given by quorate; take it out");
            return Err(self.fail(self.at.clone(), &why));
        }
        Ok(())
    }

    /// Which exit codes are no failure.
    pub(super) fn ok_exit_codes(&self) -> Result<Vec<u8>, ConfigError> {
        let Some(told) = &self.told.ok_exit_codes else { return Ok(vec![0]) };
        let mut codes = Vec::new();
        for code in told.as_ref() {
            let Ok(sound) = u8::try_from(*code.as_ref()) else {
                let why = format!(
                    "has the exit code {} in ok_exit_codes, which no command can end with; give 0 to 255",
                    code.as_ref()
                );
                return Err(self.fail(code.span(), &why));
            };
            codes.push(sound);
        }
        if codes.is_empty() {
            let why = "has empty ok_exit_codes, and so would always fail; write ok_exit_codes = [0], or take the key out";
            return Err(self.fail(told.span(), why));
        }
        codes.sort_unstable();
        codes.dedup();
        Ok(codes)
    }

    /// How much of a run's output is kept in the history.
    pub(super) fn keep_output(&self) -> Result<Option<usize>, ConfigError> {
        let Some(told) = &self.told.keep_output else { return Ok(None) };
        let wrong = |why: &str| {
            let text = format!(
                "has keep_output {:?}, {why}; write it like \"2KiB\", at most \"4KiB\"",
                told.as_ref()
            );
            self.fail(told.span(), &text)
        };
        match bytes(told.as_ref()) {
            None => Err(wrong("which is no number of bytes")),
            Some(0) => Err(wrong("which keeps nothing: take the key out")),
            Some(most) if most > OUTPUT_MAX => Err(wrong("which is too much for the nodes")),
            Some(most) => Ok(Some(most)),
        }
    }
}

/// A number of bytes: `512`, `512B`, `4kB`, `4KiB`.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim_start() {
        "" | "B" => 1,
        "kB" | "KB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_have_the_usual_units() {
        for (text, most) in [
            ("512", 512),
            ("512B", 512),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4kB", 4000),
            ("1MiB", 1 << 20),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Some(most), "{text}");
        }
        for text in
            ["", "KiB", "-1", "4K", "4 kib", "1.5KiB", "99999999999999999999", "18446744073709551615MiB"]
        {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}

//! The command of a job, and the exit codes of success.

use super::JobCheck;
use crate::config::{ConfigError, source::COMMAND_VARIABLES};
use toml::Spanned;

/// The shell that runs a `shell` line.
const SHELL: &str = "/bin/sh";
/// The largest number of bytes of a run's output that can be kept.
const OUTPUT_MAX: usize = 4 << 10;

impl JobCheck<'_> {
    /// Returns program and arguments, from `command` or from `shell`.
    pub(super) fn command(&self) -> Result<Vec<String>, ConfigError> {
        match (&self.written.command, &self.written.shell) {
            (Some(command), None) => self.argv(command),
            (None, Some(line)) => self.shell(line),
            (Some(_), Some(line)) => {
                Err(self.fail(line.span(), "has a `command` and a `shell` line; keep one of them"))
            }
            (None, None) => Err(self.fail(
                self.at.clone(),
                "has nothing to run; add command = [\"./report.sh\", \"--all\"], shell = \"./report.sh | mail ops\" or http = { url = \"https://…\" }",
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
            return Err(self.fail(command.span(), "has a command with a NUL in it; remove it"));
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
            return Err(self.fail(line.span(), "has a `shell` line with a NUL in it; remove it"));
        }
        Ok([SHELL, "-c", text].map(str::to_owned).to_vec())
    }

    pub(super) fn check_env(&self) -> Result<(), ConfigError> {
        let wrong =
            |name: &str, value: &str| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if let Some((name, _)) = self.written.env.iter().find(|(name, value)| wrong(name, &value.0)) {
            let why = format!(
                "has an invalid `env` name or value at {name:?}; give a name without `=` and NUL, and a value without NUL"
            );
            return Err(self.fail(self.at.clone(), &why));
        }
        if let Some(name) = self.written.env.keys().find(|name| COMMAND_VARIABLES.contains(&name.as_str())) {
            let why = format!("has an `env` name {name} that quorate sets for each run; remove it");
            return Err(self.fail(self.at.clone(), &why));
        }
        Ok(())
    }

    /// Returns the exit codes of success.
    pub(super) fn ok_exit_codes(&self) -> Result<Vec<u8>, ConfigError> {
        let Some(written) = &self.written.ok_exit_codes else { return Ok(vec![0]) };
        let mut codes = Vec::new();
        for code in written.as_ref() {
            let Ok(sound) = u8::try_from(*code.as_ref()) else {
                let why = format!(
                    "has the exit code {} in ok_exit_codes, which does not exist; give 0 to 255",
                    code.as_ref()
                );
                return Err(self.fail(code.span(), &why));
            };
            codes.push(sound);
        }
        if codes.is_empty() {
            let why = "has empty ok_exit_codes, with which every run would fail; write ok_exit_codes = [0], or remove the key";
            return Err(self.fail(written.span(), why));
        }
        codes.sort_unstable();
        codes.dedup();
        Ok(codes)
    }

    /// Returns the number of bytes of a run's output that the history keeps.
    pub(super) fn keep_output(&self) -> Result<Option<usize>, ConfigError> {
        let Some(written) = &self.written.keep_output else { return Ok(None) };
        let wrong = |why: &str| {
            let text = format!(
                "has keep_output {:?}, {why}; write it like \"2KiB\", at most \"4KiB\"",
                written.as_ref()
            );
            self.fail(written.span(), &text)
        };
        match bytes(written.as_ref()) {
            None => Err(wrong("which is not a number of bytes")),
            Some(0) => Err(wrong("which keeps nothing: remove the key")),
            Some(most) if most > OUTPUT_MAX => Err(wrong("which is too large for the nodes")),
            Some(most) => Ok(Some(most)),
        }
    }
}

/// Parses a number of bytes: `512`, `512B`, `4kB`, `4KiB`.
pub(in crate::config) fn bytes(text: &str) -> Option<usize> {
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

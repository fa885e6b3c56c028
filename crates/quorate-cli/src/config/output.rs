//! The settings of the files that keep the output of runs.

use super::{ConfigError, job::bytes, validation::Validation};
use crate::files::beside;
use std::{path::PathBuf, time::Duration};

/// The default number of files of a job.
const KEEP: usize = 20;
/// The largest number of files of a job.
const KEEP_MAX: i64 = 10_000;
/// The default size of one file, in bytes, and the smallest one.
const MAX_SIZE: (u64, u64) = (10 << 20, 1 << 10);
/// The default age after which a file is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The files that keep the output of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// The directory, made absolute from the directory of the file.
    pub dir: PathBuf,
    /// The number of files of each job.
    pub keep: usize,
    /// The largest size of a file, in bytes.
    pub max_size: u64,
    /// The age after which a file is removed.
    pub max_age: Option<Duration>,
}

impl Validation<'_> {
    /// Returns the settings. Files are written only if a directory is given.
    pub(super) fn output(&self) -> Result<Option<OutputConfig>, ConfigError> {
        let (text, Some(source)) = (&self.file_text.output, &self.source) else { return Ok(None) };
        let fail = |at: std::ops::Range<usize>, why: String| Err(source.error(Some(at), &why));
        let keep = match &text.keep {
            Some(keep) if !(1..=KEEP_MAX).contains(keep.as_ref()) => {
                return fail(
                    keep.span(),
                    format!("output.keep is {}; give it 1 to {KEEP_MAX}", keep.as_ref()),
                );
            }
            Some(keep) => usize::try_from(*keep.as_ref()).unwrap_or(KEEP),
            None => KEEP,
        };
        let max_size = match &text.max_size {
            Some(size) => match bytes(size.as_ref()).and_then(|size| u64::try_from(size).ok()) {
                Some(size) if size >= MAX_SIZE.1 => size,
                _ => {
                    let why = format!(
                        "output.max_size {:?} cannot be used; write it like \"10MiB\", at least \"1KiB\"",
                        size.as_ref()
                    );
                    return fail(size.span(), why);
                }
            },
            None => MAX_SIZE.0,
        };
        let max_age = match &text.max_age {
            Some(age) if age.as_ref().is_zero() => {
                return fail(
                    age.span(),
                    "output.max_age is 0s; give a longer time, or remove the key for 30days".to_owned(),
                );
            }
            Some(age) => **age.as_ref(),
            None => MAX_AGE,
        };
        let Some(dir) = &text.dir else {
            let given = [
                text.keep.as_ref().map(toml::Spanned::span),
                text.max_size.as_ref().map(toml::Spanned::span),
                text.max_age.as_ref().map(toml::Spanned::span),
            ];
            return match given.into_iter().flatten().next() {
                Some(at) => fail(
                    at,
                    "output has no `dir`; add dir = \"/var/log/quorate\", or remove the table".to_owned(),
                ),
                None => Ok(None),
            };
        };
        if dir.as_ref().as_os_str().is_empty() {
            return fail(
                dir.span(),
                "output.dir is empty; name a directory, such as \"/var/log/quorate\"".to_owned(),
            );
        }
        Ok(Some(OutputConfig {
            dir: beside(source.file, dir.as_ref()),
            keep,
            max_size,
            max_age: Some(max_age),
        }))
    }
}

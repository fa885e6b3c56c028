//! The OpenTelemetry collector that gets traces and metrics.

use super::{
    ConfigError, Secret, SecretSource,
    error::SourceText,
    file::OtlpText,
    validation::Validation,
    webhook::{HEADER_FIX, is_header, is_private, parse_url},
};
use crate::files::beside;
use std::{collections::BTreeMap, fmt, ops::Range, path::PathBuf, time::Duration};
use url::Url;

/// The default time between two reports of the metrics.
const EVERY: Duration = Duration::from_secs(15);
/// The longest and the shortest time between two reports of the metrics.
const EVERY_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
const EXAMPLE: &str = "http://127.0.0.1:4318";

/// The collector that gets traces and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The URL, to which `/v1/traces` and `/v1/metrics` are appended.
    pub url: SecretSource,
    /// Header fields whose values are in files.
    pub header_files: BTreeMap<String, PathBuf>,
    /// The certificate authorities to trust instead of those that the machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The time between two reports of the metrics.
    pub every: Duration,
}

impl fmt::Display for OtlpConfig {
    /// Shows the host, and nothing that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            SecretSource::Url(Secret(url)) => {
                write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
                url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
            }
            SecretSource::File(file) => write!(f, "the URL in {}", file.display()),
        }
    }
}

impl Validation<'_> {
    /// Returns the collector. Nothing is sent unless the file names one.
    pub(super) fn otlp(&self) -> Result<Option<OtlpConfig>, ConfigError> {
        let (Some(written), Some(source)) = (&self.file_text.otlp, &self.source) else { return Ok(None) };
        let check = OtlpCheck { source, at: written.span(), written: written.as_ref() };
        check.check(cfg!(feature = "otlp")).map(Some)
    }
}

struct OtlpCheck<'a> {
    source: &'a SourceText<'a>,
    at: Range<usize>,
    written: &'a OtlpText,
}

impl OtlpCheck<'_> {
    fn fail(&self, at: Range<usize>, why: &str) -> ConfigError {
        self.source.error(Some(at), &format!("otlp{why}"))
    }

    fn check(&self, has_feature: bool) -> Result<OtlpConfig, ConfigError> {
        if !has_feature {
            let why = " is set, and this program was built without OpenTelemetry; install it with \
                       `cargo install quorate-cli --features otlp`, or remove the key";
            return Err(self.fail(self.at.clone(), why));
        }
        let here = |file: &PathBuf| beside(self.source.file, file);
        let headers = self.written.header_files.iter().map(|(name, file)| {
            if is_header(name.as_ref()) {
                return Ok((name.as_ref().clone(), here(file)));
            }
            let why = format!(" has the header {:?} in header_files, {HEADER_FIX}", name.as_ref());
            Err(self.fail(name.span(), &why))
        });
        Ok(OtlpConfig {
            header_files: headers.collect::<Result<_, _>>()?,
            url: self.url()?,
            ca_file: self.written.ca_file.as_ref().map(here),
            every: self.every()?,
        })
    }

    /// Returns the URL or its file. An error does not contain the URL, because it may be a secret.
    fn url(&self) -> Result<SecretSource, ConfigError> {
        let (url, at) = match (&self.written.url, &self.written.url_file) {
            // A URL without a table has no position of its own.
            (Some(url), None) if url.span().is_empty() => (&url.as_ref().0, self.at.clone()),
            (Some(url), None) => (&url.as_ref().0, url.span()),
            (None, Some(file)) => {
                return Ok(SecretSource::File(beside(self.source.file, file.as_ref())));
            }
            (Some(_), Some(file)) => {
                return Err(self.fail(file.span(), " has `url` and `url_file`; keep one of them"));
            }
            (None, None) => {
                let why = format!(" has no URL; write otlp = \"{EXAMPLE}\"");
                return Err(self.fail(self.at.clone(), &why));
            }
        };
        let parsed = parse_url(url, EXAMPLE).map_err(|why| self.fail(at.clone(), &format!(" {why}")))?;
        if let Some(why) = objection(&parsed) {
            return Err(self.fail(at, why));
        }
        if !self.written.header_files.is_empty() && !is_private(&parsed) {
            let why = " has header_files and a URL without TLS, so that everybody on the network could read the \
                       headers; use https";
            return Err(self.fail(at, why));
        }
        Ok(SecretSource::Url(Secret(parsed)))
    }

    fn every(&self) -> Result<Duration, ConfigError> {
        let Some(written) = &self.written.every else { return Ok(EVERY) };
        let (least, most) = EVERY_RANGE;
        match **written.as_ref() {
            every if (least..=most).contains(&every) => Ok(every),
            every => {
                let why = format!(".every is {every:?}; give it {least:?} to {most:?}");
                Err(self.fail(written.span(), &why))
            }
        }
    }
}

/// Returns the reason why no path of a signal can be appended to `url`.
fn objection(url: &Url) -> Option<&'static str> {
    let path = url.path().trim_end_matches('/');
    if path.ends_with("/v1/traces") || path.ends_with("/v1/metrics") {
        return Some(" has the path of one signal; write the URL without /v1/traces or /v1/metrics");
    }
    if url.port() == Some(4317) {
        return Some(
            " has the port 4317, which is that of gRPC; write the port of OTLP over HTTP, which is 4318",
        );
    }
    (url.query().is_some() || url.fragment().is_some())
        .then_some(" has a query or a fragment; write scheme, host, port and path only")
}

#[cfg(test)]
#[path = "otlp_tests.rs"]
mod tests;

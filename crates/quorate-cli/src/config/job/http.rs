//! A job that sends a request in place of running a command.

use super::JobCheck;
use crate::{
    config::{
        ConfigError, HttpJob, Secret, SecretSource,
        file::HttpJobText,
        webhook::{HEADER_FIX, is_header, is_private, parse_url},
    },
    files::beside,
};

/// A URL that shows the form of the URL of a job.
const EXAMPLE: &str = "https://api.example.com/report";
/// The methods of requests.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// The longest body in a file, in bytes.
const BODY_MAX: usize = 64 << 10;

impl JobCheck<'_> {
    /// Returns the request of the job, if it sends one.
    pub(super) fn http(&self) -> Result<Option<HttpJob>, ConfigError> {
        let Some(written) = &self.written.http else { return Ok(None) };
        self.no_command_keys(written.span())?;
        let HttpJobText { method, url, url_file, header_files, ca_file, content_type, body } =
            written.as_ref();
        let url = match (url, url_file) {
            (Some(url), None) => {
                let parsed = parse_url(&url.as_ref().0, EXAMPLE)
                    .map_err(|why| self.fail(url.span(), &format!("has an http.url that {why}")))?;
                if !header_files.is_empty() && !is_private(&parsed) {
                    let why = "has http.header_files and a URL without TLS, so that everybody on the network could read the headers; use https";
                    return Err(self.fail(url.span(), why));
                }
                SecretSource::Url(Secret(parsed))
            }
            (None, Some(file)) => SecretSource::File(beside(self.source.file, file)),
            _ => {
                let why = format!(
                    "needs one of http.url and http.url_file; write http = {{ url = \"{EXAMPLE}\" }}"
                );
                return Err(self.fail(written.span(), &why));
            }
        };
        let method = match method {
            None => "POST",
            Some(name) => METHODS.into_iter().find(|known| *known == name.as_ref()).ok_or_else(|| {
                let short: String = name.as_ref().chars().take(40).collect();
                self.fail(
                    name.span(),
                    &format!("has http.method {short:?}, which is unknown; use {}", METHODS.join(", ")),
                )
            })?,
        };
        for name in header_files.keys() {
            let text: &str = name.as_ref();
            if !is_header(text) || is_own(text) {
                let why = format!("has the header {text:?} in http.header_files, {HEADER_FIX}");
                return Err(self.fail(name.span(), &why));
            }
        }
        if let Some(body) = body.as_ref().filter(|body| body.as_ref().0.len() > BODY_MAX) {
            let why =
                format!("has an http.body of {} bytes; give it at most {BODY_MAX}", body.as_ref().0.len());
            return Err(self.fail(body.span(), &why));
        }
        let content_type = content_type.as_ref().map_or("application/json", |text| text.as_ref().as_str());
        if content_type.is_empty() || !content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            let span = content_type_span(written.as_ref()).unwrap_or_else(|| written.span());
            let why =
                "has an http.content_type that is no visible ASCII text; write it like \"application/json\"";
            return Err(self.fail(span, why));
        }
        Ok(Some(HttpJob {
            method: method.to_owned(),
            url,
            header_files: header_files
                .iter()
                .map(|(name, file)| (name.as_ref().clone(), beside(self.source.file, file)))
                .collect(),
            ca_file: ca_file.as_ref().map(|file| beside(self.source.file, file)),
            content_type: content_type.to_owned(),
            body: Secret(body.as_ref().map(|body| body.as_ref().0.clone()).unwrap_or_default()),
        }))
    }

    /// Refuses the keys that only a command has.
    fn no_command_keys(&self, at: std::ops::Range<usize>) -> Result<(), ConfigError> {
        let written = self.written;
        let keys = [
            ("command", written.command.is_some()),
            ("shell", written.shell.is_some()),
            ("ok_exit_codes", written.ok_exit_codes.is_some()),
            ("background", written.background.is_some()),
            ("cwd", written.cwd.is_some()),
            ("env", !written.env.is_empty()),
        ];
        match keys.into_iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                Err(self
                    .fail(at, &format!("has `http` and `{key}`, which is for a command; keep one of them")))
            }
            None => Ok(()),
        }
    }
}

fn content_type_span(written: &HttpJobText) -> Option<std::ops::Range<usize>> {
    written.content_type.as_ref().map(toml::Spanned::span)
}

/// Returns whether quorate sets this header itself.
fn is_own(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("quorate-") || name == "idempotency-key" || name == "user-agent"
}

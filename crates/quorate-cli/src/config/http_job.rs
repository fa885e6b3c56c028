use super::{Secret, SecretSource};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// The request of a job. `Debug` shows neither the URL nor the body.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpJob {
    /// The method, such as `POST`.
    pub method: String,
    /// The URL.
    pub url: SecretSource,
    /// Header fields whose values are in files.
    pub header_files: BTreeMap<String, PathBuf>,
    /// The certificate authorities to trust instead of those that the machine trusts.
    pub ca_file: Option<PathBuf>,
    /// The content type of the body.
    pub content_type: String,
    /// The body. Empty for none.
    pub body: Secret<String>,
}

impl HttpJob {
    /// The time limit of an attempt if the job names none. A server that never answers must not block the job.
    pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
}

impl fmt::Display for HttpJob {
    /// Shows the method and the host, and nothing that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.url {
            SecretSource::Url(Secret(url)) => {
                write!(f, "{} {}://{}", self.method, url.scheme(), url.host_str().unwrap_or_default())
            }
            SecretSource::File(file) => write!(f, "{} to the URL in {}", self.method, file.display()),
        }
    }
}

impl fmt::Debug for HttpJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpJob({self})")
    }
}

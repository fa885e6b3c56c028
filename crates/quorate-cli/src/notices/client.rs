//! One HTTP request to a receiver. Redirects are not followed, so that a secret header reaches no other host.

use crate::{
    config::{Secret, SecretSource, WEBHOOK_EXAMPLE, is_private, parse_url},
    files::FileThread,
};
use axum::{
    body::{Body, Bytes},
    http::uri::Scheme,
};
use futures_util::StreamExt;
use hyper::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy as client, rt::TokioExecutor};
use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use url::Url;

/// The content type of a body in JSON.
pub(crate) const JSON: &str = "application/json";
/// The longest URL or header value in a file, in bytes.
const SECRET_MAX: usize = 4096;
/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 16 << 20;
/// The largest file of certificate authorities, in bytes.
const CA_MAX: u64 = 4 << 20;

/// Sends requests. It reads the files of secrets at each request, so a renewed secret needs no restart.
#[derive(Clone)]
pub(crate) struct Client {
    files: Arc<FileThread>,
    native: Arc<OnceLock<Arc<RootCertStore>>>,
}

/// A request to a URL. `Debug` shows neither the URL nor the body.
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a SecretSource,
    /// Appended to the URL's path.
    pub(crate) suffix: &'a str,
    pub(crate) header_files: &'a BTreeMap<String, PathBuf>,
    /// Further headers, which are no secrets.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) ca_file: Option<&'a Path>,
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
}

/// An answer to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The end of the body.
    pub(crate) tail: Vec<u8>,
}

impl Answer {
    /// Returns the reason why an answer is no success.
    pub(crate) fn refused(&self) -> String {
        let status = self.status;
        match status.is_redirection() {
            true => format!("it answered {status}; redirects are not followed: give the final URL"),
            false => format!("it answered {status}"),
        }
    }
}

impl Client {
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { files: Arc::new(FileThread::start()?), native: Arc::default() })
    }

    /// Sends a request. Any answer but a success is an error, which never contains the URL or a header.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The receiver may have got the request.
    pub(crate) async fn post(&self, call: Call<'_>) -> Result<(), String> {
        let answer = self.send(call, 0).await?;
        if answer.status.is_success() { Ok(()) } else { Err(answer.refused()) }
    }

    /// Sends a request, and returns the answer with the last `most` bytes of its body. An error never contains the URL or a
    /// header.
    ///
    /// # Cancel safety
    /// As for [`Client::post`].
    pub(crate) async fn send(&self, call: Call<'_>, most: usize) -> Result<Answer, String> {
        let url = self.url(call.url).await?;
        if !call.header_files.is_empty() && !is_private(&url) {
            return Err("header_files are not sent without TLS; use a URL of https".to_owned());
        }
        let request = self.request(url, &call).await?;
        let roots = match request.uri().scheme() == Some(&Scheme::HTTPS) {
            true => self.roots(call.ca_file).await?,
            false => Arc::new(RootCertStore::empty()),
        };
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        // No connection is kept for later requests. So it ends with this future, as does the task that serves it.
        let client = client::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let response = client.request(request).await.map_err(|error| reason(&error))?;
        let status = response.status();
        let tail = if most == 0 { Vec::new() } else { tail(Body::new(response.into_body()), most).await? };
        Ok(Answer { status, tail })
    }

    async fn request(&self, mut url: Url, call: &Call<'_>) -> Result<Request<Body>, String> {
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), call.suffix));
        let mut request = Request::builder()
            .method(call.method)
            .uri(url.as_str())
            .header(USER_AGENT, concat!("quorate/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, call.content_type);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        let mut request =
            request.body(Body::from(call.body.clone())).map_err(|_| "the URL cannot be sent".to_owned())?;
        for (name, file) in call.header_files {
            let text = self.read(file).await?;
            let header = HeaderName::from_bytes(name.as_bytes()).ok();
            let value = HeaderValue::from_str(&text).ok();
            let (Some(header), Some(mut value)) = (header, value) else {
                return Err(format!(
                    "the file of the header {name} does not hold one line of visible characters"
                ));
            };
            value.set_sensitive(true);
            request.headers_mut().insert(header, value);
        }
        Ok(request)
    }

    async fn url(&self, source: &SecretSource) -> Result<Url, String> {
        match source {
            SecretSource::Url(Secret(url)) => Ok(url.clone()),
            SecretSource::File(file) => {
                let text = self.read(file).await?;
                parse_url(&text, WEBHOOK_EXAMPLE)
                    .map_err(|why| format!("the text of {} {why}", file.display()))
            }
        }
    }

    /// Reads a secret of one line.
    async fn read(&self, file: &Path) -> Result<String, String> {
        let path = file.to_owned();
        let text = self.files.begin(move || crate::files::read(&path)).await;
        let text = text.map_err(|_| "the thread that reads files has ended".to_owned())?;
        let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        match text.trim() {
            line if line.is_empty() || line.len() > SECRET_MAX || line.contains(char::is_control) => {
                Err(format!("{} must hold one line of 1 to {SECRET_MAX} bytes", file.display()))
            }
            line => Ok(line.to_owned()),
        }
    }

    /// Returns the certificate authorities to trust: those of the file, or those of the machine.
    async fn roots(&self, ca_file: Option<&Path>) -> Result<Arc<RootCertStore>, String> {
        if let (None, Some(roots)) = (ca_file, self.native.get()) {
            return Ok(Arc::clone(roots));
        }
        let path = ca_file.map(Path::to_owned);
        let read = move || path.map_or_else(|| Ok(native_roots()), |path| roots_of(&path));
        let roots = self.files.begin(read).await;
        let roots = Arc::new(roots.map_err(|_| "the thread that reads files has ended".to_owned())??);
        Ok(match ca_file {
            Some(_) => roots,
            None => Arc::clone(self.native.get_or_init(|| roots)),
        })
    }
}

/// Reads a body, and returns its last `most` bytes.
async fn tail(body: Body, most: usize) -> Result<Vec<u8>, String> {
    let (mut parts, mut kept, mut read) = (body.into_data_stream(), Vec::new(), 0);
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| format!("the answer broke off: {error}"))?;
        read += part.len();
        if read > ANSWER_MAX {
            return Err(format!("its answer is longer than {ANSWER_MAX} bytes"));
        }
        kept.extend_from_slice(&part);
        let excess = kept.len().saturating_sub(most);
        kept.drain(..excess);
    }
    Ok(kept)
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn roots_of(file: &Path) -> Result<RootCertStore, String> {
    let unread = |error: &dyn std::fmt::Display| format!("cannot read ca_file {}: {error}", file.display());
    if fs::metadata(file).map_err(|error| unread(&error))?.len() > CA_MAX {
        return Err(unread(&"it is too large"));
    }
    let pem = fs::read(file).map_err(|error| unread(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| unread(&"it is no PEM file of certificates"))?;
        roots.add(certificate).map_err(|error| unread(&error))?;
    }
    match roots.is_empty() {
        true => Err(unread(&"it holds no certificate")),
        false => Ok(roots),
    }
}

/// Returns why there is no answer. It does not contain the URL.
fn reason(error: &client::Error) -> String {
    // The connector reports what failed after the connection as an error of input and output, and all before as its own.
    let failed = match error.source() {
        _ if !error.is_connect() => "no answer",
        Some(source) if source.is::<io::Error>() => "TLS failed",
        _ => "cannot connect",
    };
    let mut last: &dyn Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    format!("{failed}: {last}")
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;

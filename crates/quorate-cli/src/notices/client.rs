//! One HTTP request to a receiver. Redirects are not followed, so that a secret header reaches no other host.

use crate::{
    config::{Secret, SecretSource, WEBHOOK_EXAMPLE, is_private, parse_url},
    files::FileThread,
};
use axum::body::{Body, Bytes};
use hyper::{
    Method, Request, StatusCode,
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};
use url::Url;

/// The content type of a body in JSON.
pub(crate) const JSON: &str = "application/json";
/// The longest URL or header value in a file, in bytes.
const SECRET_MAX: usize = 4096;
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
    pub(crate) url: &'a SecretSource,
    /// Appended to the URL's path.
    pub(crate) suffix: &'a str,
    pub(crate) header_files: &'a BTreeMap<String, PathBuf>,
    pub(crate) ca_file: Option<&'a Path>,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { files: Arc::new(FileThread::start()?), native: Arc::default() })
    }

    /// Sends a POST request. An error never contains the URL or a header.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The receiver may have got the request.
    pub(crate) async fn post(&self, call: Call<'_>) -> Result<(), String> {
        let url = self.url(call.url).await?;
        if !call.header_files.is_empty() && !is_private(&url) {
            return Err("header_files are not sent without TLS; use a URL of https".to_owned());
        }
        let request = self.request(&url, &call).await?;
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = TcpStream::connect((host.as_str(), port)).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        let status = match url.scheme() {
            "https" => {
                let name =
                    ServerName::try_from(host).map_err(|_| "the URL's host is no valid name".to_owned())?;
                let tls = TlsConnector::from(Arc::new(self.tls(call.ca_file).await?));
                let stream =
                    tls.connect(name, stream).await.map_err(|error| format!("TLS failed: {error}"))?;
                exchange(stream, request).await?
            }
            _ => exchange(stream, request).await?,
        };
        match status {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => {
                Err(format!("it answered {status}; redirects are not followed: give the final URL"))
            }
            status => Err(format!("it answered {status}")),
        }
    }

    async fn request(&self, url: &Url, call: &Call<'_>) -> Result<Request<Body>, String> {
        let path = format!("{}{}", url.path().trim_end_matches('/'), call.suffix);
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let target = url.query().map_or(path.clone(), |query| format!("{path}?{query}"));
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let invalid = |_| "the URL cannot be sent".to_owned();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(target)
            .header(HOST, host)
            .header(USER_AGENT, concat!("quorate/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, call.content_type)
            .body(Body::from(call.body.clone()))
            .map_err(invalid)?;
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

    async fn tls(&self, ca_file: Option<&Path>) -> Result<ClientConfig, String> {
        let roots = match ca_file {
            Some(file) => {
                let path = file.to_owned();
                let roots = self.files.begin(move || roots_of(&path)).await;
                Arc::new(roots.map_err(|_| "the thread that reads files has ended".to_owned())??)
            }
            None => match self.native.get() {
                Some(roots) => Arc::clone(roots),
                None => {
                    let roots = self.files.begin(native_roots).await;
                    let roots =
                        Arc::new(roots.map_err(|_| "the thread that reads files has ended".to_owned())?);
                    Arc::clone(self.native.get_or_init(|| roots))
                }
            },
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
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

/// Sends the request, and returns the status of the answer. The body of the answer is not read.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<StatusCode, String> {
    let failed = |error: hyper::Error| format!("no answer: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(sender.send_request(request));
    // The server may close the connection right after its answer. So the answer is read even if the connection
    // has ended.
    let answer = tokio::select! { biased;
        answer = &mut answer => answer,
        _ = &mut connection => answer.await,
    };
    answer.map(|answer| answer.status()).map_err(failed)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;

//! The TLS configuration of a `rediss://` connection: trusted authorities and a client certificate.

use crate::node::Cause;
use crate::redis::reply;
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{
    self, AlertDescription, ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

/// The largest size of a PEM file, in bytes. A file with all certificate authorities that a system trusts has
/// about a quarter of this size.
const FILE_MAX: u64 = 1 << 20;

/// The PEM files of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The certificate authorities to trust, in place of those that the machine trusts.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate that is presented to the server, and its key.
    pub(crate) client: Option<ClientFiles>,
}

/// A client's certificate and its key, which may be in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Builds the TLS configuration of a node, and builds it again when the content of a file has changed.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    cached: Arc<Mutex<Option<CachedConfig>>>,
    native: Arc<OnceLock<Arc<RootCertStore>>>,
}

/// A configuration and the contents of the files from which it was built.
struct CachedConfig {
    contents: Contents,
    config: Arc<ClientConfig>,
}

#[derive(PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    /// The certificate and the key.
    client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Returns the configuration for the present contents of `files`. A renewed certificate is used from the
    /// next connection on.
    pub(crate) fn config(&self, files: &TlsFiles) -> Result<Arc<ClientConfig>, Cause> {
        let client = files
            .client
            .as_ref()
            .map(|client| Ok((read("cert_file", &client.certificate)?, read("key_file", &client.key)?)));
        let contents = Contents {
            ca: files.ca.as_deref().map(|file| read("ca_file", file)).transpose()?,
            client: client.transpose()?,
        };
        // The mutex protects a single value, which is complete even after a panic. So a poisoned mutex can be
        // used.
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.contents == contents) {
            return Ok(Arc::clone(&cached.config));
        }
        let config = Arc::new(self.build(files, &contents)?);
        *cached = Some(CachedConfig { contents, config: Arc::clone(&config) });
        Ok(config)
    }

    fn build(&self, files: &TlsFiles, contents: &Contents) -> Result<ClientConfig, Cause> {
        let roots = match (&files.ca, &contents.ca) {
            (Some(file), Some(pem)) => Arc::new(roots_of(file, pem)?),
            _ => self.native_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Cause::Unreachable(format!("TLS cannot be set up: {error}").into()))?
            .with_root_certificates(roots);
        let (Some(names), Some((chain, key))) = (&files.client, &contents.client) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates("cert_file", &names.certificate, chain)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            // The parser's error may repeat a line of the key, so it is not shown.
            let (why, fix) = match error {
                pem::Error::NoItemsFound => (
                    "holds no private key that can be read",
                    "give a PEM file with one that is not encrypted (`openssl pkey -in FILE -out NEW` decrypts one)",
                ),
                _ => ("is damaged", "write the PEM file again"),
            };
            bad("key_file", &names.key, why, fix)
        })?;
        builder.with_client_auth_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let why =
                    format!("does not belong to the certificate in cert_file {}", shown(&names.certificate));
                bad("key_file", &names.key, &why, "give the key for which the certificate was made")
            }
            _ => bad(
                "key_file",
                &names.key,
                "holds a key of a kind that cannot be used, or its certificate does",
                "use an RSA, ECDSA or Ed25519 key",
            ),
        })
    }

    /// Returns the certificate authorities that the machine trusts. There are hundreds of them, so they are
    /// read only once.
    fn native_roots(&self) -> Result<Arc<RootCertStore>, Cause> {
        if let Some(roots) = self.native.get() {
            return Ok(Arc::clone(roots));
        }
        let mut roots = RootCertStore::empty();
        // Certificates that this library does not accept are left out. Most machines trust a few of them.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let why =
                "this machine trusts no certificate authority; install ca-certificates, or give a ca_file";
            return Err(Cause::Misconfigured(why.into()));
        }
        Ok(Arc::clone(self.native.get_or_init(|| Arc::new(roots))))
    }
}

/// A TLS connection whose errors explain a refusal by the server. With TLS 1.3 a server checks the client's
/// certificate only after the client has completed the handshake, so the refusal arrives as a read error.
pub(crate) struct TlsConnection(pub(crate) TlsStream<TcpStream>);

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into).map_err(with_explanation)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes).map_err(with_explanation)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context).map_err(with_explanation)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context).map_err(with_explanation)
    }
}

fn with_explanation(error: io::Error) -> io::Error {
    match explain(&error) {
        Some(why) => io::Error::new(io::ErrorKind::InvalidData, format!("TLS failed: {why}")),
        None => error,
    }
}

/// Explains a TLS alert by which the server refused the connection, with the fix. Returns `None` for any
/// other error.
pub(crate) fn explain(error: &io::Error) -> Option<&'static str> {
    let rustls::Error::AlertReceived(alert) = error.get_ref()?.downcast_ref::<rustls::Error>()? else {
        return None;
    };
    Some(match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "the server demands a client certificate; give a cert_file and a key_file"
        }
        AlertDescription::UnknownCA => {
            "the server does not trust the authority of the certificate in cert_file; have it signed by an authority of \
             the server's tls-ca-cert-file, or add its authority there"
        }
        AlertDescription::CertificateExpired => {
            "the server says that the certificate in cert_file has expired, or is not valid yet; renew it, and check \
             the server's clock"
        }
        AlertDescription::HandshakeFailure => {
            "the server refused the handshake; where it demands a client certificate, give a cert_file and a key_file"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => {
            "the server refused the certificate in cert_file; see the server's log for the reason"
        }
        _ => return None,
    })
}

fn roots_of(file: &Path, pem: &[u8]) -> Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", file, pem)? {
        roots.add(certificate).map_err(|error| {
            let why = format!("holds a certificate that cannot be used: {error}");
            bad("ca_file", file, &why, "give a PEM file with the authority's certificates")
        })?;
    }
    Ok(roots)
}

fn certificates(key: &str, file: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Cause> {
    const FIX: &str = "give a PEM file with certificates";
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    // The parser's error is not shown, because it may repeat a line of the file. The user may have named the
    // key file by mistake.
    let all = all.map_err(|_| bad(key, file, "is damaged", FIX))?;
    if all.is_empty() {
        return Err(bad(key, file, "holds no certificate", FIX));
    }
    Ok(all)
}

fn read(key: &str, file: &Path) -> Result<Vec<u8>, Cause> {
    let mut content = Vec::new();
    let whole = File::open(file).and_then(|open| open.take(FILE_MAX + 1).read_to_end(&mut content));
    match whole {
        Ok(_) if content.len() as u64 > FILE_MAX => {
            Err(bad(key, file, "is longer than 1 MiB", "give a PEM file"))
        }
        Ok(_) => Ok(content),
        Err(error) => {
            let why = format!("cannot be read: {error}");
            Err(bad(key, file, &why, "give a PEM file that the user of this process may read"))
        }
    }
}

/// Returns the cause for a file that cannot be used until an operator changes it.
fn bad(key: &str, file: &Path, why: &str, fix: &str) -> Cause {
    Cause::Misconfigured(reply::shown(&format!("the {key} {} {why}; {fix}", shown(file))))
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

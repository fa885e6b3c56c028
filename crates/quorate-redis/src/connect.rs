use crate::{
    address::{Address, Place},
    fault, reply,
    wire::Duplex,
};
use quorate::node::Cause;
use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock},
};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

/// What is needed to speak TLS; read from the disk once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// A connection to `address`, ready for the first command.
pub(crate) async fn connect(
    address: &Address,
    tls: &Tls,
    ca_file: Option<&Path>,
) -> Result<Box<dyn Duplex>, Cause> {
    let failed = |error: io::Error| fault::of_io(address.name(), &error);
    match address.place() {
        Place::Tcp { host, port, tls: false } => Ok(Box::new(tcp(host, *port).await.map_err(failed)?)),
        Place::Tcp { host, port, tls: true } => {
            let config = tls.config(ca_file)?;
            let server = ServerName::try_from(host.clone()).map_err(|_| {
                Cause::Unreachable(
                    format!("{}: TLS needs a host name or an IP address", address.name()).into(),
                )
            })?;
            let stream = tcp(host, *port).await.map_err(failed)?;
            let secured = TlsConnector::from(config).connect(server, stream).await;
            Ok(Box::new(secured.map_err(|error| {
                Cause::Unreachable(reply::cut(&format!(
                    "{}: TLS failed: {error}; where the port speaks plain Redis, write redis://, and where \
                     its certificate comes from an authority of your own, give ca_file",
                    address.name()
                )))
            })?))
        }
        Place::Unix(path) => unix(path).await.map_err(failed),
    }
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // A request is small and somebody waits for it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(unix)]
async fn unix(path: &Path) -> io::Result<Box<dyn Duplex>> {
    Ok(Box::new(tokio::net::UnixStream::connect(path).await?))
}

#[cfg(not(unix))]
async fn unix(_: &Path) -> io::Result<Box<dyn Duplex>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets; write redis://"))
}

impl Tls {
    fn config(&self, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Cause> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let roots = match ca_file {
            Some(file) => roots_of(file)?,
            None => native_roots()?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Cause::Unreachable(format!("TLS cannot be set up: {error}").into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }
}

fn roots_of(file: &Path) -> Result<RootCertStore, Cause> {
    let bad = |why: String| {
        Cause::Unreachable(
            format!("the ca_file {} {why}; give a PEM file with certificates", file.display()).into(),
        )
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| bad(format!("cannot be read: {error}")))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| bad(format!("cannot be read: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| bad(format!("holds a certificate that cannot be used: {error}")))?;
    }
    if roots.is_empty() {
        return Err(bad("holds no certificate".to_owned()));
    }
    Ok(roots)
}

fn native_roots() -> Result<RootCertStore, Cause> {
    let mut roots = RootCertStore::empty();
    // A machine's store often holds a certificate or two that no library takes.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Cause::Unreachable(
            "this machine trusts no certificate authority; install ca-certificates, or give ca_file".into(),
        ));
    }
    Ok(roots)
}

use crate::{
    address::{Address, Place},
    fault, reply,
    wire::Duplex,
};
use quorate::{env::Env, node::Cause};
use std::{
    future, io,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

/// After how much silence a port is asked whether it speaks TLS at all.
const SILENCE: Duration = Duration::from_millis(500);

/// What is needed to speak TLS; read from the disk once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

/// A connection to `address`, ready for the first command.
pub(crate) async fn connect(
    env: &Env,
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
                Cause::Misconfigured(
                    format!("{}: TLS needs a host name or an IP address", address.name()).into(),
                )
            })?;
            let stream = tcp(host, *port).await.map_err(failed)?;
            let failed = |why: &str| {
                reply::shown(&format!(
                    "{}: TLS failed: {why}; where the port speaks plain Redis, write redis://, and where its \
                     certificate comes from an authority of your own, give ca_file",
                    address.name()
                ))
            };
            tokio::select! { biased;
                secured = TlsConnector::from(config).connect(server, stream) => match secured {
                    Ok(stream) => Ok(Box::new(stream)),
                    // Not a broken connection: what this side requires and what that side shows do not fit.
                    Err(error) if is_mismatch(&error) => {
                        Err(Cause::Misconfigured(failed(&error.to_string())))
                    }
                    Err(error) => Err(Cause::Unreachable(failed(&error.to_string()))),
                },
                () = speaks_plainly(env, host, *port) => {
                    Err(Cause::Misconfigured(failed("the port answers without TLS")))
                }
            }
        }
        Place::Unix(path) => unix(path).await.map_err(failed),
    }
}

/// Whether TLS itself refused the connection: a certificate that is not trusted, versions that do not fit.
fn is_mismatch(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    // A request is small and somebody waits for it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Comes back only where the port answers a plain PING, as no port with TLS does.
///
/// Plain Redis waits in silence for the line's end that a TLS greeting does not hold, so without this the
/// newcomer who wrote rediss:// would learn of a timeout only.
async fn speaks_plainly(env: &Env, host: &str, port: u16) {
    env.sleep(SILENCE).await;
    let asked = async {
        let mut stream = tcp(host, port).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    if !matches!(asked.await, Ok(b'+' | b'-')) {
        future::pending::<()>().await;
    }
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
    /// Whether nothing need be read from the disk any more.
    pub(crate) fn is_ready(&self) -> bool {
        self.config.get().is_some()
    }

    /// The configuration. Reads files where it is the first.
    pub(crate) fn config(&self, ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Cause> {
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
        Cause::Misconfigured(
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
        return Err(Cause::Misconfigured(
            "this machine trusts no certificate authority; install ca-certificates, or give ca_file".into(),
        ));
    }
    Ok(roots)
}

use crate::{
    address::{Address, Place},
    fault, reply,
    tls::{self, Secured},
    wire::Duplex,
};
use quorate::{env::Env, node::Cause};
use std::{future, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, Error, pki_types::ServerName},
};

/// After how much silence a port is asked whether it speaks TLS at all.
const SILENCE: Duration = Duration::from_millis(500);

/// A connection to `address`, ready for the first command; over TLS where `tls` is its configuration.
pub(crate) async fn connect(
    env: &Env,
    address: &Address,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Box<dyn Duplex>, Cause> {
    let failed = |error: io::Error| fault::of_io(address.name(), &error);
    match (address.place(), tls) {
        (Place::Tcp { host, port, .. }, None) => Ok(Box::new(tcp(host, *port).await.map_err(failed)?)),
        (Place::Tcp { host, port, .. }, Some(config)) => {
            let server = ServerName::try_from(host.clone()).map_err(|_| {
                Cause::Misconfigured(
                    format!("{}: TLS needs a host name or an IP address", address.name()).into(),
                )
            })?;
            let stream = tcp(host, *port).await.map_err(failed)?;
            let failed = |why: &str| reply::shown(&format!("{}: TLS failed: {why}", address.name()));
            let without_tls = "the port answers without TLS; write redis://";
            tokio::select! { biased;
                secured = TlsConnector::from(config).connect(server, stream) => match secured {
                    Ok(stream) => Ok(Box::new(Secured(stream))),
                    // Not a broken connection: what one side requires and what the other side shows do not fit.
                    Err(error) if is_mismatch(&error) => {
                        Err(Cause::Misconfigured(failed(&because(&error))))
                    }
                    Err(error) => Err(Cause::Unreachable(failed(&because(&error)))),
                },
                () = speaks_plainly(env, host, *port) => Err(Cause::Misconfigured(failed(without_tls))),
            }
        }
        (Place::Unix(path), _) => unix(path).await.map_err(failed),
    }
}

/// Returns whether TLS itself refused the connection: a certificate that is not trusted, versions that do not fit.
fn is_mismatch(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Error>)
}

/// Why a TLS handshake failed, and the fix.
fn because(error: &io::Error) -> String {
    if let Some(why) = tls::explain(error) {
        return why.to_owned();
    }
    let fix = "where the server's certificate comes from an authority of your own, name that authority's certificate as \
               ca_file: rediss://HOST?ca_file=FILE, RedisNode::ca_file, ca_file in quorate.toml or --ca-file; where the \
               port speaks plain Redis, write redis://";
    format!("{error}; {fix}")
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

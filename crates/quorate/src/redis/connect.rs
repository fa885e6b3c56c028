use crate::redis::{
    address::{Address, Endpoint},
    fault, reply,
    tls::{self, TlsConnection},
    wire::Duplex,
};
use crate::{env::Env, node::Cause};
use std::{future, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, Error, pki_types::ServerName},
};

/// The time after which a port that does not answer to TLS is checked for a Redis server without TLS.
const PLAIN_CHECK_AFTER: Duration = Duration::from_millis(500);

/// Opens a connection to `address`, ready for the first command. Uses TLS if `tls` is a configuration.
pub(crate) async fn connect(
    env: &Env,
    address: &Address,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Box<dyn Duplex>, Cause> {
    let failed = |error: io::Error| fault::of_io(address.name(), &error);
    match (address.endpoint(), tls) {
        (Endpoint::Tcp { host, port, .. }, None) => Ok(Box::new(tcp(host, *port).await.map_err(failed)?)),
        (Endpoint::Tcp { host, port, .. }, Some(config)) => {
            let server = ServerName::try_from(host.clone()).map_err(|_| {
                Cause::Misconfigured(
                    format!("{}: TLS needs a host name or an IP address", address.name()).into(),
                )
            })?;
            let stream = tcp(host, *port).await.map_err(failed)?;
            let failed = |why: &str| reply::shown(&format!("{}: TLS failed: {why}", address.name()));
            let without_tls = "the port answers without TLS; write redis://";
            tokio::select! { biased;
                connected = TlsConnector::from(config).connect(server, stream) => match connected {
                    Ok(stream) => Ok(Box::new(TlsConnection(stream))),
                    // TLS itself refused the connection, because one side requires something that the other
                    // does not offer. Only an operator can change that.
                    Err(error) if is_mismatch(&error) => {
                        Err(Cause::Misconfigured(failed(&explain_failure(&error))))
                    }
                    Err(error) => Err(Cause::Unreachable(failed(&explain_failure(&error)))),
                },
                () = answers_without_tls(env, host, *port) => Err(Cause::Misconfigured(failed(without_tls))),
            }
        }
        (Endpoint::Unix(path), _) => unix(path).await.map_err(failed),
    }
}

/// Returns whether TLS itself refused the connection, for instance because a certificate is not trusted or the
/// versions do not match.
fn is_mismatch(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Error>)
}

/// Returns the reason why a TLS handshake failed, and the fix.
fn explain_failure(error: &io::Error) -> String {
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
    // Small requests must be sent at once, because a caller waits for each of them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns once the port answers a PING without TLS, which no TLS port does. Never returns for any other port.
///
/// A Redis server without TLS does not answer a TLS greeting: it waits for the end of a line, which the
/// greeting does not contain. Without this check, a user who wrote rediss:// by mistake would see only a
/// timeout.
async fn answers_without_tls(env: &Env, host: &str, port: u16) {
    env.sleep(PLAIN_CHECK_AFTER).await;
    let reply = async {
        let mut stream = tcp(host, port).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    if !matches!(reply.await, Ok(b'+' | b'-')) {
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

//! The sockets on which the server listens.

use super::places::Origin;
use crate::{
    config::{ClientAddress, ServeConfig},
    exit::{CONFIG, FAILURE, Failure},
};
use listenfd::ListenFd;
use nix::unistd::Group;
use rustix::{fs::Mode, process::umask};
use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt, chown},
        net::UnixStream as StdStream,
    },
    path::{Path, PathBuf},
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Door {
    socket: Socket,
    /// True if clients of leases connect here, and operators elsewhere.
    pub(super) is_for_clients: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    /// A socket that this process has created, and removes.
    Own(UnixListener, PathBuf),
}

/// A connection.
pub(super) type Stream = Either<TcpStream, UnixStream>;

impl Door {
    /// Listens for operators.
    pub(super) async fn for_operators(listen: SocketAddr) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let text = format!(
                "http.listen {listen}: cannot listen: {error}; choose another address, or end the program that uses it"
            );
            Failure::new(FAILURE, text)
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!("listening for HTTP on http://{address}");
        Ok(Self { socket: Socket::Tcp(listener), is_for_clients: false })
    }

    /// Listens for clients of leases.
    pub(super) async fn for_clients(config: &ServeConfig) -> Result<Vec<Self>, Failure> {
        let mut doors = Vec::new();
        for address in &config.listen {
            let sockets = open(address, config).await.map_err(|error| {
                let text = format!(
                    "serve.listen {address}: cannot listen: {error}; choose another address, or end the program that uses it"
                );
                Failure::new(FAILURE, text)
            })?;
            if sockets.is_empty() {
                let text = "serve.listen systemd: systemd has passed no unix socket; start the process by a socket unit, or \
                            listen on unix:/run/quorate/quorate.sock";
                return Err(Failure::new(CONFIG, text));
            }
            let door = |socket| Self { socket, is_for_clients: true };
            doors.extend(sockets.into_iter().map(door));
        }
        Ok(doors)
    }

    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<(Stream, Origin)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // An answer is written at once, and nothing follows it for which it could wait.
                stream.set_nodelay(true)?;
                Ok((Either::Left(stream), Origin::Tcp(address)))
            }
            Socket::Unix(listener) | Socket::Own(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                // A process of another container has the id 0 here.
                let pid = peer.pid().filter(|pid| *pid > 0);
                Ok((Either::Right(stream), Origin::Unix { pid, uid: peer.uid() }))
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Socket::Own(_, path) = &self.socket {
            // A socket that is left is replaced at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

async fn open(address: &ClientAddress, config: &ServeConfig) -> io::Result<Vec<Socket>> {
    match address {
        ClientAddress::Tcp(address) => {
            let listener = TcpListener::bind(address).await?;
            tracing::info!("listening for clients on http://{}", listener.local_addr()?);
            Ok(vec![Socket::Tcp(listener)])
        }
        ClientAddress::Unix(path) => {
            let listener = own(path, config.socket_group.as_deref())?;
            tracing::info!("listening for clients on unix:{}", path.display());
            Ok(vec![Socket::Own(listener, path.clone())])
        }
        ClientAddress::Systemd => {
            let mut passed = ListenFd::from_env();
            let mut sockets = Vec::new();
            for at in 0..passed.len() {
                if let Some(listener) = passed.take_unix_listener(at)? {
                    listener.set_nonblocking(true)?;
                    sockets.push(Socket::Unix(UnixListener::from_std(listener)?));
                }
            }
            tracing::info!("listening for clients on {} sockets of systemd", sockets.len());
            Ok(sockets)
        }
    }
}

/// Creates a socket that only this user may use, and the group.
fn own(path: &Path, group: Option<&str>) -> io::Result<UnixListener> {
    let group = group.map(group_id).transpose()?;
    remove_left(path)?;
    // The file never has more permissions than at the end: no other client can connect before the group is set.
    let before = umask(Mode::XUSR | Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    if let Some(group) = group {
        chown(path, None, Some(group))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    }
    Ok(listener)
}

fn group_id(name: &str) -> io::Result<u32> {
    let group = Group::from_name(name)?;
    let unknown =
        || io::Error::other(format!("there is no group {name:?}; set serve.socket_group to one that exists"));
    group.map(|group| group.gid.as_raw()).ok_or_else(unknown)
}

/// Removes a socket that a process has left which no longer runs. Any other file stays.
fn remove_left(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::other("the file exists and is no socket"));
    }
    match StdStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("another process listens on it")),
    }
}

//! Ports for servers. A process locks each port that it reserves until the process ends. No other process of
//! the test run reserves that port in the meantime.

use std::{
    fs::{self, File, TryLockError},
    io,
    net::TcpListener,
    sync::{Mutex, PoisonError},
};

/// The first port of the range, which lies below the ports that systems assign by themselves.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;
/// The number of ports that are tried before the search fails.
const TRIES: u32 = 500;

/// The locks on the ports of this process, which it holds until it ends. After a test has killed its server,
/// a worker of that test may still connect to this port. Without the lock, the worker could find the server
/// of another test there, and write a marker on that server.
static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Reserves a loopback port on which no process listens. The port stays reserved for as long as this process runs.
pub(crate) fn reserve() -> io::Result<u16> {
    let user = rustix::process::getuid().as_raw();
    let dir = std::env::temp_dir().join(format!("quorate-ports-{user}"));
    fs::create_dir_all(&dir)?;
    // The system assigns a different port each time. The search begins at a port that is computed from the
    // assigned one, so that processes begin at different places.
    let begin = u32::from(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) * 31;
    for again in 0..TRIES {
        let port = FIRST + (begin + again * 7_919) % COUNT;
        let Ok(port) = u16::try_from(port) else { continue };
        let lock = File::create(dir.join(port.to_string()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no port between 10000 and 32000 is free"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice_though_nobody_listens() {
        let ports: BTreeSet<u16> = (0..50).map(|_| reserve().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| (10_000..32_000).contains(port)));
    }
}

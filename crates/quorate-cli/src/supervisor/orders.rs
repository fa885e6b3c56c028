//! Receives the orders of the parent, on the standard input of the supervisor process.

use super::wire::{self, Order};
use rustix::net::RecvFlags;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The receiving end of the connection to the parent.
#[derive(Debug)]
pub(super) struct Orders {
    socket: OwnedFd,
    inbox: Vec<u8>,
    /// True once the parent has ended, has closed the connection, or has sent an invalid order.
    closed: bool,
}

impl Orders {
    pub(super) fn from_stdin() -> io::Result<Self> {
        Ok(Self::new(io::stdin().as_fd().try_clone_to_owned()?))
    }

    fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Vec::new(), closed: false }
    }

    /// Returns the socket to wait for. Returns `None` once no more orders can arrive.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.socket.as_fd())
    }

    /// Returns all orders that have arrived, without waiting. A `None` at the end means that no more orders
    /// will arrive. This `None` is returned only once.
    pub(super) fn take(&mut self) -> Vec<Option<Order>> {
        let mut taken = Vec::new();
        if self.closed {
            return taken;
        }
        while !self.closed {
            let mut bytes = [0; 4096];
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((read @ 1.., _)) => self.inbox.extend_from_slice(&bytes[..read]),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => break,
                Ok((0, _)) | Err(_) => self.closed = true,
            }
            while let Some(order) = wire::take(&mut self.inbox) {
                match order {
                    Ok(order) => taken.push(Some(order)),
                    // After an invalid order the connection counts as closed. The deadlines that were set
                    // before still apply.
                    Err(_) => self.closed = true,
                }
            }
        }
        if self.closed {
            taken.push(None);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::unix::net::UnixStream, thread, time::Duration};

    #[test]
    fn all_arrived_orders_are_taken_at_once_and_the_end_is_reported_once() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut orders = Orders::new(ours.into());
        assert!(orders.take().is_empty());
        let many: Vec<Order> = (0..1000).map(|kill| Order::Deadline { step_down: 1, kill }).collect();
        let bytes: Vec<u8> = many.iter().flat_map(wire::line).collect();
        theirs.write_all(&bytes[..bytes.len() - 3]).unwrap();
        let taken: Vec<Order> = orders.take().into_iter().flatten().collect();
        assert_eq!(taken, many[..999]);
        theirs.write_all(&bytes[bytes.len() - 3..]).unwrap();
        drop(theirs);
        // Another test may start a program at this moment. That program keeps the other end open until its
        // exec, so the end of the stream may come late.
        let mut rest = orders.take();
        for _ in 0..20_000 {
            if rest.last() == Some(&None) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
            rest.extend(orders.take());
        }
        assert_eq!(rest, [Some(many[999]), None]);
        assert!(orders.take().is_empty() && orders.socket().is_none());
    }

    #[test]
    fn an_invalid_order_ends_the_stream() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut orders = Orders::new(ours.into());
        theirs.write_all(b"nonsense\n").unwrap();
        assert_eq!(orders.take(), [None]);
        theirs.write_all(&wire::line(&Order::StepDown)).unwrap();
        assert!(orders.take().is_empty());
    }
}

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The limits of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The number of locks and messages that one client may hold.
    pub(crate) per_client: usize,
    /// The number of locks and messages of all clients.
    pub(crate) total: usize,
}

/// The reason why a client gets no further lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The client would hold more than this.
    Client(usize),
    /// All clients would hold more than this.
    Total(usize),
    /// The daemon stops.
    Stopping,
}

/// The places of all clients within the limits.
#[derive(Debug)]
pub(super) struct Seats {
    limits: Limits,
    counts: Mutex<Counts>,
}

/// A place within the limits, for some locks or messages of one client. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    client: Arc<str>,
    count: usize,
}

/// The numbers of locks and messages that clients hold or have asked for.
#[derive(Debug, Default)]
struct Counts {
    of: BTreeMap<Arc<str>, usize>,
    total: usize,
}

impl Counts {
    fn take(&mut self, client: &Arc<str>, count: usize, limits: Limits) -> Result<(), Refusal> {
        let of_client = self.of.get(client).copied().unwrap_or_default();
        if of_client.saturating_add(count) > limits.per_client {
            return Err(Refusal::Client(limits.per_client));
        }
        if self.total.saturating_add(count) > limits.total {
            return Err(Refusal::Total(limits.total));
        }
        *self.of.entry(Arc::clone(client)).or_default() += count;
        self.total += count;
        Ok(())
    }

    fn give_back(&mut self, client: &Arc<str>, count: usize) {
        if let Some(of_client) = self.of.get_mut(client) {
            *of_client = of_client.saturating_sub(count);
            if *of_client == 0 {
                self.of.remove(client);
            }
        }
        self.total = self.total.saturating_sub(count);
    }
}

impl Seats {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Takes a place for `count` locks or messages of `client`.
    pub(super) fn take(self: &Arc<Self>, client: &Arc<str>, count: usize) -> Result<Seat, Refusal> {
        self.counts().take(client, count, self.limits)?;
        Ok(Seat { seats: Arc::clone(self), client: Arc::clone(client), count })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Keeps a place for only `count` of the locks or messages that were asked for.
    pub(crate) fn only(mut self, count: usize) -> Self {
        let spare = self.count.saturating_sub(count);
        self.seats.counts().give_back(&self.client, spare);
        self.count -= spare;
        self
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.counts().give_back(&self.client, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_the_places_of_another() {
        let limits = Limits { per_client: 3, total: 5 };
        let (mut seats, a, b): (_, Arc<str>, Arc<str>) = (Counts::default(), "a".into(), "b".into());
        assert_eq!(seats.take(&a, 4, limits), Err(Refusal::Client(3)));
        assert_eq!(seats.take(&a, usize::MAX, limits), Err(Refusal::Client(3)));
        assert_eq!((seats.take(&a, 2, limits), seats.take(&a, 1, limits)), (Ok(()), Ok(())));
        assert_eq!(seats.take(&a, 1, limits), Err(Refusal::Client(3)));
        assert_eq!((seats.take(&b, 3, limits), seats.take(&b, 2, limits)), (Err(Refusal::Total(5)), Ok(())));
        seats.give_back(&a, 3);
        assert!(!seats.of.contains_key(&a), "no entry of a client without leases");
        assert_eq!((seats.take(&b, 1, limits), seats.total), (Ok(()), 3));
    }
}

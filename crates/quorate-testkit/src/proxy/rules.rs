use std::time::Duration;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
}

impl Way {
    pub(super) fn other(self) -> Self {
        match self {
            Self::There => Self::Back,
            Self::Back => Self::There,
        }
    }
}

/// The directions that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Requests do not arrive.
    There,
    /// Requests arrive and are served, but replies do not arrive.
    Back,
    /// Neither requests nor replies arrive.
    Both,
}

/// The times that bytes take. All of them are zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From the client to the server.
    pub there: Duration,
    /// From the server to the client.
    pub back: Duration,
    /// The largest additional time in each direction. The time is drawn for each piece of data that arrives.
    /// The order of bytes is kept.
    pub jitter: Duration,
}

impl Latency {
    /// Returns the same time in each direction, without jitter.
    pub fn each_way(time: Duration) -> Self {
        Self { there: time, back: time, jitter: Duration::ZERO }
    }

    /// Adds jitter of at most this time.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    pub(super) fn of(&self, way: Way) -> Duration {
        match way {
            Way::There => self.there,
            Way::Back => self.back,
        }
    }
}

/// The rules for every connection of one proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) latency: Latency,
    pub(super) cut: Option<Directions>,
    pub(super) refuses: bool,
    /// The number of calls of `Proxy::sever`. A connection that was accepted when this number was lower must be
    /// broken.
    pub(super) severed: u64,
    /// The number of further bytes from the server after which the connection that carries them is closed.
    /// `None` if no reply is to be cut.
    pub(super) cut_reply_after: Option<usize>,
    /// The number of connections that were closed because of `cut_reply_after`.
    pub(super) replies_cut: u64,
}

impl Rules {
    pub(super) fn is_cut(&self, way: Way) -> bool {
        match self.cut {
            None => false,
            Some(Directions::Both) => true,
            Some(Directions::There) => way == Way::There,
            Some(Directions::Back) => way == Way::Back,
        }
    }

    /// Records that a reply has been cut, so that no further reply is cut.
    pub(super) fn cut_reply(&mut self) {
        self.cut_reply_after = None;
        self.replies_cut += 1;
    }
}

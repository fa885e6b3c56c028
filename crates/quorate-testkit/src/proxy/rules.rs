use std::time::Duration;

/// Which way bytes go.
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

/// Which ways are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Requests do not arrive.
    There,
    /// Requests arrive and are served; replies do not come back.
    Back,
    /// Neither.
    Both,
}

/// How long bytes are under way. By default no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From the client to the server.
    pub there: Duration,
    /// From the server to the client.
    pub back: Duration,
    /// At most this much more, each way, drawn for each piece that arrives. Order is kept.
    pub jitter: Duration,
}

impl Latency {
    /// The same each way, without jitter.
    pub fn each_way(time: Duration) -> Self {
        Self { there: time, back: time, jitter: Duration::ZERO }
    }

    /// With at most this much more.
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

/// What holds for every connection of one proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) latency: Latency,
    pub(super) cut: Option<Directions>,
    pub(super) refuses: bool,
    /// Connections that were accepted under an earlier number are to be broken.
    pub(super) severed: u64,
    /// After how many more bytes from the server its connection is to be closed.
    pub(super) cut_reply_after: Option<usize>,
    /// How many connections were closed so.
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

    /// A reply has been cut, as was asked.
    pub(super) fn cut_reply(&mut self) {
        self.cut_reply_after = None;
        self.replies_cut += 1;
    }
}

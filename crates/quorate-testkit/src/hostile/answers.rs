//! The answers of a hostile server. A client of Quorate loads its Lua scripts when it connects. Then it sends
//! each batch of requests as calls of scripts (EVALSHA). A page of a ledger after the first one is an HSCAN and a call.

use crate::sim::SeedRng;
use quorate::env::{SystemWorld, World};
use std::collections::BTreeSet;

/// The way in which a server is hostile. Most of these ways concern only the answers to calls of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostility {
    /// The server grants everything to every client, and is otherwise correct.
    Liar,
    /// Every answer is of another type than it should be.
    WrongTypes,
    /// The server sends a string of 2 MiB in place of a short one.
    HugeString,
    /// The server announces an answer of length 2^60, and does not send it.
    HugeLength,
    /// The server's time is negative.
    NegativeTime,
    /// The server's time is too large to be counted.
    EndOfTime,
    /// The server grants with a counter beyond 2^53.
    HugeCounter,
    /// The server grants with a counter that is not a number.
    NanCounter,
    /// The server grants with the counter -1.
    NegativeCounter,
    /// The server sends arrays in arrays, ten thousand levels deep.
    DeepNesting,
    /// Every reply has one answer too few.
    TooFew,
    /// Every reply has one answer too many.
    TooMany,
    /// The server sends a string that never ends.
    Endless,
    /// The server sends a push message in place of each answer.
    Push,
    /// The server grants everything to every client. Before the answer to a call of a script or to a
    /// subscription, it sends push messages that no client requested. Among them are false releases of every
    /// resource that the client listens for.
    NoisyPushes,
    /// The server sends errors that repeat data from the client's commands, together with terminal control
    /// sequences.
    Error,
    /// The server answers INFO with meaningless text.
    InfoNoise,
    /// Every connection shows a new run id and no marker, and closes after the answer to its first call of a
    /// script. To a client, the server looks like a node that restarts all the time.
    AnotherRun,
    /// The connection closes in the middle of an answer.
    Partial,
    /// The server sends one byte every ten milliseconds.
    Drip,
    /// The server sends no answer.
    Silence,
    /// The server answers each request with the answer to a request of another kind.
    OtherAnswer,
    /// The server reports the work of every claim as done.
    Done,
    /// A ledger has an endless number of pages. Under this hostility and the next three, the server grants
    /// all other requests.
    EndlessPages,
    /// A page of a ledger names itself as the next page.
    SamePage,
    /// A page of a ledger is longer than any permitted page.
    HugePage,
    /// A page of a ledger has every record twice, and the next page has them again.
    RepeatedRecords,
    /// The server draws the hostility of each answer, with this seed. About half of the answers have a random
    /// hostility of [`Self::BREAKERS`]. The others are those of a [`Self::Liar`].
    Mixed(u64),
}

impl Hostility {
    /// The hostilities that break the protocol, or never give a useful answer.
    pub const BREAKERS: [Self; 20] = [
        Self::WrongTypes,
        Self::HugeString,
        Self::HugeLength,
        Self::NegativeTime,
        Self::EndOfTime,
        Self::HugeCounter,
        Self::NanCounter,
        Self::NegativeCounter,
        Self::DeepNesting,
        Self::TooFew,
        Self::TooMany,
        Self::Endless,
        Self::Push,
        Self::Error,
        Self::InfoNoise,
        Self::Partial,
        Self::Drip,
        Self::Silence,
        Self::OtherAnswer,
        Self::Done,
    ];
}

impl Hostility {
    /// The hostilities that break the protocol only when a ledger is read in pages.
    pub const PAGERS: [Self; 3] = [Self::EndlessPages, Self::SamePage, Self::HugePage];
}

/// An answer to the client.
pub(super) enum ServerReply {
    Say(Vec<u8>),
    /// Sends the bytes and then closes.
    SayAndClose(Vec<u8>),
    /// Sends the bytes one by one.
    Drip(Vec<u8>),
    /// Sends the bytes without end.
    Flood(Vec<u8>),
    Nothing,
}

/// The server's side of one connection.
pub(super) struct Conversation {
    hostility: Hostility,
    rng: SeedRng,
    run_id: String,
    received: String,
    /// The number of scripts that the client has loaded.
    scripts: usize,
    /// The scripts that the client has called.
    called: BTreeSet<usize>,
    marker: Option<Vec<u8>>,
    /// The names of the commands of the open transaction.
    transaction: Option<Vec<String>>,
    /// The channels to which the client subscribed.
    channels: Vec<String>,
    false_releases: u64,
}

/// The number of false releases that a server under [`Hostility::NoisyPushes`] sends at a time, for each
/// channel.
const FALSE_RELEASES: u64 = 200;

/// The scripts, in the order in which a client loads them. Each entry lists the replies to the items that the script serves
/// and that succeed, in the order of their letters.
const SCRIPTS: [&[&str]; 7] = [
    &["freed"],
    &["count", "extended", "raised"],
    &["shared", "extended", "freed", "shared", "queued", "freed", "reserved", "state"],
    &["count", "freed", "extended", "raised", "counted", "completed", "state", "attempts_reset"],
    &["ledger", "written", "pruned", "kept"],
    &["ledger", "written", "written", "written", "written", "written", "written"],
    // The last one refuses requests that are not valid for their resource.
    &["marked", "stamps", "refused"],
];
/// The replies that a server gives under [`Hostility::OtherAnswer`].
const OTHER_ANSWERS: [&str; 5] = ["granted", "count", "raised", "extended", "absent"];

impl Conversation {
    pub(super) fn new(hostility: Hostility, port: u16, connection: u64, marker: Option<Vec<u8>>) -> Self {
        let seed = if let Hostility::Mixed(seed) = hostility { seed } else { 0 };
        let run = if hostility == Hostility::AnotherRun { connection } else { 0 };
        Self {
            hostility,
            rng: SeedRng::new(seed.wrapping_mul(1_000) + connection, "hostile"),
            run_id: format!("{port:08x}{run:032x}"),
            received: String::new(),
            scripts: 0,
            called: BTreeSet::new(),
            marker,
            transaction: None,
            channels: Vec::new(),
            false_releases: 0,
        }
    }

    /// Returns the marker that was set last.
    pub(super) fn marker(&self) -> Option<Vec<u8>> {
        self.marker.clone()
    }

    /// Returns the indexes of the scripts that the client loaded and for which no call was served. Either the
    /// client did not call them, or the server does not know them.
    pub(super) fn scripts_not_served(&self) -> Vec<usize> {
        (0..self.scripts).filter(|script| !self.called.contains(script)).collect()
    }

    pub(super) fn answer(&mut self, command: &[Vec<u8>]) -> ServerReply {
        let word = |at: usize| command.get(at).map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
        self.received.push_str(&format!("{} ", word(1).chars().take(200).collect::<String>()));
        let hostility = match self.hostility {
            Hostility::Mixed(_) if self.rng.chance(500) => {
                Hostility::BREAKERS[self.rng.index(Hostility::BREAKERS.len())]
            }
            Hostility::Mixed(_) => Hostility::Liar,
            other => other,
        };
        let name = word(0).to_ascii_uppercase();
        match name.as_str() {
            "EXEC" => self.exec(hostility),
            _ if let Some(commands) = &mut self.transaction => {
                commands.push(name);
                ServerReply::Say(b"+QUEUED\r\n".to_vec())
            }
            "MULTI" => {
                self.transaction = Some(Vec::new());
                ServerReply::Say(b"+OK\r\n".to_vec())
            }
            "EVALSHA" => self.script(hostility, command),
            "HSCAN" => self.break_reply(hostility, later_page(hostility)),
            "INFO" => self.info(hostility),
            "SCRIPT" => {
                self.scripts += 1;
                ServerReply::Say(bulk(&(self.scripts - 1).to_string()))
            }
            "TIME" => ServerReply::Say(time(hostility)),
            "GET" if hostility == Hostility::AnotherRun => ServerReply::Say(b"$-1\r\n".to_vec()),
            "GET" => ServerReply::Say(match &self.marker {
                Some(marker) => bulk(&String::from_utf8_lossy(marker)),
                None => b"$-1\r\n".to_vec(),
            }),
            "HELLO" if hostility == Hostility::NoisyPushes => {
                ServerReply::Say(b"%1\r\n$5\r\nproto\r\n:3\r\n".to_vec())
            }
            "SUBSCRIBE" if hostility == Hostility::NoisyPushes => {
                self.channels.push(word(1).into_owned());
                ServerReply::Say(
                    [self.push_noise(), push(&[bulk("subscribe"), bulk(&word(1)), b":1\r\n".to_vec()])]
                        .concat(),
                )
            }
            "UNSUBSCRIBE" if hostility == Hostility::NoisyPushes => {
                ServerReply::Say(push(&[bulk("unsubscribe"), bulk(&word(1)), b":0\r\n".to_vec()]))
            }
            "HGETALL" => ServerReply::Say(array(&[])),
            "CONFIG" => ServerReply::Say(array(&[bulk("appendfsync"), bulk("always")])),
            _ => ServerReply::Say(b"+OK\r\n".to_vec()),
        }
    }

    /// Returns push messages of many kinds that no client has requested.
    fn push_noise(&mut self) -> Vec<u8> {
        let mut said = vec![
            b">0\r\n".to_vec(),
            push(&[bulk("message")]),
            push(&[bulk("message"), bulk("elsewhere:freed"), bulk("stranger")]),
            push(&[bulk("pmessage"), bulk("*"), bulk("elsewhere:freed"), bulk("stranger")]),
            push(&[bulk("subscribe"), bulk("elsewhere:freed"), b":9\r\n".to_vec()]),
            push(&[bulk("invalidate"), b"_\r\n".to_vec()]),
            push(&[bulk("granted"), array(&[bulk("granted"), bulk("7")])]),
        ];
        for channel in &self.channels {
            said.push(push(&[bulk("message"), bulk(channel)]));
            said.push(push(&[bulk("message"), bulk(channel), b":7\r\n".to_vec()]));
            said.push(push(&[bulk("message"), bulk(channel), bulk(&"x".repeat(1 << 16))]));
            for number in 0..FALSE_RELEASES {
                let owner = bulk(&format!("4294967295 stranger:{:032x}", self.false_releases + number));
                said.push(push(&[bulk("message"), bulk(channel), owner]));
            }
        }
        self.false_releases += FALSE_RELEASES;
        said.concat()
    }

    fn info(&self, hostility: Hostility) -> ServerReply {
        let honest = format!(
            "redis_version:7.0.15\r\nrun_id:{}\r\nuptime_in_seconds:5\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n\
             aof_enabled:0\r\n",
            self.run_id
        );
        match hostility {
            Hostility::InfoNoise => {
                ServerReply::Say(bulk("run_id\r\n::::\r\nuptime_in_seconds:\u{1b}[2J\r\nrole\0\r\n"))
            }
            Hostility::Error => {
                ServerReply::Say(format!("-ERR\u{1b}[2J AUTH \u{7}{}\r\n", self.received).into_bytes())
            }
            Hostility::HugeLength => ServerReply::Say(b"$1152921504606846976\r\n".to_vec()),
            Hostility::Endless => ServerReply::Flood(b"$1152921504606846976\r\n".to_vec()),
            Hostility::DeepNesting => ServerReply::Say(b"*1\r\n".repeat(10_000)),
            Hostility::Silence => ServerReply::Nothing,
            _ => ServerReply::Say(bulk(&honest)),
        }
    }

    fn script(&mut self, hostility: Hostility, command: &[Vec<u8>]) -> ServerReply {
        let number = |at: usize| -> usize {
            command.get(at).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok()).unwrap_or_default()
        };
        let Some(served) = SCRIPTS.get(number(1)) else {
            return ServerReply::Say(b"-ERR the hostile server does not know this script\r\n".to_vec());
        };
        // The command has the keys, then `not_after` and the marker. After these, a letter and a digit follow for each
        // item. A call that releases locks has only the keys and the owners.
        let letters = command.get(3 + number(2) + 2).map(Vec::as_slice).unwrap_or_default();
        let reply_of = |item: &[u8]| served[usize::from(item[0].wrapping_sub(b'a')) % served.len()];
        let replies: Vec<&str> = match **served {
            ["freed"] => vec!["freed"; number(2) - 1],
            _ => letters.chunks(2).map(reply_of).collect(),
        };
        self.called.insert(number(1));
        if replies == ["marked"] {
            self.marker = command.last().cloned();
        }
        let reply = reply(hostility, &replies, command.last().is_some_and(Vec::is_empty));
        self.break_reply(hostility, reply)
    }

    /// Answers the end of a transaction. Its acquires are granted.
    fn exec(&mut self, hostility: Hostility) -> ServerReply {
        let commands = self.transaction.take().unwrap_or_default();
        let acquires = commands.iter().any(|name| name == "SET");
        let hostility = if acquires { hostility } else { Hostility::Liar };
        let marker = self.marker.as_ref().map(|marker| bulk(&String::from_utf8_lossy(marker)));
        let result = |name: &String| match name.as_str() {
            "SET" if matches!(hostility, Hostility::OtherAnswer | Hostility::Done) => b"+OK\r\n".to_vec(),
            "SET" => b"$-1\r\n".to_vec(),
            "INCRBY" => format!(":{}\r\n", counter(hostility)).into_bytes(),
            "GET" => marker.clone().unwrap_or_else(|| b"$-1\r\n".to_vec()),
            "TIME" => time(hostility),
            _ => b":0\r\n".to_vec(),
        };
        let mut results: Vec<Vec<u8>> = commands.iter().map(result).collect();
        match hostility {
            Hostility::TooFew => drop(results.pop()),
            Hostility::TooMany => results.extend(results.last().cloned()),
            _ => {}
        }
        self.break_reply(hostility, array(&results))
    }

    /// Returns the answer that a server of this hostility gives in place of `reply`, or with it.
    fn break_reply(&mut self, hostility: Hostility, reply: Vec<u8>) -> ServerReply {
        match hostility {
            Hostility::WrongTypes => {
                ServerReply::Say([b":5\r\n", &b"#t\r\n"[..], b"_\r\n", b"%0\r\n"][self.rng.index(4)].to_vec())
            }
            Hostility::HugeLength => ServerReply::Say(b"*1152921504606846976\r\n".to_vec()),
            Hostility::DeepNesting => ServerReply::Say(b"*1\r\n".repeat(10_000)),
            Hostility::Endless => ServerReply::Flood(b"$1152921504606846976\r\n".to_vec()),
            Hostility::Push => ServerReply::Say(b">2\r\n+message\r\n+x\r\n".to_vec()),
            Hostility::NoisyPushes => ServerReply::Say([self.push_noise(), reply].concat()),
            Hostility::Error => {
                ServerReply::Say(format!("-ERR\u{1b}[2J \u{7}{}\r\n", self.received).into_bytes())
            }
            Hostility::Partial => {
                let cut = self.rng.index(reply.len());
                ServerReply::SayAndClose(reply[..cut].to_vec())
            }
            Hostility::AnotherRun => ServerReply::SayAndClose(reply),
            Hostility::Drip => ServerReply::Drip(reply),
            Hostility::Silence => ServerReply::Nothing,
            _ => ServerReply::Say(reply),
        }
    }
}

/// Returns the reply to a call of a script for a page of a ledger: the first page if `first`, otherwise no records.
fn page(hostility: Hostility, first: bool) -> Vec<u8> {
    let (next, pieces) = match first {
        true => (next(hostility, first), page_pieces(hostility)),
        false => (bulk("0"), array(&[])),
    };
    array(&[bulk("ledger"), next, bulk("0"), pieces])
}

/// Returns the reply to HSCAN: a later page.
fn later_page(hostility: Hostility) -> Vec<u8> {
    let record = record(hostility);
    let fields = match hostility {
        Hostility::RepeatedRecords => array(&[record.clone(), record].concat()),
        _ => array(&record),
    };
    array(&[next(hostility, false), fields])
}

/// Returns a field of a ledger, and its value: a record.
fn record(hostility: Hostility) -> [Vec<u8>; 2] {
    let value = match hostility {
        Hostility::HugePage => "x".repeat(17 << 20),
        _ => "x".to_owned(),
    };
    [bulk("r:tick"), bulk(&format!("5:1:0:{value}"))]
}

/// Returns the arrays of fields in a script's reply for the first page.
fn page_pieces(hostility: Hostility) -> Vec<u8> {
    let record = array(&record(hostility));
    match hostility {
        Hostility::RepeatedRecords => array(&[record.clone(), record]),
        _ => array(&[record]),
    }
}

/// Returns the position at which the next page would begin.
fn next(hostility: Hostility, first: bool) -> Vec<u8> {
    match hostility {
        Hostility::EndlessPages => bulk(&SystemWorld.wall().as_micros().to_string()),
        Hostility::SamePage => bulk("7"),
        Hostility::RepeatedRecords if first => bulk("7"),
        _ => bulk("0"),
    }
}

/// Returns a script's reply with correct syntax and wrong content. `first` is true if the client requested
/// the first page of a ledger.
fn reply(hostility: Hostility, replies: &[&'static str], first: bool) -> Vec<u8> {
    let mut replies = replies.to_vec();
    match hostility {
        Hostility::TooFew => drop(replies.pop()),
        Hostility::TooMany => replies.extend(replies.last().copied()),
        _ => {}
    }
    let now = SystemWorld.wall().as_micros();
    let now = match hostility {
        Hostility::NegativeTime => "-5".to_owned(),
        Hostility::EndOfTime => "99999999999999999999".to_owned(),
        Hostility::HugeString => "9".repeat(2 << 20),
        _ => now.to_string(),
    };
    let counter = counter(hostility);
    let item = |honest: &'static str| {
        // Even a hostile server sets the marker when the client asks for it. Otherwise the client would stop at
        // the handshake, and would never read the other hostile answers.
        let said = match hostility {
            Hostility::OtherAnswer if honest != "marked" => {
                let next = OTHER_ANSWERS.iter().position(|other| *other == honest).map_or(0, |at| at + 1);
                OTHER_ANSWERS[next % OTHER_ANSWERS.len()]
            }
            Hostility::Done if honest != "marked" => "done",
            _ => honest,
        };
        match said {
            "count" => format!(":{counter}\r\n").into_bytes(),
            "granted" => array(&[bulk("granted"), bulk(&counter), bulk("b:1:")]),
            "queued" => array(&[bulk("queued"), bulk("0")]),
            "state" => array(&[bulk("state"), bulk("-2"), bulk(""), bulk(""), bulk("")]),
            "done" => array(&[bulk("done"), bulk("d:7:1:::yours")]),
            "ledger" => page(hostility, first),
            "pruned" => array(&[bulk("pruned"), next(hostility, first)]),
            // The test of the scripts names two nodes.
            "stamps" => array(&[bulk("stamps"), bulk("2"), bulk("7")]),
            "refused" => array(&[bulk("refused"), bulk("failed"), bulk("it does not apply")]),
            word => bulk(word),
        }
    };
    let mut parts = vec![bulk(&now)];
    parts.extend(replies.into_iter().map(item));
    array(&parts)
}

/// Returns the counter after a grant.
fn counter(hostility: Hostility) -> String {
    match hostility {
        Hostility::HugeCounter => "9007199254740993".to_owned(),
        Hostility::NanCounter => "nan".to_owned(),
        Hostility::NegativeCounter => "-1".to_owned(),
        _ => SystemWorld.wall().as_micros().to_string(),
    }
}

fn time(hostility: Hostility) -> Vec<u8> {
    let now = SystemWorld.wall().as_micros();
    match hostility {
        Hostility::NegativeTime => array(&[bulk("-5"), bulk("-5")]),
        Hostility::EndOfTime => array(&[bulk("18446744073709551615"), bulk("999999")]),
        _ => array(&[bulk(&(now / 1_000_000).to_string()), bulk(&(now % 1_000_000).to_string())]),
    }
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn push(parts: &[Vec<u8>]) -> Vec<u8> {
    [format!(">{}\r\n", parts.len()).into_bytes(), parts.concat()].concat()
}

fn array(parts: &[Vec<u8>]) -> Vec<u8> {
    [format!("*{}\r\n", parts.len()).into_bytes(), parts.concat()].concat()
}

//! Parses the most common replies of scripts directly from the bytes. Every other reply is decoded by the `redis`
//! crate and parsed by [`reply`](crate::reply), with the same result.

use crate::{
    reply,
    resp_values::{Stop, Values, digits},
    wire::Parsed,
};
use quorate::node::{NodeTime, Reply};

/// Parses the reply to a script call of `items` items, and appends the replies to the items to `replies`. The result
/// is the time of the node's clock.
pub(crate) fn parse(bytes: &[u8], items: usize, replies: &mut Vec<Reply>) -> Parsed<NodeTime> {
    let before = replies.len();
    let mut values = Values { bytes, at: 0 };
    match values.reply(items, replies) {
        Ok(node_time) => Parsed::Reply { length: values.at, reply: node_time },
        Err(stop) => {
            replies.truncate(before);
            match stop {
                Stop::Incomplete => Parsed::Incomplete,
                Stop::Other => Parsed::Other,
            }
        }
    }
}

impl Values<'_> {
    fn reply(&mut self, items: usize, replies: &mut Vec<Reply>) -> Result<NodeTime, Stop> {
        if items == 0 || self.number(b'*')? != items as u64 + 1 {
            return Err(Stop::Other);
        }
        let node_time = digits(self.text()?)?;
        for _ in 0..items {
            let reply = self.item()?;
            replies.push(reply);
        }
        Ok(NodeTime::from_micros(node_time))
    }

    fn item(&mut self) -> Result<Reply, Stop> {
        match self.bytes.get(self.at) {
            None => Err(Stop::Incomplete),
            Some(b':') => reply::granted(self.number(b':')?).ok_or(Stop::Other),
            Some(b'$') => match self.text()? {
                "freed" => Ok(Reply::Released(true)),
                "absent" => Ok(Reply::Released(false)),
                "extended" => Ok(Reply::Extended),
                "completed" => Ok(Reply::Completed),
                "counted" => Ok(Reply::Counted),
                "written" => Ok(Reply::Written),
                "kept" => Ok(Reply::Kept),
                _ => Err(Stop::Other),
            },
            Some(_) => match (self.number(b'*')?, self.text()?) {
                (3, "held") => {
                    let (owner, left) = (self.text()?, self.text()?);
                    let remaining =
                        if left == "-1" { None } else { Some(reply::remaining_of(digits(left)?)) };
                    Ok(Reply::Held { owner: reply::owner(owner), remaining })
                }
                (2, "done") => reply::done(self.text()?).map(Reply::Done).ok_or(Stop::Other),
                (5, "ledger") => self.first_page(),
                _ => Err(Stop::Other),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{probe, reply::ExpectedReply};

    /// Returns the reply by the decoder of the `redis` crate.
    fn decoded(bytes: &[u8], items: usize) -> Option<(NodeTime, Vec<Reply>)> {
        let (mut values, _) = probe::values(bytes, usize::MAX);
        values.truncate(1);
        let reply = reply::read(values, &[ExpectedReply::Items(items)]).ok()?;
        Some((reply.node_time, reply.replies))
    }

    fn short(bytes: &[u8], items: usize) -> (Parsed<NodeTime>, Vec<Reply>) {
        let mut replies = Vec::new();
        (parse(bytes, items, &mut replies), replies)
    }

    const COMMON: [&str; 13] = [
        ":5",
        "$5\r\nfreed",
        "$6\r\nabsent",
        "$8\r\nextended",
        "$9\r\ncompleted",
        "$7\r\ncounted",
        "$7\r\nwritten",
        "$4\r\nkept",
        "*3\r\n$4\r\nheld\r\n$3\r\nw:1\r\n$2\r\n99",
        "*3\r\n$4\r\nheld\r\n$2\r\n\u{fc}\r\n$2\r\n-1",
        "*2\r\n$4\r\ndone\r\n$10\r\nd:7:9:ab::",
        "*5\r\n$6\r\nledger\r\n$0\r\n\r\n$1\r\n7\r\n$1\r\n0\r\n*0",
        PAGE,
    ];

    /// A page with a record that the server returned twice.
    const PAGE: &str = "*5\r\n$6\r\nledger\r\n$2\r\n12\r\n$1\r\n7\r\n$1\r\n3\r\n*2\r\n\
                        *6\r\n$3\r\nr:b\r\n$7\r\n9:7:0:x\r\n$1\r\nt\r\n$1\r\n7\r\n$3\r\nr:a\r\n$6\r\n9:7:1:\r\n\
                        *2\r\n$3\r\nr:b\r\n$7\r\n9:7:0:y";

    fn reply_of(items: &[&str]) -> Vec<u8> {
        format!("*{}\r\n$2\r\n17\r\n{}\r\n", items.len() + 1, items.join("\r\n")).into_bytes()
    }

    #[test]
    fn a_common_reply_is_parsed_as_the_decoder_does_and_never_before_its_end() {
        for count in 1..=COMMON.len() {
            for items in COMMON.windows(count) {
                let bytes = reply_of(items);
                let followed = [&bytes[..], b"*1\r\n"].concat();
                let (parsed, replies) = short(&followed, count);
                let node_time = NodeTime::from_micros(17);
                assert_eq!(parsed, Parsed::Reply { length: bytes.len(), reply: node_time }, "{items:?}");
                assert_eq!(Some((node_time, replies)), decoded(&bytes, count), "{items:?}");
                for end in 0..bytes.len() {
                    assert_eq!(
                        short(&bytes[..end], count),
                        (Parsed::Incomplete, Vec::new()),
                        "{end} bytes of {items:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_other_reply_is_left_to_the_decoder() {
        let uncommon = [
            ":-1",
            ":9223372036854775808",
            "$6\r\nraised",
            "+freed",
            "$5\r\nfreedom",
            "*2\r\n$7\r\ngranted\r\n$1\r\n5",
            "*3\r\n$4\r\nheld\r\n$1\r\n\u{fc}\r\n$2\r\n99",
            "*3\r\n$4\r\nheld\r\n$1\r\nx\r\n$1\r\n-",
            "*2\r\n$4\r\ndone\r\n$1\r\nx",
            "*2\r\n$7\r\nrefused\r\n$5\r\nstale",
            "_",
            "*5\r\n$6\r\nledger\r\n$1\r\nx\r\n$1\r\n7\r\n$1\r\n0\r\n*0",
            "*5\r\n$6\r\nledger\r\n$0\r\n\r\n$1\r\n7\r\n$1\r\n0\r\n*1\r\n*1\r\n$1\r\nt",
            "*5\r\n$6\r\nledger\r\n$0\r\n\r\n$1\r\n7\r\n$1\r\n0\r\n*1\r\n*2\r\n$1\r\nx\r\n$1\r\n1",
            "*5\r\n$6\r\nledger\r\n$0\r\n\r\n$1\r\n7\r\n$1\r\n0\r\n*1\r\n*2\r\n$3\r\nr:a\r\n$1\r\n1",
            "$-1",
            ":000000000000000000000000000001",
        ];
        for item in uncommon {
            assert_eq!(short(&reply_of(&[item]), 1), (Parsed::Other, Vec::new()), "{item:?}");
            assert_eq!(short(&reply_of(&[":5", item]), 2), (Parsed::Other, Vec::new()), "{item:?}");
        }
        for bytes in [
            "-ERR no\r\n",
            ">3\r\n",
            "*3\r\n$2\r\n17\r\n:5\r\n",
            "*2\r\n:17\r\n:5\r\n",
            "*2\n$2\n17\n:5\n:6\n:7\n:8\n:9\n",
        ] {
            assert_eq!(short(bytes.as_bytes(), 1).0, Parsed::Other, "{bytes:?}");
        }
    }

    /// Checks that a change of any byte never leads to another reply than that of the decoder.
    #[test]
    fn a_changed_byte_gives_no_other_reply_than_that_of_the_decoder() {
        let bytes = reply_of(&COMMON);
        for at in 0..bytes.len() {
            for byte in [b'0', b'9', b'-', b':', b'$', b'*', b'\r', b'\n', b'x', 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                let (parsed, replies) = short(&changed, COMMON.len());
                if let Parsed::Reply { reply: node_time, .. } = parsed {
                    assert_eq!(Some((node_time, replies)), decoded(&changed, COMMON.len()), "{byte} at {at}");
                }
            }
        }
    }
}

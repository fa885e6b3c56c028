use super::fit_to_print;
use quorate::node::{Refusal, Reply};
use quorate::redis::probe::{self, ExpectedReply};

pub(super) const REPLIES: &[&str] = &[
    "\u{1}",
    "\u{2}",
    "*2\r\n",
    "*3\r\n",
    "*1\r\n",
    "*6\r\n",
    "*0\r\n",
    "*-1\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "$1\r\n5\r\n",
    "$2\r\n-1\r\n",
    "$2\r\n-2\r\n",
    "$7\r\ngranted\r\n",
    "$4\r\nheld\r\n",
    "$5\r\nstate\r\n",
    "$6\r\nledger\r\n",
    "$5\r\nfreed\r\n",
    "$6\r\nabsent\r\n",
    ":7\r\n",
    "$1\r\n1\r\n",
    "$4\r\ndone\r\n",
    "$7\r\nrefused\r\n",
    "$9\r\nwrongtype\r\n",
    "$6\r\nfailed\r\n",
    "$6\r\nmarker\r\n",
    "$8\r\nstanding\r\n",
    "$9\r\n1:2:0:val\r\n",
    "$3\r\nr:k\r\n",
    "$18\r\nc:99:1:99:0:0::wkr\r\n",
    "$25\r\nc:9:18446744073709551616:\r\n",
    "$14\r\nc:9:1:9:0:0:x:\r\n",
    "+QUEUED\r\n",
    "*2\r\n$1\r\n5\r\n$1\r\n6\r\n",
    "$1\r\nw\r\n",
    "$20\r\n18446744073709551615\r\n",
    "$20\r\n99999999999999999999\r\n",
    "$3\r\n\u{7}\u{1b}[\r\n",
    "$1152921504606846976\r\n",
    "*1152921504606846976\r\n",
    "%1\r\n",
    "|0\r\n",
    ">2\r\n",
    "~1\r\n",
    "_\r\n",
    ",nan\r\n",
    "(99999999999999999999\r\n",
    "#t\r\n",
    "=8\r\ntxt:text\r\n",
    "!3\r\nERR\r\n",
    "-ERR \u{1b}[2J\r\n",
    "-NOSCRIPT x\r\n",
    "-\r\n",
    "+OK\r\n",
    "+\u{7}\r\n",
    ":-9223372036854775808\r\n",
    ":9223372036854775807\r\n",
    "\r\n",
    "$",
    "*",
    "-",
    "9",
    "3",
];

pub(super) const HANDSHAKE: &[&str] = &[
    "+OK\r\n",
    "$58\r\nrun_id:abc\r\nrole:master\r\nuptime_in_seconds:5\r\nredis_version:7\r\n",
    "*2\r\n$1\r\n5\r\n$1\r\n6\r\n",
    "$-1\r\n",
    "*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n",
    "$40\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    "-ERR unknown command AUTH hunter2-hunter2\r\n",
    "-WRONGPASS \u{1b}]0;x\u{7}\r\n",
    "-NOAUTH\r\n",
    "-ERR AUTH\r\n",
    "-\r\n",
    ":1\r\n",
    "*0\r\n",
    "*-1\r\n",
    "$0\r\n\r\n",
    "$47\r\nrun_id:\u{1b}[2J\r\nrole:slave\r\nuptime_in_seconds:1\r\n\r\n",
    "$31\r\nuptime_in_seconds:-1\r\nrole:x\r\n\r\n",
    "*2\r\n$20\r\n18446744073709551615\r\n$1\r\n1\r\n",
    "\u{7}",
    ">1\r\n",
    "$99999999999\r\n",
];

/// Reads bytes from a server as the replies to a batch. The result must be a reply to each request, or a cause
/// that can be printed safely.
pub fn replies(bytes: &[u8]) {
    let Some((&shape, said)) = bytes.split_first() else { return };
    let runs: Vec<usize> =
        (0..=usize::from(shape >> 4) % 3).map(|n| usize::from(shape >> (n * 2)) % 4).collect();
    // Some commands are preceded by HSCAN, whose reply is a page for the last item of the command.
    let page = |n: usize| shape & (1 << (n + 4)) != 0;
    let before = |n: usize| page(n).then_some(ExpectedReply::Page);
    let is_transaction = shape & 12 == 12;
    let mut position = 0;
    let of_run = |(n, items): (usize, &usize)| {
        // Every second acquire is one of a claim.
        let claims = (position..position + items).filter(|position| position % 2 == 1).count();
        position += items;
        let locks = items - claims;
        // MULTI, SET and INCRBY for each lock, SET for each claim, EXISTS if there is a lock, GET and TIME.
        let commands = 3 + 2 * locks + claims + usize::from(locks > 0);
        let reply = match is_transaction {
            true => ExpectedReply::Commands { acquires: *items, commands },
            false => ExpectedReply::Items(*items),
        };
        before(n).into_iter().chain([reply])
    };
    let expected: Vec<ExpectedReply> = runs.iter().enumerate().flat_map(of_run).collect();
    let whole = probe::replies(said, usize::MAX, &expected);
    if said.len() < 4_096 {
        let piece = 1 + usize::from(shape % 7);
        assert_eq!(whole, probe::replies(said, piece, &expected), "in pieces of {piece}");
    }
    match whole {
        Ok(reply) => {
            assert_eq!(reply.replies.len(), runs.iter().sum::<usize>(), "one reply a request");
            reply.replies.iter().for_each(is_bounded);
        }
        Err(cause) => fit_to_print(&cause.to_string()),
    }
}

fn is_bounded(reply: &Reply) {
    match reply {
        Reply::Refused(refusal @ (Refusal::WrongType(_) | Refusal::Failed(_) | Refusal::Unable(_)))
        | Reply::MayHold(refusal) => {
            fit_to_print(&refusal.to_string());
        }
        Reply::Held { owner, .. } | Reply::State { holder: Some((owner, _)), .. } => {
            assert!(owner.as_str().len() <= 1024, "an owner of {} bytes", owner.as_str().len());
        }
        Reply::Ledger(page) => assert!(page.is_bounded(), "{page:?}"),
        _ => {}
    }
}

/// Reads bytes from a server as the replies to a handshake. The result must be a `Hello` or a cause, and both
/// must be safe to print.
pub fn handshake(bytes: &[u8]) {
    const PASSWORD: &str = "hunter2-hunter2";
    match probe::handshake(bytes, PASSWORD) {
        Ok(hello) => {
            for fact in
                [Some(&hello.run_id), Some(&hello.version), hello.eviction.as_ref()].into_iter().flatten()
            {
                assert!(fact.len() <= 1024 && !fact.contains(char::is_control), "{fact:?}");
            }
            assert!(!hello.run_id.is_empty(), "every run has an id");
        }
        Err(cause) => {
            fit_to_print(&cause.to_string());
            assert!(!cause.to_string().contains(PASSWORD), "{cause}");
        }
    }
}

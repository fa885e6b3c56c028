use crate::{
    command::{Command, cmd},
    keys::Keys,
};
use quorate::node::Batch;

/// The length of the lists of arguments that items of a call share. Unused elements at the end of a list are zero.
const SHARED: usize = 4;

/// The position of the first item's first key in KEYS, counted from 1. The marker's key comes before it.
const FIRST_ITEM_KEY: usize = 2;

/// A script call that is built item by item. `head.lua` describes its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    /// The keys of the items, except for those of their queues.
    pub(crate) keys: Command,
    pub(crate) queues: Command,
    pub(crate) args: Command,
    /// The letter of each item's script, followed by the digit of its list of shared arguments.
    letters: String,
    /// The lists of arguments that the items probably have in common, such as the TTL. Each different list is sent once.
    lists: Vec<[u64; SHARED]>,
}

impl Call {
    /// Returns a call without items, with capacity for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let [keys, args] = [bytes / 2, bytes / 2].map(Command::with_capacity);
        Self { keys, queues: Command::default(), args, letters: String::new(), lists: Vec::new() }
    }

    /// Returns the number of items.
    pub(crate) fn items(&self) -> usize {
        self.letters.len() / 2
    }

    /// Begins an item whose script has this letter. The caller adds the item's keys and arguments.
    pub(crate) fn kind(&mut self, letter: char) -> &mut Self {
        self.letters.extend([letter, '0']);
        self
    }

    /// Begins an item whose script has this letter, and which shares the arguments in `list` with other items.
    pub(crate) fn shared(&mut self, letter: char, list: [u64; SHARED]) {
        let at = self.lists.iter().position(|other| *other == list).unwrap_or_else(|| {
            self.lists.push(list);
            self.lists.len() - 1
        });
        // A call has at most 64 items, so the number is small.
        let digit = char::from(b'0'.saturating_add(u8::try_from(at).unwrap_or(u8::MAX)));
        self.letters.extend([letter, digit]);
    }

    /// Appends the call of the script called `name` to `bytes`. This call has no items then.
    pub(crate) fn finish(&mut self, name: &str, keys: &Keys, batch: &Batch, bytes: &mut Vec<u8>) {
        let queues = FIRST_ITEM_KEY + self.keys.count();
        let key_count = 1 + self.keys.count() + self.queues.count();
        let mut head = cmd("EVALSHA");
        head.arg(name).number(key_count as u64).arg(keys.marker());
        let mut call_args = Command::default();
        call_args
            .number(batch.not_after.as_micros())
            .arg(&batch.stamp)
            .arg(&self.letters)
            .number(queues as u64);
        let mut lists = Command::default();
        for arg in self.lists.drain(..).rev().flatten() {
            lists.number(arg);
        }
        let parts = [&mut head, &mut self.keys, &mut self.queues, &mut call_args, &mut self.args, &mut lists];
        Command::finish_all(parts, bytes);
        self.letters.clear();
    }
}

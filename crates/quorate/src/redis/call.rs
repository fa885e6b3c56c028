use crate::node::Batch;
use crate::redis::{
    command::{Command, cmd},
    keys::{Key, Keys},
};

/// The length of the lists of arguments that items of a call share. Unused elements at the end of a list are zero.
const SHARED: usize = 4;

/// A script call that is built item by item. `head.lua` describes its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    keys: Command,
    args: Command,
    /// The letter of each item's script, followed by the digit of its list of shared arguments.
    letters: String,
    /// The lists of arguments that the items probably have in common, such as the TTL. Each different list is sent once.
    lists: Vec<[u64; SHARED]>,
}

impl Call {
    /// Returns a call without items, with capacity for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let [keys, args] = [bytes / 2, bytes / 2].map(Command::with_capacity);
        Self { keys, args, letters: String::new(), lists: Vec::new() }
    }

    pub(crate) fn items(&self) -> usize {
        self.letters.len() / 2
    }

    /// Begins an item on `keys` whose script has this letter. Returns the arguments, to which the caller adds those of the
    /// item.
    pub(crate) fn item<const N: usize>(&mut self, letter: char, keys: [Key<'_>; N]) -> &mut Command {
        self.begin(letter, 0, keys)
    }

    /// Begins an item like [`Call::item`], which shares the arguments in `list` with other items.
    pub(crate) fn sharing<const N: usize>(
        &mut self,
        letter: char,
        list: [u64; SHARED],
        keys: [Key<'_>; N],
    ) -> &mut Command {
        let at = self.lists.iter().position(|other| *other == list).unwrap_or_else(|| {
            self.lists.push(list);
            self.lists.len() - 1
        });
        self.begin(letter, at, keys)
    }

    fn begin<const N: usize>(&mut self, letter: char, list: usize, keys: [Key<'_>; N]) -> &mut Command {
        // A call has at most 64 items, so the number is small.
        let digit = char::from(b'0'.saturating_add(u8::try_from(list).unwrap_or(u8::MAX)));
        self.letters.extend([letter, digit]);
        for key in keys {
            self.keys.joined(key);
        }
        &mut self.args
    }

    /// Appends the call of the script called `name` to `bytes`. This call has no items then.
    pub(crate) fn finish(&mut self, name: &str, keys: &Keys, batch: &Batch, bytes: &mut Vec<u8>) {
        let key_count = 1 + self.keys.count();
        let mut head = cmd("EVALSHA");
        head.arg(name).number(key_count as u64).joined(keys.marker());
        let mut call_args = Command::default();
        call_args.number(batch.not_after.as_micros()).arg(&batch.stamp).arg(&self.letters);
        let mut lists = Command::default();
        for arg in self.lists.drain(..).rev().flatten() {
            lists.number(arg);
        }
        let parts = [&mut head, &mut self.keys, &mut call_args, &mut self.args, &mut lists];
        Command::finish_all(parts, bytes);
        self.letters.clear();
    }
}

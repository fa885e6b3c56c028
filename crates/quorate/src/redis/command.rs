use std::time::Duration;

/// Begins a command with this name.
pub(crate) fn cmd(name: &str) -> Command {
    let mut command = Command::default();
    command.arg(name);
    command
}

/// A command in RESP, the encoding of the Redis protocol. A command is built argument by argument.
#[derive(Debug, Default)]
pub(crate) struct Command {
    bytes: Vec<u8>,
    count: usize,
}

impl Command {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// Adds a text.
    pub(crate) fn arg(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.joined([text.as_ref()])
    }

    /// Adds each of these texts.
    pub(crate) fn args<T: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = T>) -> &mut Self {
        texts.into_iter().for_each(|text| {
            self.arg(text);
        });
        self
    }

    /// Adds the text that consists of these parts.
    pub(crate) fn joined<const N: usize>(&mut self, parts: [&str; N]) -> &mut Self {
        self.count += 1;
        write_header(&mut self.bytes, b'$', parts.iter().map(|part| part.len() as u64).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: impl Into<u64>) -> &mut Self {
        self.arg(Digits::new().of(number.into()))
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Appends the finished command to `bytes`. The command is empty then.
    pub(crate) fn finish(&mut self, bytes: &mut Vec<u8>) {
        Self::finish_all([self], bytes);
    }

    /// Appends the command that consists of these parts to `bytes`. The parts are empty then.
    pub(crate) fn finish_all<const N: usize>(parts: [&mut Self; N], bytes: &mut Vec<u8>) {
        write_header(bytes, b'*', parts.iter().map(|part| part.count as u64).sum());
        for part in parts {
            bytes.append(&mut part.bytes);
            part.count = 0;
        }
    }

    /// Returns the bytes of the finished command. The command is empty then.
    pub(crate) fn packed(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.finish(&mut bytes);
        bytes
    }
}

fn write_header(bytes: &mut Vec<u8>, kind: u8, number: u64) {
    bytes.push(kind);
    bytes.extend_from_slice(Digits::new().of(number).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

/// A buffer for the decimal digits of a number.
struct Digits([u8; 20]);

impl Digits {
    fn new() -> Self {
        Self([b'0'; 20])
    }

    fn of(&mut self, mut number: u64) -> &str {
        let mut at = self.0.len();
        loop {
            at -= 1;
            self.0[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        std::str::from_utf8(&self.0[at..]).unwrap_or_default()
    }
}

/// The longest time to live, in milliseconds. The server adds it to its clock, and the sum must not overflow.
pub(crate) const MS_MAX: u64 = 1 << 52;

/// Returns a time in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a time to live in milliseconds. The time is rounded up, so that a key never expires before its
/// lease. The result is at least 1, because a server refuses zero.
pub(crate) fn millis(time: Duration) -> u64 {
    let up = time.as_nanos().div_ceil(1_000_000).clamp(1, MS_MAX.into());
    u64::try_from(up).unwrap_or(MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_same_bytes_as_that_of_the_redis_crate() {
        let numbers = [0, 7, 10, 99, 1_795_257_228_186_981, u64::MAX];
        let mut theirs = redis::cmd("EVALSHA");
        let mut ours = cmd("EVALSHA");
        for number in numbers {
            theirs.arg(number);
            ours.number(number);
        }
        theirs.arg("").arg("{p:ü}:fence").arg(&["a", "b"]);
        ours.arg(String::new()).joined(["{", "p:", "ü", "}:fence"]).args(["a", "b"]);
        let mut bytes = b"before".to_vec();
        ours.finish(&mut bytes);
        assert_eq!(bytes, [b"before".to_vec(), theirs.get_packed_command()].concat());
        assert_eq!(ours.arg("TIME").packed(), b"*1\r\n$4\r\nTIME\r\n", "the second command begins empty");
        let (mut parts, mut bytes) = ([cmd("GET"), cmd("k")], Vec::new());
        Command::finish_all(parts.each_mut(), &mut bytes);
        assert_eq!(bytes, redis::cmd("GET").arg("k").get_packed_command());
    }
}

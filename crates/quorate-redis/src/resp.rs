use std::fmt::Write as _;

/// A command in RESP, the encoding of the Redis protocol. A command is built argument by argument. The
/// builder of the `redis` crate is slower, because it copies the arguments three more times, and needs a
/// string for every key and number.
#[derive(Debug, Default)]
pub(crate) struct RespCommand {
    bytes: Vec<u8>,
    count: usize,
}

impl RespCommand {
    /// Returns an empty command with capacity for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    /// Adds an argument.
    pub(crate) fn arg(&mut self, arg: impl RespArg) -> &mut Self {
        self.count += 1;
        arg.write(&mut self.bytes);
        self
    }

    /// Appends the finished command to `bytes`, and begins a new one.
    pub(crate) fn finish(&mut self, bytes: &mut Vec<u8>) {
        write_header(bytes, b'*', self.count);
        bytes.append(&mut self.bytes);
        self.count = 0;
    }
}

/// An argument of a command.
pub(crate) trait RespArg {
    /// Appends the argument with its length.
    fn write(self, bytes: &mut Vec<u8>);
}

impl RespArg for &str {
    fn write(self, bytes: &mut Vec<u8>) {
        Joined([self]).write(bytes);
    }
}

impl RespArg for &String {
    fn write(self, bytes: &mut Vec<u8>) {
        self.as_str().write(bytes);
    }
}

impl RespArg for String {
    fn write(self, bytes: &mut Vec<u8>) {
        self.as_str().write(bytes);
    }
}

/// An argument that is made by joining these parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined<'a, const N: usize>(pub(crate) [&'a str; N]);

impl<const N: usize> RespArg for Joined<'_, N> {
    fn write(self, bytes: &mut Vec<u8>) {
        write_header(bytes, b'$', self.0.iter().map(|part| part.len()).sum());
        self.0.iter().for_each(|part| bytes.extend_from_slice(part.as_bytes()));
        bytes.extend_from_slice(b"\r\n");
    }
}

impl RespArg for u64 {
    fn write(self, bytes: &mut Vec<u8>) {
        let mut digits = Digits::new();
        digits.of(self).write(bytes);
    }
}

impl RespArg for usize {
    fn write(self, bytes: &mut Vec<u8>) {
        (self as u64).write(bytes);
    }
}

impl RespArg for u8 {
    fn write(self, bytes: &mut Vec<u8>) {
        u64::from(self).write(bytes);
    }
}

impl RespArg for u128 {
    fn write(self, bytes: &mut Vec<u8>) {
        match u64::try_from(self) {
            Ok(small) => small.write(bytes),
            Err(_) => {
                let mut text = String::new();
                let _ = write!(text, "{self}");
                text.write(bytes);
            }
        }
    }
}

fn write_header(bytes: &mut Vec<u8>, kind: u8, number: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(Digits::new().of(number as u64).as_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_same_bytes_as_that_of_the_redis_crate() {
        let numbers = [0, 7, 10, 99, 1_795_257_228_186_981, u64::MAX];
        let mut theirs = redis::cmd("EVALSHA");
        let mut ours = RespCommand::default();
        ours.arg("EVALSHA");
        for number in numbers {
            theirs.arg(number);
            ours.arg(number);
        }
        theirs.arg("").arg("{p:ü}:fence").arg(u128::MAX.to_string()).arg(3_usize).arg(1_u8);
        ours.arg(String::new())
            .arg(Joined(["{", "p:", "ü", "}:fence"]))
            .arg(u128::MAX)
            .arg(3_usize)
            .arg(1_u8);
        let mut bytes = b"before".to_vec();
        ours.finish(&mut bytes);
        assert_eq!(bytes, [b"before".to_vec(), theirs.get_packed_command()].concat());
        ours.arg("TIME").finish(&mut bytes);
        assert!(bytes.ends_with(b"*1\r\n$4\r\nTIME\r\n"), "the second command begins empty");
    }
}

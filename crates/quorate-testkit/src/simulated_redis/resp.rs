use super::key_space::Bytes;

/// A reply of the server, before it is encoded.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A status, such as OK.
    Status(&'static str),
    /// A status that a script made.
    StatusText(Vec<u8>),
    /// An error. The first word is its code.
    Error(String),
    /// An integer.
    Int(i64),
    /// A string.
    Bulk(Bytes),
    /// No value.
    Nil,
    /// A list.
    Array(Vec<Reply>),
    /// Pairs: a list in RESP2.
    Map(Vec<(Reply, Reply)>),
    /// A long text, which RESP3 marks as text.
    Verbatim(String),
    /// A message that is no reply.
    Push(Vec<Reply>),
}

impl Reply {
    pub(super) const OK: Self = Self::Status("OK");

    pub(super) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().into())
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn wrong_type() -> Self {
        Self::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(super) fn count(number: usize) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// Appends the reply's bytes to `out`, in RESP3 if `resp3` is true, else in RESP2.
    pub fn write(&self, resp3: bool, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::StatusText(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text.replace(['\r', '\n'], " ").as_bytes()),
            Self::Int(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len().to_string().as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil if resp3 => line(out, b'_', b""),
            Self::Nil => line(out, b'$', b"-1"),
            Self::Array(parts) => list(out, b'*', resp3, parts),
            Self::Push(parts) => list(out, if resp3 { b'>' } else { b'*' }, resp3, parts),
            Self::Map(pairs) => {
                let (kind, count) = if resp3 { (b'%', pairs.len()) } else { (b'*', 2 * pairs.len()) };
                line(out, kind, count.to_string().as_bytes());
                for (key, value) in pairs {
                    key.write(resp3, out);
                    value.write(resp3, out);
                }
            }
            Self::Verbatim(text) if resp3 => {
                line(out, b'=', (text.len() + 4).to_string().as_bytes());
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => Self::bulk(text).write(resp3, out),
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, kind: u8, resp3: bool, parts: &[Reply]) {
    line(out, kind, parts.len().to_string().as_bytes());
    parts.iter().for_each(|part| part.write(resp3, out));
}

/// The words of a command, and the number of bytes that it takes.
type Command<'a> = (Vec<&'a [u8]>, usize);

/// Returns the first command in `bytes`, and the number of its bytes. Returns `None` if the command is not
/// complete yet.
///
/// # Errors
/// The bytes are no command.
pub(super) fn command(bytes: &[u8]) -> Result<Option<Command<'_>>, String> {
    let mut at = 0;
    let Some(count) = header(bytes, &mut at, b'*')? else { return Ok(None) };
    let mut args = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = header(bytes, &mut at, b'$')? else { return Ok(None) };
        let Some(arg) = bytes.get(at..at + length) else { return Ok(None) };
        match bytes.get(at + length..at + length + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err("an argument that is longer than its length".into()),
        }
        args.push(arg);
        at += length + 2;
    }
    Ok(Some((args, at)))
}

/// Reads a line with a number, and moves `at` behind it.
fn header(bytes: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, String> {
    let rest = &bytes[*at..];
    let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&rest[..end]).unwrap_or_default();
    let number = text.strip_prefix(char::from(kind)).and_then(|number| number.parse().ok());
    *at += end + 2;
    number.map(Some).ok_or_else(|| format!("{text:?} in place of {}NUMBER", char::from(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_parsed_once_it_is_complete() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n";
        for end in 0..21 {
            assert_eq!(command(&bytes[..end]), Ok(None), "{end} bytes");
        }
        assert_eq!(command(bytes), Ok(Some((vec![&b"GET"[..], b"\r\n"], 21))));
        assert!(command(b"GET x\r\n").is_err());
        assert!(command(b"*1\r\n$1\r\nabc\r\n").is_err());
    }

    #[test]
    fn a_reply_has_the_bytes_of_its_protocol() {
        let reply = Reply::Array(vec![
            Reply::OK,
            Reply::error("ERR a\r\nb"),
            Reply::Int(-2),
            Reply::bulk("x"),
            Reply::Nil,
            Reply::Map(vec![(Reply::bulk("a"), Reply::Verbatim("b".into()))]),
        ]);
        let (mut two, mut three) = (Vec::new(), Vec::new());
        reply.write(false, &mut two);
        reply.write(true, &mut three);
        let begin = "*6\r\n+OK\r\n-ERR a  b\r\n:-2\r\n$1\r\nx\r\n";
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!(text(two), format!("{begin}$-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"));
        assert_eq!(text(three), format!("{begin}_\r\n%1\r\n$1\r\na\r\n=5\r\ntxt:b\r\n"));
    }
}

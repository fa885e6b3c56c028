use std::io::{self, BufRead, Read};

/// The longest argument of a command that a client of Quorate sends.
const WORD_MAX: usize = 1 << 20;

/// Reads the next command, an array of strings. Returns `None` if the client has closed.
pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Vec<Vec<u8>>>> {
    let Some(words) = length(from, b'*')? else { return Ok(None) };
    let mut command = Vec::new();
    for _ in 0..words {
        let Some(bytes) = length(from, b'$')? else { return Ok(None) };
        let mut word = vec![0; bytes + 2];
        from.read_exact(&mut word)?;
        word.truncate(bytes);
        command.push(word);
    }
    Ok(Some(command))
}

fn length(from: &mut impl BufRead, kind: u8) -> io::Result<Option<usize>> {
    let mut line = Vec::new();
    from.take(32).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(char::from(kind)));
    let number = text.and_then(|text| text.trim_end().parse().ok()).filter(|number| *number <= WORD_MAX);
    number.map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

//! Parses the arguments of commands.

use super::Reply;

pub(super) fn syntax_error() -> Reply {
    Reply::error("ERR syntax error")
}

pub(super) fn not_an_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

/// Parses an integer as a server does: no sign but a minus, no leading zero, no space.
pub(super) fn integer(arg: &[u8]) -> Result<i64, Reply> {
    let number = std::str::from_utf8(arg).ok().and_then(|text| text.parse::<i64>().ok());
    // Only the text that the number is written as is accepted: this excludes +1, 01 and -0.
    number.filter(|number| number.to_string().as_bytes() == arg).ok_or_else(not_an_integer)
}

/// Parses a score or a bound: a decimal number or an infinity.
pub(super) fn double(arg: &[u8]) -> Result<f64, Reply> {
    let bad = || Reply::error("ERR value is not a valid float");
    let text = std::str::from_utf8(arg).map_err(|_| bad())?;
    let lower = text.to_ascii_lowercase();
    match &*lower {
        "inf" | "+inf" | "infinity" => Ok(f64::INFINITY),
        "-inf" | "-infinity" => Ok(f64::NEG_INFINITY),
        _ => text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(bad),
    }
}

/// Returns whether `arg` is the option `name`, in any case.
pub(super) fn is(arg: &[u8], name: &str) -> bool {
    arg.eq_ignore_ascii_case(name.as_bytes())
}

/// Returns the text of a score, with at most 17 digits.
pub(super) fn double_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if number.abs() < 1e17 {
        return format!("{number}");
    }
    let text = format!("{number:.16e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}e+{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written_as_by_a_server() {
        assert_eq!(integer(b"-9223372036854775808"), Ok(i64::MIN));
        for bad in ["", "+1", "01", "-0", " 1", "1.0", "9223372036854775808"] {
            assert_eq!(integer(bad.as_bytes()), Err(not_an_integer()), "{bad:?}");
        }
        assert_eq!(double(b"-inf"), Ok(f64::NEG_INFINITY));
        assert!(double(b" 1").is_err() && double(b"nan").is_err());
        for (number, text) in [
            (1.5, "1.5"),
            (1_700_000_000_123.0, "1700000000123"),
            (9_223_372_036_854_775_807.0, "9.2233720368547758e+18"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }
}

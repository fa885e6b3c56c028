//! Parses pages of a ledger.
//!
//! A script returns the first page, since it must seal the ledger and read it at once. Each later page is read with HSCAN, and the script call that follows in the same
//! batch returns no records. For a copy, it refuses the request if a later leader has sealed the copy, or if the node has
//! lost its memory. Both are final, so they had not happened before the page was read either. A read without a seal has
//! no such check: if the node loses its memory between two pages, the rest is missing.

use crate::node::{Cause, Cursor, LedgerPage, LedgerState, PAGE_BYTES, PAGE_RECORDS, Record, Refusal, Reply};
use crate::redis::{
    fault,
    reply::{self, array, cut, number, record, shown, unexpected, unreadable, word},
    resp::Value,
};
use std::sync::Arc;

/// The name of a page for an error.
const PAGE: &str = "a page of a ledger";

/// A page without the head of its ledger. Its records are in the order of the server, and one may occur twice: the later
/// copy is the newer one.
#[derive(Debug)]
pub(crate) struct Page {
    next: Option<Cursor>,
    /// The records, or the reason why they are refused.
    records: Result<Vec<(Arc<str>, Record)>, Reply>,
}

impl Page {
    /// Parses the reply to HSCAN.
    pub(crate) fn scanned(value: &Value<'_>, secret: Option<&str>) -> Result<Self, Cause> {
        if let Value::Error(error) = value {
            // The error is a refusal of this request only.
            let text = fault::error_text(error, secret);
            return Ok(Self::refused(Reply::Refused(Refusal::Failed(shown(&text)))));
        }
        let [next, fields] = reply::pair(value, PAGE)?;
        Self::new(next, std::slice::from_ref(fields))
    }

    /// Parses a page: the cursor of HSCAN, and arrays. These contain fields of the ledger's hash in any order, each
    /// followed by its value.
    fn new(next: &Value<'_>, pieces: &[Value<'_>]) -> Result<Self, Cause> {
        let next = cursor(next)?;
        let mut records = Vec::new();
        for piece in pieces {
            if let Some(refused) = add_fields(piece, &mut records)? {
                return Ok(Self::refused(refused));
            }
        }
        Ok(Self { next: next.map(|next| with_count(next, &records)), records: Ok(records) })
    }

    fn refused(reply: Reply) -> Self {
        Self { next: None, records: Err(reply) }
    }

    /// Adds the page to the reply of the script, if the script has accepted the request.
    pub(crate) fn add_to(self, reply: &mut Reply) {
        if let Reply::Ledger(page) = reply {
            match self.records {
                Ok(records) => (page.next, page.state.records) = (self.next, records),
                Err(refused) => *reply = refused,
            }
        }
    }
}

/// Parses a script's reply: the cursor of the next page, the low-water mark, and the arrays of the page.
pub(crate) fn of_script(next: &Value<'_>, mark: &Value<'_>, pieces: &Value<'_>) -> Result<Reply, Cause> {
    let page = Page::new(next, array(pieces, PAGE)?)?;
    let Ok(low_water) = number(mark) else { return Ok(unreadable("the low-water mark of a ledger")) };
    let mut reply = Reply::Ledger(LedgerPage::from(LedgerState { low_water, records: Vec::new() }));
    page.add_to(&mut reply);
    Ok(reply)
}

/// Adds the records in an array of fields, each followed by its value. Returns the refusal if one cannot be read.
fn add_fields(fields: &Value<'_>, records: &mut Vec<(Arc<str>, Record)>) -> Result<Option<Reply>, Cause> {
    let (pairs, odd) = array(fields, PAGE)?.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(unexpected("a ledger with a field that has no value"));
    }
    for [field, value] in pairs {
        let field = word(field)?;
        match (&*field, field.strip_prefix("r:")) {
            ("w" | "l", _) => {}
            (_, Some(key)) => match record(&word(value)?) {
                Some(record) => records.push((key.into(), record)),
                None => return Ok(Some(unreadable(&format!("the record {:?} of a ledger", cut(key))))),
            },
            _ => return Ok(Some(unreadable(&format!("the field {:?} of a ledger", cut(&field))))),
        }
    }
    Ok(None)
}

/// Returns the cursor with the number of fields of the next page, if fields as long as those of this page would make it
/// longer than [`PAGE_BYTES`]. A server serves no other client while it returns a page.
fn with_count(next: Cursor, records: &[(Arc<str>, Record)]) -> Cursor {
    let bytes: usize = records.iter().map(|(key, record)| key.len() + record.value.len()).sum();
    let fitting = (records.len() * PAGE_BYTES).checked_div(bytes).unwrap_or(PAGE_RECORDS);
    if fitting >= PAGE_RECORDS { next } else { Cursor::new(format!("{}:{}", next.as_str(), fitting.max(1))) }
}

/// Returns the cursor of HSCAN at which the next page begins, and the number of its fields.
pub(crate) fn position(after: &Cursor) -> (&str, u64) {
    let (cursor, count) = after.as_str().split_once(':').unwrap_or((after.as_str(), ""));
    (cursor, count.parse().unwrap_or(PAGE_RECORDS as u64))
}

/// Parses a cursor of HSCAN, a number. It is 0 after the last page.
pub(crate) fn cursor(value: &Value<'_>) -> Result<Option<Cursor>, Cause> {
    let next = number(value)?;
    Ok((next != 0).then(|| Cursor::new(next.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FencingToken;
    use crate::redis::{encoded::ExpectedReply, probe};

    /// The reply to HSCAN with a record that the server returned twice, and with the fields of the ledger's head.
    const SCAN: &str = "*2\r\n$2\r\n12\r\n*8\r\n$3\r\nr:b\r\n$7\r\n9:7:0:x\r\n$1\r\nw\r\n$1\r\n3\r\n\
                        $3\r\nr:a\r\n$6\r\n9:7:1:\r\n$3\r\nr:b\r\n$7\r\n9:7:0:y\r\n";
    const HEAD: &str = "*2\r\n$2\r\n17\r\n*4\r\n$6\r\nledger\r\n$1\r\n0\r\n$1\r\n3\r\n*0\r\n";
    const SEALED: &str = "*2\r\n$2\r\n17\r\n*3\r\n$7\r\nrefused\r\n$6\r\nsealed\r\n$1\r\n9\r\n";

    /// Returns the reply to a request for a later page, after the server's replies to HSCAN and to the script.
    fn reply(page: &str, script: &str) -> Result<Reply, Cause> {
        let expected = [ExpectedReply::Page, ExpectedReply::Items(1)];
        let replies = probe::replies(format!("{page}{script}").as_bytes(), usize::MAX, &expected);
        replies.map(|mut reply| reply.replies.remove(0))
    }

    fn keys(reply: &Reply) -> Vec<(&str, &str)> {
        let Reply::Ledger(page) = reply else { panic!("{reply:?}") };
        page.state.records.iter().map(|(key, record)| (&**key, &*record.value)).collect()
    }

    #[test]
    fn a_later_page_has_the_records_of_the_scan_and_the_head_of_the_script() {
        let first = self::reply(SCAN, HEAD).unwrap();
        assert_eq!(keys(&first), [("b", "x"), ("a", ""), ("b", "y")], "in the order of the server");
        let Reply::Ledger(page) = first else { panic!() };
        assert_eq!(page.state.low_water, 3);
        assert_eq!(page.next, Some(Cursor::new("12")));
        let last = self::reply(&SCAN.replace("$2\r\n12", "$1\r\n0"), HEAD).unwrap();
        assert!(matches!(last, Reply::Ledger(page) if page.next.is_none()));
    }

    #[test]
    fn the_script_decides_whether_a_page_counts() {
        let by = FencingToken::new(9);
        assert_eq!(reply(SCAN, SEALED).unwrap(), Reply::Refused(Refusal::Sealed { by }));
        let damaged = SCAN.replace("9:7:1:", "9:7:2:");
        let wrong = |reply| matches!(reply, Reply::Refused(Refusal::WrongType(_)));
        assert!(wrong(reply(&damaged, HEAD).unwrap()));
        assert!(wrong(reply(&SCAN.replace("r:a", "x:a"), HEAD).unwrap()));
        assert_eq!(reply(&damaged, SEALED).unwrap(), Reply::Refused(Refusal::Sealed { by }));
        let denied = reply("-NOPERM no permission for 'hscan'\r\n", HEAD).unwrap();
        assert!(
            matches!(&denied, Reply::Refused(Refusal::Failed(why)) if why.contains("hscan")),
            "{denied:?}"
        );
        for other in ["*0\r\n", "+OK\r\n", "*2\r\n$1\r\nx\r\n*0\r\n", "*2\r\n$1\r\n1\r\n*1\r\n$1\r\nw\r\n"] {
            assert!(matches!(reply(other, HEAD), Err(Cause::Protocol(_))), "{other:?}");
        }
    }

    #[test]
    fn the_pages_of_long_records_have_fewer_of_them() {
        let value = "v".repeat(PAGE_BYTES / 8);
        let record = Record { at: 1, term: FencingToken::new(1), last: false, value: value.into() };
        let records: Vec<_> = (0..50).map(|number| (format!("k{number}").into(), record.clone())).collect();
        let next = with_count(Cursor::new("5"), &records);
        assert_eq!(position(&next), ("5", 7));
        assert_eq!(position(&with_count(Cursor::new("5"), &[])), ("5", PAGE_RECORDS as u64));
        let huge = Record { value: "v".repeat(2 * PAGE_BYTES).into(), ..record };
        assert_eq!(position(&with_count(Cursor::new("5"), &[("k".into(), huge)])), ("5", 1));
    }
}

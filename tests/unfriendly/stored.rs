use super::{fit_to_print, text};
use quorate::internals::{Marker, RunKey, RunRecord};

pub(super) const MARKER: &[&str] = &[
    "quorate-marker 3\n",
    "quorate-marker 3\r\n",
    "quorate-marker 1\n",
    "run=abc\n",
    "nodes=redis://a,redis://b\n",
    "max_ttl_us=30000000\n",
    "clock_offset_us=1000000\n",
    "clock_step_us=200000\n",
    "drift_ppb=10000000\n",
    "durable=0\n",
    "durable=2\n",
    "trust_new=1\n",
    "since_us=1\n",
    "votes_us=18446744073709551615",
    "votes_us=+5\n",
    "since_us=-1\n",
    "max_ttl_us=18446744073709551615\n",
    "run=",
    "\n",
    "\r",
    "\u{1b}",
    "=",
];

pub(super) const RECORDS: &[&str] = &[
    "{\"state\":\"started\",\"worker\":\"a\"}",
    "{\"state\":\"closed\",\"worker\":\"a\",\"end\":\"done\",\"took\":18446744073709551615,\"outcome\":\"\"}",
    "{\"state\":",
    "\"failed\"",
    ",",
    "\"worker\":",
    "\"took\":-1",
    "\"took\":1e300",
    "}",
    "{",
    "[[[[[[[[[[[[[[[[",
    "\\ud800",
    "\"",
    "tick/",
    "nightly/",
    "00001741503600000000",
    "18446744073709551615",
    "99999999999999999999",
    "/",
    "\n",
    "ü",
];

/// Reads the text of a node's marker. If the text is valid, the marker must be the same after it is written
/// and read again.
pub fn marker(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Marker::parse(text) {
        Ok(marker) => assert_eq!(Marker::parse(&marker.to_text()), Ok(marker)),
        Err(error) => fit_to_print(&error.to_string()),
    }
}

/// Reads the key of a tick's record, and its value on the next line.
pub fn records(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let (key, value) = text.split_once('\n').unwrap_or((text, text));
    match RunKey::parse(key) {
        Ok(Some(tick)) => assert_eq!(&*tick.key(), key, "a tick has one key"),
        Ok(None) => assert!(!key.starts_with("tick/")),
        Err(error) => fit_to_print(&error.to_string()),
    }
    match RunRecord::parse(value) {
        Ok(record) => {
            let written = record.to_value();
            assert_eq!(RunRecord::parse(&written), Ok(record));
        }
        Err(error) => fit_to_print(&error.to_string()),
    }
}

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quorate_fuzz::unfriendly_program::node_url(bytes));

/// The longest encoded name, in bytes. Together with `.json`, it is shorter than the 255 bytes that most file
/// systems allow.
const ENCODED_MAX: usize = 200;

/// Returns the name of the file that holds `name`. Each name, whatever its characters, has a file of its own.
///
/// Upper case is encoded too, for file systems that ignore case. A name that would be too long is cut, and a
/// hash of the full name is added. Because hashes can collide, the file also contains the full name.
pub(super) fn file_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len() + 8);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(char::from(byte)),
            _ => {
                let digit = |d: u8| char::from_digit(d.into(), 16).unwrap_or('0');
                encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
    if encoded.len() > ENCODED_MAX {
        // No encoded byte begins with "%-". So a name with a hash differs from every name without one.
        encoded.truncate(ENCODED_MAX - 40);
        encoded = format!("{encoded}%-{:032x}", fnv1a(name.as_bytes()));
    }
    encoded + ".json"
}

/// Returns the 128-bit FNV-1a hash. The hashes of the standard library may change between releases, and the
/// names of files must not.
fn fnv1a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_has_a_file_name_of_its_own_that_all_file_systems_accept() {
        let long = "x".repeat(512);
        let longer = format!("{long}y");
        let snow = "☃".repeat(170);
        let names = [
            "",
            ".",
            "..",
            "a",
            "A",
            "a/b",
            "a%2fb",
            "a\\b",
            "claim/set/id",
            "con",
            "a b",
            "ключ",
            ".json",
            "lock",
            &long,
            &longer,
            &snow,
        ];
        let files: BTreeSet<String> = names.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), names.len(), "{files:?}");
        for file in files {
            assert!(file.len() <= 210, "{file}");
            assert!(
                file.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_%.".contains(&b))
            );
        }
    }

    #[test]
    fn the_hash_matches_the_reference_vectors() {
        // The expected values are from the FNV reference vectors.
        assert_eq!(fnv1a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}

use std::collections::BTreeMap;

/// The oldest version of Redis that has every command and option of the scripts, such as `SET … PXAT`. The tests
/// run against it.
const OLDEST: (u32, u32) = (6, 2);

/// Checks that the server, of which `info` has the fields of INFO, has every command of the scripts. All releases of
/// Valkey do. A version that cannot be parsed is accepted, because other products may number their releases
/// differently.
pub(crate) fn check(info: &BTreeMap<String, String>) -> Result<(), String> {
    let Some((version, number)) = number(info) else { return Ok(()) };
    if info.contains_key("valkey_version") || number >= OLDEST {
        return Ok(());
    }
    let (major, minor) = OLDEST;
    Err(format!(
        "the server is Redis {version}, which lacks commands that leases need (SET with PXAT); \
         use Redis {major}.{minor} or later, or Valkey"
    ))
}

/// Returns whether the server certainly has `SET … NX GET`: Redis 7.0 and later, and Valkey.
pub(crate) fn has_set_nx_get(info: &BTreeMap<String, String>) -> bool {
    info.contains_key("valkey_version") || number(info).is_some_and(|(_, number)| number >= (7, 0))
}

/// Returns the version of Redis that the server reports, as text and as a number.
fn number(info: &BTreeMap<String, String>) -> Option<(&str, (u32, u32))> {
    let version = info.get("redis_version")?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((version, (parts.next()??, parts.next()??)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fields: &[(&str, &str)]) -> Result<(), String> {
        check(&fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn servers_before_6_2_are_refused_with_the_version_and_the_fix() {
        for old in ["2.8.24", "5.0.14", "6.0.20"] {
            let why = checked(&[("redis_version", old)]).unwrap_err();
            for part in [old, "PXAT", "use Redis 6.2 or later"] {
                assert!(why.contains(part), "{part}: {why}");
            }
        }
        for new in ["6.2.0", "7.0.15", "8.2.3", "10.0.0"] {
            assert_eq!(checked(&[("redis_version", new)]), Ok(()), "{new}");
        }
    }

    #[test]
    fn set_nx_get_needs_redis_7_or_valkey() {
        let has = |field: (&str, &str)| {
            has_set_nx_get(&[(field.0.to_owned(), field.1.to_owned())].into_iter().collect())
        };
        for field in [("redis_version", "7.0.0"), ("redis_version", "8.2.3"), ("valkey_version", "9.1.2")] {
            assert!(has(field), "{field:?}");
        }
        for field in
            [("redis_version", "6.2.14"), ("redis_version", "v7"), ("redis_version", ""), ("x", "7.0.0")]
        {
            assert!(!has(field), "{field:?}");
        }
    }

    #[test]
    fn another_product_with_other_numbers_is_accepted() {
        assert_eq!(checked(&[("redis_version", "5.0.0"), ("valkey_version", "9.1.2")]), Ok(()));
        for unknown in ["", "unknown", "6", "v5.0"] {
            assert_eq!(checked(&[("redis_version", unknown)]), Ok(()), "{unknown}");
        }
        assert_eq!(checked(&[]), Ok(()));
    }
}

use super::{Answer, hash_at, wrong_number};
use crate::simulated_redis::{
    Database, Reply,
    arguments::{integer, is, syntax_error},
    key_space::{Bytes, Hash, Value},
};
use std::sync::Arc;

/// The number of fields that HSCAN returns without COUNT.
const COUNT: usize = 10;

/// Changes the hash at a key, which is created if it is missing, and removed if it is empty afterwards.
fn change<T>(database: &mut Database, key: &[u8], how: impl FnOnce(&mut Hash) -> T) -> Result<T, Reply> {
    let now = database.now_ms();
    let (result, empty) = match database.keys.entry(key, now).map(|entry| &mut entry.value) {
        Some(Value::Hash(hash)) => {
            let hash = Arc::make_mut(hash);
            (how(hash), hash.len() == 0)
        }
        Some(_) => return Err(Reply::wrong_type()),
        None => {
            let mut hash = Hash::default();
            let result = how(&mut hash);
            if hash.len() > 0 {
                database.keys.set(key, Value::Hash(Arc::new(hash)), None);
            }
            (result, false)
        }
    };
    if empty {
        database.keys.remove(key);
    }
    Ok(result)
}

fn value(field: Option<&Bytes>) -> Reply {
    field.map_or(Reply::Nil, |value| Reply::Bulk(Bytes::clone(value)))
}

pub(super) fn hget(database: &mut Database, args: &[&[u8]]) -> Answer {
    Ok(value(hash_at(database, args[1])?.and_then(|hash| hash.get(args[2]))))
}

pub(super) fn hmget(database: &mut Database, args: &[&[u8]]) -> Answer {
    let hash = hash_at(database, args[1])?;
    Ok(Reply::Array(args[2..].iter().map(|field| value(hash.and_then(|hash| hash.get(field)))).collect()))
}

pub(super) fn hset(database: &mut Database, args: &[&[u8]]) -> Answer {
    let (pairs, odd) = args[2..].as_chunks::<2>();
    if !odd.is_empty() {
        return Err(wrong_number("hset"));
    }
    let set = |hash: &mut Hash| pairs.iter().filter(|[field, value]| hash.set(field, value)).count();
    change(database, args[1], set).map(Reply::count)
}

pub(super) fn hsetnx(database: &mut Database, args: &[&[u8]]) -> Answer {
    let set = |hash: &mut Hash| hash.get(args[2]).is_none() && hash.set(args[2], args[3]);
    change(database, args[1], set).map(|new| Reply::Int(i64::from(new)))
}

pub(super) fn hdel(database: &mut Database, args: &[&[u8]]) -> Answer {
    let remove = |hash: &mut Hash| args[2..].iter().filter(|field| hash.remove(field)).count();
    change(database, args[1], remove).map(Reply::count)
}

pub(super) fn hlen(database: &mut Database, args: &[&[u8]]) -> Answer {
    Ok(Reply::count(hash_at(database, args[1])?.map_or(0, Hash::len)))
}

pub(super) fn hexists(database: &mut Database, args: &[&[u8]]) -> Answer {
    let found = hash_at(database, args[1])?.is_some_and(|hash| hash.get(args[2]).is_some());
    Ok(Reply::Int(i64::from(found)))
}

pub(super) fn hgetall(database: &mut Database, args: &[&[u8]]) -> Answer {
    let Some(hash) = hash_at(database, args[1])? else { return Ok(Reply::Map(Vec::new())) };
    let pair = |(field, value): (&Bytes, &Bytes)| {
        (Reply::Bulk(Bytes::clone(field)), Reply::Bulk(Bytes::clone(value)))
    };
    Ok(Reply::Map(hash.iter().map(pair).collect()))
}

/// HSCAN key cursor [COUNT number]
pub(super) fn hscan(database: &mut Database, args: &[&[u8]]) -> Answer {
    let bad = || Reply::error("ERR invalid cursor");
    let cursor =
        std::str::from_utf8(args[2]).ok().and_then(|text| text.parse::<u64>().ok()).ok_or_else(bad)?;
    let count = match args[3..] {
        [] => COUNT,
        [option, number] if is(option, "COUNT") => {
            let number = integer(number)?;
            usize::try_from(number).ok().filter(|number| *number > 0).ok_or_else(syntax_error)?
        }
        _ => return Err(syntax_error()),
    };
    let (next, found) = hash_at(database, args[1])?.map_or((0, Vec::new()), |hash| hash.scan(cursor, count));
    let fields = found.into_iter().flat_map(|(field, value)| [Reply::Bulk(field), Reply::Bulk(value)]);
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(fields.collect())]))
}

use super::{Answer, expiry};
use crate::simulated_redis::{
    Database, Reply,
    arguments::{integer, is, not_an_integer, syntax_error},
    key_space::{Bytes, Value},
};

fn string_at(database: &mut Database, key: &[u8]) -> Result<Option<Bytes>, Reply> {
    let now = database.now_ms();
    match database.keys.entry(key, now).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(Bytes::clone(text))),
        Some(_) => Err(Reply::wrong_type()),
    }
}

fn value(text: Option<Bytes>) -> Reply {
    text.map_or(Reply::Nil, Reply::Bulk)
}

pub(super) fn get(database: &mut Database, args: &[&[u8]]) -> Answer {
    string_at(database, args[1]).map(value)
}

pub(super) fn mget(database: &mut Database, args: &[&[u8]]) -> Answer {
    // A key of another type counts as missing.
    let values = args[1..].iter().map(|key| value(string_at(database, key).unwrap_or_default()));
    Ok(Reply::Array(values.collect()))
}

pub(super) fn strlen(database: &mut Database, args: &[&[u8]]) -> Answer {
    Ok(Reply::count(string_at(database, args[1])?.map_or(0, |text| text.len())))
}

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
pub(super) fn set(database: &mut Database, args: &[&[u8]]) -> Answer {
    let (key, now) = (args[1], database.now_ms());
    let (mut if_missing, mut if_present, mut get, mut keep) = (false, false, false, false);
    let mut life = None;
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        match () {
            () if is(option, "NX") && !if_present => if_missing = true,
            () if is(option, "XX") && !if_missing => if_present = true,
            () if is(option, "GET") => get = true,
            () if is(option, "KEEPTTL") && life.is_none() => keep = true,
            () if !keep && life.is_none() => {
                let unit = expiry::Unit::of_option(option).ok_or_else(syntax_error)?;
                life = Some((unit, *options.next().ok_or_else(syntax_error)?));
            }
            () => return Err(syntax_error()),
        }
    }
    let end = life.map(|(unit, number)| unit.end(number, now, "set")).transpose()?;
    let before = if get { value(string_at(database, key)?) } else { Reply::Nil };
    let entry = database.keys.entry(key, now);
    if (if_missing && entry.is_some()) || (if_present && entry.is_none()) {
        return Ok(before);
    }
    let kept = entry.and_then(|entry| entry.last_ms).filter(|_| keep);
    database.keys.set(key, Value::String(args[2].into()), end.or(kept));
    Ok(if get { before } else { Reply::OK })
}

pub(super) fn getdel(database: &mut Database, args: &[&[u8]]) -> Answer {
    let text = string_at(database, args[1])?;
    database.keys.remove(args[1]);
    Ok(value(text))
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]
pub(super) fn getex(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    let change = match args[2..] {
        [] => None,
        [option] if is(option, "PERSIST") => Some(None),
        [option, number] => {
            let unit = expiry::Unit::of_option(option).ok_or_else(syntax_error)?;
            Some(Some((unit, number)))
        }
        _ => return Err(syntax_error()),
    };
    let text = string_at(database, args[1])?;
    let Some(text) = text else { return Ok(Reply::Nil) };
    match change {
        None => {}
        Some(end) => {
            let end = end.map(|(unit, number)| unit.end(number, now, "getex")).transpose()?;
            expiry::set_end(database, args[1], end);
        }
    }
    Ok(Reply::Bulk(text))
}

pub(super) fn incr(database: &mut Database, args: &[&[u8]]) -> Answer {
    add(database, args[1], 1)
}

pub(super) fn decr(database: &mut Database, args: &[&[u8]]) -> Answer {
    add(database, args[1], -1)
}

pub(super) fn incrby(database: &mut Database, args: &[&[u8]]) -> Answer {
    add(database, args[1], integer(args[2])?)
}

pub(super) fn decrby(database: &mut Database, args: &[&[u8]]) -> Answer {
    let by = integer(args[2])?;
    let by = by.checked_neg().ok_or_else(|| Reply::error("ERR decrement would overflow"))?;
    add(database, args[1], by)
}

fn add(database: &mut Database, key: &[u8], by: i64) -> Answer {
    let text = string_at(database, key)?;
    let before = match &text {
        Some(text) => integer(text).map_err(|_| not_an_integer())?,
        None => 0,
    };
    let overflow = || Reply::error("ERR increment or decrement would overflow");
    let after = before.checked_add(by).ok_or_else(overflow)?;
    let now = database.now_ms();
    let last_ms = database.keys.entry(key, now).and_then(|entry| entry.last_ms);
    database.keys.set(key, Value::String(after.to_string().as_bytes().into()), last_ms);
    Ok(Reply::Int(after))
}

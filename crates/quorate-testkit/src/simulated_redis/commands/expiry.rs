use super::Answer;
use crate::simulated_redis::{
    Database, Reply,
    arguments::{integer, is, syntax_error},
};

/// The unit of a lifetime or of an end, and whether it counts from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    millis: i64,
    from_now: bool,
}

impl Unit {
    /// Returns the unit of the option EX, PX, EXAT or PXAT.
    pub(super) fn of_option(option: &[u8]) -> Option<Self> {
        let units = [("EX", 1_000, true), ("PX", 1, true), ("EXAT", 1_000, false), ("PXAT", 1, false)];
        let (_, millis, from_now) = units.into_iter().find(|(name, ..)| is(option, name))?;
        Some(Self { millis, from_now })
    }

    /// Returns the last millisecond of a key that lives for, or until, `number`, which must be greater than 0.
    pub(super) fn end(self, number: &[u8], now_ms: u64, command: &str) -> Result<u64, Reply> {
        let number = integer(number)?;
        let end = self.sum(number, now_ms).filter(|_| number > 0);
        let end = end.and_then(|end| u64::try_from(end).ok());
        end.ok_or_else(|| invalid(command))
    }

    fn sum(self, number: i64, now_ms: u64) -> Option<i64> {
        let millis = number.checked_mul(self.millis)?;
        let base = if self.from_now { i64::try_from(now_ms).ok()? } else { 0 };
        millis.checked_add(base)
    }
}

fn invalid(command: &str) -> Reply {
    Reply::error(format!("ERR invalid expire time in '{command}' command"))
}

/// Sets the last millisecond of a live key. A key that would have ended is removed.
pub(super) fn set_end(database: &mut Database, key: &[u8], end: Option<u64>) {
    let now = database.now_ms();
    if end.is_some_and(|end| end <= now) {
        database.keys.remove(key);
    } else if let Some(entry) = database.keys.entry(key, now) {
        entry.last_ms = end;
    }
}

pub(super) fn expire(database: &mut Database, args: &[&[u8]]) -> Answer {
    change(database, args, Unit { millis: 1_000, from_now: true }, "expire")
}

pub(super) fn pexpire(database: &mut Database, args: &[&[u8]]) -> Answer {
    change(database, args, Unit { millis: 1, from_now: true }, "pexpire")
}

pub(super) fn expireat(database: &mut Database, args: &[&[u8]]) -> Answer {
    change(database, args, Unit { millis: 1_000, from_now: false }, "expireat")
}

pub(super) fn pexpireat(database: &mut Database, args: &[&[u8]]) -> Answer {
    change(database, args, Unit { millis: 1, from_now: false }, "pexpireat")
}

/// PEXPIRE key number [NX | XX | GT | LT] and its relatives.
fn change(database: &mut Database, args: &[&[u8]], unit: Unit, command: &str) -> Answer {
    let number = integer(args[2])?;
    let has = |name| args[3..].iter().any(|option| is(option, name));
    let [nx, xx, gt, lt] = ["NX", "XX", "GT", "LT"].map(has);
    if let Some(option) =
        args[3..].iter().find(|option| !["NX", "XX", "GT", "LT"].iter().any(|n| is(option, n)))
    {
        return Err(Reply::error(format!("ERR Unsupported option {}", String::from_utf8_lossy(option))));
    }
    if nx && (xx || gt || lt) || gt && lt {
        return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
    }
    let end = unit.sum(number, database.now_ms()).ok_or_else(|| invalid(command))?;
    let now = database.now_ms();
    let Some(entry) = database.keys.entry(args[1], now) else { return Ok(Reply::Int(0)) };
    // A key without an end counts as one that ends later than any other.
    let before = entry.last_ms.map(|last| i64::try_from(last).unwrap_or(i64::MAX));
    let refused = nx && before.is_some()
        || xx && before.is_none()
        || gt && before.is_none_or(|before| end <= before)
        || lt && before.is_some_and(|before| end >= before);
    if refused {
        return Ok(Reply::Int(0));
    }
    set_end(database, args[1], Some(u64::try_from(end).unwrap_or(0)));
    Ok(Reply::Int(1))
}

pub(super) fn persist(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    let had_an_end = database.keys.entry(args[1], now).is_some_and(|entry| entry.last_ms.take().is_some());
    Ok(Reply::Int(i64::from(had_an_end)))
}

pub(super) fn ttl(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    time_of(database, args, |last| (last.saturating_sub(now) + 500) / 1_000)
}

pub(super) fn pttl(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    time_of(database, args, |last| last.saturating_sub(now))
}

pub(super) fn expiretime(database: &mut Database, args: &[&[u8]]) -> Answer {
    time_of(database, args, |last| (last + 500) / 1_000)
}

pub(super) fn pexpiretime(database: &mut Database, args: &[&[u8]]) -> Answer {
    time_of(database, args, |last| last)
}

fn time_of(database: &mut Database, args: &[&[u8]], of: impl FnOnce(u64) -> u64) -> Answer {
    if args.len() != 2 {
        return Err(syntax_error());
    }
    let now = database.now_ms();
    Ok(match database.keys.entry(args[1], now).map(|entry| entry.last_ms) {
        None => Reply::Int(-2),
        Some(None) => Reply::Int(-1),
        Some(Some(last)) => Reply::Int(i64::try_from(of(last)).unwrap_or(i64::MAX)),
    })
}

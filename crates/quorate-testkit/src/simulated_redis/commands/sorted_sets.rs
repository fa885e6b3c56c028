use super::{Answer, sorted_at};
use crate::simulated_redis::{
    Database, Reply,
    arguments::{double, double_text, integer, is, syntax_error},
    key_space::{SortedSet, Value},
};
use std::sync::Arc;

/// Changes the sorted set at a key, which is created if it is missing, and removed if it is empty afterwards.
fn change<T>(database: &mut Database, key: &[u8], how: impl FnOnce(&mut SortedSet) -> T) -> Result<T, Reply> {
    let now = database.now_ms();
    let (result, empty) = match database.keys.entry(key, now).map(|entry| &mut entry.value) {
        Some(Value::Sorted(set)) => {
            let set = Arc::make_mut(set);
            (how(set), set.len() == 0)
        }
        Some(_) => return Err(Reply::wrong_type()),
        None => {
            let mut set = SortedSet::default();
            let result = how(&mut set);
            if set.len() > 0 {
                database.keys.set(key, Value::Sorted(Arc::new(set)), None);
            }
            (result, false)
        }
    };
    if empty {
        database.keys.remove(key);
    }
    Ok(result)
}

/// ZADD key [NX | XX] [GT | LT] [CH] score member …
pub(super) fn zadd(database: &mut Database, args: &[&[u8]]) -> Answer {
    let options = ["NX", "XX", "GT", "LT", "CH"];
    let given = args[2..].iter().take_while(|arg| options.iter().any(|option| is(arg, option))).count();
    let has = |name| args[2..2 + given].iter().any(|option| is(option, name));
    let [nx, xx, gt, lt, ch] = options.map(has);
    let (pairs, odd) = args[2 + given..].as_chunks::<2>();
    if pairs.is_empty() || !odd.is_empty() {
        return Err(syntax_error());
    }
    if nx && xx {
        return Err(Reply::error("ERR XX and NX options at the same time are not compatible"));
    }
    if gt && lt || nx && (gt || lt) {
        return Err(Reply::error("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    let scored: Vec<(f64, &[u8])> =
        pairs.iter().map(|[score, member]| Ok((double(score)?, *member))).collect::<Result<_, Reply>>()?;
    let add = |set: &mut SortedSet| {
        let mut counted = 0;
        for (score, member) in scored {
            match set.score(member) {
                None if !xx => {
                    set.set(member, score);
                    counted += 1;
                }
                Some(before) if !(nx || gt && score <= before || lt && score >= before) => {
                    set.set(member, score);
                    counted += usize::from(ch && score.total_cmp(&before).is_ne());
                }
                _ => {}
            }
        }
        counted
    };
    change(database, args[1], add).map(Reply::count)
}

pub(super) fn zrem(database: &mut Database, args: &[&[u8]]) -> Answer {
    let remove = |set: &mut SortedSet| args[2..].iter().filter(|member| set.remove(member)).count();
    change(database, args[1], remove).map(Reply::count)
}

pub(super) fn zscore(database: &mut Database, args: &[&[u8]]) -> Answer {
    let score = sorted_at(database, args[1])?.and_then(|set| set.score(args[2]));
    Ok(score.map_or(Reply::Nil, |score| Reply::bulk(double_text(score))))
}

pub(super) fn zcard(database: &mut Database, args: &[&[u8]]) -> Answer {
    Ok(Reply::count(sorted_at(database, args[1])?.map_or(0, SortedSet::len)))
}

/// ZRANGE key first last [REV] [WITHSCORES], by rank.
pub(super) fn zrange(database: &mut Database, args: &[&[u8]]) -> Answer {
    let (mut reversed, mut with_scores) = (false, false);
    for option in &args[4..] {
        match () {
            () if is(option, "REV") => reversed = true,
            () if is(option, "WITHSCORES") => with_scores = true,
            () => return Err(syntax_error()),
        }
    }
    let (first, last) = (integer(args[2])?, integer(args[3])?);
    let mut all = sorted_at(database, args[1])?.map_or_else(Vec::new, SortedSet::in_order);
    if reversed {
        all.reverse();
    }
    let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
    let rank = |at: i64| if at < 0 { at.saturating_add(count).max(0) } else { at };
    let end = if last < 0 { last.saturating_add(count) } else { last.min(count - 1) };
    let mut found = Vec::new();
    for (at, (member, score)) in (0..).zip(all) {
        if (rank(first)..=end).contains(&at) {
            found.push(Reply::Bulk(member));
            if with_scores {
                found.push(Reply::bulk(double_text(score)));
            }
        }
    }
    Ok(Reply::Array(found))
}

pub(super) fn zremrangebyscore(database: &mut Database, args: &[&[u8]]) -> Answer {
    let (least, most) = (bound(args[2])?, bound(args[3])?);
    let within = |score: f64| {
        let above = if least.1 { score > least.0 } else { score >= least.0 };
        above && if most.1 { score < most.0 } else { score <= most.0 }
    };
    let remove = |set: &mut SortedSet| {
        set.in_order().iter().filter(|(member, score)| within(*score) && set.remove(member)).count()
    };
    change(database, args[1], remove).map(Reply::count)
}

/// Parses a bound, which is excluded if it begins with a parenthesis.
fn bound(arg: &[u8]) -> Result<(f64, bool), Reply> {
    let (arg, excluded) = arg.strip_prefix(b"(").map_or((arg, false), |rest| (rest, true));
    // A bound may begin with a space; a score may not.
    let number = double(arg.trim_ascii_start()).map_err(|_| Reply::error("ERR min or max is not a float"))?;
    Ok((number, excluded))
}

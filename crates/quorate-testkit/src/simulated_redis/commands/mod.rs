//! The commands that work on keys and channels, each with the errors of a real server.

mod expiry;
mod hashes;
mod sorted_sets;
mod strings;

use super::{
    Database, Reply,
    arguments::is,
    key_space::{Hash, SortedSet, Value},
};

type Answer = Result<Reply, Reply>;

type Handler = fn(&mut Database, &[&[u8]]) -> Answer;

/// The commands: the name, the handler, and the number of arguments with the name. A negative number is a minimum.
const COMMANDS: [(&str, Handler, i32); 44] = [
    ("TIME", time, 1),
    ("GET", strings::get, 2),
    ("MGET", strings::mget, -2),
    ("SET", strings::set, -3),
    ("GETDEL", strings::getdel, 2),
    ("GETEX", strings::getex, -2),
    ("INCR", strings::incr, 2),
    ("INCRBY", strings::incrby, 3),
    ("DECR", strings::decr, 2),
    ("DECRBY", strings::decrby, 3),
    ("STRLEN", strings::strlen, 2),
    ("DEL", del, -2),
    ("UNLINK", del, -2),
    ("EXISTS", exists, -2),
    ("TYPE", kind, 2),
    ("FLUSHALL", flush, -1),
    ("FLUSHDB", flush, -1),
    ("DBSIZE", dbsize, 1),
    ("EXPIRE", expiry::expire, -3),
    ("PEXPIRE", expiry::pexpire, -3),
    ("EXPIREAT", expiry::expireat, -3),
    ("PEXPIREAT", expiry::pexpireat, -3),
    ("TTL", expiry::ttl, 2),
    ("PTTL", expiry::pttl, 2),
    ("EXPIRETIME", expiry::expiretime, 2),
    ("PEXPIRETIME", expiry::pexpiretime, 2),
    ("PERSIST", expiry::persist, 2),
    ("HGET", hashes::hget, 3),
    ("HMGET", hashes::hmget, -3),
    ("HSET", hashes::hset, -4),
    ("HSETNX", hashes::hsetnx, 4),
    ("HDEL", hashes::hdel, -3),
    ("HLEN", hashes::hlen, 2),
    ("HEXISTS", hashes::hexists, 3),
    ("HGETALL", hashes::hgetall, 2),
    ("HSCAN", hashes::hscan, -3),
    ("ZADD", sorted_sets::zadd, -4),
    ("ZREM", sorted_sets::zrem, -3),
    ("ZSCORE", sorted_sets::zscore, 3),
    ("ZCARD", sorted_sets::zcard, 2),
    ("ZRANGE", sorted_sets::zrange, -4),
    ("ZREMRANGEBYSCORE", sorted_sets::zremrangebyscore, 4),
    ("PUBLISH", publish, 3),
    ("PUBSUB", pubsub, -2),
];

/// Runs a command. An error is a reply, too.
pub(super) fn run(database: &mut Database, args: &[&[u8]]) -> Answer {
    let Some(name) = args.first() else { return Err(Reply::error("ERR no command")) };
    let Some((name, handler, arity)) = COMMANDS.iter().find(|(known, ..)| is(name, known)) else {
        let name = String::from_utf8_lossy(name);
        return Err(Reply::error(format!("ERR unknown command '{name}'")));
    };
    let given = i32::try_from(args.len()).unwrap_or(i32::MAX);
    if given != *arity && (*arity > 0 || given < -arity) {
        return Err(wrong_number(name));
    }
    handler(database, args)
}

fn wrong_number(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{}' command", name.to_lowercase()))
}

fn time(database: &mut Database, _: &[&[u8]]) -> Answer {
    let now = database.now_micros;
    let [seconds, micros] = [now / 1_000_000, now % 1_000_000].map(|part| Reply::bulk(part.to_string()));
    Ok(Reply::Array(vec![seconds, micros]))
}

fn del(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    let keys = &mut database.keys;
    let gone = args[1..].iter().filter(|key| keys.entry(key, now).is_some() && keys.remove(key)).count();
    Ok(Reply::count(gone))
}

fn exists(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    Ok(Reply::count(args[1..].iter().filter(|key| database.keys.entry(key, now).is_some()).count()))
}

fn kind(database: &mut Database, args: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    Ok(Reply::Status(match database.keys.entry(args[1], now).map(|entry| &entry.value) {
        None => "none",
        Some(Value::String(_)) => "string",
        Some(Value::Hash(_)) => "hash",
        Some(Value::Sorted(_)) => "zset",
    }))
}

fn flush(database: &mut Database, _: &[&[u8]]) -> Answer {
    database.keys.clear();
    Ok(Reply::OK)
}

fn dbsize(database: &mut Database, _: &[&[u8]]) -> Answer {
    let now = database.now_ms();
    Ok(Reply::count(database.keys.live_keys(now).count()))
}

fn publish(database: &mut Database, args: &[&[u8]]) -> Answer {
    let receivers = database.subscribers.count(args[1]);
    database.published.push((args[1].to_vec(), args[2].to_vec()));
    Ok(Reply::count(receivers))
}

fn pubsub(database: &mut Database, args: &[&[u8]]) -> Answer {
    if !is(args[1], "NUMSUB") {
        return Err(Reply::error("ERR unknown subcommand. Try PUBSUB HELP."));
    }
    let counted = args[2..].iter();
    Ok(Reply::Array(
        counted
            .flat_map(|channel| [Reply::bulk(channel), Reply::count(database.subscribers.count(channel))])
            .collect(),
    ))
}

// --- the value of a key, by its type ----------------------------------------------------------------------

fn hash_at<'a>(database: &'a mut Database, key: &[u8]) -> Result<Option<&'a Hash>, Reply> {
    let now = database.now_ms();
    match database.keys.entry(key, now).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(Reply::wrong_type()),
    }
}

fn sorted_at<'a>(database: &'a mut Database, key: &[u8]) -> Result<Option<&'a SortedSet>, Reply> {
    let now = database.now_ms();
    match database.keys.entry(key, now).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Sorted(set)) => Ok(Some(set)),
        Some(_) => Err(Reply::wrong_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(database: &mut Database, command: &str) -> Reply {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        database.run(&args)
    }

    /// Checks that every command for which a node's user needs permission exists here. A script that uses a
    /// further command adds it to that list.
    #[test]
    fn every_command_of_a_node_exists() {
        let of_the_connection = [
            "select",
            "client|setname",
            "info",
            "config|get",
            "script|load",
            "evalsha",
            "hello",
            "subscribe",
        ];
        for command in quorate_redis::COMMANDS {
            let name = command.split('|').next().unwrap_or_default();
            let here = COMMANDS.iter().any(|(known, ..)| known.eq_ignore_ascii_case(name));
            let there = of_the_connection.contains(&command) || command == "unsubscribe";
            assert!(here != there, "{command} is missing in COMMANDS of this file");
        }
    }

    #[test]
    fn a_wrong_number_of_arguments_is_refused_and_changes_nothing() {
        let mut database = Database::default();
        for command in ["GET", "GET a b", "SET a", "MGET", "ZADD z 1", "HSET h f", "PUBLISH c", "NOPE"] {
            assert!(matches!(say(&mut database, command), Reply::Error(_)), "{command}");
        }
        assert_eq!(say(&mut database, "DBSIZE"), Reply::Int(0));
    }

    #[test]
    fn a_published_message_waits_for_the_server() {
        let mut database = Database::default();
        assert_eq!(say(&mut database, "PUBLISH c m"), Reply::Int(0));
        assert_eq!(database.published, [(b"c".to_vec(), b"m".to_vec())]);
    }
}

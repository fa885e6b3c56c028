//! Runs scripts in Lua 5.1, as a Redis server does: `KEYS` and `ARGV` are global tables, `redis.call` and
//! `redis.pcall` run commands, and no script can create a global variable.
//!
//! Each thread has one Lua state, in which every script is compiled once. No script can leave anything in that
//! state, so two simulations of one seed do not differ.

use super::{Database, Reply, key_space::Bytes};
use mlua::{
    BorrowedBytes, Error, Function, Lua, LuaOptions, MultiValue, StdLib, String as LuaString, Table, Value,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc};

/// Wraps the functions of this file so that they raise and catch errors as a server does.
const SETUP: &str = r#"
local run = ...
redis = { pcall = run }
function redis.call(...)
  local reply = run(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end
function redis.error_reply(text)
  return { err = text }
end
function redis.status_reply(text)
  return { ok = text }
end
local error, raw_pcall, type, tostring, rawset = error, pcall, type, tostring, rawset
local globals = _G
-- A server gives a script that catches the error of a command only the text of the error.
local function caught(ok, reply, ...)
  if not ok and type(reply) == 'table' and type(reply.err) == 'string' then
    return ok, reply.err
  end
  return ok, reply, ...
end
function pcall(...)
  return caught(raw_pcall(...))
end
setmetatable(globals, {
  __newindex = function(_, name)
    error('Script attempted to create global variable \'' .. tostring(name) .. '\'', 2)
  end,
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable \'' .. tostring(name) .. '\'', 2)
  end,
})
return function(script, keys, args)
  rawset(globals, 'KEYS', keys)
  rawset(globals, 'ARGV', args)
  local ok, reply = raw_pcall(script)
  if ok then
    return reply
  elseif type(reply) == 'table' then
    return { err = reply.err or 'ERR unknown error' }
  end
  return { err = 'ERR ' .. tostring(reply) }
end
"#;

/// The functions of Lua that scripts may use, beyond its libraries for strings, numbers and tables.
const REMOVED: [&str; 8] =
    ["dofile", "loadfile", "print", "require", "module", "newproxy", "collectgarbage", "gcinfo"];

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new().unwrap_or_else(|error| stop(&error));
}

/// Compiles a script, and returns the error of a script that cannot be compiled.
pub(super) fn compile(source: &Arc<str>) -> Result<(), Reply> {
    INTERPRETER.with(|interpreter| interpreter.function(source)).map(drop)
}

/// Runs a script on `database`.
pub(super) fn run(source: &Arc<str>, database: &mut Database, keys: &[&[u8]], args: &[&[u8]]) -> Reply {
    INTERPRETER.with(|interpreter| {
        let function = match interpreter.function(source) {
            Ok(function) => function,
            Err(reply) => return reply,
        };
        // The functions of the state reach the database only here. It is back before the script's reply is used.
        std::mem::swap(&mut *interpreter.database.borrow_mut(), database);
        let reply = interpreter.run(&function, keys, args);
        std::mem::swap(&mut *interpreter.database.borrow_mut(), database);
        reply.unwrap_or_else(|error| stop(&error))
    })
}

#[expect(clippy::panic, reason = "without its interpreter the simulation has nothing to report")]
fn stop<T>(error: &Error) -> T {
    panic!("the Lua interpreter failed: {error}")
}

struct Interpreter {
    lua: Lua,
    runner: Function,
    database: Rc<RefCell<Database>>,
    /// The compiled scripts, by the address of their text. The text is kept, so that no other text gets its
    /// address.
    compiled: RefCell<BTreeMap<usize, (Arc<str>, Function)>>,
}

impl Interpreter {
    fn new() -> Result<Self, Error> {
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, LuaOptions::default())?;
        // Scripts leave little behind. With Lua's own settings a tenth of the time goes into collecting it.
        lua.gc_inc(1_000, 400, 0);
        for name in REMOVED {
            lua.globals().raw_set(name, Value::Nil)?;
        }
        let format: Function = lua.globals().get::<Table>("string")?.get("format")?;
        let database = Rc::new(RefCell::new(Database::default()));
        let shared = Rc::clone(&database);
        let command = lua.create_function(move |lua, args: MultiValue| {
            let texts = texts(&args, &format)?;
            let bytes: Vec<&[u8]> = texts.iter().map(Text::as_bytes).collect();
            let reply = match (args.is_empty(), bytes.len() == args.len()) {
                (true, _) => {
                    Reply::error("ERR Please specify at least one argument for this redis.call() call")
                }
                (_, false) => Reply::error("ERR Lua redis lib command arguments must be strings or integers"),
                _ => shared.borrow_mut().run(&bytes),
            };
            to_lua(lua, reply)
        })?;
        let runner = lua.load(SETUP).set_name("=setup").call(command)?;
        Ok(Self { lua, runner, database, compiled: RefCell::default() })
    }

    fn function(&self, source: &Arc<str>) -> Result<Function, Reply> {
        let address = Arc::as_ptr(source).cast::<u8>() as usize;
        if let Some((_, function)) = self.compiled.borrow().get(&address) {
            return Ok(function.clone());
        }
        let compiled = self.lua.load(&**source).set_name("@user_script").into_function();
        let function =
            compiled.map_err(|error| Reply::error(format!("ERR Error compiling script {error}")))?;
        self.compiled.borrow_mut().insert(address, (Arc::clone(source), function.clone()));
        Ok(function)
    }

    fn run(&self, function: &Function, keys: &[&[u8]], args: &[&[u8]]) -> Result<Reply, Error> {
        let list = |texts: &[&[u8]]| -> Result<Table, Error> {
            let table = self.lua.create_table_with_capacity(texts.len(), 0)?;
            for text in texts {
                table.raw_push(self.lua.create_string(text)?)?;
            }
            Ok(table)
        };
        let reply = self.runner.call::<Value>((function, list(keys)?, list(args)?))?;
        from_lua(&reply)
    }
}

/// The text of an argument. A text of the script is not copied.
enum Text<'a> {
    OfScript(BorrowedBytes<'a>),
    Number(String),
    Formatted(Vec<u8>),
}

impl Text<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::OfScript(bytes) => bytes,
            Self::Number(text) => text.as_bytes(),
            Self::Formatted(bytes) => bytes,
        }
    }
}

/// Returns the arguments of a command up to the first one that is no text and no number.
fn texts<'a>(args: &'a MultiValue, format: &Function) -> Result<Vec<Text<'a>>, Error> {
    let mut texts = Vec::with_capacity(args.len());
    for arg in args {
        texts.push(match arg {
            Value::String(text) => Text::OfScript(text.as_bytes()),
            Value::Integer(number) if number.unsigned_abs() < EXACT => Text::Number(number.to_string()),
            // A server writes a number with 17 digits, so that it is never rounded.
            Value::Integer(_) | Value::Number(_) => {
                Text::Formatted(format.call::<LuaString>(("%.17g", arg))?.as_bytes().to_vec())
            }
            _ => break,
        });
    }
    Ok(texts)
}

/// Whole numbers below this one are written as integers.
const EXACT: u64 = 10_u64.pow(15);

/// Converts a command's reply for a script.
fn to_lua(lua: &Lua, reply: Reply) -> Result<Value, Error> {
    let one_field = |name: &str, text: &[u8]| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, lua.create_string(text)?)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => one_field("ok", text.as_bytes()),
        Reply::StatusText(text) => one_field("ok", &text),
        Reply::Error(text) => one_field("err", text.as_bytes()),
        Reply::Int(number) => Ok(Value::Integer(number)),
        Reply::Bulk(text) => Ok(Value::String(lua.create_string(&text)?)),
        Reply::Verbatim(text) => Ok(Value::String(lua.create_string(&text)?)),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Array(parts) | Reply::Push(parts) => list(lua, parts.len(), parts),
        Reply::Map(pairs) => list(lua, 2 * pairs.len(), pairs.into_iter().flat_map(|(a, b)| [a, b])),
    }
}

fn list(lua: &Lua, room: usize, parts: impl IntoIterator<Item = Reply>) -> Result<Value, Error> {
    let table = lua.create_table_with_capacity(room, 0)?;
    for part in parts {
        table.raw_push(to_lua(lua, part)?)?;
    }
    Ok(Value::Table(table))
}

/// Converts a script's result into a reply: a number is cut to an integer, `false` is no value, and a table is a
/// list up to its first `nil`.
fn from_lua(value: &Value) -> Result<Reply, Error> {
    Ok(match value {
        Value::String(text) => Reply::Bulk(Bytes::from(&*text.as_bytes())),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => {
            if let Value::String(text) = table.raw_get("err")? {
                return Ok(Reply::Error(text.to_string_lossy()));
            }
            if let Value::String(text) = table.raw_get("ok")? {
                return Ok(Reply::StatusText(text.as_bytes().to_vec()));
            }
            let mut parts = Vec::new();
            for at in 1.. {
                match table.raw_get::<Value>(at)? {
                    Value::Nil => break,
                    part => parts.push(from_lua(&part)?),
                }
            }
            Reply::Array(parts)
        }
        _ => Reply::Nil,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(source: &str) -> Reply {
        run(&source.into(), &mut Database::default(), &[b"k"], &[b"7"])
    }

    #[test]
    fn values_are_converted_as_by_a_server() {
        let bulk = |text: &str| Reply::bulk(text);
        assert_eq!(reply("return { 1, 2.9, -2.9, true, 'x', false, 'y' }"), {
            Reply::Array(vec![
                Reply::Int(1),
                Reply::Int(2),
                Reply::Int(-2),
                Reply::Int(1),
                bulk("x"),
                Reply::Nil,
                bulk("y"),
            ])
        });
        assert_eq!(reply("return { 1, nil, 2 }"), Reply::Array(vec![Reply::Int(1)]), "cut at the first nil");
        assert_eq!(reply("return { ok = 'done' }"), Reply::StatusText(b"done".to_vec()));
        assert_eq!(reply("return redis.error_reply('MY error')"), Reply::error("MY error"));
        assert_eq!(reply("return ARGV[1] + 1"), Reply::Int(8));
        // A double has 53 bits.
        assert_eq!(reply("return tostring(9007199254740993)"), bulk("9.007199254741e+15"));
        assert_eq!(reply("return string.format('%.0f', 9007199254740991)"), bulk("9007199254740991"));
        assert_eq!(reply("return redis.call('SET', KEYS[1], 1)"), Reply::StatusText(b"OK".to_vec()));
        assert_eq!(
            reply("redis.call('SET', 'a', 2^53) return redis.call('GET', 'a')"),
            bulk("9007199254740992")
        );
        assert_eq!(
            reply("redis.call('SET', 'a', 0.1) return redis.call('GET', 'a')"),
            bulk("0.10000000000000001")
        );
        assert_eq!(reply("return redis.call('GET', 'none')"), Reply::Nil);
        assert_eq!(reply("return type(redis.call('GET', 'none'))"), bulk("boolean"));
    }

    #[test]
    fn an_error_is_raised_by_call_and_returned_by_pcall() {
        let wrong = "redis.call('HSET', 'h', 'f', 'v') ";
        assert_eq!(reply(&format!("{wrong} return redis.call('GET', 'h')")), Reply::wrong_type());
        assert_eq!(reply(&format!("{wrong} return redis.pcall('GET', 'h')")), Reply::wrong_type());
        let caught = format!("{wrong} local ok, e = pcall(redis.call, 'GET', 'h') return {{ ok, e }}");
        let Reply::Array(parts) = reply(&caught) else { panic!("no list") };
        assert_eq!(parts[0], Reply::Nil);
        assert!(matches!(&parts[1], Reply::Bulk(text) if text.starts_with(b"WRONGTYPE ")));
        assert!(matches!(reply("error('x')"), Reply::Error(text) if text.starts_with("ERR ")));
        assert!(
            matches!(reply("return redis.call('NOPE')"), Reply::Error(text) if text.starts_with("ERR unk"))
        );
        assert!(matches!(reply("return redis.call({})"), Reply::Error(_)));
        assert!(matches!(compile(&"no Lua".into()), Err(Reply::Error(_))));
    }

    #[test]
    fn a_script_leaves_nothing_behind() {
        for global in ["left = 1", "return left", "return os", "return require", "return print"] {
            assert!(
                matches!(reply(global), Reply::Error(text) if text.contains("global variable")),
                "{global}"
            );
        }
        let before = Database { now_micros: 1_000_007, ..Database::default() };
        let mut database = before;
        let time = run(&"return redis.call('TIME')".into(), &mut database, &[], &[]);
        assert_eq!(time, Reply::Array(vec![Reply::bulk("1"), Reply::bulk("7")]));
        assert_eq!(database.now_micros, 1_000_007, "the database is back");
    }
}

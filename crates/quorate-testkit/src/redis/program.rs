use std::{env, ffi::OsString, path::Path};

/// The environment variable with the path of the server's program, for example of `valkey-server`. If it is not
/// set, the tests run against `redis-server` in `PATH`.
pub const SERVER_PROGRAM: &str = "QUORATE_REDIS_SERVER";

/// Returns the program that every [`RedisServer`](super::RedisServer) runs.
pub(super) fn program() -> OsString {
    chosen(env::var_os(SERVER_PROGRAM))
}

/// Returns why there is no program `program`, and the fix.
pub(super) fn missing(program: &OsString) -> String {
    if Path::new(program) == Path::new(DEFAULT) {
        return "it is not in PATH, and these tests need it; install it with `bash tests/run.sh`, or \
                `apt-get install redis-server`, `dnf install redis`, `apk add redis`, `brew install redis`"
            .to_owned();
    }
    format!("no such program; correct {SERVER_PROGRAM}, or unset it so that the tests use {DEFAULT} in PATH")
}

const DEFAULT: &str = "redis-server";

fn chosen(variable: Option<OsString>) -> OsString {
    variable.filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_the_program_and_a_wrong_path_is_reported_with_its_name() {
        assert_eq!(chosen(None), "redis-server");
        assert_eq!(chosen(Some("".into())), "redis-server");
        assert_eq!(chosen(Some("/opt/valkey-server".into())), "/opt/valkey-server");
        assert!(missing(&"redis-server".into()).contains("apt-get install redis-server"));
        assert!(missing(&"/opt/valkey-server".into()).contains("correct QUORATE_REDIS_SERVER"));
    }
}

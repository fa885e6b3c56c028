//! The `quorate` program, built for the tests of this package.

fn main() -> std::process::ExitCode {
    quorate_cli::main()
}

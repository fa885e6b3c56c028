//! The `quorate` program, under test.

fn main() -> std::process::ExitCode {
    quorate_cli::main()
}

//! The `quorate` program.

fn main() -> std::process::ExitCode {
    quorate_cli::main()
}

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # writes ./quorate.toml
  quorate init
  # every key, with its default and its reasons
  quorate init --full /etc/quorate/quorate.toml
  quorate run --check --config quorate.toml

The file has example nodes and jobs: replace them with your own. It asks nothing, and never replaces a file. Exit
status: 0; 125 the file exists already or cannot be written; 78 configuration.")]
pub(crate) struct InitArgs {
    /// The file to write
    #[arg(value_name = "FILE", default_value = "quorate.toml")]
    pub(crate) file: PathBuf,
    /// Write every key, with its default and its reasons
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # for this shell
  source <(quorate completions bash)
  # for each new shell
  quorate completions bash > ~/.local/share/bash-completion/completions/quorate
  quorate completions zsh > \"${fpath[1]}/_quorate\"
  quorate completions fish > ~/.config/fish/completions/quorate.fish

It prints a script to standard output. Exit status: 0; 78 configuration.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// A shell for which completions can be printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quorate man --dir /usr/local/share/man/man1
  man quorate-jobs-list

It writes one page for the program and one for each command, such as
quorate-jobs-list.1, and replaces files of these names. A directory that does not
exist is created. Exit status: 0; 125 a file cannot be written; 78 configuration.")]
pub(crate) struct ManArgs {
    /// The directory of the pages
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

//! The commands `quorate completions` and `quorate man`: files for packages, generated from the command line's own
//! description.

use crate::{
    args::{Cli, CompletionsArgs, ManArgs, Shell},
    exit::{FAILURE, Failure},
    show,
};
use clap::{Command, CommandFactory};
use clap_complete::shells;
use clap_mangen::Man;
use std::{fs, io, path::Path};

/// The name of the program.
const NAME: &str = "quorate";

/// Prints the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let (mut command, mut script) = (Cli::command(), Vec::new());
    match args.shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut command, NAME, &mut script),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut command, NAME, &mut script),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut command, NAME, &mut script),
    }
    show::print_bytes(&script)?;
    Ok(0)
}

/// Writes the manual pages.
pub(crate) fn man(args: &ManArgs) -> Result<u8, Failure> {
    let failure = |path: &Path, error: io::Error| {
        Failure::new(FAILURE, format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(&args.dir).map_err(|error| failure(&args.dir, error))?;
    for (name, text) in pages() {
        let path = args.dir.join(name);
        fs::write(&path, text).map_err(|error| failure(&path, error))?;
    }
    Ok(0)
}

/// Returns the name and the text of each manual page.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let (mut pages, mut commands) = (Vec::new(), vec![program]);
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        pages.push(page(command));
    }
    pages
}

fn page(command: Command) -> (String, Vec<u8>) {
    let notes = command.get_after_help().map(|text| notes(&text.to_string()));
    let (has_arguments, has_commands) =
        (command.get_arguments().next().is_some(), command.get_subcommands().next().is_some());
    let man = Man::new(command).manual("Quorate").source(concat!("quorate ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    let mut render = |section: &dyn Fn(&Man, &mut dyn io::Write) -> io::Result<()>| {
        // Writing to memory does not fail.
        let _ = section(&man, &mut text);
    };
    render(&Man::render_title);
    render(&Man::render_name_section);
    render(&Man::render_synopsis_section);
    render(&Man::render_description_section);
    if has_arguments {
        render(&Man::render_options_section);
    }
    if has_commands {
        render(&Man::render_subcommands_section);
    }
    text.extend(notes.unwrap_or_default().into_bytes());
    (man.get_filename(), text)
}

/// Returns the sections of the text after the options: the examples, and the notes. Their lines are kept as they
/// are, because they are formatted for a terminal of 80 columns.
fn notes(text: &str) -> String {
    let mut page = String::new();
    let rest = match text.strip_prefix("Examples:\n") {
        Some(text) => {
            let (examples, rest) = text.split_once("\n\n").unwrap_or((text, ""));
            page += &section("EXAMPLES", examples);
            rest
        }
        None => text,
    };
    if !rest.trim().is_empty() {
        page += &section("NOTES", rest);
    }
    page
}

fn section(title: &str, text: &str) -> String {
    let mut page = format!(".SH {title}\n.nf\n");
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A line that begins with one of these characters would be a request to the formatter.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        page += &format!("{guard}{line}\n");
    }
    page + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_command_has_a_page_with_its_options_and_examples() {
        let pages: BTreeMap<String, String> =
            pages().into_iter().map(|(name, text)| (name, String::from_utf8(text).expect("UTF-8"))).collect();
        let mut program = Cli::command().disable_help_subcommand(true);
        program.build();
        let mut expected = vec!["quorate.1".to_owned()];
        for command in program.get_subcommands() {
            expected.push(format!("quorate-{}.1", command.get_name()));
            let nested = command.get_subcommands();
            expected.extend(
                nested.map(|nested| format!("quorate-{}-{}.1", command.get_name(), nested.get_name())),
            );
        }
        expected.sort();
        assert!(expected.len() > 30, "{expected:?}");
        assert_eq!(pages.keys().cloned().collect::<Vec<_>>(), expected);
        for (name, page) in &pages {
            for part in [".TH ", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
                assert!(page.contains(part), "{name} without {part}");
            }
        }
        let trigger = &pages["quorate-jobs-trigger.1"];
        assert!(
            trigger.contains(".SH EXAMPLES\n.nf\n  quorate jobs trigger nightly\\-report\n"),
            "{trigger}"
        );
        assert!(trigger.contains(".SH NOTES\n.nf\nEvery client of the nodes"), "{trigger}");
        assert!(trigger.contains("\nExit status: 0 if the leader accepted"), "{trigger}");
        assert!(trigger.contains("\\-\\-wait"), "{trigger}");
    }

    #[test]
    fn a_line_is_never_a_request_to_the_formatter() {
        let page = notes("Examples:\n  quorate exec -- .\\run\n\n.so /etc/passwd\n'x\n");
        assert_eq!(
            page,
            ".SH EXAMPLES\n.nf\n  quorate exec \\-\\- .\\erun\n.fi\n.SH NOTES\n.nf\n\\&.so /etc/passwd\n\\&'x\n.fi\n"
        );
    }
}

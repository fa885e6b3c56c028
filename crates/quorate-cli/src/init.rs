//! The command `quorate init`, which writes a configuration file to start from.

use crate::{
    args::InitArgs,
    exit::{FAILURE, Failure},
    show,
};
use std::{fs, io, io::Write, path::Path};

/// A short file that runs. The repository has it as `config/starter.toml`.
const STARTER: &str = include_str!("../starter.toml");

/// The annotated file, with every key. The repository has it as `config/quorate.toml`.
pub(crate) const ANNOTATED: &str = include_str!("../quorate.toml");

/// The longest line, in bytes.
const LINE_MAX: usize = 8 * 1024;

/// Writes the file, and prints the next steps. Never replaces a file.
pub(crate) fn init(args: &InitArgs) -> Result<u8, Failure> {
    let name = args.file.display();
    let text = if args.full { ANNOTATED } else { STARTER };
    write(&args.file, text).map_err(|error| {
        let fix = match error.kind() {
            io::ErrorKind::AlreadyExists => "; remove it, or name another file: quorate init FILE",
            io::ErrorKind::NotFound => "; create its directory first",
            _ => "",
        };
        Failure::new(FAILURE, format!("cannot write {name}: {error}{fix}"))
    })?;
    show::print(&(show::line(&format!("{name}: written"), LINE_MAX) + "\n"))?;
    // The file of this name in the working directory is found without `--config`.
    let named =
        if args.file == Path::new("quorate.toml") { String::new() } else { format!(" --config {name}") };
    let next = format!("replace its nodes and jobs, then: quorate run --check{named}");
    show::print(&(show::line(&next, LINE_MAX) + "\n"))?;
    Ok(0)
}

/// Writes a file that does not exist yet. A file that could not be written in full is removed.
fn write(path: &Path, text: &str) -> io::Result<()> {
    // `create_new` also refuses a symbolic link, so the file is not created elsewhere.
    let mut file = fs::File::options().write(true).create_new(true).open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
    }
    written
}

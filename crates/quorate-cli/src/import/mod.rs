//! `quorate import`: job files from the files of other schedulers.

mod crontab;
mod job_file;
mod line;
mod name;
#[cfg(test)]
mod tests;

use crate::{
    args::{CrontabArgs, ImportCommand},
    exit::{CONFIG, FAILURE, Failure, NOT_FOUND},
    files, log, show,
};
use crontab::{Settings, translate};
use quorate::scheduler::Zone;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

/// The largest crontab that is read, in bytes.
const CRONTAB_MAX: u64 = 1 << 20;

/// The link to the file of this machine's time zone.
const LOCAL_TIME: &str = "/etc/localtime";

/// Carries out the command.
pub(crate) fn import(command: &ImportCommand) -> Result<u8, Failure> {
    let ImportCommand::Crontab(args) = command;
    let zone = match &args.zone {
        Some(zone) => zone.clone(),
        None => zone_of_machine()?,
    };
    let text = read(&args.file)?;
    let settings =
        Settings { system: args.system, user: args.user.as_deref(), zone: &zone, group: &args.group };
    let imported = translate(&text, &settings);
    write(args, &imported.file)?;
    let count = |number: usize, thing: &str| match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    };
    for note in &imported.notes {
        log::say(&format!("quorate: {note}"));
    }
    // A CRON_TZ in the crontab has priority over the zone of the machine.
    let zones: Vec<&str> = imported.zones.iter().map(String::as_str).collect();
    let zones = match zones.as_slice() {
        [] => String::new(),
        [zone] => format!(", in the zone {zone}"),
        _ => format!(", in the zones {}", zones.join(", ")),
    };
    log::say(&format!(
        "quorate: {} translated{zones}; {} not translated",
        count(imported.jobs, "job"),
        count(imported.refused, "line")
    ));
    Ok(if imported.refused == 0 { 0 } else { NOT_FOUND })
}

fn read(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().take(CRONTAB_MAX + 1).read_to_string(&mut text).map(|_| text)
    } else {
        files::read(path)
    };
    let failure = |why: &dyn std::fmt::Display| {
        Failure::new(CONFIG, format!("cannot read the crontab {}: {why}", path.display()))
    };
    match text {
        Ok(text) if text.len() as u64 > CRONTAB_MAX => Err(failure(&"it is larger than 1 MiB")),
        Ok(text) => Ok(text),
        Err(error) => Err(failure(&error)),
    }
}

fn write(args: &CrontabArgs, text: &str) -> Result<(), Failure> {
    let Some(path) = &args.output else { return show::print(text) };
    let failure = |error| {
        Failure::new(FAILURE, format!("cannot write {}: {error}; it must be a new file", path.display()))
    };
    let mut file = File::create_new(path).map_err(failure)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failure)
}

/// Returns the zone in which the cron daemon of this machine reads its crontabs.
fn zone_of_machine() -> Result<Zone, Failure> {
    let target = fs::read_link(LOCAL_TIME).unwrap_or_default();
    let name = zone_name(&target.to_string_lossy()).unwrap_or_default().to_owned();
    Zone::named(&name).map_err(|_| {
        let text = format!("the time zone of this machine is unknown ({LOCAL_TIME}); add --zone NAME");
        Failure::new(CONFIG, text)
    })
}

/// Returns the IANA name in the path of a zone's file.
fn zone_name(path: &str) -> Option<&str> {
    path.split_once("/zoneinfo/").map(|(_, name)| name)
}

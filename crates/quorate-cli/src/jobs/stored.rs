//! The commands that store jobs on the nodes: `quorate jobs put`, `edit` and `at`, and payloads.

mod editor;
mod text;

use super::common::look;
use crate::{
    args::{AtArgs, PutArgs, RequestArgs, TriggerArgs},
    config::{Config, Environment},
    exit::{CONFIG, Failure, NOT_FOUND},
    failures, log, operate,
};
use quorate::{
    internals::{Expect, JobAction},
    plain::plain,
    scheduler::{Job, Jobs, Payload, Schedule},
};
use std::{
    fs::File,
    io::{Read, stdin},
    path::Path,
};

/// The largest file, in bytes: more than one request may contain.
const FILE_MAX: u64 = 4 << 20;

/// Stores the jobs of a file.
pub(super) async fn put(args: &PutArgs, config: &Config) -> Result<u8, Failure> {
    let written = read(&args.file, FILE_MAX)?;
    let written = String::from_utf8(written)
        .map_err(|_| Failure::new(CONFIG, "the file is not UTF-8; save it as UTF-8"))?;
    let jobs = text::jobs(&written)
        .map_err(|error| Failure::new(CONFIG, format!("{}: {error}", args.file.display())))?;
    let expect = args.new.then_some(Expect::Absent);
    operate::request(action(&jobs, expect)?, &args.wait, config).await
}

/// Stores a job for a single run.
pub(super) async fn at(args: &AtArgs, config: &Config) -> Result<u8, Failure> {
    let mut job = Job::named(&args.job, Schedule::at(args.at), &args.handler);
    if let Some(payload) = payload(args.payload.as_deref())? {
        job = job.payload(payload);
    }
    operate::request(action(&[job], None)?, &args.wait, config).await
}

/// Runs a job once now.
pub(super) async fn trigger(args: &TriggerArgs, config: &Config) -> Result<u8, Failure> {
    let (job, payload) = (args.job.as_str().into(), payload(args.payload.as_deref())?);
    operate::request(JobAction::Trigger { job, payload }, &args.wait, config).await
}

/// Changes a stored job in an editor. The leader refuses the change if another has changed the job meanwhile.
pub(super) async fn edit(args: &RequestArgs, config: &Config) -> Result<u8, Failure> {
    let (quorum, jobs) = look(&args.wait.group, config).await?;
    let found = stored(&jobs, &args.job).await;
    quorum.close().await;
    let (version, job) = found?;
    let before = text::of_job(&job)?;
    let after = editor::edit(&before, &Environment::process())?;
    let jobs = text::jobs(&after.text).map_err(|error| after.keep(&error))?;
    if jobs.len() != 1 || jobs[0].name() != job.name() {
        let text = format!(
            "the file must have one job, called {:?}; to rename it, store another and remove this one",
            job.name()
        );
        return Err(after.keep(&text));
    }
    if after.text == before {
        log::say("quorate: nothing has changed");
        return Ok(0);
    }
    let action =
        action(&jobs, Some(Expect::Version(version))).map_err(|failure| after.keep(&failure.to_string()))?;
    let result = operate::request(action, &args.wait, config).await;
    match &result {
        Ok(0) => {}
        _ => after.say_kept(),
    }
    result
}

/// Returns a stored job and its version.
async fn stored(jobs: &Jobs, name: &str) -> Result<(quorate::scheduler::RequestId, Job), Failure> {
    jobs.check_stored(name).await.map_err(|error| failures::of_jobs(&error))?;
    let found = jobs.stored_job(name).await.map_err(|error| failures::of_jobs(&error))?;
    let Some(found) = found else { return Err(Failure::new(NOT_FOUND, "the job was removed")) };
    let job = found
        .job
        .map_err(|why| Failure::new(NOT_FOUND, format!("this version cannot read the job: {why}")))?;
    Ok((found.version, job))
}

fn action(jobs: &[Job], expect: Option<Expect>) -> Result<JobAction, Failure> {
    Jobs::put_action(jobs, expect).map_err(|error| Failure::new(CONFIG, error))
}

/// Returns the payload of an argument: a text, or with `@` the content of a file or of standard input.
fn payload(written: Option<&str>) -> Result<Option<Payload>, Failure> {
    let Some(written) = written else { return Ok(None) };
    let payload = match written.strip_prefix('@') {
        Some(path) => Payload::new(read(Path::new(path), FILE_MAX)?),
        None => Payload::new(written),
    };
    payload.map(Some).map_err(|error| Failure::new(CONFIG, format!("--payload: {error}")))
}

/// Reads a file, or standard input for `-`.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let shown = || plain(&path.to_string_lossy(), 400);
    let failed = |error: std::io::Error| {
        Failure::new(
            CONFIG,
            format!("cannot read {}: {error}; name a file, or - for standard input", shown()),
        )
    };
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => stdin().lock().take(most + 1).read_to_end(&mut bytes),
        false => File::open(path).map_err(failed)?.take(most + 1).read_to_end(&mut bytes),
    };
    read.map_err(failed)?;
    match bytes.len() as u64 > most {
        true => Err(Failure::new(CONFIG, format!("{} has more than {most} bytes; divide it", shown()))),
        false => Ok(bytes),
    }
}

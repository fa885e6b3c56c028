use crate::{
    Action, Field, Given, Verb, WrongField, definition,
    given::{length, name, required, term, time},
    verb::{BACKFILL, CANCEL, FREEZE, PAUSE, REMOVE, RESIGN, TRIGGER},
};
use quorate::{
    env::WallTime,
    internals::JobAction,
    scheduler::{Jobs, JobsError, Payload},
};
use std::sync::Arc;

impl Action {
    /// Returns the action of this kind that the fields describe.
    ///
    /// # Errors
    /// The field that must be changed, and the reason.
    pub fn read(verb: Verb, given: &impl Given) -> Result<Self, WrongField> {
        let job = || -> Result<Arc<str>, WrongField> { Ok(name(given, "job")?.into()) };
        let what = match verb {
            Verb::Resign => return Ok(Self::Resign { term: term(given, &RESIGN[0])? }),
            Verb::Reset => {
                return Ok(Self::Reset { set: name(given, "set")?.into(), id: name(given, "id")?.into() });
            }
            Verb::Trigger => {
                let payload = given.raw(TRIGGER[0].name).filter(|payload| !payload.is_empty());
                let payload = payload.map(Payload::new).transpose();
                let payload = payload.map_err(|error| WrongField::new(TRIGGER[0].name, error.to_string()))?;
                JobAction::Trigger { job: job()?, payload }
            }
            Verb::Put => definition::read(given)?,
            Verb::Remove => {
                let expect = definition::version(given, &REMOVE[0])?;
                JobAction::Remove { job: job()?, expect }
            }
            Verb::Resume => JobAction::Resume { job: job()? },
            Verb::Cancel => JobAction::Cancel { job: job()?, tick: time(given, &CANCEL[0])? },
            Verb::Pause => {
                let [reason, until, length_of] = &PAUSE;
                let reason = given.text(reason.name).map(Into::into);
                JobAction::Pause { job: job()?, reason, until: end(given, until, length_of)? }
            }
            Verb::Backfill => {
                let [from, until] = &BACKFILL;
                let (from, until) =
                    (required(from, time(given, from)?)?, required(until, time(given, until)?)?);
                JobAction::Backfill { job: job()?, from, until }
            }
            Verb::Unfreeze => JobAction::Unfreeze,
            Verb::Freeze => {
                let [reason, until, length_of] = &FREEZE;
                let reason = given.text(reason.name).map(Into::into);
                let end = end(given, until, length_of)?;
                JobAction::Freeze { reason, until: end.ok_or_else(|| either(until))? }
            }
        };
        match Jobs::check_times(&what, given.now()) {
            Err(JobsError::Input { field, value, fix }) => {
                Err(WrongField::new(field, JobsError::Input { field, value, fix }.to_string()))
            }
            _ => Ok(Self::Job(what)),
        }
    }
}

/// Returns the end that is given as a time or as a length.
fn end(given: &impl Given, until: &Field, length_of: &Field) -> Result<Option<WallTime>, WrongField> {
    match (time(given, until)?, length(given, length_of)?) {
        (Some(_), Some(_)) => Err(either(until)),
        (until, length) => Ok(until.or_else(|| length.map(|length| given.now() + length))),
    }
}

fn either(until: &Field) -> WrongField {
    WrongField::new(until.name, "give either for, such as \"30m\", or until, a time")
}

//! Jobs that are stored on the nodes, as fields with texts: for the API, forms and files.

mod fields;
mod rules;
mod times;

use crate::{
    Field, Given, WrongField,
    given::{name, required},
};
use fields::{
    ABSENT, AFTER, AT, CONCURRENCY, DELAY, DELIVERY, DST, EVERY, EXCEPT, EXPECT, EXPECT_WITHIN, FROM,
    HANDLER, HISTORY, JITTER, KEEP_OUTPUT, MISFIRE, OVERLAP, PAUSE_AFTER_FAILURES, PAYLOAD, PRIORITY,
    RETRIES, RUNS_ON, SCHEDULE, TIMEOUT, UNTIL, Written, ZONE, wrong,
};
use quorate::{
    internals::{Expect, JobAction, JobDefinition},
    scheduler::{Job, Jobs, JobsError, Payload, RequestId},
};
use std::str::FromStr;

/// The fields of a job, without its name.
pub(crate) const FIELDS: [Field; 26] = [
    HANDLER,
    SCHEDULE,
    EVERY,
    DELAY,
    AT,
    AFTER,
    ZONE,
    DST,
    EXCEPT,
    FROM,
    UNTIL,
    PAYLOAD,
    MISFIRE,
    DELIVERY,
    OVERLAP,
    RUNS_ON,
    CONCURRENCY,
    JITTER,
    TIMEOUT,
    RETRIES,
    PAUSE_AFTER_FAILURES,
    PRIORITY,
    HISTORY,
    KEEP_OUTPUT,
    EXPECT_WITHIN,
    EXPECT,
];

/// Returns the request that stores the job which the fields describe.
///
/// # Errors
/// The field that must be changed, and the reason.
pub(crate) fn read(given: &impl Given) -> Result<JobAction, WrongField> {
    let job = job(given)?;
    let expect = version(given, &EXPECT)?;
    Jobs::put_action(std::slice::from_ref(&job), expect).map_err(|error| match error {
        JobsError::Definition { reason, .. } => WrongField::new("job", reason),
        error => WrongField::new("job", error.to_string()),
    })
}

/// Returns the job that the fields describe.
///
/// # Errors
/// The field that must be changed, and the reason.
pub fn job(given: &impl Given) -> Result<Job, WrongField> {
    let handler = required(&HANDLER, given.text(HANDLER.name))?;
    let mut job = Job::named(name(given, "job")?, times::schedule(given)?, handler);
    if let Some(payload) = given.raw(PAYLOAD.name).filter(|payload| !payload.is_empty()) {
        job = job.payload(
            Payload::new(payload).map_err(|error| WrongField::new(PAYLOAD.name, error.to_string()))?,
        );
    }
    Ok(job.with_rules(rules::read(given)?))
}

/// Returns what must be stored now.
pub(crate) fn version(given: &impl Given, field: &Field) -> Result<Option<Expect>, WrongField> {
    given.text(field.name).map_or(Ok(None), |text| match RequestId::from_str(text) {
        _ if text == ABSENT && field.name == EXPECT.name => Ok(Some(Expect::Absent)),
        Ok(version) => Ok(Some(Expect::Version(version))),
        Err(_) => {
            Err(wrong(field, text, "is not a version; give the one that the list of stored jobs shows"))
        }
    })
}

/// Returns the fields of a stored job, without its name. [`job`] reads them.
pub fn fields_of(definition: &JobDefinition) -> Vec<(&'static str, String)> {
    let mut fields = Written(vec![(HANDLER.name, definition.handler.to_string())]);
    times::write(&definition.schedule, &mut fields);
    fields.add(&PAYLOAD, definition.payload.as_ref().and_then(|payload| payload.text()));
    rules::write(&definition.rules, &mut fields);
    fields.0
}

/// Returns the names of the fields of a job, without its name.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate::env::WallTime;
    use std::collections::BTreeMap;

    struct Fields(BTreeMap<&'static str, &'static str>);

    impl Given for Fields {
        fn raw(&self, field: &str) -> Option<&str> {
            self.0.get(field).copied()
        }

        fn now(&self) -> WallTime {
            WallTime::from_micros(0)
        }
    }

    fn read_all(more: &[(&'static str, &'static str)]) -> Result<Job, String> {
        let usual = [("job", "digest"), ("handler", "send-mail")];
        let fields = Fields(usual.into_iter().chain(more.iter().copied()).collect());
        job(&fields).map_err(|wrong| format!("{}: {wrong}", wrong.field))
    }

    #[test]
    fn the_fields_give_a_job_with_all_its_rules() {
        let read = read_all(&[
            ("schedule", "0 3 * * *"),
            ("zone", "Europe/Kyiv"),
            ("payload", " {\"to\":1}"),
            ("misfire", "run-all 2h"),
            ("delivery", "at-most-once"),
            ("overlap", "cancel-old"),
            ("runs_on", "labels eu, ssd"),
            ("concurrency", "2 the database"),
            ("pause_after_failures", "5"),
            ("except", "2027-12-25,2027-12-26"),
            ("from", "2027-01-01"),
            ("until", "2027-12-31"),
            ("jitter", "5s"),
            ("timeout", "10m"),
            ("retries", "3 1s 60s"),
            ("priority", "-4"),
            ("history", "7"),
            ("keep_output", "100"),
            ("expect_within", "2days"),
        ]);
        let text = read.unwrap().definition().unwrap().to_text();
        let definition = quorate::internals::JobDefinition::parse(&text).unwrap();
        let fields: BTreeMap<&str, String> = fields_of(&definition).into_iter().collect();
        assert_eq!((&*fields["retries"], &*fields["misfire"]), ("3 1s 1m", "run-all 2h"));
        let fields = fields.iter().map(|(name, text)| (*name, text.clone().leak() as &'static str));
        let again = job(&Fields(fields.chain([("job", "digest")]).collect())).unwrap();
        assert_eq!(again.definition().unwrap().to_text(), text, "the fields are read back");
        let expected = r#"{"name":"digest","schedule":{"kind":"days","of":{"kind":"cron","line":"0 3 * * *","zone":"Europe/Kyiv"},"except":["2027-12-25","2027-12-26"],"from":"2027-01-01","until":"2027-12-31"},"handler":"send-mail","payload":" {\"to\":1}","rules":{"misfire":{"rule":"run-all","within":7200000000},"delivery":"at-most-once","overlap":"cancel-old","placement":"any-worker","labels":["eu","ssd"],"concurrency":{"key":"the database","limit":2},"pause_after_failures":5,"jitter":5000000,"timeout":600000000,"retries":{"attempts":3,"first":1000000,"max":60000000},"priority":-4,"history":7,"keep_output":100,"expect_within":172800000000}}"#;
        assert_eq!(&*text, expected);
    }

    #[test]
    fn a_job_for_every_worker_is_read_back() {
        for text in ["every", "every labels eu, ssd", "leader", "labels eu"] {
            let read = read_all(&[("every", "1s"), ("runs_on", text)]).unwrap();
            let definition = read.definition().unwrap();
            assert!(fields_of(&definition).contains(&("runs_on", text.to_owned())), "{text}: {definition:?}");
        }
        let wrong = read_all(&[("every", "1s"), ("runs_on", "every eu")]).unwrap_err().to_string();
        assert!(wrong.contains("is unknown; write any, every"), "{wrong}");
    }

    #[test]
    fn a_job_that_follows_another_is_read_back() {
        let read = read_all(&[("after", "failure the extract")]).unwrap();
        assert_eq!(read.schedule().to_string(), "after each failure of \"the extract\"");
        assert!(
            fields_of(&read.definition().unwrap()).contains(&("after", "failure the extract".to_owned()))
        );
    }

    #[test]
    fn a_wrong_field_is_named_with_its_value_and_the_fix() {
        for (fields, part) in [
            (&[][..], "schedule: schedule is missing; give a cron line"),
            (&[("every", "1s"), ("at", "2027-01-01T00:00:00Z")], "at: every and at are given; keep one"),
            (&[("every", "1s"), ("zone", "UTC")], "zone: zone \"UTC\" has no meaning with every"),
            (&[("every", "soon")], "every: every \"soon\" is not a length of time"),
            (&[("every", "1s"), ("misfire", "run-once")], "misfire: misfire \"run-once\" is not a rule"),
            (&[("every", "1s"), ("retries", "0")], "give it 1 to 100"),
            (&[("every", "1s"), ("overlap", "dance\u{1b}")], "overlap: overlap \"dance"),
            (&[("every", "1s"), ("priority", "high")], "priority: priority \"high\" is not a number"),
            (
                &[("every", "1s"), ("runs_on", "moon")],
                "runs_on: runs_on \"moon\" is unknown; write any, every, leader or labels eu",
            ),
            (&[("every", "1s"), ("runs_on", "labels ")], "has no label"),
            (
                &[("every", "1s"), ("concurrency", "database")],
                "concurrency: concurrency \"database\" has no limit",
            ),
            (&[("every", "1s"), ("except", "Christmas")], "except: except \"Christmas\""),
            (&[("after", "extract")], "after: after \"extract\" does not begin with success, failure or end"),
            (&[("after", "end extract"), ("zone", "UTC")], "zone: zone \"UTC\" has no meaning with after"),
            (&[("schedule", "61 3 * * *")], "schedule: schedule \"61 3 * * *\""),
        ] {
            let error = read_all(fields).unwrap_err();
            assert!(error.contains(part) && !error.contains('\u{1b}'), "{part}: {error}");
        }
        let fields = |name, value| Fields([("job", "j"), (name, value)].into());
        assert_eq!(version(&fields("expect", "absent"), &EXPECT), Ok(Some(Expect::Absent)));
        assert!(version(&fields("version", "absent"), &crate::verb::REMOVE[0]).is_err());
        assert!(version(&fields("expect", "v1"), &EXPECT).is_err());
    }
}

//! Stored jobs as TOML or JSON.

use crate::{
    config::nearest,
    exit::{FAILURE, Failure},
};
use quorate::{
    env::WallTime,
    plain::plain,
    scheduler::{AfterEnd, Job},
};
use quorate_operator::{Given, definition};
use std::collections::BTreeMap;
use toml::Value;

/// The largest number of bytes of a value that an error repeats.
const SHOWN_MAX: usize = 200;

/// The keys and texts of one job.
struct Fields(BTreeMap<String, String>);

impl Given for Fields {
    fn raw(&self, field: &str) -> Option<&str> {
        let key = if field == "job" { "name" } else { field };
        self.0.get(key).map(String::as_str)
    }

    /// The fields of a job have no end that depends on the present time.
    fn now(&self) -> WallTime {
        WallTime::default()
    }
}

/// Returns the jobs of a text: one job, a list, or a table with a list called `job`.
///
/// # Errors
/// The reason why the text cannot be used.
pub(super) fn jobs(text: &str) -> Result<Vec<Job>, String> {
    let is_json = text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok();
    let value: Value = match is_json {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => toml::from_str(text).map_err(|error| plain_lines(&error.to_string()))?,
    };
    let list = match value {
        Value::Array(list) => list,
        Value::Table(mut table) if table.len() == 1 && table.contains_key("job") => {
            match table.remove("job") {
                Some(Value::Array(list)) => list,
                _ => return Err("job is not a list; write [[job]]".to_owned()),
            }
        }
        one => vec![one],
    };
    if list.is_empty() {
        return Err("there is no job; write name, handler and a schedule".to_owned());
    }
    list.into_iter().enumerate().map(|(number, job)| one(job, number)).collect()
}

fn one(job: Value, number: usize) -> Result<Job, String> {
    let Value::Table(table) = job else { return Err(format!("the job {} is not a table", number + 1)) };
    let shown = match table.get("name") {
        Some(Value::String(name)) => format!("the job {:?}", plain(name, SHOWN_MAX)),
        _ => format!("the job {}", number + 1),
    };
    let fields = table.into_iter().map(|(key, value)| Ok((key.clone(), flat(&key, value)?)));
    let fields: Result<BTreeMap<String, String>, String> = fields.collect();
    let fields = Fields(fields.map_err(|error| format!("{shown}: {error}"))?);
    if !fields.0.contains_key("name") {
        return Err(format!("{shown}: name is missing; give it a name"));
    }
    definition::job(&fields).map_err(|wrong| format!("{shown}: {wrong}"))
}

/// Returns the text of a value. The tables of the configuration file, such as `misfire = { rule, within }`, become one text.
fn flat(key: &str, value: Value) -> Result<String, String> {
    let known = || definition::names().filter(|name| *name != "expect").chain(["name"]);
    if !known().any(|name| name == key) {
        let fix = match nearest(key, known()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known are {}", known().collect::<Vec<_>>().join(", ")),
        };
        return Err(format!("unknown key {:?}; {fix}", plain(key, SHOWN_MAX)));
    }
    match (key, value) {
        (_, Value::String(text)) => Ok(text),
        ("payload", value) => serde_json::to_string(&value).map_err(|error| format!("payload: {error}")),
        (_, Value::Integer(number)) => Ok(number.to_string()),
        (_, Value::Datetime(time)) => Ok(time.to_string()),
        ("except", Value::Array(days)) => texts(key, days),
        ("runs_on", Value::Table(mut table)) => match (table.remove("labels"), table.remove("every")) {
            (Some(Value::Array(labels)), every) if table.is_empty() => {
                let every = if every == Some(Value::Boolean(true)) { "every " } else { "" };
                Ok(format!("{every}labels {}", texts("runs_on.labels", labels)?))
            }
            _ => Err("runs_on is a table without labels; write { labels = [\"eu\"] }".to_owned()),
        },
        ("concurrency", Value::Table(table)) => words(key, table, &["limit", "key"]),
        ("after", Value::Table(mut table)) => {
            table.entry("on").or_insert_with(|| Value::String(AfterEnd::Success.as_str().to_owned()));
            words(key, table, &["on", "job"])
        }
        ("misfire", Value::Table(table)) => words(key, table, &["rule", "within"]),
        ("retries", Value::Table(table)) => words(key, table, &["attempts", "backoff", "max_backoff"]),
        (_, value) => Err(format!("{key} is a {}; give it a text", value.type_str())),
    }
}

/// Returns the texts and dates of a list with commas between them.
fn texts(key: &str, list: Vec<Value>) -> Result<String, String> {
    let texts = list.into_iter().map(|value| match value {
        Value::String(text) => Ok(text),
        Value::Datetime(time) => Ok(time.to_string()),
        value => Err(format!("{key} has a {}; give it texts", value.type_str())),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(", "))
}

fn words(key: &str, table: toml::Table, names: &[&str]) -> Result<String, String> {
    let known = |name: &String| names.contains(&name.as_str());
    if let Some(strange) = table.keys().find(|name| !known(name)) {
        return Err(format!(
            "unknown key {:?}; known are {}",
            plain(&format!("{key}.{strange}"), SHOWN_MAX),
            names.join(", ")
        ));
    }
    let words = names.iter().filter_map(|name| match table.get(*name)? {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    });
    Ok(words.collect::<Vec<_>>().join(" "))
}

/// Returns a job as TOML, which [`jobs`] reads.
pub(super) fn of_job(job: &Job) -> Result<String, Failure> {
    let definition = job.definition().map_err(|why| Failure::new(FAILURE, why))?;
    if definition.payload.as_ref().is_some_and(|payload| payload.text().is_none()) {
        let text = "the payload is not text, so it cannot be edited; store the job again by a program";
        return Err(Failure::new(FAILURE, text));
    }
    let mut text = format!("name = {}\n", quoted(job.name()));
    for (name, value) in definition::fields_of(&definition) {
        text += &format!("{name} = {}\n", quoted(&value));
    }
    Ok(text)
}

/// Returns a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '\n' => quoted += "\\n",
            c if quorate::plain::steers(c) => quoted += &format!("\\U{:08X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

fn plain_lines(text: &str) -> String {
    text.lines().map(|line| plain(line, SHOWN_MAX)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "name = \"digest\"\nschedule = \"0 7 * * *\"\nzone = \"Europe/Kyiv\"\nhandler = \"mail\"\n\
                          payload = { to = \"me\" }\nmisfire = { rule = \"run-all\", within = \"2h\" }\nretries = { attempts = 3 }\n";

    fn text(job: &Job) -> String {
        job.definition().unwrap().to_text().to_string()
    }

    #[test]
    fn toml_and_json_give_the_same_jobs_and_are_read_back() {
        let toml = jobs(DIGEST).unwrap();
        let json = r#"[{"name": "digest", "schedule": "0 7 * * *", "zone": "Europe/Kyiv", "handler": "mail",
            "payload": {"to": "me"}, "misfire": "run-all 2h", "retries": 3}]"#;
        assert_eq!(text(&jobs(json).unwrap()[0]), text(&toml[0]));
        let written = of_job(&toml[0]).unwrap();
        assert!(written.contains("payload = \"{\\\"to\\\":\\\"me\\\"}\""), "{written}");
        assert_eq!(text(&jobs(&written).unwrap()[0]), text(&toml[0]));
        let rules = "name = \"a\"\nevery = \"1s\"\nhandler = \"h\"\nruns_on = { labels = [\"eu\", \"ssd\"] }\nexcept = [\"2027-12-25\", 2027-12-26]\n\
                     concurrency = { key = \"the database\", limit = 2 }\n";
        let rules = jobs(rules).unwrap();
        assert_eq!(text(&jobs(&of_job(&rules[0]).unwrap()).unwrap()[0]), text(&rules[0]));
        assert!(
            text(&rules[0]).contains(r#""concurrency":{"key":"the database","limit":2}"#),
            "{}",
            text(&rules[0])
        );
        let follows = jobs("name = \"a\"\nhandler = \"h\"\nafter = { job = \"b\" }").unwrap();
        assert_eq!(follows[0].schedule().to_string(), "after each success of \"b\"");
        let two = "[[job]]\nname = \"a\"\nevery = \"1s\"\nhandler = \"h\"\n[[job]]\nname = \"b\"\nat = 2027-01-01T00:00:00Z\nhandler = \"h\"\n";
        let names: Vec<_> = jobs(two).unwrap().iter().map(|job| job.name().to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_control_character_of_a_stored_job_does_not_reach_the_editor() {
        let payload = quorate::scheduler::Payload::new("a\u{1b}[2J\u{202e}").unwrap();
        let job = Job::named(
            "j",
            quorate::scheduler::Schedule::every(std::time::Duration::from_secs(1)).unwrap(),
            "h",
        )
        .payload(payload);
        let written = of_job(&job).unwrap();
        assert!(!written.contains(['\u{1b}', '\u{202e}']), "{written:?}");
        assert_eq!(text(&jobs(&written).unwrap()[0]), text(&job));
    }

    #[test]
    fn a_wrong_text_names_the_job_the_key_and_the_fix() {
        for (text, part) in [
            ("", "the job 1: name is missing"),
            ("job = []", "there is no job"),
            ("name = \"a\"\nhandlr = \"h\"", "the job \"a\": unknown key \"handlr\"; did you mean handler?"),
            ("name = \"a\"\nhandler = \"h\"", "the job \"a\": schedule is missing"),
            ("name = \"a\"\nhandler = [1]", "handler is a array; give it a text"),
            ("name = \"a\"\nevery = \"1s\"", "handler is missing"),
            ("{\"name\": ", "TOML parse error"),
            ("name = \"a\"\nexpect = \"absent\"", "unknown key \"expect\""),
            ("name = \"a\"\nrules = 1\nevery = \"1s\"", "unknown key \"rules\""),
            ("name = \"a\"\nruns_on = { label = \"eu\" }", "runs_on is a table without labels"),
            ("name = \"a\"\nruns_on = { labels = [], some = true }", "runs_on is a table without labels"),
            ("name = \"a\"\nmisfire = { rul = \"skip\" }", "unknown key \"misfire.rul\""),
        ] {
            let error = jobs(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

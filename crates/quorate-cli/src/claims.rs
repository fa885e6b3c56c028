//! `quorate claims`: the messages of a set of claims.

use crate::{
    args::{ClaimsCommand, ClaimsListArgs, ClaimsResetArgs, ClaimsShowArgs},
    config::Config,
    connect::{self, PATIENCE},
    exit::{CONFIG, CONFLICT, FAILURE, Failure, NO_QUORUM, NOT_FOUND},
    show,
    stored_names::{self, Listing},
    table::table,
    time::rfc3339,
};
use futures_util::{StreamExt, stream};
use quorate::{
    AcquireError, Claims,
    admin::NamesQuery,
    claim::{ClaimError, ClaimState, DeadLettered, Done},
    plain::plain,
    quorum::Quorum,
};
use serde::Serialize;

/// The longest id, name or text that is shown, in bytes.
const TEXT_MAX: usize = 1_000;
/// The number of messages that are read at a time.
const CONCURRENT_READS: usize = 64;

/// The output of `claims show` and `claims dead-letters`.
#[derive(Debug, Serialize)]
struct Page {
    set: String,
    messages: Vec<Message>,
    /// The number of messages that were read.
    examined: usize,
    /// False if more messages are stored than `--limit` permits.
    complete: bool,
    /// The nodes that could not be asked, each with the reason.
    missing: Vec<String>,
}

/// The state of one message.
#[derive(Debug, Serialize)]
struct Message {
    id: String,
    /// `free`, `claimed`, `done` or `dead-lettered`.
    state: &'static str,
    /// The worker that holds the message.
    holder: Option<String>,
    /// The time for which the claim lasts if it is not extended.
    remaining_ms: Option<u64>,
    /// The number of attempts that have begun, if they are counted.
    attempts: Option<u32>,
    /// The time at which the message was completed or given up.
    at: Option<String>,
    /// The result of a message that is done, or the note of a dead letter.
    result: Option<String>,
}

/// The output of `claims reset`.
#[derive(Debug, Serialize)]
struct ResetPage {
    set: String,
    id: String,
    reset: bool,
    error: Option<String>,
}

/// Runs one of the commands, and returns the exit status.
pub(crate) async fn claims(command: &ClaimsCommand, config: &Config) -> Result<u8, Failure> {
    match command {
        ClaimsCommand::Show(ClaimsShowArgs { list, id: Some(id) }) => show_one(list, id, config).await,
        ClaimsCommand::Show(ClaimsShowArgs { list, id: None }) => show_all(list, config, |_| true).await,
        ClaimsCommand::DeadLetters(list) => {
            show_all(list, config, |message| message.state == "dead-lettered").await
        }
        ClaimsCommand::Reset(args) => reset(args, config).await,
    }
}

async fn show_one(args: &ClaimsListArgs, id: &str, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::only_looking(config)?;
    let claims = Claims::new(&quorum, &args.set);
    quorum.met(PATIENCE).await;
    let found = claims.inspect(id).await;
    quorum.close().await;
    let message = Message::new(id, &found.map_err(|error| failure(&error))?);
    let is_new = message.state == "free" && message.attempts == Some(0);
    let page = Page::new(args, vec![message], 1);
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(if is_new { NOT_FOUND } else { 0 })
}

async fn show_all(
    args: &ClaimsListArgs,
    config: &Config,
    selects: impl Fn(&Message) -> bool,
) -> Result<u8, Failure> {
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let query = NamesQuery::claims(&args.set, most).map_err(|error| Failure::new(CONFIG, error))?;
    let Listing { resources, is_cut, missing } = stored_names::list(config, &query).await?;
    let ids: Vec<&str> =
        resources.iter().filter_map(|found| found.key().strip_prefix(query.begin())).collect();
    let quorum = connect::only_looking(config)?;
    quorum.met(PATIENCE).await;
    let found = inspect(&quorum, &args.set, &ids).await;
    quorum.close().await;
    let messages = found?.into_iter().filter(selects).collect();
    let missing = missing.iter().map(|node| plain(node, TEXT_MAX)).collect();
    let page = Page { complete: !is_cut, missing, ..Page::new(args, messages, ids.len()) };
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(0)
}

async fn inspect(quorum: &Quorum, set: &str, ids: &[&str]) -> Result<Vec<Message>, Failure> {
    let claims = Claims::new(quorum, set);
    let reads = ids.iter().map(|id| {
        let claims = &claims;
        async move { claims.inspect(id).await.map(|state| Message::new(id, &state)) }
    });
    let read: Vec<_> = stream::iter(reads).buffered(CONCURRENT_READS).collect().await;
    read.into_iter().map(|read| read.map_err(|error| failure(&error))).collect()
}

async fn reset(args: &ClaimsResetArgs, config: &Config) -> Result<u8, Failure> {
    // The command first only reads. If the list of nodes is mistyped, it finds no message, and ends before it has
    // written markers to these nodes.
    let looking = connect::only_looking(config)?;
    let claims = Claims::new(&looking, &args.set);
    looking.met(PATIENCE).await;
    let found = claims.inspect(&args.id).await;
    looking.close().await;
    let found = found.map_err(|error| failure(&error))?;
    if matches!(found, ClaimState::Free { attempts: 0, payload: None }) {
        let text = format!(
            "{}: the nodes store nothing of the message {}",
            plain(&args.set, TEXT_MAX),
            plain(&args.id, TEXT_MAX)
        );
        return Err(Failure::new(NOT_FOUND, text));
    }
    let quorum = connect::quorum(config, config.settings.clone())?;
    // A missing quorum is no error here: the reset then fails, and names the reason of each node.
    let _ = quorum.ready(PATIENCE).await;
    let result = Claims::new(&quorum, &args.set).reset(&args.id).await;
    quorum.close().await;
    let page = ResetPage {
        set: plain(&args.set, TEXT_MAX),
        id: plain(&args.id, TEXT_MAX),
        reset: result.is_ok(),
        error: result.as_ref().err().map(|error| plain(&error.to_string(), TEXT_MAX * 4)),
    };
    match &result {
        Err(error) if !args.json => return Err(failure(error)),
        _ if args.json => show::print(&show::json(&page)?)?,
        _ => show::print(&format!("{}: the message {} counts as new\n", page.set, page.id))?,
    }
    Ok(result.as_ref().err().map_or(0, code))
}

fn failure(error: &ClaimError) -> Failure {
    match error {
        ClaimError::NoMajority(report) => connect::no_quorum(report.failed(), report),
        ClaimError::Acquire(
            AcquireError::Unreachable { report, .. } | AcquireError::Untrusted { report, .. },
        ) => connect::no_quorum(report.failed(), report),
        _ => Failure::new(code(error), error),
    }
}

fn code(error: &ClaimError) -> u8 {
    match error {
        ClaimError::NoMajority(_) => NO_QUORUM,
        ClaimError::InProgress { .. } | ClaimError::TakenOver { .. } => CONFLICT,
        ClaimError::Acquire(AcquireError::Setting(_)) => CONFIG,
        ClaimError::Acquire(_) => NO_QUORUM,
        _ => FAILURE,
    }
}

impl Page {
    fn new(args: &ClaimsListArgs, messages: Vec<Message>, examined: usize) -> Self {
        Self { set: plain(&args.set, TEXT_MAX), messages, examined, complete: true, missing: Vec::new() }
    }

    fn for_people(&self) -> String {
        let mut text = if self.messages.is_empty() {
            format!("{}: no such message, of {} that the nodes store\n", self.set, self.examined)
        } else {
            let rows: Vec<[String; 6]> = self.messages.iter().map(Message::row).collect();
            table(["ID", "STATE", "HOLDER", "ATTEMPTS", "AT", "RESULT"], &rows)
        };
        if !self.complete {
            text += &format!(
                "there are more messages than the {} that were read: raise --limit\n",
                self.examined
            );
        }
        for node in &self.missing {
            text += &format!("not asked: {node}\n");
        }
        text
    }
}

impl Message {
    fn new(id: &str, state: &ClaimState) -> Self {
        let free = Self {
            id: plain(id, TEXT_MAX),
            state: "free",
            holder: None,
            remaining_ms: None,
            attempts: None,
            at: None,
            result: None,
        };
        match state {
            ClaimState::Free { attempts, .. } => Self { attempts: Some(*attempts), ..free },
            ClaimState::Claimed { by, remaining, attempts, .. } => Self {
                state: "claimed",
                holder: by.as_ref().map(|by| plain(by.worker(), TEXT_MAX)),
                remaining_ms: remaining.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
                attempts: Some(*attempts),
                ..free
            },
            ClaimState::Done(Done { result, at, .. }) => {
                let result = Some(plain(result, TEXT_MAX));
                Self { state: "done", at: Some(rfc3339(*at)), result, ..free }
            }
            ClaimState::DeadLettered(DeadLettered { attempts, at, note }) => Self {
                state: "dead-lettered",
                attempts: Some(*attempts),
                at: at.map(rfc3339),
                result: Some(plain(note, TEXT_MAX)),
                ..free
            },
            // The enum is non-exhaustive.
            _ => Self { state: "unknown", ..free },
        }
    }

    fn row(&self) -> [String; 6] {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let left = self.remaining_ms.map(|ms| format!(" for another {:.1} s", ms as f64 / 1e3));
        let holder = self.holder.as_ref().map(|holder| format!("{holder}{}", left.unwrap_or_default()));
        let attempts = self.attempts.filter(|attempts| *attempts > 0).map(|attempts| attempts.to_string());
        [
            self.id.clone(),
            self.state.to_owned(),
            shown(holder),
            shown(attempts),
            shown(self.at.clone()),
            shown(self.result.clone()),
        ]
    }
}

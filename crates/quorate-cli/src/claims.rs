//! `quorate claims`: the messages of a set of claims.

use crate::{
    args::{ClaimsCommand, ClaimsListArgs, ClaimsShowArgs},
    config::Config,
    connect,
    exit::{CONFIG, Failure, NOT_FOUND},
    failures, operate,
    progress::Progress,
    show,
    stored_names::{self, Listing},
    table::{Cell, table},
    terminal::Tone,
    time::rfc3339,
};
use futures_util::{StreamExt, stream};
use quorate::{Claims, admin::NamesQuery, claim::ClaimError, plain::plain, quorum::Quorum};
use quorate_operator::view::{MessageState, MessageView};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// The longest id, name or text that is shown, in bytes.
const TEXT_MAX: usize = 1_000;
/// The number of messages that are read at a time.
const CONCURRENT_READS: usize = 64;

/// The output of `claims show` and `claims dead-letters`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Messages")]
pub(crate) struct Page {
    set: String,
    messages: Vec<MessageView>,
    /// The number of messages that were read.
    examined: usize,
    /// False if more messages are stored than `--limit` permits.
    complete: bool,
    /// The nodes that could not be asked, each with the reason.
    missing: Vec<String>,
}

/// Runs one of the commands, and returns the exit status.
pub(crate) async fn claims(command: &ClaimsCommand, config: &Config) -> Result<u8, Failure> {
    match command {
        ClaimsCommand::Show(ClaimsShowArgs { list, id: Some(id) }) => show_one(list, id, config).await,
        ClaimsCommand::Show(ClaimsShowArgs { list, id: None }) => show_all(list, config, false).await,
        ClaimsCommand::DeadLetters(list) => show_all(list, config, true).await,
        ClaimsCommand::Reset(args) => operate::reset(args, config).await,
    }
}

async fn show_one(args: &ClaimsListArgs, id: &str, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::looking(config).await?;
    let found = read_one(&quorum, &args.set, id).await;
    quorum.close().await;
    let (page, code) = found?;
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(code)
}

async fn show_all(args: &ClaimsListArgs, config: &Config, only_dead: bool) -> Result<u8, Failure> {
    let quorum = connect::looking(config).await?;
    let progress = Progress::new(quorum.env(), stored_names::WORK, None);
    let page = progress.during(read_all(&quorum, config, &args.set, args.limit, only_dead)).await;
    quorum.close().await;
    let page = page?;
    show::print_page(args.json, &page, || page.for_people())?;
    Ok(0)
}

/// Returns the JSON document that `claims show SET ID` prints with `--json`, and its exit status.
pub(crate) async fn one_json(quorum: &Quorum, set: &str, id: &str) -> Result<(String, u8), Failure> {
    let (page, code) = read_one(quorum, set, id).await?;
    Ok((show::json(&page)?, code))
}

/// Returns the JSON document that `claims show SET` prints with `--json`, or that of `claims dead-letters`.
pub(crate) async fn all_json(
    quorum: &Quorum,
    config: &Config,
    set: &str,
    limit: u32,
    only_dead: bool,
) -> Result<String, Failure> {
    show::json(&read_all(quorum, config, set, limit, only_dead).await?)
}

async fn read_one(quorum: &Quorum, set: &str, id: &str) -> Result<(Page, u8), Failure> {
    let found = Claims::new(quorum, set).inspect(id).await.map_err(|error| failures::of_claims(&error))?;
    let message = MessageView::new(id, &found);
    let is_new = message.state == MessageState::Free && message.attempts == Some(0);
    Ok((Page::new(set, vec![message], 1), if is_new { NOT_FOUND } else { 0 }))
}

async fn read_all(
    quorum: &Quorum,
    config: &Config,
    set: &str,
    limit: u32,
    only_dead: bool,
) -> Result<Page, Failure> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let (found, complete, missing) = read(quorum, config, set, most).await?;
    let examined = found.len();
    let is_shown = |message: &MessageView| !only_dead || message.state == MessageState::DeadLettered;
    let messages = found.into_iter().filter(is_shown).collect();
    let missing = missing.iter().map(|node| plain(node, TEXT_MAX)).collect();
    Ok(Page { complete, missing, ..Page::new(set, messages, examined) })
}

/// Messages, whether these are all messages of the set, and the nodes that could not be asked.
type States = (Vec<MessageView>, bool, Vec<String>);

/// Reads at most `limit` messages of a set.
pub(crate) async fn read(
    quorum: &Quorum,
    config: &Config,
    set: &str,
    limit: usize,
) -> Result<States, Failure> {
    let query = NamesQuery::claims(set, limit).map_err(|error| Failure::new(CONFIG, error))?;
    let Listing { resources, is_cut, missing } = stored_names::list(config, &query).await?;
    let ids: Vec<Arc<str>> = resources.iter().filter_map(|found| Some(found.message_id()?.into())).collect();
    let claims = Claims::new(quorum, set);
    let reads = ids.into_iter().map(|id| {
        let claims = &claims;
        async move { claims.inspect(&id).await.map(|state| MessageView::new(&id, &state)) }
    });
    let read: Vec<_> = stream::iter(reads).buffered(CONCURRENT_READS).collect().await;
    let read: Result<Vec<_>, ClaimError> = read.into_iter().collect();
    Ok((read.map_err(|error| failures::of_claims(&error))?, !is_cut, missing))
}

impl Page {
    fn new(set: &str, messages: Vec<MessageView>, examined: usize) -> Self {
        Self { set: plain(set, TEXT_MAX), messages, examined, complete: true, missing: Vec::new() }
    }

    fn for_people(&self) -> String {
        let mut text = if self.messages.is_empty() {
            format!("{}: no such message, of {} that the nodes store\n", self.set, self.examined)
        } else {
            let rows: Vec<[Cell; 6]> = self.messages.iter().map(row).collect();
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

fn row(message: &MessageView) -> [Cell; 6] {
    let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let left = message.remaining.map(|left| format!(" for another {:.1} s", left.as_secs_f64()));
    let holder = message.holder.as_ref().map(|holder| format!("{holder}{}", left.unwrap_or_default()));
    let attempts = message.attempts.filter(|attempts| *attempts > 0).map(|attempts| attempts.to_string());
    let is_dead = message.state == MessageState::DeadLettered;
    [
        plain(&message.id, TEXT_MAX).into(),
        Cell::new(message.state.as_str(), if is_dead { Tone::Trouble } else { Tone::Plain }),
        shown(holder).into(),
        shown(attempts).into(),
        shown(message.at.map(rfc3339)).into(),
        shown(message.result.clone()).into(),
    ]
}

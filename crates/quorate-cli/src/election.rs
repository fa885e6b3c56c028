//! The command `quorate election resign`.

use crate::{
    args::ResignArgs,
    config::{Config, Environment},
    connect::{self, PATIENCE},
    exit::{CONFIG, CONFLICT, Failure, NO_QUORUM, NOT_FOUND},
    operator::{Entry, Operator},
    progress::Progress,
    show,
};
use quorate::{
    election::{Election, Leader, ResignError},
    node::FencingToken,
    plain::plain,
    quorum::Quorum,
};
use serde::Serialize;
use std::time::Duration;

/// The longest name of a worker that is shown, in bytes.
const NAME_MAX: usize = 200;

/// The output of `election resign`.
#[derive(Debug, Serialize)]
struct Page {
    group: String,
    resigned: bool,
    /// The leader that was asked to resign. If the current term is not the one that `--term` names, this is
    /// the present leader, which was not asked to resign.
    leader: Option<String>,
    term: Option<u64>,
    /// The leader after the resignation.
    successor: Option<String>,
    successor_term: Option<u64>,
    error: Option<String>,
}

/// Asks the leader to resign, and waits until it has resigned.
pub(crate) async fn resign(
    args: &ResignArgs,
    config: &Config,
    environment: &Environment<'_>,
) -> Result<u8, Failure> {
    let Some(group) = args.group.as_deref().or(config.group.as_deref()) else {
        let text = "no group; name it with --group, or in the file as group = \"billing\"";
        return Err(Failure::new(CONFIG, text));
    };
    // A quorum that only reads checks first whether there is a leader. If the list of nodes is mistyped, this
    // check finds no leader, and the command ends before it has written markers to these nodes.
    let looking = connect::only_looking(config)?;
    let led = has_leader(&looking, group).await;
    looking.close().await;
    let result = match led? {
        false => Err(ResignError::NoLeader { group: group.to_owned() }),
        true => {
            let quorum = connect::quorum(config, config.settings.clone())?;
            // A missing quorum is not reported here, because the request below then fails with the reason for
            // each node.
            let _ = quorum.ready(PATIENCE).await;
            let mut observer = observer(&quorum, group)?;
            let progress =
                Progress::new(quorum.env(), "waiting until the leader has resigned", Some(args.wait));
            let asked = observer.ask_to_resign(args.term.map(FencingToken::new), args.wait);
            let result = progress.during(asked).await;
            note(&quorum, group, &Operator::new(&args.operator, environment), &result).await;
            quorum.close().await;
            result
        }
    };
    let page = Page::new(group, &result);
    match &result {
        Ok(_) if !args.json => show::print(&page.for_people())?,
        Err(error) if !args.json => return Err(failure(error)),
        _ => show::print(&show::json(&page)?)?,
    }
    Ok(result.as_ref().err().map_or(0, code))
}

/// Asks the leader to resign. Returns the JSON document that the command prints with `--json`, and its exit status.
pub(crate) async fn json(
    quorum: &Quorum,
    group: &str,
    term: Option<u64>,
    wait: Duration,
    operator: &Operator,
) -> Result<(String, u8), Failure> {
    let result = observer(quorum, group)?.ask_to_resign(term.map(FencingToken::new), wait).await;
    note(quorum, group, operator, &result).await;
    let code = result.as_ref().err().map_or(0, code);
    Ok((show::json(&Page::new(group, &result))?, code))
}

/// Enters the request in the audit list, if there was a leader that it was sent to.
async fn note(
    quorum: &Quorum,
    group: &str,
    operator: &Operator,
    result: &Result<(Leader, Option<Leader>), ResignError>,
) {
    let result = match result {
        Ok((leader, _)) => Ok(format!("{} resigned", plain(&leader.worker, NAME_MAX))),
        Err(error @ ResignError::LeadsOn { .. }) => Err(error.to_string()),
        Err(_) => return,
    };
    let target = format!("election/{group}");
    let result = result.as_deref().map_err(String::as_str);
    operator.note(quorum, &Entry { action: "resign", target: &target, group: Some(group), result }).await;
}

fn failure(error: &ResignError) -> Failure {
    match error {
        ResignError::NoMajority(error) => connect::no_quorum(error.failed(), error),
        _ => Failure::new(code(error), error),
    }
}

fn code(error: &ResignError) -> u8 {
    match error {
        ResignError::NoLeader { .. } | ResignError::OtherTerm { .. } => NOT_FOUND,
        ResignError::LeadsOn { .. } => CONFLICT,
        _ => NO_QUORUM,
    }
}

pub(crate) fn observer(quorum: &Quorum, group: &str) -> Result<quorate::election::Observer, Failure> {
    Election::new(quorum, group).observe().map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))
}

async fn has_leader(quorum: &Quorum, group: &str) -> Result<bool, Failure> {
    let mut observer = observer(quorum, group)?;
    connect::meet(quorum).await;
    let leader = observer.leader().await.map_err(|error| failure(&ResignError::NoMajority(error)))?;
    Ok(leader.is_some())
}

impl Page {
    fn new(group: &str, result: &Result<(Leader, Option<Leader>), ResignError>) -> Self {
        let (leader, successor) = match result {
            Ok((who, successor)) => (Some(who), successor.as_ref()),
            Err(ResignError::OtherTerm { leader, .. } | ResignError::LeadsOn { leader, .. }) => {
                (Some(leader), None)
            }
            Err(_) => (None, None),
        };
        let name = |leader: &Leader| plain(&leader.worker, NAME_MAX);
        let term = |leader: &Leader| leader.term.map(FencingToken::get);
        Self {
            group: group.to_owned(),
            resigned: result.is_ok(),
            leader: leader.map(name),
            term: leader.and_then(term),
            successor: successor.map(name),
            successor_term: successor.and_then(term),
            error: result.as_ref().err().map(ToString::to_string),
        }
    }

    fn for_people(&self) -> String {
        let shown = |name: &str, term: Option<u64>| {
            let term = term.map_or_else(String::new, |term| format!(" (term {term})"));
            format!("{name}{term}")
        };
        let leader = shown(self.leader.as_deref().unwrap_or("the leader"), self.term);
        let now = match &self.successor {
            Some(successor) => format!("{} leads now", shown(successor, self.successor_term)),
            None => "there is no new leader yet".to_owned(),
        };
        format!("{}: {leader} has resigned; {now}\n", show::line(&self.group, NAME_MAX))
    }
}

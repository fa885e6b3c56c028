//! `quorate lead resign`.

use crate::{
    args::ResignArgs,
    config::Config,
    connect,
    exit::{CONFIG, CONFLICT, Failure, NO_QUORUM, NOTHING},
    show,
    status::PATIENCE,
};
use quorate::{
    election::{Election, Leader, ResignError, Resigned},
    internals::majority,
    node::FencingToken,
    plain::plain,
    quorum::{Quorum, QuorumConfig},
};
use serde::Serialize;

/// The most bytes of a worker's name that are shown.
const NAME_MAX: usize = 200;

/// What `lead resign` tells.
#[derive(Debug, Serialize)]
struct Page {
    group: String,
    resigned: bool,
    /// Who led.
    leader: Option<String>,
    term: Option<u64>,
    /// Who leads now.
    successor: Option<String>,
    successor_term: Option<u64>,
    error: Option<String>,
}

/// Asks the leader to resign, and waits until it has.
pub(crate) async fn resign(args: &ResignArgs, config: &Config) -> Result<u8, Failure> {
    let Some(group) = args.group.as_deref().or(config.group.as_deref()) else {
        let text = "no group; name it with --group, or in the file as group = \"billing\"";
        return Err(Failure::new(CONFIG, text));
    };
    // A mistyped list of nodes must not be marked as a cluster, just because nobody leads there.
    let looking = connect::quorum(config, QuorumConfig { only_looks: true, ..config.setup.clone() })?;
    let led = leads(&looking, group).await;
    looking.close().await;
    let asked = match led? {
        false => Err(ResignError::NobodyLeads { group: group.to_owned() }),
        true => {
            let quorum = connect::quorum(config, config.setup.clone())?;
            // Without a quorum the request reports what each node said.
            let _ = quorum.ready(PATIENCE).await;
            let mut observer = observer(&quorum, group)?;
            let asked = observer.ask_to_resign(args.term.map(FencingToken::new), args.wait).await;
            quorum.close().await;
            asked
        }
    };
    let code = match &asked {
        Ok(_) => 0,
        Err(ResignError::NobodyLeads { .. } | ResignError::OtherTerm { .. }) => NOTHING,
        Err(ResignError::NotObeyed { .. }) => CONFLICT,
        Err(_) => NO_QUORUM,
    };
    let page = Page::of(group, &asked);
    let text = if args.json {
        show::json(&page)?
    } else if let Err(error) = &asked {
        return Err(Failure::new(code, error));
    } else {
        page.for_people()
    };
    show::print(&text);
    Ok(code)
}

fn observer(quorum: &Quorum, group: &str) -> Result<quorate::election::Observer, Failure> {
    Election::new(quorum, group).observe().map_err(|error| Failure::new(CONFIG, format!("--group: {error}")))
}

/// Whether anybody leads.
async fn leads(quorum: &Quorum, group: &str) -> Result<bool, Failure> {
    let mut observer = observer(quorum, group)?;
    let nodes = quorum.met(PATIENCE).await;
    let unmet = |_| {
        let (all, needed) = (nodes.len(), majority(nodes.len()));
        Failure::new(
            NO_QUORUM,
            format!("{}\n({needed} of {all} must answer)", connect::explain(&quorum.nodes())),
        )
    };
    Ok(observer.leader().await.map_err(unmet)?.is_some())
}

impl Page {
    fn of(group: &str, asked: &Result<Resigned, ResignError>) -> Self {
        let (who, successor) = match asked {
            Ok(Resigned { who, successor }) => (Some(who), successor.as_ref()),
            Err(ResignError::OtherTerm { leader, .. } | ResignError::NotObeyed { leader, .. }) => {
                (Some(leader), None)
            }
            Err(_) => (None, None),
        };
        let name = |leader: &Leader| plain(&leader.worker, NAME_MAX);
        let term = |leader: &Leader| leader.term.map(FencingToken::get);
        Self {
            group: group.to_owned(),
            resigned: asked.is_ok(),
            leader: who.map(name),
            term: who.and_then(term),
            successor: successor.map(name),
            successor_term: successor.and_then(term),
            error: asked.as_ref().err().map(ToString::to_string),
        }
    }

    fn for_people(&self) -> String {
        let shown = |name: &Option<String>, term: Option<u64>| {
            let term = term.map_or_else(String::new, |term| format!(" (term {term})"));
            format!("{}{term}", name.as_deref().unwrap_or("nobody"))
        };
        format!(
            "{}: {} has resigned; {} leads now\n",
            show::line(&self.group, NAME_MAX),
            shown(&self.leader, self.term),
            shown(&self.successor, self.successor_term)
        )
    }
}

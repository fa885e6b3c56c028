//! `quorate shards list`.

use crate::{
    args::ShardsListArgs,
    config::Config,
    connect,
    exit::{CONFIG, Failure, NO_QUORUM},
    show,
    table::{Cell, table},
};
use quorate::{
    quorum::Quorum,
    shards::{ShardSet, ShardSetError},
};
use quorate_operator::view::{ShardSetView, ShardView, ShardWorkerView};
use schemars::JsonSchema;
use serde::Serialize;

/// The exit status if there is no such set.
const NO_SET: u8 = 1;

/// All sets.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ShardSets")]
pub(crate) struct Page {
    sets: Vec<ShardSetView>,
}

/// Shows the sets, or one of them.
pub(crate) async fn list(args: &ShardsListArgs, config: &Config) -> Result<u8, Failure> {
    let quorum = connect::looking(config).await?;
    let shown = show(args, &quorum).await;
    quorum.close().await;
    shown
}

async fn show(args: &ShardsListArgs, quorum: &Quorum) -> Result<u8, Failure> {
    let Some(name) = &args.set else {
        let sets = Page::read(quorum).await?;
        show::print_page(args.json, &sets, || sets.for_people())?;
        return Ok(0);
    };
    let read = ShardSet::read(quorum, name).await.map_err(|error| failed(&error))?;
    let Some(set) = read else {
        let text = format!("no worker runs the set {name:?}; `quorate shards list` shows the sets");
        return Err(Failure::new(NO_SET, text));
    };
    let set = ShardSetView::new(&set);
    show::print_page(args.json, &set, || for_people(&set))?;
    Ok(0)
}

/// Returns the sets as one JSON document.
pub(crate) async fn json(quorum: &Quorum) -> Result<String, Failure> {
    show::json(&Page::read(quorum).await?)
}

fn failed(error: &ShardSetError) -> Failure {
    let code = if matches!(error, ShardSetError::Setting(_)) { CONFIG } else { NO_QUORUM };
    Failure::new(code, format!("cannot read the shards: {error}"))
}

impl Page {
    async fn read(quorum: &Quorum) -> Result<Self, Failure> {
        let sets = ShardSet::read_all(quorum).await.map_err(|error| failed(&error))?;
        Ok(Self { sets: sets.iter().map(ShardSetView::new).collect() })
    }

    fn for_people(&self) -> String {
        if self.sets.is_empty() {
            return "no worker runs a set of shards\n".to_owned();
        }
        let row = |set: &ShardSetView| -> [Cell; 5] {
            let (shards, workers) =
                (format!("{} of {}", set.owned, set.count), set.workers.len().to_string());
            [(&set.name).into(), shards.into(), workers.into(), or_dash(&set.leader), set.state_text().into()]
        };
        let rows: Vec<_> = self.sets.iter().map(row).collect();
        table(["SET", "OWNED", "WORKERS", "LEADER", "STATE"], &rows)
    }
}

fn for_people(set: &ShardSetView) -> String {
    let leader = set.leader.as_deref().unwrap_or("no worker");
    let mut text = format!("{}: {} shards, led by {leader}; {}\n\n", set.name, set.count, set.state_text());
    let workers: Vec<_> = set.workers.iter().map(worker_row).collect();
    text += &table(["WORKER", "STATE", "WEIGHT", "OWNS"], &workers);
    text += "\n";
    let shards: Vec<_> = set.shards.iter().map(shard_row).collect();
    text + &table(["SHARD", "OWNER", "NEXT", "ENDS IN", "TOKEN"], &shards)
}

fn worker_row(worker: &ShardWorkerView) -> [Cell; 4] {
    let state = match worker.state {
        "waits" => format!("waits: it has --count {}", worker.count),
        state => state.to_owned(),
    };
    let owns = match worker.owned == worker.assigned {
        true => worker.owned.to_string(),
        false => format!("{} of {}", worker.owned, worker.assigned),
    };
    [(&worker.worker).into(), state.into(), worker.weight.to_string().into(), owns.into()]
}

fn shard_row(shard: &ShardView) -> [Cell; 5] {
    let next = shard.assigned.as_ref().filter(|_| shard.assigned != shard.owner);
    let left = shard.remaining.map(|left| format!("{:.1} s", left.as_secs_f64()));
    let token = shard.fencing_token.map(|token| token.to_string());
    [
        shard.number.to_string().into(),
        or_dash(&shard.owner),
        or_dash(&next.cloned()),
        or_dash(&left),
        or_dash(&token),
    ]
}

fn or_dash(text: &Option<String>) -> Cell {
    text.as_deref().unwrap_or("-").to_owned().into()
}

//! A worker process: claims messages in batches, has their effects in one transaction, completes them.

use super::{Mode, store};
use futures_util::future::join_all;
use quorate::{
    claim::{Claim, ClaimOutcome, Claims},
    env::Env,
    quorum::Quorum,
};
use quorate_postgres::{Effects, Once, tokio_postgres::Client};
use quorate_redis::Connect;
use quorate_tests::support::told_to_end;
use std::{error::Error, io::Write, process::ExitCode, time::Duration};

/// The first argument with which this program is a worker.
pub(crate) const ARGUMENT: &str = "__worker";

/// Messages claimed at one go.
const BATCH: usize = 50;
/// How long a worker thinks where it may be hit, and after how many batches each.
const THINKS: Duration = Duration::from_millis(25);
const THINKS_EACH: u64 = 8;

/// What a worker says on standard output.
pub(crate) mod says {
    /// It has claimed a batch; next it thinks, then it has the effects.
    pub(crate) const CLAIMED: &str = "claimed";
    /// The effects are committed; next it thinks, then it completes the claims.
    pub(crate) const COMMITTED: &str = "committed";
    /// Every message is done.
    pub(crate) const OVER: &str = "over";
}

type Failure = Box<dyn Error>;

/// The arguments that [`main`] reads.
pub(crate) fn to_args(
    member: usize,
    mode: Mode,
    ttl: Duration,
    messages: usize,
    database: &str,
    urls: &[String],
) -> Vec<String> {
    let head = [ARGUMENT.to_owned(), member.to_string(), mode.to_string(), ttl.as_millis().to_string()];
    head.into_iter().chain([messages.to_string(), database.to_owned()]).chain(urls.iter().cloned()).collect()
}

/// `args` are those after [`ARGUMENT`].
pub(crate) fn main(args: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(work(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("effects: worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(args: &[String]) -> Result<(), Failure> {
    let [member, mode, ttl, messages, database, urls @ ..] = args else {
        return Err("too few arguments".into());
    };
    // A worker that ended by itself could not be hit at the last thing that it said.
    let told = told_to_end()?;
    let (member, mode, messages): (usize, Mode, usize) = (member.parse()?, mode.parse()?, messages.parse()?);
    let ttl = Duration::from_millis(ttl.parse()?);
    let builder = Quorum::redis(urls)?.worker(&format!("{mode}-{member}")).max_ttl(ttl).trust_new_nodes(true);
    let quorum = builder.build()?;
    let mut worker = Worker {
        mode,
        env: quorum.env().clone(),
        claims: Claims::new(&quorum, &mode.to_string()).ttl(ttl),
        effects: Effects::new(&mode.to_string()),
        client: store::connect(database).await?,
        batches: 0,
    };
    let ids: Vec<String> = (0..messages).map(|number| format!("m-{number}")).collect();
    let batches: Vec<&[String]> = ids.chunks(BATCH).collect();
    // Each begins elsewhere, so that they meet only now and then.
    let mut todo: Vec<usize> =
        (0..batches.len()).map(|at| (at + member * batches.len() / 3) % batches.len()).collect();
    while !todo.is_empty() {
        let mut left = Vec::new();
        for at in todo {
            if !worker.handle(batches[at]).await? {
                left.push(at);
            }
        }
        todo = left;
        worker.env.sleep(THINKS).await;
    }
    say(says::OVER)?;
    told.await;
    quorum.close().await;
    Ok(())
}

struct Worker {
    mode: Mode,
    env: Env,
    claims: Claims,
    effects: Effects,
    client: Client,
    batches: u64,
}

impl Worker {
    /// Handles what is to be had of a batch; whether all of it is done.
    async fn handle(&mut self, ids: &[String]) -> Result<bool, Failure> {
        let (mut mine, mut done) = (Vec::new(), 0);
        for (_, outcome) in self.claims.claim_many(ids.iter().map(String::as_str)).await? {
            match outcome {
                Ok(ClaimOutcome::Claimed(claim)) => mine.push(claim),
                Ok(ClaimOutcome::Done { .. }) => done += 1,
                // Another has it, or too few servers answered: again, in the next pass.
                Ok(_) | Err(_) => {}
            }
        }
        if mine.is_empty() {
            return Ok(done == ids.len());
        }
        self.batches += 1;
        self.say_and_think(says::CLAIMED).await?;
        self.have_effects(&mine).await?;
        self.say_and_think(says::COMMITTED).await?;
        // A claim that was lost meanwhile is another's to complete, who will find the effect had.
        let completing = mine.into_iter().map(|claim| async move { claim.complete("").await.is_ok() });
        let completed = join_all(completing).await.into_iter().filter(|ok| *ok).count();
        Ok(done + completed == ids.len())
    }

    /// One transaction. No look at the claims: a pause may come after any look.
    async fn have_effects(&mut self, mine: &[Claim]) -> Result<(), Failure> {
        let transaction = self.client.transaction().await?;
        let messages: Vec<_> = mine.iter().map(|claim| (&**claim.id(), claim.token())).collect();
        let verdicts = match self.mode {
            Mode::With => self.effects.once_each(&transaction, &messages).await?,
            Mode::Without => vec![Once::First; messages.len()],
        };
        let first = messages.iter().zip(verdicts).filter(|(_, verdict)| *verdict == Once::First);
        let first: Vec<&str> = first.map(|((id, _), _)| *id).collect();
        let effect = format!("INSERT INTO {} SELECT unnest($1::text[])", store::table(self.mode));
        transaction.execute(&effect, &[&first]).await?;
        Ok(transaction.commit().await?)
    }

    async fn say_and_think(&self, what: &str) -> Result<(), Failure> {
        if self.batches.is_multiple_of(THINKS_EACH) {
            say(what)?;
            self.env.sleep(THINKS).await;
        }
        Ok(())
    }
}

/// One line, one write: once it returns the kernel has it.
fn say(what: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(format!("{what}\n").as_bytes())?;
    std::io::stdout().flush()
}

//! A worker process: lock, read, add, write, release, again and again.

use super::{
    Mode,
    store::{join, split},
};
use quorate::{env::Env, quorum::Quorum};
use quorate_redis::Connect;
use std::{collections::BTreeSet, error::Error, io::Write, process::ExitCode, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufStream},
    net::TcpStream,
};

/// The first argument with which this program is a worker.
pub(crate) const ARGUMENT: &str = "__worker";

/// How long a worker thinks between the read and the look, and between the look and the write.
const THINKS: Duration = Duration::from_millis(25);

/// What a worker says on standard output, each with the element that it is adding.
pub(crate) mod says {
    /// The set has been read; next it thinks.
    pub(crate) const READ: &str = "read";
    /// It has thought; next is the look, where there is one.
    pub(crate) const LOOKING: &str = "looking";
    /// The lease has been looked at, where it is; next is the write.
    pub(crate) const LOOKED: &str = "looked";
    /// The look said no.
    pub(crate) const SKIPPED: &str = "skipped";
    /// The store has acknowledged the write.
    pub(crate) const ACKNOWLEDGED: &str = "acknowledged";
}

type Failure = Box<dyn Error>;

/// The arguments that [`main`] reads.
pub(crate) fn to_args(member: usize, mode: Mode, ttl: Duration, store: u16, urls: &[String]) -> Vec<String> {
    let head = [ARGUMENT.to_owned(), member.to_string(), mode.to_string(), ttl.as_millis().to_string()];
    head.into_iter().chain([store.to_string()]).chain(urls.iter().cloned()).collect()
}

/// `args` are those after [`ARGUMENT`].
pub(crate) fn main(args: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(work(args)) {
        Ok(()) => ExitCode::SUCCESS,
        // The parent has gone, or the store with it.
        Err(error) => {
            eprintln!("lock-workload: worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(args: &[String]) -> Result<(), Failure> {
    let [member, mode, ttl, store, urls @ ..] = args else { return Err("too few arguments".into()) };
    let (member, mode): (u64, Mode) = (member.parse()?, mode.parse()?);
    let ttl = Duration::from_millis(ttl.parse()?);
    let mut store = Client::connect(store.parse()?).await?;
    let builder = Quorum::redis(urls)?.worker(&format!("{mode}-{member}")).max_ttl(ttl);
    let quorum = builder.build()?;
    let env = quorum.env().clone();
    let lock = quorum.lock(&format!("set-{mode}")).ttl(ttl);
    for element in member * 1_000_000.. {
        let lease = match lock.acquire().await {
            Ok(lease) => lease,
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(_) => continue,
        };
        if let Some(mut elements) = store.read(lease.token().get()).await? {
            say(says::READ, element)?;
            think(&env).await;
            say(says::LOOKING, element)?;
            if mode == Mode::Look && lease.fencing_token().is_err() {
                say(says::SKIPPED, element)?;
                continue;
            }
            say(says::LOOKED, element)?;
            think(&env).await;
            elements.insert(element);
            if store.write(lease.token().get(), element, &elements).await? {
                say(says::ACKNOWLEDGED, element)?;
            }
        }
        // Whoever was overtaken has nothing to release, and it is no matter to this workload.
        let _ = lease.release().await;
        think(&env).await;
    }
    Ok(())
}

/// Not in step with the others.
async fn think(env: &Env) {
    env.sleep(THINKS / 2 + env.random_below(THINKS)).await;
}

/// One line, one write: once it returns the kernel has it.
fn say(what: &str, element: u64) -> std::io::Result<()> {
    std::io::stdout().write_all(format!("{what} {element}\n").as_bytes())?;
    std::io::stdout().flush()
}

struct Client {
    stream: BufStream<TcpStream>,
    line: String,
}

impl Client {
    async fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufStream::new(stream), line: String::new() })
    }

    async fn read(&mut self, token: u64) -> Result<Option<BTreeSet<u64>>, Failure> {
        match self.ask(&format!("read {token}\n")).await?.split_once(' ') {
            Some(("set", elements)) => Ok(Some(split(elements).ok_or("no set of numbers")?)),
            _ => Ok(None),
        }
    }

    async fn write(&mut self, token: u64, added: u64, elements: &BTreeSet<u64>) -> Result<bool, Failure> {
        Ok(self.ask(&format!("write {token} {added} {}\n", join(elements))).await? == "ok")
    }

    async fn ask(&mut self, request: &str) -> Result<&str, Failure> {
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err("the store has gone".into());
        }
        Ok(self.line.trim_end_matches('\n'))
    }
}

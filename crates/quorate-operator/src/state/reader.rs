//! Reads the state of a group from the nodes, one round after the other, and remembers what one round cannot tell.

use super::{
    Detail, Examination, JobDetail, JobsView, Leadership, LeadershipPast, Messages, Missing, NodeSource,
    STRIP, SeenNode, Snapshot, source::client_leases, strips::Strips,
};
use crate::{
    Moment,
    view::{
        JobView, LeaderView, NodeView, Pause, RunEnd, ShardSetView, Vote, WhyView, WorkerView, name, text,
    },
};
use futures_util::{FutureExt, StreamExt, future::join_all, stream};
use quorate::{
    election::{Election, Observer},
    env::{BootTime, Env, ScopedTask, WallTime},
    internals::{GroupOverview, GroupWorker},
    quorum::Quorum,
    scheduler::{JobStatus, Jobs, JobsError},
    shards::ShardSet,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// The longest wait for the first handshakes with the nodes.
const MEET: Duration = Duration::from_secs(2);
/// The longest time for one read of the leader or of the jobs.
const PATIENCE: Duration = Duration::from_secs(3);
/// The histories that are read at the same time.
const AT_ONCE: usize = 16;
/// The number of round trips that are kept.
const TRIPS: usize = 180;
/// The number of history entries on the page of a job.
const ENTRIES: usize = 100;
/// The number of next runs on the page of a job.
const NEXT: usize = 5;
/// The most messages that are read.
const MESSAGES: usize = 1_000;
/// The age after which the part of a page is read again.
const DETAIL_AGE: Duration = Duration::from_secs(2);
/// The age after which messages and the facts of the nodes are read again. These reads are expensive.
const SLOW_AGE: Duration = Duration::from_secs(5);
/// The most parts of pages that are read in one round.
const DETAILS: usize = 8;

/// A part of the state that is read only while a viewer looks at it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A job, and why it did or did not run: at its latest tick, or at the time that a person has written, in the zone of the job.
    Job {
        /// The name of the job.
        name: String,
        /// The time.
        at: Option<String>,
    },
    /// The terms, and what was changed.
    Audit,
    /// The facts of the nodes.
    Examination,
    /// The messages of this set of claims.
    Messages(String),
}

/// The result of one round of reads.
#[derive(Debug)]
pub struct Round {
    /// The time at which the round began.
    pub began: BootTime,
    /// The state.
    pub state: Snapshot,
    /// The parts that were asked for, as far as they are known.
    pub details: BTreeMap<Key, Detail>,
}

/// A group that is read.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The election of the group. A candidate knows its leader before the nodes are asked.
    pub election: Election,
    /// The TTL of the leader's lease, if it is known.
    pub ttl: Option<Duration>,
    /// True if the group has jobs.
    pub jobs: bool,
    /// The reader of what a quorum does not know.
    pub source: Option<Arc<dyn NodeSource>>,
}

/// The reader of one group.
#[derive(Debug)]
pub struct Reader {
    quorum: Quorum,
    election: Election,
    env: Env,
    ttl: Option<Duration>,
    observer: Option<Observer>,
    jobs: Option<Jobs>,
    source: Option<Arc<dyn NodeSource>>,
    has_met: bool,
    nodes: Vec<NodeMemory>,
    vacant_since: Option<WallTime>,
    list: Arc<JobsView>,
    strips: Strips,
    details: BTreeMap<Key, (BootTime, Detail)>,
    slow: BTreeMap<Key, ScopedTask<Slow>>,
    examination: Option<Arc<Examination>>,
    /// The sets of shards, and the time at which they were read.
    shards: (Option<BootTime>, Arc<Vec<ShardSetView>>),
}

#[derive(Clone, Debug)]
struct NodeMemory {
    vote: Vote,
    since: WallTime,
    trips: VecDeque<Duration>,
}

/// The jobs of the group, its freeze, and the copies of its records.
type Listed = (Vec<JobStatus>, GroupOverview, Vec<GroupWorker>);

/// The result of a read that takes long.
#[derive(Debug)]
enum Slow {
    Examination(Examination),
    Messages(Result<Messages, String>),
}

impl Reader {
    /// Returns the reader of a group. If the name of the group cannot be used, it reads no leader and no jobs.
    pub fn new(watched: &Watched) -> Self {
        let Watched { election, ttl, jobs, source } = watched.clone();
        let quorum = election.quorum().clone();
        Self {
            env: quorum.env().clone(),
            observer: election.observe().ok(),
            jobs: jobs.then(|| Jobs::new(&quorum, election.group()).ok()).flatten(),
            election,
            quorum,
            ttl,
            source,
            has_met: false,
            nodes: Vec::new(),
            vacant_since: None,
            list: Arc::default(),
            strips: Strips::default(),
            details: BTreeMap::new(),
            slow: BTreeMap::new(),
            examination: None,
            shards: (None, Arc::default()),
        }
    }

    /// Ends the reads that take long, as no viewer waits for them, and forgets what would be out of date.
    pub fn rest(&mut self) {
        self.slow.clear();
        self.details.clear();
        self.strips.rest();
        self.vacant_since = None;
        self.nodes.clear();
    }

    /// Reads the state, with these parts.
    pub async fn read(&mut self, began: BootTime, keys: &[Key]) -> Round {
        if !self.has_met {
            self.quorum.met(MEET).await;
            self.has_met = true;
        }
        let deadline = began + PATIENCE;
        let leader = async {
            match &mut self.observer {
                Some(observer) => self.env.before(deadline, observer.leader()).await,
                None => None,
            }
        };
        let list = async {
            match &self.jobs {
                Some(jobs) => Some(self.env.before(deadline, list(jobs)).await),
                None => None,
            }
        };
        let is_old = self.shards.0.is_none_or(|read| read.until(began) >= SLOW_AGE);
        let shards = async {
            match is_old {
                true => self.env.before(deadline, ShardSet::read_all(&self.quorum)).await,
                false => None,
            }
        };
        let (leader, list, shards) = futures_util::join!(leader, list, shards);
        if let Some(Ok(sets)) = shards {
            self.shards = (Some(began), Arc::new(sets.iter().map(ShardSetView::new).collect()));
        }
        let at = self.env.wall();
        let (leader, unread_leader) = match leader {
            Some(Ok(leader)) => (Some(leader), None),
            Some(Err(error)) => (None, Some(text(&error.to_string()))),
            None => (None, Some(format!("no answer within {PATIENCE:?}"))),
        };
        let leadership = self.leadership(leader, at);
        if let Some(list) = list {
            self.take_jobs(list, at, !keys.is_empty()).await;
        }
        self.read_details(keys).await;
        let nodes = self.read_nodes(at);
        let state = Snapshot {
            at,
            group: name(self.election.group()).into(),
            worker: Arc::clone(&self.quorum.config().worker),
            nodes,
            leadership,
            unread_leader,
            ttl: self.ttl,
            jobs: self.jobs.is_some().then(|| Arc::clone(&self.list)),
            examination: self.examination.clone(),
            leases: client_leases(self.source.as_deref()),
            shards: Arc::clone(&self.shards.1),
        };
        let known = keys.iter().filter_map(|key| Some((key.clone(), self.details.get(key)?.1.clone())));
        Round { began, state, details: known.collect() }
    }

    fn leadership(&mut self, found: Option<Option<quorate::election::Leader>>, now: WallTime) -> Leadership {
        let Some(found) = found else { return Leadership::Unknown };
        let Some(leader) = found else {
            let since = *self.vacant_since.get_or_insert(now);
            return Leadership::Vacant { since };
        };
        self.vacant_since = None;
        // A campaign in this process may have seen the leader earlier than this reader.
        let known =
            self.election.leader().filter(|known| known.worker == leader.worker && known.term == leader.term);
        let since = known.map_or(leader.seen_since, |known| known.seen_since.min(leader.seen_since));
        Leadership::Leader { leader: LeaderView::new(&leader), since }
    }

    fn read_nodes(&mut self, at: WallTime) -> Vec<SeenNode> {
        let (nodes, now) = (self.quorum.nodes(), self.env.now());
        if self.nodes.len() != nodes.len() {
            let memory = |node: &quorate::quorum::NodeStatus| NodeMemory {
                vote: Vote::of(&node.state),
                since: at,
                trips: VecDeque::new(),
            };
            self.nodes = nodes.iter().map(memory).collect();
        }
        let view = |(node, memory): (&quorate::quorum::NodeStatus, &mut NodeMemory)| {
            let seen = NodeView::new(node, now);
            let votes_at = seen.votes_in.map(|wait| at + wait);
            let vote = seen.vote;
            if vote != memory.vote {
                (memory.vote, memory.since) = (vote, at);
            }
            if let Some(trip) = node.round_trip.filter(|_| vote == Vote::Votes) {
                memory.trips.push_back(trip);
                if memory.trips.len() > TRIPS {
                    memory.trips.pop_front();
                }
            }
            let trips = memory.trips.iter().copied().collect();
            SeenNode { node: seen, votes_at, since: memory.since, trips }
        };
        nodes.iter().zip(&mut self.nodes).map(view).collect()
    }

    /// Takes a new list of jobs. The old one stays, with the reason, if the nodes could not be read. `waits` is set if a
    /// viewer waits for a part that is read afterwards.
    async fn take_jobs(&mut self, read: Option<Result<Listed, JobsError>>, at: WallTime, waits: bool) {
        let (found, overview, workers) = match read {
            Some(Ok(listed)) => listed,
            Some(Err(error)) => {
                Arc::make_mut(&mut self.list).error = Some(text(&error.to_string()));
                return;
            }
            None => {
                Arc::make_mut(&mut self.list).error = Some(format!("no answer within {PATIENCE:?}"));
                return;
            }
        };
        let GroupOverview { frozen, copies, .. } = overview;
        let freeze = frozen.as_ref().map(Pause::of_freeze);
        let workers = workers.iter().map(WorkerView::new).collect();
        let group = self.election.group();
        let view = |job: &JobStatus| JobView::new(group, job, freeze.as_ref());
        let mut list: Vec<JobView> = found.iter().map(view).collect();
        let names = self.strips.begin(&list, waits);
        self.read_strips(names).await;
        let unread = self.strips.apply(&mut list);
        self.list =
            Arc::new(JobsView { list, read_at: Some(at), error: None, freeze, copies, workers, unread });
    }

    async fn read_strips(&mut self, names: Vec<Arc<str>>) {
        let Some(jobs) = &self.jobs else { return };
        let env = &self.env;
        let deadline = env.now() + PATIENCE;
        let reads = names.into_iter().map(|name| async move {
            let read = env.before(deadline, jobs.history(&name, STRIP)).await;
            (name, read)
        });
        let read: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).collect().await;
        for (name, history) in read {
            if let Some(Ok(history)) = history {
                // A list shows no output, which may be long.
                let end = |entry| RunEnd { output: None, ..RunEnd::new(entry) };
                self.strips.learn(name, history.iter().map(end).collect());
            }
        }
    }

    async fn read_details(&mut self, keys: &[Key]) {
        let now = self.env.now();
        self.details.retain(|key, _| keys.contains(key));
        self.slow.retain(|key, _| keys.contains(key));
        if !keys.contains(&Key::Examination) {
            self.examination = None;
        }
        self.take_slow(now);
        let is_old = |key: &&Key| {
            let age = if is_slow(key) { SLOW_AGE } else { DETAIL_AGE };
            self.details.get(*key).is_none_or(|(read, _)| read.until(now) > age) || self.has_changed(key)
        };
        let old: Vec<Key> = keys.iter().filter(is_old).take(DETAILS).cloned().collect();
        for key in old.iter().filter(|key| is_slow(key)) {
            self.start_slow(key);
        }
        let quick = old.iter().filter(|key| !is_slow(key));
        let read = join_all(quick.map(|key| async {
            let detail = self.env.before(now + PATIENCE, self.quick(key)).await;
            (key.clone(), detail.unwrap_or_else(|| late(key)))
        }))
        .await;
        for (key, detail) in read {
            self.details.insert(key, (now, detail));
        }
    }

    /// Returns whether the list shows another state of a job than the part of its page.
    fn has_changed(&self, key: &Key) -> bool {
        let Key::Job { name, .. } = key else { return false };
        let Some((_, Detail::Job(Ok(detail)))) = self.details.get(key) else { return false };
        let listed = self.list.list.iter().find(|job| *job.name == **name);
        listed.is_some_and(|job| {
            job.running.len() != detail.job.running.len()
                || (job.own_pause(), &job.freeze) != (detail.job.own_pause(), &detail.job.freeze)
                || job.ends.first().map(|end| (end.tick, end.started))
                    != detail.job.ends.first().map(|end| (end.tick, end.started))
        })
    }

    async fn quick(&self, key: &Key) -> Detail {
        match key {
            Key::Job { name, at } => match &self.jobs {
                Some(jobs) => Detail::Job(job(jobs, &self.list, name, at.as_deref(), &self.env).await),
                None => Detail::Nothing,
            },
            Key::Audit => Detail::LeadershipPast(self.past().await),
            Key::Examination | Key::Messages(_) => Detail::Nothing,
        }
    }

    async fn past(&self) -> Result<LeadershipPast, String> {
        let mut observer = self.election.observe().map_err(|error| text(&error.to_string()))?;
        LeadershipPast::read(&self.quorum, &mut observer, self.jobs.as_ref(), self.election.group()).await
    }

    fn start_slow(&mut self, key: &Key) {
        let Some(source) = self.source.clone() else {
            let detail = match key {
                Key::Messages(_) => Detail::Messages(Err("this process cannot list messages".to_owned())),
                _ => Detail::Nothing,
            };
            self.details.insert(key.clone(), (self.env.now(), detail));
            return;
        };
        if self.slow.contains_key(key) {
            return;
        }
        let task = match key.clone() {
            Key::Messages(set) => {
                self.env.spawn_scoped(async move { Slow::Messages(source.messages(&set, MESSAGES).await) })
            }
            _ => self.env.spawn_scoped(async move { Slow::Examination(source.examine().await) }),
        };
        self.slow.insert(key.clone(), task);
    }

    /// Takes the results of the long reads that have ended.
    fn take_slow(&mut self, now: BootTime) {
        let mut ended = Vec::new();
        for (key, task) in &mut self.slow {
            if let Some(result) = task.now_or_never() {
                ended.push((key.clone(), result));
            }
        }
        for (key, result) in ended {
            self.slow.remove(&key);
            let detail = match result {
                Ok(Slow::Examination(examination)) => {
                    self.examination = Some(Arc::new(examination));
                    Detail::Nothing
                }
                Ok(Slow::Messages(messages)) => Detail::Messages(messages),
                Err(_) => continue,
            };
            self.details.insert(key, (now, detail));
        }
    }
}

/// Reads the jobs, and what the group has beside them.
async fn list(jobs: &Jobs) -> Result<Listed, JobsError> {
    futures_util::try_join!(jobs.list(), jobs.overview(), jobs.workers())
}

/// Says that a part was not read in time.
fn late(key: &Key) -> Detail {
    let why = format!("no answer within {PATIENCE:?}");
    match key {
        Key::Job { .. } => Detail::Job(Err(Missing::Unread(why))),
        Key::Audit => Detail::LeadershipPast(Err(why)),
        Key::Messages(_) => Detail::Messages(Err(why)),
        Key::Examination => Detail::Nothing,
    }
}

fn is_slow(key: &Key) -> bool {
    matches!(key, Key::Examination | Key::Messages(_))
}

/// Reads what the page of a job shows beyond the list.
async fn job(
    jobs: &Jobs,
    list: &JobsView,
    wanted: &str,
    at: Option<&str>,
    env: &Env,
) -> Result<Box<JobDetail>, Missing> {
    let missing = |error: JobsError| match &error {
        JobsError::UnknownJob { .. } => Missing::Unknown(text(&error.to_string())),
        _ => Missing::Unread(text(&error.to_string())),
    };
    let Some(mut job) = list.list.iter().find(|job| *job.name == *wanted).cloned() else {
        // The error names a similar job. A job that was added since the list was read is shown in the next round.
        let unread = || Missing::Unread("the list of jobs has not been read again yet".to_owned());
        return Err(jobs.check_exists(wanted).await.map_or_else(missing, |()| unread()));
    };
    let now = env.wall();
    let why = async {
        let at = match at {
            Some(at) => Some(Moment::parse(at).ok()?.tick(jobs, wanted, now).await),
            None => None,
        };
        let found = jobs.why(wanted, at).await.ok()?;
        Some(WhyView::new(wanted, at, jobs.group(), &found))
    };
    let (history, next, why) =
        futures_util::join!(jobs.history(wanted, ENTRIES), jobs.next(wanted, now, NEXT), why);
    // The rest of the page is useful without the history, which may be unreadable for a moment. If the job's row cannot be
    // read either, there is probably no quorum, and the page says that nothing can be read.
    let (ends, unread_history) = match history {
        Ok(history) => (history.iter().map(RunEnd::new).collect(), None),
        Err(error) if next.is_err() || matches!(error, JobsError::UnknownJob { .. }) => {
            return Err(missing(error));
        }
        Err(error) => (job.ends.clone(), Some(text(&error.to_string()))),
    };
    job.ends = ends.iter().take(STRIP).cloned().collect();
    let next = next.ok().filter(|next| !next.is_empty()).unwrap_or_else(|| job.next.into_iter().collect());
    Ok(Box::new(JobDetail { job, ends, unread_history, next, why }))
}

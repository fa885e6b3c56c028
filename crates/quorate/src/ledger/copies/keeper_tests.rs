use super::super::backlog::WINDOW;
use super::*;
use crate::node::{
    Batch, MemoryStore, NodeTime, Request,
    copy::Stamp,
    engine::{self, Clocks},
};

const NODES: usize = 3;
const KEYS: [&str; 3] = ["run/a", "job/b", "freeze"];
/// The key of records that are pruned. One may come back, so they are not judged.
const OLD: &str = "tick/old";

/// Random numbers with a seed: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % sides as u64).unwrap()
    }
}

/// A node: the shipped engine over rows in memory.
#[derive(Default)]
struct Server {
    store: MemoryStore,
    memory: u64,
}

impl Server {
    fn marker(memory: u64) -> Arc<str> {
        format!("a marker\nmemory={}", Incarnation::from_number(memory)).into()
    }

    fn forget(&mut self) {
        *self = Self { memory: self.memory + 1, ..Self::default() };
        let mark = Request::Mark { expect: None, marker: Self::marker(self.memory) };
        assert_eq!(self.ask(self.memory, mark), Reply::Marked);
    }

    /// Runs a request of a client that believes the node to be in this memory.
    fn ask(&mut self, memory: u64, request: Request) -> Reply {
        let (stamp, not_after) = (Self::marker(memory), NodeTime::from_micros(u64::MAX));
        let clocks = Clocks { wall: NodeTime::default(), lease_nanos: 0 };
        let batch = Batch { requests: vec![request], not_after, stamp };
        engine::run(&mut self.store, &batch, clocks).replies.remove(0)
    }

    fn read(&mut self) -> Option<Content> {
        let read = Request::Read { ledger: "g".into(), after: None, key: None };
        let Reply::Ledger(page) = self.ask(self.memory, read) else { panic!() };
        Content::of(page.state.records)
    }

    fn is_complete(&mut self) -> bool {
        let memory = Incarnation::from_number(self.memory);
        self.read().is_some_and(|content| content.header.in_memory(memory).is_complete())
    }
}

/// A leader with its requests on the way.
struct Leader {
    keeper: Keeper,
    seal: Seal,
    /// The memories of the nodes, as far as the leader knows.
    known: [u64; NODES],
    /// Each request, with the memory in which the leader believed the node to be.
    sent: Vec<(usize, u64, Asked)>,
    has_decided: bool,
}

/// A write, in the order of all writes.
type Written = (Stamp, Option<String>);

#[derive(Default)]
struct World {
    servers: [Server; NODES],
    leaders: Vec<Leader>,
    /// All writes of each key, acknowledged or not.
    writes: BTreeMap<String, Vec<Written>>,
    /// The latest write of each key that its leader may act on.
    committed: BTreeMap<String, Written>,
}

impl World {
    fn new() -> Self {
        let mut world = Self::default();
        world.servers.iter_mut().for_each(Server::forget);
        world.elect();
        world
    }

    fn elect(&mut self) {
        let number = self.leaders.len() as u64;
        let seal = Seal { term: FencingToken::new(number + 2), leader: number };
        let known = std::array::from_fn(|node| self.servers[node].memory);
        let keeper = Keeper::new(NODES, seal);
        self.leaders.push(Leader { keeper, seal, known, sent: Vec::new(), has_decided: false });
    }

    /// Sends what each leader has to send, and lets it decide.
    fn turn(&mut self) {
        let newest = self.leaders.len() - 1;
        for at in 0..self.leaders.len() {
            let leader = &mut self.leaders[at];
            if let Some(adopted) = leader.keeper.decide(at == newest) {
                leader.has_decided = true;
                let records = adopted.records.clone();
                if adopted.takeover == Takeover::Found {
                    leader.keeper.found(records.clone());
                }
                self.judge_adoption(at, &records);
            }
            let leader = &mut self.leaders[at];
            let known = leader.known;
            let requests = leader.keeper.requests();
            leader.sent.extend(requests.into_iter().map(|(node, asked)| (node, known[node], asked)));
            self.judge_commits(at);
        }
    }

    /// Fails if a new leader has missed a write on which an earlier one may have acted.
    fn judge_adoption(&self, at: usize, records: &Records) {
        for (key, (stamp, _)) in &self.committed {
            if stamp.term < self.leaders[at].seal.term {
                let value = value_in(records, key);
                let later = |(of, written): &Written| of >= stamp && *written == value;
                assert!(
                    self.writes[key].iter().any(later),
                    "{key}: {value:?} in place of {stamp:?}: {:?}",
                    self.writes[key]
                );
            }
        }
    }

    /// Notes the writes on which the leader may act now. Fails if a later leader has decided without one of them.
    fn judge_commits(&mut self, at: usize) {
        let term = self.leaders[at].seal.term;
        let done = self.leaders[at].keeper.take_written();
        for stamp in done.into_iter().map(|seq| Stamp { term, seq }) {
            let of_key = |(key, writes): (&String, &Vec<Written>)| {
                writes.iter().find(|(of, _)| *of == stamp).map(|written| (key.clone(), written.clone()))
            };
            let Some((key, written)) = self.writes.iter().find_map(of_key) else { continue };
            for later in self.leaders[at + 1..].iter().filter(|later| later.has_decided) {
                let value = value_in(later.keeper.map(), &key);
                let follows = |(of, written): &Written| *of >= stamp && *written == value;
                assert!(self.writes[&key].iter().any(follows), "{stamp:?} of {key} after {:?}", later.seal);
            }
            let newest = self.committed.entry(key).or_insert_with(|| written.clone());
            *newest = newest.clone().max(written);
        }
    }

    fn write(&mut self, at: usize, dice: &mut Dice) {
        let leader = &mut self.leaders[at];
        if !leader.keeper.leads() {
            return;
        }
        if dice.roll(6) == 0 {
            let (key, value) = (OLD.into(), Some("v".into()));
            leader.keeper.write(Write { key, value, assignment: None, is_urgent: false });
            return leader.keeper.prune(|key, _| key == OLD && dice.0.is_multiple_of(2));
        }
        let key = KEYS[dice.roll(KEYS.len())];
        let value = (dice.roll(4) > 0).then(|| format!("{}:{}", leader.seal.term, dice.roll(1000)));
        let (assigns, is_urgent) = (dice.roll(3) == 0, dice.roll(2) == 0);
        let stored = value.clone().map(Into::into);
        let seq = self.writes.values().map(Vec::len).sum::<usize>() as u64;
        let assignment = assigns.then_some(Stamp { term: leader.seal.term, seq });
        let seq = leader.keeper.write(Write { key: key.into(), value: stored, assignment, is_urgent });
        let stamp = Stamp { term: leader.seal.term, seq };
        self.writes.entry(key.to_owned()).or_default().push((stamp, value));
    }

    /// Carries out a request that is on the way. Its answer may be lost.
    fn deliver(&mut self, at: usize, which: usize, is_lost: bool) {
        let leader = &mut self.leaders[at];
        let (node, memory, asked) = leader.sent.swap_remove(which);
        let server = &mut self.servers[node];
        let ledger: Arc<str> = "g".into();
        let (request, ticket) = match asked {
            Asked::Seal => (Request::SealCopy { ledger, seal: leader.seal, after: None }, None),
            Asked::Lead { ticket, memory, act } => {
                (Request::Lead { ledger, seal: leader.seal, memory, act }, Some(ticket))
            }
        };
        let reply = server.ask(memory, request);
        let reply = Some(reply).filter(|_| !is_lost);
        if matches!(reply, Some(Reply::Refused(Refusal::Marker(_)))) {
            leader.known[node] = server.memory;
            leader.keeper.on_epoch(node, server.memory);
        }
        match (ticket, reply) {
            (Some(ticket), reply) => leader.keeper.on_reply(ticket, memory, reply.as_ref()),
            (None, Some(Reply::Ledger(page))) => match Content::of(page.state.records) {
                Some(content) => leader.keeper.on_sealed(node, memory, content),
                None => panic!("a sealed copy has a header"),
            },
            (None, Some(Reply::Refused(Refusal::Sealed { by }))) => leader.keeper.on_superseded(by),
            (None, _) => leader.keeper.on_failed(node),
        }
    }

    /// Carries out the requests of one leader that `may` accepts, and those that follow from them.
    fn deliver_all(&mut self, at: usize, may: impl Fn(usize, &Asked) -> bool) {
        loop {
            self.turn();
            let next = self.leaders[at].sent.iter().position(|(node, _, asked)| may(*node, asked));
            let Some(which) = next else { return };
            self.deliver(at, which, false);
        }
    }

    /// Lets a node forget, if a majority of others is complete.
    fn forget(&mut self, node: usize) {
        let others = (0..NODES).filter(|other| *other != node);
        if others.into_iter().filter(|other| self.servers[*other].is_complete()).count() * 2 > NODES {
            self.servers[node].forget();
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        self.turn();
        let at = dice.roll(self.leaders.len());
        match dice.roll(20) {
            0 if self.leaders.len() < 5 => self.elect(),
            1 => self.forget(dice.roll(NODES)),
            2..=4 => self.write(at, dice),
            5 => (0..NODES).for_each(|node| self.leaders[at].keeper.resume(node)),
            6 => {
                let node = dice.roll(NODES);
                self.leaders[at].known[node] = self.servers[node].memory;
                self.leaders[at].keeper.on_epoch(node, self.servers[node].memory);
            }
            _ if !self.leaders[at].sent.is_empty() => {
                let which = dice.roll(self.leaders[at].sent.len());
                self.deliver(at, which, dice.roll(8) == 0);
            }
            _ => {}
        }
    }

    /// Ends all faults. The last leader must then lead, and every copy must equal its map.
    fn settle(&mut self, seed: u64) {
        let at = self.leaders.len() - 1;
        for _ in 0..2_000 {
            for node in 0..NODES {
                self.leaders[at].known[node] = self.servers[node].memory;
                self.leaders[at].keeper.on_epoch(node, self.servers[node].memory);
                self.leaders[at].keeper.resume(node);
            }
            self.turn();
            if self.leaders[at].sent.is_empty() {
                break;
            }
            self.deliver(at, 0, false);
        }
        let keeper = &self.leaders[at].keeper;
        assert!(keeper.leads() && (0..NODES).all(|node| keeper.is_complete(node)), "seed {seed}: {keeper:?}");
        let map = keeper.map().clone();
        for server in &mut self.servers {
            let content = server.read().unwrap();
            assert_eq!(differences(&map, &content), Vec::<Arc<str>>::new(), "seed {seed}");
        }
    }
}

/// Returns the value under `key`. `None` if the record does not exist, or was removed.
fn value_in(records: &Records, key: &str) -> Option<String> {
    records.get(&Key::from(key)).map(|entry| entry.value.to_string()).filter(|value| value != REMOVED)
}

#[test]
fn no_leader_misses_a_write_on_which_another_may_have_acted() {
    let (mut committed, mut forgotten, mut led) = (0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new();
        let mut dice = Dice(seed);
        (0..600).for_each(|_| world.step(&mut dice));
        world.settle(seed);
        committed += world.committed.len();
        forgotten += world.servers.iter().map(|server| server.memory - 1).sum::<u64>();
        led += world.leaders.iter().filter(|leader| leader.has_decided).count();
    }
    // The histories must have what they are about.
    assert!(committed > 400 && forgotten > 400 && led > 800, "{committed} {forgotten} {led}");
}

#[test]
fn a_long_ledger_is_copied_a_window_at_a_time() {
    let mut world = World::new();
    world.settle(0);
    let leader = &mut world.leaders[0];
    for number in 0..1_000 {
        let (key, value) = (format!("job/{number}").into(), Some("v".into()));
        leader.keeper.write(Write { key, value, assignment: None, is_urgent: false });
    }
    assert_eq!(leader.keeper.lacking(0), Some(1_000));
    let writes = |(_, asked): (usize, Asked)| match asked {
        Asked::Lead { act: LeadAct::Put { writes }, .. } => writes.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(leader.keeper.requests().into_iter().map(writes).sum::<usize>(), NODES * WINDOW);
    assert!(leader.keeper.requests().is_empty(), "until they are answered");
    let urgent = Write { key: "run/a".into(), value: Some("v".into()), assignment: None, is_urgent: true };
    leader.keeper.write(urgent);
    assert_eq!(leader.keeper.requests().len(), NODES, "an urgent write does not wait");
    world.elect();
    world.settle(1);

    assert!(world.leaders[1].keeper.map().is_empty(), "nothing was sent");
}

/// Tests that the second leader, which dies before it marks a node, leaves enough of the removal: the third one hears a node
/// that has missed it.
#[test]
fn a_removed_record_does_not_come_back_after_a_leader_that_has_marked_no_node() {
    let mut world = World::new();
    world.deliver_all(0, |_, _| true);
    for (value, reaches) in [(Some("v"), 3), (None, 2)] {
        let Leader { keeper, seal, .. } = &mut world.leaders[0];
        let stored = value.map(Into::into);
        let seq =
            keeper.write(Write { key: "freeze".into(), value: stored, assignment: None, is_urgent: true });
        let written = (Stamp { term: seal.term, seq }, value.map(str::to_owned));
        world.writes.entry("freeze".to_owned()).or_default().push(written);
        world.deliver_all(0, |node, _| node < reaches);
    }
    assert_eq!(world.committed["freeze"].1, None, "a majority has removed it");
    world.elect();
    let is_mark = |asked: &Asked| matches!(asked, Asked::Lead { act: LeadAct::Mark { .. }, .. });
    world.deliver_all(1, |node, asked| node < 2 && !is_mark(asked));
    world.elect();
    world.deliver_all(2, |node, _| node > 0);
    assert!(world.leaders.iter().all(|leader| leader.has_decided));
    world.settle(0);
    assert_eq!(value_in(world.leaders[2].keeper.map(), "freeze"), None);
}

/// Tests that nothing is left of a removed record once every node has the removal, and not before.
#[test]
fn nothing_is_left_of_a_removed_record_once_every_node_has_the_removal() {
    let mut world = World::new();
    world.deliver_all(0, |_, _| true);
    for (value, reaches) in [(Some("v"), 3), (None, 2)] {
        let value = value.map(Into::into);
        world.leaders[0].keeper.write(Write {
            key: "freeze".into(),
            value,
            assignment: None,
            is_urgent: true,
        });
        world.deliver_all(0, |node, _| node < reaches);
    }
    assert!(world.leaders[0].keeper.has_written_urgent(), "a majority has both");
    assert_eq!(world.leaders[0].keeper.map().len(), 1, "a node lacks the removal");
    world.deliver_all(0, |_, _| true);
    assert!(world.leaders[0].keeper.map().is_empty());
    for server in &mut world.servers {
        assert_eq!(differences(&Records::new(), &server.read().unwrap()), Vec::<Arc<str>>::new());
    }
}

/// Tests that a leader that may found a ledger hears each node that answers first: two have forgotten, and the third is slow.
#[test]
fn a_new_ledger_has_the_records_of_a_slow_node_and_does_not_wait_for_one_that_fails() {
    for answers in [true, false] {
        let mut world = World::new();
        world.deliver_all(0, |_, _| true);
        let written =
            Write { key: "job/b".into(), value: Some("v".into()), assignment: None, is_urgent: true };
        world.leaders[0].keeper.write(written);
        world.deliver_all(0, |_, _| true);
        world.servers[..2].iter_mut().for_each(Server::forget);
        world.committed.clear();
        world.elect();
        world.deliver_all(1, |node, _| node < 2);
        assert!(!world.leaders[1].has_decided, "the third node may still answer");
        let which = world.leaders[1].sent.iter().position(|(node, ..)| *node == 2).unwrap();
        world.deliver(1, which, !answers);
        world.deliver_all(1, |node, _| answers || node < 2);
        assert!(world.leaders[1].has_decided);
        let value = value_in(world.leaders[1].keeper.map(), "job/b");
        assert_eq!(value.is_some(), answers, "{:?}", world.leaders[1].keeper);
    }
}

//! The copies of led ledgers: rules N1 to N5 of `docs/design/ledger.md`.

use super::{TestClient, client::*};
use quorate::node::{
    Incarnation, LedgerPage, Node, Record, Refusal, Reply, Request,
    copy::{
        AssignmentId, HEADER_KEY, Header, LeadAct, Put, Register, RegisterRow, Seal, Stamp, WorkAct, end_key,
        register_key,
    },
};
use std::{collections::BTreeMap, sync::Arc};

const NOT_SEALED: Reply = Reply::Refused(Refusal::NotSealed);
const INCOMPLETE: Reply = Reply::Refused(Refusal::Incomplete);
const NO_PART: Reply = Reply::Refused(Refusal::NoPart);
const TOO_LATE: Reply = Reply::Refused(Refusal::TooLate);

/// A leader as the cases use it: its seal, and the memory of the node in which it sealed.
#[derive(Clone, Copy)]
struct Leader {
    seal: Seal,
    memory: Incarnation,
}

fn leader(term: u64, number: u64, memory: u64) -> Leader {
    let seal = Seal { term: token(term), leader: number };
    Leader { seal, memory: Incarnation::from_number(memory) }
}

fn id(term: u64, seq: u64) -> AssignmentId {
    Stamp { term: token(term), seq }
}

fn sealed_by(term: u64) -> Reply {
    Reply::Refused(Refusal::Sealed { by: token(term) })
}

impl Leader {
    fn asks(self, act: LeadAct) -> Request {
        Request::Lead { ledger: "g".into(), seal: self.seal, memory: self.memory, act }
    }

    fn puts(self, key: &str, seq: u64, assignment: Option<AssignmentId>, value: &str) -> Request {
        self.puts_all([Put { key: key.into(), seq, assignment, value: Some(value.into()) }])
    }

    fn puts_all<const N: usize>(self, writes: [Put; N]) -> Request {
        self.asks(LeadAct::Put { writes: writes.into() })
    }

    fn removes(self, key: &str, seq: u64) -> Request {
        self.puts_all([Put { key: key.into(), seq, assignment: None, value: None }])
    }

    fn marks(self) -> Request {
        self.asks(LeadAct::Mark { founded: token(1) })
    }

    fn voids(self, key: &str, id: AssignmentId) -> Request {
        self.asks(LeadAct::Void { key: key.into(), id })
    }

    fn seals(self) -> Request {
        Request::SealCopy { ledger: "g".into(), seal: self.seal, after: None }
    }
}

fn starts(key: &str, id: AssignmentId) -> Request {
    Request::Work { ledger: "g".into(), key: key.into(), id, act: WorkAct::Start }
}

fn ends(key: &str, id: AssignmentId, value: &str) -> Request {
    Request::Work { ledger: "g".into(), key: key.into(), id, act: WorkAct::End { value: value.into() } }
}

/// Opens a session with a new node whose memory has this number.
async fn client_of<N: Node>(node: N, memory: u64) -> TestClient<N> {
    let mut client = TestClient::bare(node).await;
    begin_memory(&mut client, None, memory).await;
    client
}

/// Gives the node a marker that shows a memory with this number.
async fn begin_memory<N: Node>(client: &mut TestClient<N>, from: Option<u64>, to: u64) {
    let marker = |number| format!("a marker\nmemory={}\nand more", Incarnation::from_number(number));
    let (before, marker) = (from.map(marker), marker(to));
    assert_eq!(client.ask(mark(before.as_deref(), &marker)).await, Reply::Marked);
    client.stamp = marker.into();
}

/// Sends the requests one by one. Each must be carried out.
async fn must<N: Node>(client: &mut TestClient<N>, requests: impl IntoIterator<Item = Request>) {
    for request in requests {
        let reply = client.ask(request.clone()).await;
        assert!(matches!(reply, Reply::Written | Reply::Ledger(_)), "{request:?}: {reply:?}");
    }
}

async fn page<N: Node>(client: &mut TestClient<N>, request: Request) -> LedgerPage {
    match client.ask(request).await {
        Reply::Ledger(page) => page,
        other => unexpected(&other),
    }
}

async fn records<N: Node>(client: &mut TestClient<N>) -> BTreeMap<Arc<str>, Record> {
    client.read("g").await.records.into_iter().collect()
}

async fn header<N: Node>(client: &mut TestClient<N>) -> Option<Header> {
    Header::of_record(records(client).await.get(HEADER_KEY)?)
}

async fn register<N: Node>(client: &mut TestClient<N>, key: &str) -> Option<RegisterRow> {
    RegisterRow::of_record(records(client).await.get(&register_key(key))?)
}

pub(super) async fn a_copy_obeys_the_leader_that_sealed_it_last<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, twin, second) = (leader(2, 1, 1), leader(2, 9, 1), leader(3, 2, 1));
    assert_eq!(client.ask(first.puts("a", 1, None, "x")).await, NOT_SEALED, "by no leader yet");
    must(&mut client, [first.seals(), first.seals(), first.asks(LeadAct::Confirm)]).await;
    must(&mut client, [first.puts("a", 1, None, "x")]).await;
    assert_eq!(client.ask(twin.seals()).await, sealed_by(2));
    assert_eq!(client.ask(twin.asks(LeadAct::Confirm)).await, sealed_by(2));
    assert_eq!(client.ask(second.marks()).await, NOT_SEALED, "only after its seal");
    must(&mut client, [second.seals(), second.asks(LeadAct::Confirm)]).await;
    for late in [first.seals(), first.puts("a", 2, None, "y"), first.marks(), first.asks(LeadAct::Confirm)] {
        assert_eq!(client.ask(late).await, sealed_by(3));
    }
    let expected = Record { at: 1, term: token(2), last: false, value: "x".into() };
    assert_eq!(records(&mut client).await.get("a"), Some(&expected));
    let header = header(&mut client).await.map(|header| (header.seal, header.mark, header.incarnation));
    assert_eq!(header, Some((Some(second.seal), None, second.memory)));
}

pub(super) async fn a_seal_returns_the_copy<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let first = leader(2, 1, 1);
    must(&mut client, [first.seals(), first.puts("a", 1, None, "x"), first.marks()]).await;
    let page = page(&mut client, leader(3, 2, 1).seals()).await;
    assert_eq!(page.next, None);
    let found: BTreeMap<_, _> = page.state.records.into_iter().collect();
    let header = found.get(HEADER_KEY).and_then(Header::of_record);
    let header = header.map(|header| (header.seal, header.mark, header.founded));
    assert_eq!(header, Some((Some(leader(3, 2, 1).seal), Some(token(2)), token(1))));
    assert_eq!(found.len(), 2);
}

pub(super) async fn an_older_write_of_one_term_changes_nothing<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, second) = (leader(2, 1, 1), leader(3, 2, 1));
    must(&mut client, [first.seals(), first.puts("a", 12, None, "new"), first.puts("a", 5, None, "old")])
        .await;
    must(&mut client, [first.puts("a", 12, None, "again"), first.removes("a", 11)]).await;
    assert_eq!(&*records(&mut client).await["a"].value, "new");
    must(&mut client, [second.seals(), second.puts("a", 1, None, "later term")]).await;
    assert_eq!(
        (&*records(&mut client).await["a"].value, records(&mut client).await["a"].at),
        ("later term", 1)
    );
    must(&mut client, [second.removes("a", 2), second.removes("never", 3)]).await;
    assert!(!records(&mut client).await.contains_key("a"));
    assert_eq!(client.ask(second.puts("a", 1, None, "late")).await, TOO_LATE, "it was removed");
    assert_eq!(client.ask(second.puts("b", 2, None, "late")).await, TOO_LATE, "it may have been removed");
    must(&mut client, [second.puts("b", 3, None, "x"), leader(4, 1, 1).seals()]).await;
    must(&mut client, [leader(4, 1, 1).puts("a", 1, None, "of a new term")]).await;
}

pub(super) async fn one_request_writes_and_removes_several_records<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (leader, run) = (leader(2, 1, 1), id(2, 3));
    let put = |key: &str, seq, assignment, value: Option<&str>| Put {
        key: key.into(),
        seq,
        assignment,
        value: value.map(Into::into),
    };
    let first = ["a", "b", "c"].map(|key| put(key, 1, None, Some("x y")));
    must(&mut client, [leader.seals(), leader.marks(), leader.puts_all(first)]).await;
    let writes = [
        put("a", 2, None, None),
        put("b", 0, None, Some("of before")),
        put("run", 3, Some(run), Some("")),
        put("never", 4, None, None),
        put("c", 5, None, Some("3 4 - ")),
    ];
    must(&mut client, [leader.puts_all(writes)]).await;
    let found = records(&mut client).await;
    let value = |key: &str| found.get(key).map(|record| (record.at, &*record.value));
    assert_eq!(
        ["a", "b", "c", "run"].map(value),
        [None, Some((1, "x y")), Some((5, "3 4 - ")), Some((3, ""))]
    );
    must(&mut client, [starts("run", run), leader.puts_all([])]).await;
    let late = [put("d", 6, None, Some("new")), put("e", 3, None, Some("late"))];
    assert_eq!(client.ask(leader.puts_all(late)).await, TOO_LATE, "one of them may have been removed");
    let found = records(&mut client).await;
    assert!(found.contains_key("d") && !found.contains_key("e"), "the other one is stored");
}

pub(super) async fn a_new_memory_needs_a_new_seal_and_mark<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, again) = (leader(2, 1, 1), leader(2, 1, 2));
    let run = id(2, 1);
    must(&mut client, [first.seals(), first.marks(), first.puts("run", 1, Some(run), "x")]).await;
    assert!(header(&mut client).await.is_some_and(|header| header.is_complete()));
    begin_memory(&mut client, Some(1), 2).await;
    for late in [first.asks(LeadAct::Confirm), first.puts("a", 2, None, "y"), again.marks()] {
        assert_eq!(client.ask(late).await, NOT_SEALED, "the seal is of an earlier memory");
    }
    assert_eq!(client.ask(starts("run", run)).await, INCOMPLETE);
    must(&mut client, [again.seals()]).await;
    assert_eq!(client.ask(first.marks()).await, NOT_SEALED, "it was meant for the earlier memory");
    assert_eq!(client.ask(ends("run", run, "done")).await, INCOMPLETE);
    must(&mut client, [again.marks()]).await;
    assert_eq!(client.ask(starts("run", run)).await, NO_PART, "the register is of an earlier memory");
    must(&mut client, [ends("run", run, "done")]).await;
}

pub(super) async fn of_start_and_void_the_first_wins<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let leader = leader(2, 1, 1);
    must(&mut client, [leader.seals(), leader.marks()]).await;
    let [one, two] = [id(2, 1), id(2, 2)];
    must(&mut client, [leader.puts("one", 1, Some(one), "w1"), leader.puts("two", 2, Some(two), "w2")]).await;
    must(&mut client, [starts("one", one), starts("one", one), leader.voids("two", two)]).await;
    assert_eq!(client.ask(leader.voids("one", one)).await, TOO_LATE);
    assert_eq!(client.ask(starts("two", two)).await, TOO_LATE);
    must(&mut client, [leader.voids("two", two)]).await;
    for (key, of) in [("one", two), ("none", one), ("one", id(3, 1))] {
        assert_eq!(client.ask(starts(key, of)).await, NO_PART, "{key}");
        assert_eq!(client.ask(leader.voids(key, of)).await, NO_PART, "{key}");
    }
    let state = register(&mut client, "one").await.and_then(|row| row.in_memory(leader.memory));
    assert_eq!(state, Some(Register::Started));
}

pub(super) async fn a_register_stays_with_its_assignment<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, second) = (leader(2, 1, 1), leader(3, 2, 1));
    let (old, new) = (id(2, 1), id(3, 8));
    must(&mut client, [first.seals(), first.marks(), first.puts("run", 1, Some(old), "w1")]).await;
    must(&mut client, [first.voids("run", old), ends("run", old, "not started")]).await;
    must(&mut client, [second.seals(), second.puts("run", 7, Some(old), "w1 again")]).await;
    assert_eq!(client.ask(starts("run", old)).await, TOO_LATE, "the register is kept");
    assert_eq!(&*records(&mut client).await[&end_key("run")].value, "not started");
    must(&mut client, [second.marks(), second.puts("run", 8, Some(new), "w2")]).await;
    assert_eq!(client.ask(starts("run", old)).await, NO_PART);
    assert!(
        !records(&mut client).await.contains_key(&end_key("run")),
        "it was the end of another assignment"
    );
    must(&mut client, [starts("run", new), ends("run", new, "done"), second.puts("run", 9, None, "closed")])
        .await;
    assert_eq!(client.ask(ends("run", new, "late")).await, NO_PART);
    let keys: Vec<_> = records(&mut client).await.into_keys().map(|key| key.to_string()).collect();
    assert_eq!(keys, [HEADER_KEY, "run"]);
}

pub(super) async fn a_copy_that_was_made_later_takes_no_part<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, second) = (leader(2, 1, 1), leader(3, 2, 1));
    must(&mut client, [first.seals(), first.puts("early", 1, Some(id(2, 1)), "w")]).await;
    assert_eq!(client.ask(starts("early", id(2, 1))).await, INCOMPLETE);
    must(&mut client, [first.marks(), second.seals(), second.puts("copied", 1, Some(id(2, 5)), "w")]).await;
    must(&mut client, [second.puts("unmarked", 2, Some(id(3, 2)), "w"), second.marks()]).await;
    for (key, of) in [("early", id(2, 1)), ("copied", id(2, 5)), ("unmarked", id(3, 2))] {
        assert_eq!(client.ask(starts(key, of)).await, NO_PART, "{key}");
        assert_eq!(client.ask(second.voids(key, of)).await, NO_PART, "{key}");
        must(&mut client, [ends(key, of, "done")]).await;
    }
}

pub(super) async fn a_key_of_a_copy_begins_with_a_letter<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let leader = leader(2, 1, 1);
    must(&mut client, [leader.seals(), leader.marks()]).await;
    for key in ["", HEADER_KEY, "@run", "$run", "\u{1}", "7"] {
        for request in [leader.puts(key, 1, None, "x"), leader.voids(key, id(2, 1)), starts(key, id(2, 1))] {
            let reply = client.ask(request).await;
            assert!(matches!(reply, Reply::Refused(Refusal::Failed(_))), "{key:?}: {reply:?}");
        }
    }
    let odd = "r:\u{e9}@$!\n\0 key";
    must(&mut client, [leader.puts(odd, 2, Some(id(2, 2)), "\0=:\n"), starts(odd, id(2, 2))]).await;
    assert_eq!(&*records(&mut client).await[odd].value, "\0=:\n");
}

pub(super) async fn a_long_copy_is_read_in_pages_of_one_seal<N: Node>(node: N) {
    let mut client = client_of(node, 1).await;
    let (first, second) = (leader(2, 1, 1), leader(3, 2, 1));
    must(&mut client, [first.seals()]).await;
    let many: u64 = 7_000;
    let puts: Vec<_> =
        (1..=many).map(|number| first.puts(&format!("k{number}"), number, None, "v")).collect();
    for part in puts.chunks(500) {
        let replies = client.ask_all(part.to_vec()).await.replies;
        assert!(replies.iter().all(|reply| *reply == Reply::Written), "{:?}", replies.first());
    }
    let (mut after, mut found) = (None, BTreeMap::new());
    loop {
        let asked = Request::SealCopy { ledger: "g".into(), seal: first.seal, after };
        let page = page(&mut client, asked).await;
        found.extend(page.state.records);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(found.len() as u64, many + 1);
    let page = page(&mut client, first.seals()).await;
    must(&mut client, [second.seals()]).await;
    let later = Request::SealCopy { ledger: "g".into(), seal: first.seal, after: page.next };
    assert_eq!(client.ask(later).await, sealed_by(3));
}

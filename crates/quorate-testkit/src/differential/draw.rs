use super::values;
use super::{Ask, Count, Late, Led, Life, Pass, Seen, Stamp, Step, Tolerance, When, Write};
use proptest::{collection::vec, prelude::*};
use quorate::node::{STAMP_MAX, StampStep};

/// Returns a strategy for histories of up to `longest` steps. Names are drawn from small sets, so that
/// several requests of a history name the same resource.
pub fn history(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..=longest.max(1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        300 => (vec(ask(), 1..6), late(), stamp()).prop_map(|(asks, late, stamp)| Step::Batch(asks, late, stamp)),
        60 => (vec(turn(), 2..8), stamp()).prop_map(|(asks, stamp)| Step::Batch(asks, Late::InTime, stamp)),
        60 => prop_oneof![4 => Just(Pass::Little), 4 => Just(Pass::More), 1 => Just(Pass::Much)].prop_map(Step::Pass),
        15 => Just(Step::Reopen),
        // A restart is drawn rarely, because a server takes long to restart.
        1 => Just(Step::Restart),
        5 => Just(Step::Flush),
    ]
}

/// Draws requests of workers that use a few locks in turn. Plain commands of a Redis server serve many of them.
fn turn() -> impl Strategy<Value = Ask> {
    let lock = || prop_oneof![Just(0_u8), Just(6)];
    let (owner, life) = (|| 0..3_u8, Life::Long);
    prop_oneof![
        (lock(), owner()).prop_map(move |(resource, owner)| Ask::Acquire {
            resource,
            owner,
            ttl: life,
            propose: When::Now,
            tolerance: Tolerance::Days,
            keep: life,
            ticket: None,
        }),
        (lock(), owner()).prop_map(|(resource, owner)| Ask::Release { resource, owner }),
    ]
}

fn late() -> impl Strategy<Value = Late> {
    prop_oneof![20 => Just(Late::InTime), 5 => Just(Late::Never), 1 => Just(Late::Past), 1 => Just(Late::Epoch)]
}

fn stamp() -> impl Strategy<Value = Stamp> {
    prop_oneof![20 => Just(Stamp::Right), 1 => (0..values::MARKERS).prop_map(Stamp::Other)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let (r, o) = (resource, owner);
    prop_oneof![
        8 => (r(), o(), life(), propose(), tolerance(), life(), ticket()).prop_map(
            |(resource, owner, ttl, propose, tolerance, keep, ticket)| Ask::Acquire {
                resource, owner, ttl, propose, tolerance, keep, ticket
            }
        ),
        5 => (r(), o(), life(), ticket())
            .prop_map(|(resource, owner, ttl, ticket)| Ask::Share { resource, owner, ttl, ticket }),
        3 => (r(), o(), life()).prop_map(|(resource, owner, ttl)| Ask::ExtendShare { resource, owner, ttl }),
        3 => (r(), o()).prop_map(|(resource, owner)| Ask::ReleaseShare { resource, owner }),
        2 => (r(), o(), count(), o(), life()).prop_map(
            |(resource, owner, token, reader, ttl)| Ask::Downgrade { resource, owner, token, reader, ttl }
        ),
        4 => (r(), o(), when(), propose(), tolerance(), life(), prop::bool::weighted(0.7)).prop_map(
            |(resource, ticket, at, now, tolerance, ttl, exclusive)| Ask::Queue {
                resource, ticket, at, now, tolerance, ttl, exclusive
            }
        ),
        2 => (r(), o()).prop_map(|(resource, ticket)| Ask::LeaveQueue { resource, ticket }),
        4 => (r(), o(), count(), life())
            .prop_map(|(resource, owner, to, keep)| Ask::Raise { resource, owner, to, keep }),
        5 => (r(), o(), life(), count(), life()).prop_map(
            |(resource, owner, ttl, token, keep)| Ask::Extend { resource, owner, ttl, token, keep }
        ),
        4 => (r(), o(), successor(), life())
            .prop_map(|(resource, owner, successor, ttl)| Ask::Reserve { resource, owner, successor, ttl }),
        4 => (r(), o()).prop_map(|(resource, owner)| Ask::Release { resource, owner }),
        3 => r().prop_map(|resource| Ask::Inspect { resource }),
        4 => (claim(), o(), count(), 0..values::RESULTS, payload(), prop::bool::weighted(0.3), life()).prop_map(
            |(resource, owner, token, result, payload, dead_lettered, retention)| Ask::Complete {
                resource, owner, token, result, payload, dead_lettered, retention
            }
        ),
        5 => (claim(), o(), 0..values::ATTEMPTS, payload(), prop::bool::weighted(0.3), life()).prop_map(
            |(resource, owner, attempts, payload, withdraw, keep)| Ask::Count {
                resource, owner, attempts, payload, withdraw, keep
            }
        ),
        2 => (claim(), life()).prop_map(|(resource, keep)| Ask::ResetAttempts { resource, keep }),
        6 => write(),
        2 => (ledger(), when()).prop_map(|(ledger, below)| Ask::Prune { ledger, below }),
        4 => (copy(), seal()).prop_map(|(ledger, seal)| Ask::SealCopy { ledger, seal }),
        18 => (copy(), seal(), memory(), led())
            .prop_map(|(ledger, seal, memory, act)| Ask::Lead { ledger, seal, memory, act }),
        9 => (copy(), copy_key(), assignment(), prop::option::weighted(0.3, 0..values::VALUES))
            .prop_map(|(ledger, key, id, end)| Ask::Work { ledger, key, id, end }),
        3 => (ledger(), prop::option::of(0..values::KEYS)).prop_map(|(ledger, key)| Ask::Read { ledger, key }),
        2 => (prop::option::of(stamp()), 0..values::MARKERS)
            .prop_map(|(expect, marker)| Ask::Mark { expect, marker }),
        3 => (0..3_u8, [known(), known()], prop::sample::select(vec![StampStep::Tell, StampStep::Advance, StampStep::Raise]))
            .prop_map(|(own, known, step)| Ask::Stamp { own, known, step }),
    ]
}

fn led() -> impl Strategy<Value = Led> {
    let writes = (put(), prop::option::weighted(0.3, put())).prop_map(|(first, second)| {
        // The writes of one request are of different records.
        let other = second.filter(|second| values::copy_key(second.key) != values::copy_key(first.key));
        Led::Put { writes: [Some(first), other] }
    });
    prop_oneof![
        1 => Just(Led::Confirm),
        6 => writes,
        2 => number().prop_map(|founded| Led::Mark { founded }),
        2 => (copy_key(), assignment()).prop_map(|(key, id)| Led::Void { key, id }),
    ]
}

fn put() -> impl Strategy<Value = Write> {
    let assignment = prop::option::weighted(0.7, assignment());
    let value = prop::option::weighted(0.9, 0..values::VALUES);
    (copy_key(), number(), assignment, value).prop_map(|(key, seq, assignment, value)| Write {
        key,
        seq,
        assignment,
        value,
    })
}

/// Draws a term or a number of a write. Compared as text, 10 would be less than 9.
fn number() -> impl Strategy<Value = u8> {
    prop_oneof![16 => Just(9_u8), 3 => Just(10), 1 => 0..12_u8]
}

fn seal() -> impl Strategy<Value = (u8, u8)> {
    (number(), prop_oneof![12 => Just(1_u8), 1 => Just(2)])
}

fn assignment() -> impl Strategy<Value = (u8, u8)> {
    (number(), number())
}

/// Draws a memory: that of the markers without one, or that of the others.
fn memory() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0_u8), 3 => Just(2), 1 => Just(1)]
}

fn copy() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0_u8), 1 => Just(1)]
}

fn copy_key() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0_u8), 1 => 0..values::COPY_KEYS]
}

/// Draws a stamp. Compared as text, 10 would be less than 9.
fn known() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..12_u64, 1 => Just(STAMP_MAX - 1)]
}

fn write() -> impl Strategy<Value = Ask> {
    let seen = prop_oneof![
        4 => Just(Seen::Right),
        2 => Just(Seen::Nothing),
        1 => Just(Seen::OtherFinality),
        1 => Just(Seen::OtherValue),
    ];
    let key = prop_oneof![3 => Just(0), 1 => 0..values::KEYS];
    let last = prop::bool::weighted(0.2);
    (ledger(), key, seen, when(), count(), last, 0..values::VALUES).prop_map(
        |(ledger, key, seen, at, written_in, last, value)| Ask::Write {
            ledger,
            key,
            seen,
            at,
            written_in,
            last,
            value,
        },
    )
}

fn resource() -> impl Strategy<Value = u8> {
    prop_oneof![5 => Just(0), 5 => Just(1), 3 => 0..values::RESOURCES]
}

/// Draws a resource. Most of the drawn resources are claims, because nodes refuse *complete* and *count* for
/// other resources.
fn claim() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(1), 1 => 0..values::RESOURCES]
}

fn payload() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0), 1 => 0..values::PAYLOADS]
}

fn owner() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 3 => Just(1), 1 => 0..values::OWNERS]
}

/// Draws a successor. In most cases this is a reservation for one of the workers that also sign requests.
fn successor() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0), 2 => Just(1), 1 => 0..values::SUCCESSORS]
}

fn ticket() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.4, owner())
}

fn ledger() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(0), 1 => 0..values::LEDGERS]
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![
        15 => Just(Life::Long),
        15 => Just(Life::Middle),
        15 => Just(Life::Short),
        // The next three lifetimes are drawn rarely, because a test must really wait for their end.
        1 => Just(Life::Tiny),
        1 => Just(Life::Half),
        1 => Just(Life::Zero),
        2 => Just(Life::Endless),
    ]
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        12 => (-2..3_i8).prop_map(Count::Standing),
        4 => (0..12_u8).prop_map(Count::Small),
        2 => (-2..3_i8).prop_map(Count::Top),
        1 => Just(Count::Huge),
    ]
}

fn propose() -> impl Strategy<Value = When> {
    prop_oneof![12 => Just(When::Now), 4 => when()]
}

fn tolerance() -> impl Strategy<Value = Tolerance> {
    prop_oneof![8 => Just(Tolerance::Days), 3 => Just(Tolerance::Any), 1 => Just(Tolerance::None)]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        6 => (0..12_u8).prop_map(When::Early),
        4 => Just(When::Now),
        1 => Just(When::Ahead),
        1 => Just(When::Ago),
        1 => (-2..3_i8).prop_map(When::Top),
        1 => Just(When::End),
    ]
}

use super::Header;
use crate::node::FencingToken;

/// The place of a write in the order of all writes: those of a later term come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp {
    /// The term of the leader that wrote.
    pub term: FencingToken,
    /// The number of the write in that term.
    pub seq: u64,
}

/// The id of one assignment of a run to a worker: the stamp of the write that created it. So two assignments by two
/// leaders never have one id.
pub type AssignmentId = Stamp;

/// A node's data of one record, beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Entry {
    /// The stamp of the write that stored the record.
    pub stamp: Stamp,
    /// The assignment that the record is, if it is one.
    pub assignment: Option<AssignmentId>,
    /// The node's register of this assignment. `None` if the node takes no part in it.
    pub register: Option<Register>,
}

/// A node's register of an assignment. Of *start* and *void*, the first wins (N4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Register {
    /// Neither a *start* nor a *void* has come yet.
    #[default]
    Open,
    /// The worker's *start* came first.
    Started,
    /// A leader's *void* came first.
    Void,
}

/// The reason why a node registers neither *start* nor *void*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRegister {
    /// The copy is incomplete (N3).
    Incomplete,
    /// The record is not this assignment.
    OtherRecord,
    /// The node takes no part: its copy of the assignment was made later (N5).
    NoPart,
    /// The other of *start* and *void* came first.
    Late(Register),
}

/// A later write may have removed the record: the leader sends it again under a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaybeRemoved;

impl Entry {
    /// Decides about a leader's write, which the node has admitted. `stored` is what the node stores of the record, and
    /// `header` its header. Returns what to store, or `None` if the node has a later write of this term already.
    ///
    /// # Errors
    /// [`MaybeRemoved`] if a later write of this term may have removed the record.
    ///
    /// The register of an assignment stays while the same assignment is written again. A new assignment has a register only
    /// on a node that the leader which created it had marked before: the others may have been copied since, or may be (N5).
    pub fn write(
        stored: Option<Self>,
        header: &Header,
        stamp: Stamp,
        assignment: Option<AssignmentId>,
    ) -> Result<Option<Self>, MaybeRemoved> {
        if stored.is_some_and(|stored| stored.stamp.term == stamp.term && stored.stamp.seq >= stamp.seq) {
            return Ok(None);
        }
        if stored.is_none() && stamp.seq < header.removed {
            return Err(MaybeRemoved);
        }
        let same = stored.filter(|stored| assignment.is_some() && stored.assignment == assignment);
        let register = match (same, assignment) {
            (Some(stored), _) => stored.register,
            (None, Some(id)) if id.term == stamp.term && header.mark == Some(id.term) => Some(Register::Open),
            (None, _) => None,
        };
        Ok(Some(Self { stamp, assignment, register }))
    }

    /// Registers the worker's *start* of the assignment `id`.
    ///
    /// # Errors
    /// [`NoRegister`] if the node registers nothing.
    pub fn start(&mut self, header: &Header, id: AssignmentId) -> Result<(), NoRegister> {
        self.register(header, id, Register::Started)
    }

    /// Registers *void* for the assignment `id`. The node has admitted the leader.
    ///
    /// # Errors
    /// [`NoRegister`] if the node registers nothing.
    pub fn void(&mut self, header: &Header, id: AssignmentId) -> Result<(), NoRegister> {
        self.register(header, id, Register::Void)
    }

    /// Returns whether the node stores an end that the worker reports of the assignment `id`.
    pub fn takes_end(&self, header: &Header, id: AssignmentId) -> bool {
        header.is_complete() && self.assignment == Some(id)
    }

    fn register(&mut self, header: &Header, id: AssignmentId, what: Register) -> Result<(), NoRegister> {
        if !header.is_complete() {
            return Err(NoRegister::Incomplete);
        }
        if self.assignment != Some(id) {
            return Err(NoRegister::OtherRecord);
        }
        match self.register {
            None => Err(NoRegister::NoPart),
            Some(first) if first != what && first != Register::Open => Err(NoRegister::Late(first)),
            Some(_) => {
                self.register = Some(what);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Incarnation;

    fn stamp(term: u64, seq: u64) -> Stamp {
        Stamp { term: FencingToken::new(term), seq }
    }

    fn header(mark: Option<u64>) -> Header {
        Header { mark: mark.map(FencingToken::new), ..Header::empty(Incarnation::default()) }
    }

    #[test]
    fn a_late_write_of_the_same_term_changes_nothing() {
        let mut header = header(Some(2));
        let stored = Entry::write(None, &header, stamp(2, 5), None).unwrap();
        assert_eq!(Entry::write(stored, &header, stamp(2, 4), None), Ok(None));
        assert_eq!(Entry::write(stored, &header, stamp(2, 5), None), Ok(None));
        assert_eq!(Entry::write(stored, &header, stamp(3, 1), None).unwrap().unwrap().stamp, stamp(3, 1));
        header.remove(7);
        header.remove(6);
        assert_eq!(Entry::write(None, &header, stamp(2, 6), None), Err(MaybeRemoved));
        assert!(Entry::write(None, &header, stamp(2, 8), None).is_ok_and(|entry| entry.is_some()));
    }

    #[test]
    fn a_node_takes_part_in_an_assignment_only_if_its_leader_had_marked_the_node() {
        let id = stamp(2, 5);
        let part = |mark, at| Entry::write(None, &header(mark), at, Some(id)).unwrap().unwrap().register;
        assert_eq!(part(Some(2), id), Some(Register::Open));
        assert_eq!(part(None, id), None, "incomplete");
        assert_eq!(part(Some(1), id), None, "marked by another leader");
        assert_eq!(part(Some(3), stamp(3, 1)), None, "a copy");
    }

    #[test]
    fn of_start_and_void_the_first_wins() {
        let (id, complete) = (stamp(2, 5), header(Some(2)));
        let entry = Entry::write(None, &complete, id, Some(id)).unwrap().unwrap();
        let (mut started, mut voided) = (entry, entry);
        assert_eq!([started.start(&complete, id), started.start(&complete, id)], [Ok(()); 2], "again");
        assert_eq!(started.void(&complete, id), Err(NoRegister::Late(Register::Started)));
        assert_eq!(voided.void(&complete, id), Ok(()));
        assert_eq!(voided.start(&complete, id), Err(NoRegister::Late(Register::Void)));
        let again = Entry::write(Some(voided), &complete, stamp(3, 1), Some(id)).unwrap().unwrap();
        assert_eq!(again.register, Some(Register::Void), "the same assignment under the next leader");
        let other = Entry::write(Some(voided), &complete, stamp(2, 6), Some(stamp(2, 6))).unwrap().unwrap();
        assert_eq!(other.register, Some(Register::Open));
    }

    #[test]
    fn an_incomplete_or_late_copy_registers_nothing() {
        let (id, complete) = (stamp(2, 5), header(Some(2)));
        let mut entry = Entry::write(None, &complete, id, Some(id)).unwrap().unwrap();
        assert_eq!(entry.start(&header(None), id), Err(NoRegister::Incomplete));
        assert_eq!(entry.start(&complete, stamp(2, 4)), Err(NoRegister::OtherRecord));
        let mut copy = Entry::write(None, &complete, stamp(3, 1), Some(id)).unwrap().unwrap();
        assert_eq!([copy.start(&complete, id), copy.void(&complete, id)], [Err(NoRegister::NoPart); 2]);
        assert!(copy.takes_end(&complete, id) && !copy.takes_end(&header(None), id));
    }
}

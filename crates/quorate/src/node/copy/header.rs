use crate::node::{FencingToken, Incarnation};

/// The claim of one leader to be the only writer of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seal {
    /// The leader's term.
    pub term: FencingToken,
    /// A random number of the leader. It differs for two leaders that were given the same term.
    pub leader: u64,
}

/// A node's data of a ledger, beside the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The memory of the node in which the seal and the mark were stored.
    pub incarnation: Incarnation,
    /// The seal that the node accepted last.
    pub seal: Option<Seal>,
    /// The term of the leader that made the node's copy equal to its own. `None` if the copy is incomplete.
    pub mark: Option<FencingToken>,
    /// The term of the leader that founded the ledger. Zero before any founding.
    pub founded: FencingToken,
    /// The largest number of a write of this term by which a record was removed. Nothing else is left of that record, so an
    /// earlier write of it that comes later must be known by its number.
    pub removed: u64,
}

/// The reason why a node refuses a leader's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderRefusal {
    /// Another leader has sealed the ledger.
    Sealed {
        /// The seal of that leader.
        by: Seal,
    },
    /// The node does not have the leader's seal in its present memory: it may have forgotten since the leader sealed it.
    NotSealed,
}

impl Header {
    /// Returns the header of a node that stores nothing of the ledger.
    pub fn empty(incarnation: Incarnation) -> Self {
        Self { incarnation, seal: None, mark: None, founded: FencingToken::default(), removed: 0 }
    }

    /// Returns the header as it counts in the memory `present`. Seal and mark of an earlier memory do not count: they came
    /// back with old data.
    pub fn in_memory(self, present: Incarnation) -> Self {
        if self.incarnation == present {
            self
        } else {
            Self { founded: self.founded, ..Self::empty(present) }
        }
    }

    /// Returns whether the copy is complete.
    pub const fn is_complete(&self) -> bool {
        self.mark.is_some()
    }

    /// Stores the seal of a leader, unless one of a later term or of another leader of the same term is stored (N1).
    ///
    /// If the copy is incomplete, no register of the ledger counts: some may have come back with old data (N5).
    ///
    /// # Errors
    /// [`HeaderRefusal::Sealed`] with the stored seal.
    pub fn seal(&mut self, seal: Seal) -> Result<(), HeaderRefusal> {
        match self.seal {
            Some(by) if by.term > seal.term || (by.term == seal.term && by != seal) => {
                Err(HeaderRefusal::Sealed { by })
            }
            stored => {
                if stored != Some(seal) {
                    (self.seal, self.removed) = (Some(seal), 0);
                }
                Ok(())
            }
        }
    }

    /// Returns whether the node serves a request of the leader that sealed it with `seal` in the memory `incarnation`: a
    /// confirmation, a write, a mark or a void (N1, N2).
    ///
    /// # Errors
    /// [`HeaderRefusal`] with the reason.
    pub fn admit(&self, seal: Seal, incarnation: Incarnation) -> Result<(), HeaderRefusal> {
        match self.seal {
            Some(by) if by == seal && self.incarnation == incarnation => Ok(()),
            Some(by) if by != seal && by.term >= seal.term => Err(HeaderRefusal::Sealed { by }),
            _ => Err(HeaderRefusal::NotSealed),
        }
    }

    /// Notes that the write `seq` of this term has removed a record.
    pub fn remove(&mut self, seq: u64) {
        self.removed = self.removed.max(seq);
    }

    /// Marks the copy as equal to that of the leader of `term`, which the node has admitted. `founded` is the founding from
    /// which the leader's ledger began.
    pub fn mark(&mut self, term: FencingToken, founded: FencingToken) {
        (self.mark, self.founded) = (Some(term), founded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(number: u64) -> Incarnation {
        Incarnation::draw(number, "run", crate::node::NodeTime::default())
    }

    fn seal(term: u64, leader: u64) -> Seal {
        Seal { term: FencingToken::new(term), leader }
    }

    #[test]
    fn a_node_serves_exactly_the_leader_that_sealed_its_present_memory() {
        let mut header = Header::empty(memory(1));
        assert_eq!(header.admit(seal(2, 1), memory(1)), Err(HeaderRefusal::NotSealed));
        assert_eq!(header.seal(seal(2, 1)), Ok(()));
        assert_eq!(header.seal(seal(2, 1)), Ok(()), "again");
        assert_eq!(header.admit(seal(2, 1), memory(1)), Ok(()));
        assert_eq!(
            header.admit(seal(2, 1), memory(2)),
            Err(HeaderRefusal::NotSealed),
            "sent to another memory"
        );
        let sealed = Err(HeaderRefusal::Sealed { by: seal(2, 1) });
        assert_eq!([header.seal(seal(1, 9)), header.seal(seal(2, 9))], [sealed, sealed]);
        assert_eq!(header.admit(seal(2, 9), memory(1)), sealed, "another leader of this term");
        assert_eq!(header.admit(seal(3, 1), memory(1)), Err(HeaderRefusal::NotSealed));
        assert_eq!(header.seal(seal(3, 1)), Ok(()));
        assert_eq!(header.admit(seal(2, 1), memory(1)), Err(HeaderRefusal::Sealed { by: seal(3, 1) }));
    }

    #[test]
    fn a_new_memory_is_incomplete_whatever_data_came_back() {
        let mut header = Header::empty(memory(1));
        assert_eq!((header.seal(seal(2, 1)), header.is_complete()), (Ok(()), false));
        header.mark(FencingToken::new(2), FencingToken::new(1));
        assert!(header.is_complete() && header.in_memory(memory(1)) == header);
        let restored = header.in_memory(memory(2));
        assert_eq!((restored.seal, restored.mark, restored.founded), (None, None, FencingToken::new(1)));
    }
}

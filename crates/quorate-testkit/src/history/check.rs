use super::{
    Operation, Specification,
    checker::{Verdict, search},
    parts::split,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The operations of all objects of one kind, by the name of the object.
#[derive(Clone, Debug)]
pub struct History<S: Specification> {
    objects: BTreeMap<Arc<str>, Vec<Operation<S::Call>>>,
}

/// The bounds of a search. A part of a history that exceeds the first two is not searched.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest number of operations of a part.
    pub operations: usize,
    /// The largest number of operations that are open at one moment.
    pub width: usize,
    /// The longest time of the search of one part.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10_000, width: 24, time: Duration::from_secs(20) }
    }
}

/// The width up to which a part is searched without a limit of time: at most 256 sets of open operations are tried for
/// each operation.
const NARROW: usize = 8;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of operations.
    pub operations: usize,
    /// The number of objects.
    pub objects: usize,
    /// The number of parts into which their histories were split.
    pub parts: usize,
    /// The number of operations of the largest part.
    pub largest: usize,
    /// The parts that were not judged, each with the reason.
    pub undecided: Vec<String>,
    /// The violations: the objects whose history is not linearizable, each with a description.
    pub violations: Vec<String>,
}

impl Findings {
    /// Adds the findings about other objects.
    pub fn merge(&mut self, other: Self) {
        self.operations += other.operations;
        self.objects += other.objects;
        self.parts += other.parts;
        self.largest = self.largest.max(other.largest);
        self.undecided.extend(other.undecided);
        self.violations.extend(other.violations);
    }
}

impl<S: Specification> Default for History<S> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<S: Specification> History<S> {
    /// Adds an operation on the object `name`, in any order.
    pub fn push(&mut self, name: &Arc<str>, operation: Operation<S::Call>) {
        match self.objects.get_mut(name) {
            Some(operations) => operations.push(operation),
            None => drop(self.objects.insert(Arc::clone(name), vec![operation])),
        }
    }

    /// Checks for each object whether some order of its operations is right.
    pub fn check(&self, limits: &Limits) -> Findings {
        let mut findings = Findings::default();
        for (name, operations) in &self.objects {
            findings.merge(check_object::<S>(name, operations.clone(), limits));
        }
        findings
    }
}

fn check_object<S: Specification>(
    name: &str,
    mut operations: Vec<Operation<S::Call>>,
    limits: &Limits,
) -> Findings {
    operations.sort_by_key(|operation| operation.begin);
    let parts = split::<S>(&operations);
    let count = parts.iter().filter(|part| !part.is_repeated).count();
    let mut findings =
        Findings { operations: operations.len(), objects: 1, parts: count, ..Findings::default() };
    for part in parts {
        let (size, width) = (part.operations.len(), part.width());
        findings.largest = findings.largest.max(size);
        if size > limits.operations || width > limits.width {
            findings.undecided.push(format!(
                "{name}: a part of {size} operations, {width} of them open at once, is too large: at most {} and {}",
                limits.operations, limits.width
            ));
            continue;
        }
        let time = (width > NARROW).then_some(limits.time);
        match search::<S>(&part.first, &part.operations, time) {
            Verdict::Linearizable => {}
            Verdict::Undecided => findings.undecided.push(format!(
                "{name}: no verdict within {:?} about {size} operations, {width} of them open at once",
                limits.time
            )),
            Verdict::Violation(why) => {
                // The state in which the next part begins is no longer known.
                findings.violations.push(format!("{name}: {why}"));
                break;
            }
        }
    }
    findings
}

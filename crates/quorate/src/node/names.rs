use crate::{
    env::WallTime,
    plain::{escaped, plain},
};
use std::{fmt, sync::Arc};

/// The longest name of a resource, group, set of claims or message id, in bytes.
const NAME_MAX: usize = 512;
/// The most bytes of an owner token or a resource's key that are shown.
const SHOWN_MAX: usize = 1_200;

/// How a reservation's token ends.
const RESERVED_FOR: &str = ":reserved";

/// Words that begin keys of Quorate's own; a plain lock may not begin with one and a slash.
const RESERVED: [&str; 5] = ["election", "claim", "ledger", "node", "wish"];

/// What a lease is held on: the name of a lock, an election or a claim, without the deployment's prefix.
///
/// Locks, elections and claims never meet: each has key names of its own. With prefix `P` a lock `R` is the
/// plain string key `PR`, so that any Redlock client that uses that name excludes and is excluded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    key: Arc<str>,
    kind: ResourceKind,
}

/// What a resource's lease is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A plain lock.
    Lock,
    /// A group's leadership.
    Election,
    /// A message id, which may be done.
    Claim,
    /// What others wish of the holder of another resource.
    Wish,
}

impl Resource {
    /// The lock called `name`.
    ///
    /// # Errors
    /// [`NameError`] where `name` is empty, over 512 bytes, holds a brace or a control character, or begins
    /// with a reserved word.
    pub fn lock(name: &str) -> Result<Self, NameError> {
        check("resource", name)?;
        let word = name.split('/').next().unwrap_or_default();
        if RESERVED.contains(&word) {
            return Err(NameError::new("resource", name, "begins with a word that Quorate keeps for itself"));
        }
        Ok(Self { key: name.into(), kind: ResourceKind::Lock })
    }

    /// The leadership of `group`.
    ///
    /// # Errors
    /// [`NameError`], as for [`Resource::lock`], but for the reserved words.
    pub fn election(group: &str) -> Result<Self, NameError> {
        check("group", group)?;
        Ok(Self { key: format!("election/{group}").into(), kind: ResourceKind::Election })
    }

    /// The message `id` in the set of claims called `set`.
    ///
    /// # Errors
    /// [`NameError`], as for [`Resource::lock`], but for the reserved words; `set` may hold no slash.
    pub fn claim(set: &str, id: &str) -> Result<Self, NameError> {
        check("claim set", set)?;
        check("message id", id)?;
        if set.contains('/') {
            return Err(NameError::new(
                "claim set",
                set,
                "holds a slash, which parts it from the message id",
            ));
        }
        Ok(Self { key: format!("claim/{set}/{id}").into(), kind: ResourceKind::Claim })
    }

    /// What others wish of the holder of this resource: held in its stead by the very owner token that the wish
    /// is for, so that it never concerns a later holder.
    pub fn wish(&self) -> Self {
        Self { key: format!("wish/{}", self.key).into(), kind: ResourceKind::Wish }
    }

    /// The key below the prefix.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What the resource is for.
    pub fn kind(&self) -> ResourceKind {
        self.kind
    }

    /// Whether this is a claim, which a node asks for its done record before it grants.
    pub fn is_claim(&self) -> bool {
        self.kind == ResourceKind::Claim
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.key, SHOWN_MAX))
    }
}

/// The key, fit for a terminal: [`Resource::key`] is the exact one.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.key, SHOWN_MAX))
    }
}

/// Checks the name of a group whose ledger is asked for.
pub(crate) fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::new(what, name, "is empty"));
    }
    if name.len() > NAME_MAX {
        return Err(NameError::new(what, name, "is longer than 512 bytes"));
    }
    if name.contains(['{', '}']) {
        return Err(NameError::new(what, name, "holds a brace, which Redis Cluster reads as a hash tag"));
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::new(what, name, "holds a control character"));
    }
    Ok(())
}

/// A name that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {name:?} {why}; choose another name")]
pub struct NameError {
    what: &'static str,
    name: String,
    why: &'static str,
}

impl NameError {
    fn new(what: &'static str, name: &str, why: &'static str) -> Self {
        Self { what, name: name.chars().take(80).collect(), why }
    }

    /// Of bytes that are no text.
    pub(crate) fn not_utf8(what: &'static str, name: &[u8]) -> Self {
        let beginning = name.get(..320).unwrap_or(name);
        Self::new(what, &String::from_utf8_lossy(beginning), "is not UTF-8")
    }
}

/// An owner token: the worker's name and 128 random bits, fresh for each attempt and never used again, not
/// even for a retry. (With reuse, an old release on another connection deletes the new attempt's key.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// What a lock's key holds while readers do. To other Redlock clients it is one more holder, so that readers
    /// exclude them as well.
    pub const READERS: &'static str = "quorate:readers";

    /// Who is said to hold a resource that is free, but for those who wait in its queue.
    pub const QUEUE: &'static str = "quorate:queue";

    /// The token of one attempt by `worker`.
    pub fn sign(worker: &str, high: u64, low: u64) -> Self {
        Self(format!("{worker}:{high:016x}{low:016x}").into())
    }

    /// What stands in the place of a lease that was transferred to `worker`: it is nobody's lease, and only an
    /// attempt of that worker takes it as free.
    pub fn reserve(worker: &str, high: u64, low: u64) -> Self {
        Self(format!("{worker}:{high:016x}{low:016x}{RESERVED_FOR}").into())
    }

    /// The worker for whom this is a reservation; `None` where it signs a lease.
    pub fn reserved_for(&self) -> Option<&str> {
        // No token of a lease ends so: it ends with its random bits.
        signed(self.0.strip_suffix(RESERVED_FOR)?)
    }

    /// Whether an attempt that this signs takes `standing` as free: it is a reservation for its worker.
    pub fn may_take(&self, standing: &Self) -> bool {
        standing.reserved_for().is_some_and(|worker| signed(&self.0) == Some(worker))
    }

    /// A token as a node gave it; another Redlock client's may look like anything.
    pub fn from_node(token: &str) -> Self {
        Self(token.into())
    }

    /// The whole token, as it is. Another client may have written anything: to show it, use `Display`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The worker's name, where the token is one of ours; else the whole token. As it is, like [`Owner::as_str`].
    pub fn worker(&self) -> &str {
        signed(&self.0).unwrap_or(&self.0)
    }
}

/// The worker's name in a token of ours.
fn signed(token: &str) -> Option<&str> {
    let (worker, bits) = token.rsplit_once(':')?;
    (bits.len() == 32 && bits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(worker)
}

/// Escaped, and cut: the bytes may be anybody's.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.0, SHOWN_MAX))
    }
}

/// The token, fit for a terminal and cut.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.0, SHOWN_MAX))
    }
}

/// A fencing token: unique for a lock, and larger with each later holder.
///
/// The sink of a write compares it in its own transaction, and refuses one that is smaller than the largest that it has seen. In
/// an election it is also the number of the term.
///
/// ```
/// use quorate::FencingToken;
///
/// /// Applies a write, unless a later holder has written.
/// fn write(newest: &mut FencingToken, token: FencingToken) -> Result<(), &'static str> {
///     if token < *newest {
///         return Err("a later holder has written");
///     }
///     *newest = token;
///     Ok(())
/// }
///
/// let mut newest = FencingToken::new(0);
/// assert!(write(&mut newest, FencingToken::new(8)).is_ok());
/// assert!(write(&mut newest, FencingToken::new(7)).is_err());
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token: Lua's numbers are doubles, so a counter may not pass 2^53.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The token of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number to compare.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point on a *node's* wall clock. Never compared with a worker's clock but through an offset.
pub type NodeTime = WallTime;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_for_one_worker_and_is_nobodys_lease() {
        let kept = Owner::reserve("a", 1, 2);
        assert_eq!(kept.reserved_for(), Some("a"));
        assert!(Owner::sign("a", 3, 4).may_take(&kept));
        for other in ["b", "aa", "", "a:reserved"] {
            assert!(!Owner::sign(other, 3, 4).may_take(&kept), "{other}");
        }
        assert!(!Owner::from_node("a").may_take(&kept), "signed by nobody");
        assert!(!kept.may_take(&kept));
        // A worker may be called as it likes, and its lease is no reservation.
        for worker in ["a:reserved", "a", ":reserved", &format!("a:{:032x}", 7)] {
            let lease = Owner::sign(worker, 1, 2);
            assert_eq!((lease.reserved_for(), lease.worker()), (None, worker));
            assert!(!Owner::sign("a", 3, 4).may_take(&lease), "{worker}");
        }
    }

    #[test]
    fn an_owner_of_foreign_bytes_is_shown_escaped_and_cut() {
        let foreign = format!("a\u{1b}[2J\r\n\u{202e}{}", "b".repeat(5_000));
        let owner = Owner::from_node(&foreign);
        for shown in
            [format!("{owner:?}"), format!("{owner:#?}"), owner.to_string(), format!("{:?}", Some(&owner))]
        {
            assert!(!shown.replace('\n', "").contains(crate::plain::steers), "{shown:?}");
            assert!(shown.len() < 1_500 && !shown.contains("\nb"), "{shown:?}");
        }
        assert!(format!("{owner:?}").starts_with("a\\u{1b}[2J\\r\\n\\u{202e}bb"), "{owner:?}");
        assert_eq!(owner.as_str(), foreign, "as it is, to compare");
        let resource = Resource::lock("a\u{202e}b").unwrap();
        assert_eq!((resource.to_string(), format!("{resource:?}")), ("a b".into(), "a\\u{202e}b".into()));
        assert_eq!(resource.key(), "a\u{202e}b");
    }

    #[test]
    fn a_wish_meets_no_other_name() {
        let (group, lock) = (Resource::election("g").unwrap(), Resource::lock("g").unwrap());
        assert_eq!(group.wish().key(), "wish/election/g");
        assert_ne!(group.wish(), lock.wish());
        assert!(Resource::lock("wish/election/g").is_err() && !group.wish().is_claim());
    }
}

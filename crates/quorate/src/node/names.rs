use crate::{
    env::WallTime,
    plain::{escaped, plain},
    setting_error::SettingError,
};
use std::{borrow::Cow, fmt, sync::Arc};

/// The text between a holder's token and the name of the worker to which it must hand its lease over.
const HAND_OVER_TO: &str = ":to:";

/// The longest name of a resource, group, set of claims or message id, in bytes.
const NAME_MAX: usize = 512;
/// The maximum number of characters of a name that an error shows.
const NAME_SHOWN: usize = 80;
/// The longest text that is displayed for an owner token or a resource's key, in bytes.
const SHOWN_MAX: usize = 1_200;

/// The end of the owner token of a reservation: see [`Owner::reserve`].
const RESERVED_FOR: &str = ":reserved";

/// The words that are reserved for Quorate's own keys. The name of a plain lock must not be one of these
/// words, or begin with one and a slash.
const RESERVED: [&str; 5] = ["election", "claim", "ledger", "node", "resign"];

/// The name of a lock, an election or a claim, without the deployment's prefix.
///
/// The keys of locks, elections and claims never collide. With the prefix `P`, the lock `R` is stored under
/// the key `PR`, as a plain string. So Quorate and any Redlock client that uses this key exclude each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    key: Arc<str>,
    kind: ResourceKind,
}

/// The kind of a [`Resource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A plain lock.
    Lock,
    /// A group's leadership.
    Election,
    /// A message id, which may have a done record.
    Claim,
    /// A resign request to the holder of another resource.
    ResignRequest,
}

impl Resource {
    /// Returns the lock called `name`.
    ///
    /// # Errors
    /// [`SettingError`] if `name` is empty or longer than 512 bytes, contains a brace or a control character,
    /// or begins with a reserved word (such as `election`).
    pub fn lock(name: &str) -> Result<Self, SettingError> {
        check("resource", name)?;
        let word = name.split('/').next().unwrap_or_default();
        if RESERVED.contains(&word) {
            return Err(unusable("resource", name, "which begins with a word that Quorate keeps for itself"));
        }
        Ok(Self { key: name.into(), kind: ResourceKind::Lock })
    }

    /// Returns the leadership of `group`.
    ///
    /// # Errors
    /// [`SettingError`], as for [`Resource::lock`], except for the reserved words.
    pub fn election(group: &str) -> Result<Self, SettingError> {
        check("group", group)?;
        Ok(Self { key: format!("election/{group}").into(), kind: ResourceKind::Election })
    }

    /// Returns the claim on the message `id` in the set of claims called `set`.
    ///
    /// # Errors
    /// [`SettingError`], as for [`Resource::lock`], except for the reserved words; `set` must not contain a slash. An id
    /// may contain braces, as those of other systems do: the key has them escaped (`%7B` and `%7D`, and `%25` for a
    /// percent sign). [`Resource::message_id`] returns the id as it was given.
    pub fn claim(set: &str, id: &str) -> Result<Self, SettingError> {
        check("claim set", set)?;
        check_text("message id", id)?;
        if set.contains('/') {
            return Err(unusable(
                "claim set",
                set,
                "which holds a slash, and a slash separates it from the message id",
            ));
        }
        Ok(Self { key: format!("claim/{set}/{}", escape_id(id)).into(), kind: ResourceKind::Claim })
    }

    /// Returns the claim that is stored under `key`, which begins with `claim/SET/`. Returns `None` if no id has this key.
    pub(crate) fn stored_claim(set: &str, key: &str) -> Option<Self> {
        let escaped = key.strip_prefix("claim/")?.strip_prefix(set)?.strip_prefix('/')?;
        Self::claim(set, &unescape_id(escaped)).ok().filter(|claim| *claim.key == *key)
    }

    /// Returns the id of the message, if this is a claim on a message.
    pub fn message_id(&self) -> Option<Cow<'_, str>> {
        let (set, id) = self.key.strip_prefix("claim/")?.split_once('/')?;
        // A session has a brace in the name of its set, and its name is not escaped.
        (self.is_claim() && !set.contains('{')).then(|| unescape_id(id))
    }

    /// Returns the name: the key, but with the message's id as it was given.
    pub fn name(&self) -> Cow<'_, str> {
        match self.message_id() {
            Some(Cow::Owned(id)) => {
                let set = self.key.split('/').nth(1).unwrap_or_default();
                format!("claim/{set}/{id}").into()
            }
            _ => Cow::Borrowed(&*self.key),
        }
    }

    /// Returns the session of a worker in the scheduler of `group`. It is a claim that no message id can have: the name of its
    /// set contains a brace, which [`Resource::claim`] refuses.
    pub(crate) fn session(group: &str, session: &str) -> Self {
        Self { key: format!("claim/{group}{{sessions}}/{session}").into(), kind: ResourceKind::Claim }
    }

    /// Returns the lock of a shard of `set`, or another lock of the set. No plain lock can have its name, which contains a brace.
    pub(crate) fn shard(set: &str, what: &impl fmt::Display) -> Self {
        Self { key: format!("{set}{{shards}}/{what}").into(), kind: ResourceKind::Lock }
    }

    /// Returns the resource that stores a resign request to the holder of this resource. The owner of the
    /// stored row is the owner token of the lease to which the request is addressed. So the request never
    /// applies to a later holder.
    #[doc(hidden)]
    pub fn resign_request(&self) -> Self {
        Self { key: format!("resign/{}", self.key).into(), kind: ResourceKind::ResignRequest }
    }

    /// Returns the lock of the bell by which the holder of this resource learns that there is something for it on the nodes. No
    /// plain lock can have its name, which contains a brace.
    pub(crate) fn bell(&self) -> Self {
        Self { key: format!("{}{{bell}}", self.key).into(), kind: ResourceKind::Lock }
    }

    /// Returns the key without the prefix.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the kind of the resource.
    #[doc(hidden)]
    pub fn kind(&self) -> ResourceKind {
        self.kind
    }

    /// Returns whether this is a claim. Before a node grants a claim, it looks for a done record.
    #[doc(hidden)]
    pub fn is_claim(&self) -> bool {
        self.kind == ResourceKind::Claim
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.name(), SHOWN_MAX))
    }
}

/// Formats the name for a terminal. [`Resource::key`] returns it unchanged.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.name(), SHOWN_MAX))
    }
}

/// Escapes the braces of a message's id, and the percent sign, so that different ids have different keys. Redis Cluster
/// reads braces as a hash tag, and keys of Quorate's own contain them.
fn escape_id(id: &str) -> Cow<'_, str> {
    if !id.contains(['{', '}', '%']) {
        return Cow::Borrowed(id);
    }
    id.replace('%', "%25").replace('{', "%7B").replace('}', "%7D").into()
}

/// Returns the id that [`escape_id`] has escaped.
fn unescape_id(escaped: &str) -> Cow<'_, str> {
    if !escaped.contains('%') {
        return Cow::Borrowed(escaped);
    }
    escaped.replace("%7B", "{").replace("%7D", "}").replace("%25", "%").into()
}

/// Checks the name of a resource or group. `what` is the kind of name, for the error.
pub(crate) fn check(what: &'static str, name: &str) -> Result<(), SettingError> {
    if name.contains(['{', '}']) && name.len() <= NAME_MAX {
        return Err(unusable(what, name, "which holds a brace, and Redis Cluster reads it as a hash tag"));
    }
    check_text(what, name)
}

/// Checks a name that may contain braces.
fn check_text(what: &'static str, name: &str) -> Result<(), SettingError> {
    if name.is_empty() {
        return Err(unusable(what, name, "which is empty"));
    }
    if name.len() > NAME_MAX {
        return Err(unusable(what, name, "which is longer than 512 bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err(unusable(what, name, "which holds a control character"));
    }
    Ok(())
}

/// Returns the error for a name that cannot be used, with the reason. `what` says which kind of name it is.
fn unusable(what: &'static str, name: &str, reason: &'static str) -> SettingError {
    let name: String = name.chars().take(NAME_SHOWN).collect();
    SettingError::new(format!("the {what}"), format!("{name:?}"), reason, "choose another name")
}

/// Returns the error for a name that is not UTF-8. `what` says which kind of name it is.
pub(crate) fn not_utf8(what: &'static str, name: &[u8]) -> SettingError {
    let beginning = name.get(..320).unwrap_or(name);
    unusable(what, &String::from_utf8_lossy(beginning), "which is not UTF-8")
}

/// An owner token: the name of a worker and 128 random bits.
///
/// Each attempt, also a retry, has new bits, which are never used again. Otherwise a delayed release of an
/// earlier attempt could delete the key of a later attempt.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The value of a lock's key while readers hold the lock. Other Redlock clients treat it like any other
    /// holder, so that readers exclude them too.
    pub const READERS: &'static str = "quorate:readers";

    /// The holder that a node reports if the resource is free, but another waiter is first in the resource's
    /// queue.
    pub const QUEUE: &'static str = "quorate:queue";

    /// Returns the token of one attempt by `worker`. Its random bits are `high` and `low`.
    #[doc(hidden)]
    pub fn sign(worker: &str, high: u64, low: u64) -> Self {
        // Every attempt has a token. `format!` would take several times as long.
        let bits = u128::from(high) << 64 | u128::from(low);
        let mut token = String::with_capacity(worker.len() + 33);
        token.push_str(worker);
        token.push(':');
        let digit = |at: u32| char::from_digit((bits >> (4 * (31 - at))) as u32 & 15, 16).unwrap_or('0');
        token.extend((0..32).map(digit));
        Self(token.into())
    }

    /// Returns the token of a reservation for `worker`. This token replaces the token of a lease that is
    /// being transferred to `worker`. A reservation is not a lease: until it expires, only `worker` can
    /// acquire the resource.
    #[doc(hidden)]
    pub fn reserve(worker: &str, high: u64, low: u64) -> Self {
        Self(format!("{worker}:{high:016x}{low:016x}{RESERVED_FOR}").into())
    }

    /// Returns the token of a request to the holder with this token: the request to hand its lease over to `worker`.
    pub(crate) fn successor_request(&self, worker: &str) -> Self {
        Self(format!("{}{HAND_OVER_TO}{worker}", self.0).into())
    }

    /// Returns the worker to which the holder with this token must hand its lease over, if `request` says so. The inner
    /// value is `None` if `request` is for this holder and names no worker. Returns `None` if it is for another holder.
    pub(crate) fn successor_in<'a>(&self, request: &'a Self) -> Option<Option<&'a str>> {
        match request.0.strip_prefix(&*self.0)? {
            "" => Some(None),
            rest => rest.strip_prefix(HAND_OVER_TO).map(Some),
        }
    }

    /// Returns the worker for which this token reserves the resource. Returns `None` for the token of a lease.
    pub fn reserved_for(&self) -> Option<&str> {
        // The token of a lease ends with its random bits, so it never has this suffix.
        signed(self.0.strip_suffix(RESERVED_FOR)?)
    }

    /// Returns whether an acquire with this token may replace `holder`. The acquire may do so if `holder` is
    /// a reservation for the same worker.
    #[doc(hidden)]
    pub fn may_take(&self, holder: &Self) -> bool {
        holder.reserved_for().is_some_and(|worker| signed(&self.0) == Some(worker))
    }

    /// Wraps a token that a node returned. The token may be that of another Redlock client, which can have
    /// any form.
    #[doc(hidden)]
    pub fn from_node(token: &str) -> Self {
        Self(token.into())
    }

    /// Returns whether another Redlock client wrote the token. A client whose tokens look like Quorate's is not
    /// recognized.
    pub(crate) fn is_foreign(&self) -> bool {
        let special = [Self::READERS, Self::QUEUE].contains(&self.as_str());
        !special && signed(&self.0).is_none() && self.reserved_for().is_none()
    }

    /// Returns the whole token, unchanged. Another client may have written any characters: use `Display` to show the
    /// token.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the worker if Quorate wrote the token, else the whole token. The text is not
    /// escaped: see [`Owner::as_str`].
    pub fn worker(&self) -> &str {
        signed(&self.0).unwrap_or(&self.0)
    }
}

/// Returns the name of the worker in a token that Quorate wrote.
fn signed(token: &str) -> Option<&str> {
    let (worker, bits) = token.rsplit_once(':')?;
    (bits.len() == 32 && bits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(worker)
}

/// Formats the token with escapes and cuts it at a limit, because another client may have written any bytes.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.0, SHOWN_MAX))
    }
}

/// Formats the token for a terminal, cut to a limit.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.0, SHOWN_MAX))
    }
}

/// A fencing token: the number of a grant. The token is unique for a lock, and each later holder has a larger
/// token.
///
/// A store that is written under the lock compares the token in the transaction of the write. It refuses a
/// token that is smaller than the largest one that it has seen. In an election the token is also the number
/// of the term.
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
    /// The largest token. Redis scripts calculate with doubles, so a counter must stay below 2^53.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Returns the token with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the token, to compare it with others.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point on a *node's* wall clock. A node's time is never compared directly with a worker's clock, but
/// through the measured offset of the two clocks.
pub type NodeTime = WallTime;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_for_one_worker_and_is_not_a_lease() {
        let kept = Owner::reserve("a", 1, 2);
        assert_eq!(kept.reserved_for(), Some("a"));
        assert_eq!(Owner::sign("a", 0x1f, 0xabc << 52).as_str(), "a:000000000000001fabc0000000000000");
        assert!(Owner::sign("a", 3, 4).may_take(&kept));
        for other in ["b", "aa", "", "a:reserved"] {
            assert!(!Owner::sign(other, 3, 4).may_take(&kept), "{other}");
        }
        assert!(!Owner::from_node("a").may_take(&kept), "not signed by a worker");
        assert!(!kept.may_take(&kept));
        // A worker's name may look like a part of an owner token. The token of its lease must not be read as a
        // reservation, and the name must be read back unchanged.
        for worker in ["a:reserved", "a", ":reserved", &format!("a:{:032x}", 7)] {
            let lease = Owner::sign(worker, 1, 2);
            assert_eq!((lease.reserved_for(), lease.worker()), (None, worker));
            assert!(!Owner::sign("a", 3, 4).may_take(&lease), "{worker}");
        }
    }

    #[test]
    fn tokens_that_quorate_did_not_write_are_foreign() {
        let readers = Owner::from_node(Owner::READERS);
        for ours in [Owner::sign("a", 1, 2), Owner::sign("", 1, 2), Owner::reserve("a", 1, 2), readers] {
            assert!(!ours.is_foreign(), "{ours}");
        }
        let signed = Owner::sign("a", 1, 2);
        for other in ["", "another-client", "0123456789abcdef0123456789abcdef", &signed.as_str()[..33]] {
            assert!(Owner::from_node(other).is_foreign(), "{other}");
        }
    }

    #[test]
    fn an_owner_token_of_another_client_is_displayed_escaped_and_cut() {
        let foreign = format!("a\u{1b}[2J\r\n\u{202e}{}", "b".repeat(5_000));
        let owner = Owner::from_node(&foreign);
        for shown in
            [format!("{owner:?}"), format!("{owner:#?}"), owner.to_string(), format!("{:?}", Some(&owner))]
        {
            assert!(!shown.replace('\n', "").contains(crate::plain::steers), "{shown:?}");
            assert!(shown.len() < 1_500 && !shown.contains("\nb"), "{shown:?}");
        }
        assert!(format!("{owner:?}").starts_with("a\\u{1b}[2J\\r\\n\\u{202e}bb"), "{owner:?}");
        assert_eq!(owner.as_str(), foreign, "unchanged, for comparison");
        let resource = Resource::lock("a\u{202e}b").unwrap();
        assert_eq!((resource.to_string(), format!("{resource:?}")), ("a b".into(), "a\\u{202e}b".into()));
        assert_eq!(resource.key(), "a\u{202e}b");
    }

    #[test]
    fn every_id_of_a_message_has_a_key_of_its_own_without_braces() {
        let guid = "{0f8fad5b-d9cb-469f-a165-70867728950e}";
        let ids =
            [guid, "a{b", "a%7Bb", "a%257Bb", "%", "%25", "%2525", "%7", "%2{", "}{", "%7b", "100%/x", "a b"];
        let keys: std::collections::BTreeSet<String> = ids
            .iter()
            .map(|id| {
                let claim = Resource::claim("s", id).unwrap();
                assert_eq!(claim.message_id().as_deref(), Some(*id));
                assert_eq!(
                    (claim.to_string(), format!("{claim:?}")),
                    (format!("claim/s/{id}"), format!("claim/s/{id}"))
                );
                assert_eq!(Resource::stored_claim("s", claim.key()), Some(claim.clone()));
                assert!(!claim.key().contains(['{', '}']));
                claim.key().to_owned()
            })
            .collect();
        assert_eq!(keys.len(), ids.len());
        assert_eq!(
            Resource::claim("s", "a/b").unwrap().key(),
            "claim/s/a/b",
            "most ids are stored as they are"
        );
        // No id has these keys: another program has written them, or a scheduler.
        for key in ["claim/s/a{b}", "claim/s/%7b%", "claim/s/", "claim/s2/a", "claim/g{sessions}/a/1", "a"] {
            assert_eq!(Resource::stored_claim("s", key), None, "{key}");
        }
        let session = Resource::session("g", "50%25/1");
        assert_eq!((session.message_id(), session.to_string()), (None, "claim/g{sessions}/50%25/1".into()));
        assert_eq!(Resource::lock("a%25").unwrap().to_string(), "a%25");
        assert!(Resource::claim("s{", "a").is_err() && Resource::claim("s", &"{".repeat(512)).is_ok());
        assert!(Resource::claim("s", &"{".repeat(513)).is_err());
    }

    #[test]
    fn a_request_to_hand_over_is_for_one_holder_and_names_the_successor() {
        let (holder, other) = (Owner::sign("a", 1, 2), Owner::sign("a", 1, 3));
        let request = holder.successor_request("b:to:c");
        assert_eq!(holder.successor_in(&request), Some(Some("b:to:c")));
        assert_eq!(holder.successor_in(&holder), Some(None), "a request that names no worker");
        assert_eq!(other.successor_in(&request), None);
        assert_eq!(holder.successor_in(&Owner::from_node(&format!("{}x", holder.as_str()))), None);
        assert!(request.reserved_for().is_none());
    }

    #[test]
    fn a_resign_request_has_a_key_of_its_own() {
        let (group, lock) = (Resource::election("g").unwrap(), Resource::lock("g").unwrap());
        assert_eq!(group.resign_request().key(), "resign/election/g");
        assert_ne!(group.resign_request(), lock.resign_request());
        assert!(Resource::lock("resign/election/g").is_err() && !group.resign_request().is_claim());
    }
}

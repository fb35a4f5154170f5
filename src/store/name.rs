//! From session keys to names in the store, and how no two keys ever share one.
//!
//! The rules are those of `tinyagents-store.md`, Names.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, Sha256};

/// No file name is longer than this, in bytes; the application puts up to 40
/// more behind one while it writes.
const LONGEST_FILE_NAME: usize = 200;
/// What the longest file name of a session has around its store name.
const AROUND: usize = "session.".len() + ".messages".len() + ".jsonl".len();
const LONGEST_NAME: usize = LONGEST_FILE_NAME - AROUND;

/// A session's name in the store, made from its key: what stands in the names
/// of its files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct StoreName(String);

impl StoreName {
    /// The name that a key gets if nothing is in its way, and whether it had
    /// to be shortened (then it has the beginning of the key's hash behind it,
    /// since the beginning alone says little about a long key).
    pub fn clean(key: &SessionKey) -> (String, bool) {
        let name = allowed(key);
        if name.len() > LONGEST_NAME {
            (
                with_suffix(&name, &Sha256::of(key.as_str().as_bytes()).short(8)),
                true,
            )
        } else {
            (name, false)
        }
    }

    /// Takes a name as it stands on disk, if the application's stores accept it.
    pub fn parse(name: &str) -> Option<Self> {
        is_valid(name).then(|| Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The stream of the session's messages.
    pub fn messages(&self) -> StreamName {
        StreamName(format!("session.{self}.messages"))
    }

    /// The stream of the session's residue.
    pub fn residue(&self) -> StreamName {
        StreamName(format!("session.{self}.residue"))
    }

    /// By what names are compared: the store may be copied to a disk that does
    /// not know case.
    fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl fmt::Display for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct StreamName(String);

impl StreamName {
    /// Takes a name as it stands in a record or on disk, if the application's
    /// stores accept it: it cannot lead out of the store's folder.
    pub fn parse(name: &str) -> Option<Self> {
        is_valid(name).then(|| Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.jsonl", self.0)
    }

    /// The store name in it, if it is a session's stream of messages.
    pub fn of_messages(&self) -> Option<StoreName> {
        self.between("session.", ".messages")
    }

    /// The store name in it, if it is a session's stream of residue.
    pub fn of_residue(&self) -> Option<StoreName> {
        self.between("session.", ".residue")
    }

    fn between(&self, before: &str, after: &str) -> Option<StoreName> {
        let name = self.0.strip_prefix(before)?.strip_suffix(after)?;
        StoreName::parse(name)
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the application's stores accept as a stream, a namespace or a key.
pub fn is_valid(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    name.bytes().all(allowed) && !name.bytes().all(|c| c == b'.')
}

/// The key with every character replaced that may not stand in a name.
fn allowed(key: &SessionKey) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = key
        .as_str()
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if is_valid(&name) {
        name
    } else {
        "session".to_owned()
    }
}

/// The name, shortened so far that it is not too long with the suffix.
fn with_suffix(name: &str, suffix: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(suffix.len() + 1);
    // Names are ASCII, so every place is a border between characters.
    let start = name.get(..room).unwrap_or(name);
    format!("{start}-{suffix}")
}

/// Whether Windows has another use for a file of this name: its devices, with
/// or without an extension, and a dot at the end, which it drops.
fn is_reserved(name: &str) -> bool {
    if name.ends_with('.') {
        return true;
    }
    let (base, _) = name.split_once('.').unwrap_or((name, ""));
    let base = base.to_ascii_uppercase();
    let numbered = |device: &str| {
        let number = base.strip_prefix(device);
        number.is_some_and(|number| number.len() == 1 && number.bytes().all(|c| c.is_ascii_digit()))
    };
    // `CONIN$` and `CONOUT$` cannot be written with the characters allowed.
    matches!(base.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

/// The store names of all sessions: given ones, which stay, and new ones.
#[derive(Debug, Clone, Default)]
pub struct Names {
    by_folded: HashMap<String, SessionKey>,
    by_key: HashMap<SessionKey, StoreName>,
}

impl Names {
    /// Takes note of a name that a session was given earlier. `false`, and
    /// nothing is noted, if another session has it already: the earlier
    /// importer gave one name to several sessions.
    pub fn reserve(&mut self, name: &StoreName, key: &SessionKey) -> bool {
        if self.by_key.contains_key(key) || self.by_folded.contains_key(&name.folded()) {
            return self.by_key.get(key) == Some(name);
        }
        self.by_folded.insert(name.folded(), key.clone());
        self.by_key.insert(key.clone(), name.clone());
        true
    }

    /// Gives each of the keys its name, with what there is to say about it.
    ///
    /// `taken_on_disk` says which session key the descriptor of that name has,
    /// if there is such a descriptor, compared without regard to case
    /// ([`super::Occupants::of`]). The result depends on nothing but the set of
    /// keys, the reserved names and the disk; what is said about a name is the
    /// same whether it is new or was given earlier.
    pub fn assign(
        &mut self,
        keys: Vec<SessionKey>,
        taken_on_disk: &dyn Fn(&StoreName) -> Option<SessionKey>,
    ) -> BTreeMap<SessionKey, (StoreName, Vec<Diagnostic>)> {
        let mut order: Vec<_> = keys
            .into_iter()
            .map(|key| {
                let (clean, _) = StoreName::clean(&key);
                (clean != key.as_str(), key)
            })
            .collect();
        order.sort();
        order.dedup();
        order
            .into_iter()
            .map(|(_, key)| {
                let name = match self.by_key.get(&key) {
                    Some(name) => name.clone(),
                    None => self.choose(&key, taken_on_disk),
                };
                let about = describe(&key, &name);
                (key, (name, about))
            })
            .collect()
    }

    fn choose(
        &mut self,
        key: &SessionKey,
        taken_on_disk: &dyn Fn(&StoreName) -> Option<SessionKey>,
    ) -> StoreName {
        let free = |name: &StoreName| {
            !is_reserved(name.as_str())
                && !self.by_folded.contains_key(&name.folded())
                && taken_on_disk(name).is_none_or(|owner| owner == *key)
        };
        let name = candidates(key).map(StoreName).find(free);
        // There is no last candidate, so there always is a free one.
        let name =
            name.unwrap_or_else(|| StoreName(Sha256::of(key.as_str().as_bytes()).to_string()));
        self.by_folded.insert(name.folded(), key.clone());
        self.by_key.insert(key.clone(), name.clone());
        name
    }
}

/// The names that a key may get, in order of preference. Someone who picks
/// session keys on purpose can take the ones with 8 and 16 digits away from
/// another, so there are always more.
fn candidates(key: &SessionKey) -> impl Iterator<Item = String> + '_ {
    let (clean, shortened) = StoreName::clean(key);
    let name = allowed(key);
    let bytes = key.as_str().as_bytes();
    let hash = Sha256::of(bytes);
    let digits = if shortened {
        [16, 32, 64].as_slice()
    } else {
        &[8, 16, 32, 64]
    };
    let numbered = move |number: u64| {
        let salted = [bytes, b"\0", number.to_string().as_bytes()].concat();
        Sha256::of(&salted).short(16)
    };
    let suffixes = digits
        .iter()
        .map(move |digits| hash.short(*digits))
        .chain((1..=u64::MAX).map(numbered));
    std::iter::once(clean).chain(suffixes.map(move |suffix| with_suffix(&name, &suffix)))
}

/// What there is to say about a key's name: it depends on these two alone, so
/// that an import and each later one say the same.
fn describe(key: &SessionKey, name: &StoreName) -> Vec<Diagnostic> {
    let (clean, shortened) = StoreName::clean(key);
    let mut about = Vec::new();
    if shortened {
        about.push(Diagnostic::new(
            Code::NameShortened,
            format!("the session key is too long for a file name; in the store it is `{name}`"),
        ));
    }
    if name.as_str() != clean {
        let why = if is_reserved(&clean) {
            "has another meaning on Windows"
        } else {
            "belongs to another session"
        };
        about.push(Diagnostic::new(
            Code::NameTaken,
            format!("the name `{clean}` {why}; in the store the session is `{name}`"),
        ));
    }
    about
}

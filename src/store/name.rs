//! From session keys to names in the store, and how no two keys ever share one.
//!
//! The rules are those of `tinyagents-store.md`, Names.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

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
///
/// Shared with the key where the two are the same, as they mostly are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreName(Arc<str>);

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
        is_valid(name).then(|| Self(name.into()))
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
    fn folded(&self) -> Arc<str> {
        match self.0.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => self.0.to_ascii_lowercase().into(),
            false => Arc::clone(&self.0),
        }
    }

    fn of(key: &SessionKey, name: String) -> Self {
        match name == key.as_str() {
            true => Self(Arc::clone(key.shared())),
            false => Self(name.into()),
        }
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
    by_folded: HashMap<Arc<str>, SessionKey>,
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
        let name = candidates(key)
            .map(|name| StoreName::of(key, name))
            .find(free);
        // There is no last candidate, so there always is a free one.
        let name = name
            .unwrap_or_else(|| StoreName(Sha256::of(key.as_str().as_bytes()).to_string().into()));
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
    let mut name = allowed(key);
    if is_reserved(&format!("{name}-")) {
        // `CON.a` is a device still with whatever stands behind the dot.
        name = name.replacen('.', "_", 1);
    }
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use proptest::prelude::*;

    use super::*;

    type Assigned = BTreeMap<SessionKey, (StoreName, Vec<Diagnostic>)>;

    fn assign(keys: &[&str]) -> Assigned {
        let keys = keys.iter().map(|key| SessionKey::new(*key)).collect();
        Names::default().assign(keys, &|_| None)
    }

    fn name<'a>(assigned: &'a Assigned, key: &str) -> &'a str {
        assigned[&SessionKey::new(key)].0.as_str()
    }

    fn codes(assigned: &Assigned, key: &str) -> Vec<Code> {
        let about = &assigned[&SessionKey::new(key)].1;
        about.iter().map(|diagnostic| diagnostic.code).collect()
    }

    fn hash(key: &str, digits: usize) -> String {
        Sha256::of(key.as_bytes()).short(digits)
    }

    #[test]
    fn what_may_not_stand_in_a_name_becomes_an_underscore() {
        let names = assign(&["1_код", "a b", "..", "1_plain"]);
        assert_eq!(name(&names, "1_код"), "1____");
        assert_eq!(name(&names, "a b"), "a_b");
        assert_eq!(name(&names, ".."), "session");
        assert_eq!(name(&names, "1_plain"), "1_plain");
        assert!(names.values().all(|(_, about)| about.is_empty()));
        assert_eq!(StoreName::clean(&SessionKey::new("")).0, "session");
    }

    #[test]
    fn a_key_that_is_its_own_name_goes_first_then_byte_order() {
        let names = assign(&["a b", "a:b", "a_b", "A_B"]);
        assert_eq!(name(&names, "A_B"), "A_B", "the lower byte");
        for key in ["a_b", "a b", "a:b"] {
            assert_eq!(name(&names, key), format!("a_b-{}", hash(key, 8)));
            assert_eq!(codes(&names, key), [Code::NameTaken]);
        }
    }

    #[test]
    fn names_with_another_meaning_on_windows_are_taken() {
        for key in ["CON", "nul", "LPT9", "a."] {
            let names = assign(&[key]);
            assert_eq!(name(&names, key), format!("{key}-{}", hash(key, 8)));
            assert_eq!(codes(&names, key), [Code::NameTaken]);
        }
        for key in ["CONSOLE", "COM", "COM10", "a.CON"] {
            assert_eq!(name(&assign(&[key]), key), key);
        }
        // With nothing but a suffix, a device with an extension would stay one.
        for (key, start) in [("Com1.notes", "Com1_notes"), ("aux.", "aux_")] {
            assert_eq!(
                name(&assign(&[key]), key),
                format!("{start}-{}", hash(key, 8))
            );
        }
    }

    #[test]
    fn a_long_name_is_shortened_and_has_the_hash_behind_it() {
        let key = "k".repeat(240);
        let names = assign(&[&key]);
        let given = name(&names, &key);
        assert_eq!(given, format!("{}-{}", "k".repeat(168), hash(&key, 8)));
        let stream = StoreName::parse(given).unwrap().messages();
        assert_eq!(stream.file_name().len(), 200);
        assert_eq!(codes(&names, &key), [Code::NameShortened]);

        let key = "k".repeat(177);
        assert_eq!(name(&assign(&[&key]), &key), key);
        // Not too long by itself, but with the suffix that it needs.
        let (lower, upper) = ("k".repeat(175), "K".repeat(175));
        let names = assign(&[&lower, &upper]);
        assert_eq!(name(&names, &upper), upper);
        assert_eq!(
            name(&names, &lower),
            format!("{}-{}", "k".repeat(168), hash(&lower, 8))
        );
        assert_eq!(codes(&names, &lower), [Code::NameTaken]);
    }

    #[test]
    fn more_digits_are_used_where_somebody_took_the_name_with_fewer() {
        let eight = format!("a_b-{}", hash("a:b", 8));
        let sixteen = format!("a_b-{}", hash("a:b", 16));
        let names = assign(&["a:b", "a_b", &eight]);
        assert_eq!(name(&names, "a:b"), sixteen);
        let all: Vec<String> = candidates(&SessionKey::new("a:b")).take(7).collect();
        let mut keys: Vec<&str> = all.iter().map(String::as_str).collect();
        keys.push("a:b");
        let names = assign(&keys);
        assert_eq!(names.len(), 8);
        assert!(name(&names, "a:b").starts_with("a_b-"));
    }

    #[test]
    fn names_once_given_stay() {
        let mut names = Names::default();
        let (old, new) = (SessionKey::new("a:b"), SessionKey::new("a_b"));
        let given = StoreName::parse("a_b").unwrap();
        assert!(names.reserve(&given, &old));
        assert!(names.reserve(&given, &old));
        assert!(!names.reserve(&given, &new), "one name, one session");
        let assigned = names.assign(vec![new.clone(), old.clone()], &|_| None);
        assert_eq!(assigned[&old].0, given);
        assert_eq!(assigned[&new].0.as_str(), format!("a_b-{}", hash("a_b", 8)));
    }

    #[test]
    fn a_name_whose_descriptor_names_another_session_is_taken() {
        let on_disk = |name: &StoreName| match name.as_str() {
            "1_a" => Some(SessionKey::new("1:a")),
            "2_b" => Some(SessionKey::new("2_b")),
            _ => None,
        };
        let keys = vec![SessionKey::new("1_a"), SessionKey::new("2_b")];
        let names = Names::default().assign(keys, &on_disk);
        assert_eq!(name(&names, "1_a"), format!("1_a-{}", hash("1_a", 8)));
        assert_eq!(name(&names, "2_b"), "2_b");
    }

    #[test]
    fn stream_names_lead_back_to_the_session() {
        let name = StoreName::parse("1_a.messages").unwrap();
        assert_eq!(name.messages().of_messages(), Some(name.clone()));
        assert_eq!(name.residue().of_residue(), Some(name.clone()));
        assert_eq!(name.residue().of_messages(), None);
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\0"] {
            assert_eq!(StoreName::parse(bad), None, "{bad:?}");
            assert_eq!(StreamName::parse(bad), None, "{bad:?}");
        }
    }

    /// Keys that clash often.
    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[aA_:. é]{0,4}",
            1 => "(con|NUL|com1)(\\.a)?\\.?",
            1 => "[kK]{170,182}",
            2 => ("[aA:_]{1,2}", prop_oneof![Just(8_usize), Just(16), Just(32), Just(64)])
                .prop_map(|(key, digits)| format!("{}-{}", key.replace(':', "_"), hash(&key, digits))),
            1 => any::<String>(),
        ]
    }

    proptest! {
        #[test]
        fn distinct_keys_get_distinct_valid_names(
            keys in proptest::collection::vec(key(), 0..40),
            early in 0_usize..40,
        ) {
            let distinct: BTreeSet<_> = keys.iter().map(|key| SessionKey::new(key.as_str())).collect();
            let all: Vec<_> = distinct.iter().cloned().collect();
            let assigned = Names::default().assign(keys.iter().map(|key| SessionKey::new(key.as_str())).collect(), &|_| None);
            prop_assert_eq!(assigned.keys().cloned().collect::<Vec<_>>(), all.clone());

            let mut folded = HashSet::new();
            for (name, _) in assigned.values() {
                prop_assert!(is_valid(name.as_str()) && !is_reserved(name.as_str()));
                prop_assert!(name.messages().file_name().len() <= LONGEST_FILE_NAME);
                prop_assert!(folded.insert(name.as_str().to_lowercase()), "{} twice", name);
            }

            // Given in another order, the names are the same.
            let reversed = all.iter().rev().cloned().collect();
            prop_assert_eq!(&Names::default().assign(reversed, &|_| None), &assigned);

            // Given some first, those keep theirs when the others come.
            let mut names = Names::default();
            let some: Vec<_> = all.iter().take(early).cloned().collect();
            let first = names.assign(some, &|_| None);
            let mut later = Names::default();
            for (key, (name, _)) in &first {
                prop_assert!(later.reserve(name, key));
            }
            let everything = later.assign(all, &|_| None);
            for (key, given) in &first {
                prop_assert_eq!(&everything[key], given);
            }
            let folded: HashSet<_> = everything.values().map(|(name, _)| name.folded()).collect();
            prop_assert_eq!(folded.len(), everything.len());
        }
    }
}

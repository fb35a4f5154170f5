//! Newtypes for the names and hashes that must never be mixed up.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A session's own name, stable for ever once given (`openhuman-workspace.md` §6).
///
/// Usually the stem of its transcript. Never shortened or cleaned: what may
/// stand in a file name is a `StoreName`, derived from this.
///
/// Shared, not copied: a plan of twenty thousand sessions has each key in
/// several maps at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct SessionKey(Arc<str>);

impl From<String> for SessionKey {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

impl Serialize for SessionKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl SessionKey {
    /// Wraps a key.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text itself, shared.
    pub(crate) fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// The parent by the stem chain: all that stands before the last `__`, if
    /// that is not empty (`openhuman-workspace.md` §1).
    pub fn parent_stem(&self) -> Option<&str> {
        parent_stem(&self.0)
    }
}

/// The parent's stem: all before the last `__`; an empty rest is no parent.
pub fn parent_stem(stem: &str) -> Option<&str> {
    stem.rsplit_once("__")
        .map(|(parent, _)| parent)
        .filter(|parent| !parent.is_empty())
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A SHA-256, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Takes over a finished digest.
    pub fn from_digest(digest: sha2::Sha256) -> Self {
        Self(digest.finalize().into())
    }

    /// The first `digits` hex digits, as used in suffixes of names.
    pub fn short(&self, digits: usize) -> String {
        let mut hex = self.to_string();
        hex.truncate(digits);
        hex
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Every file of the item ledger is named by one: not a call per byte.
        let digit = |four: u8| char::from(DIGITS.get(usize::from(four)).copied().unwrap_or(b'0'));
        let hex: String = (self.0.iter())
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
            .collect();
        f.write_str(&hex)
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Sha256 {
    type Err = &'static str;

    fn from_str(hex: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "not a SHA-256 in 64 hex digits";
        let mut bytes = [0_u8; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return Err(WRONG);
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| WRONG)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        hex.parse().map_err(serde::de::Error::custom)
    }
}

/// Where a session comes from: a path relative to the workspace, perhaps with
/// a `#fragment` that names one record in that file (`openhuman-workspace.md` §4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourcePath {
    relative: Box<Path>,
    fragment: Option<Box<str>>,
}

impl SourcePath {
    /// A whole file, by its path relative to the workspace.
    pub fn file(relative: impl Into<PathBuf>) -> Self {
        Self {
            relative: relative.into().into(),
            fragment: None,
        }
    }

    /// One record of a file.
    pub fn record(relative: impl Into<PathBuf>, fragment: impl Into<String>) -> Self {
        Self {
            relative: relative.into().into(),
            fragment: Some(fragment.into().into()),
        }
    }

    /// The path relative to the workspace, without the fragment.
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The key under which this source's item ledger entry lies: the SHA-256
    /// of its relative path with `/`, of its raw bytes where it is not UTF-8
    /// (`openhuman-workspace.md` §7, `tinyagents-store.md`).
    pub fn ledger_key(&self) -> Sha256 {
        let mut bytes = Vec::new();
        for (index, component) in self.relative.components().enumerate() {
            if index > 0 {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(component.as_os_str().as_encoded_bytes());
        }
        if let Some(fragment) = &self.fragment {
            bytes.push(b'#');
            bytes.extend_from_slice(fragment.as_bytes());
        }
        Sha256::of(&bytes)
    }
}

impl SourcePath {
    /// Appends the path as it is shown.
    pub(crate) fn push_to(&self, text: &mut String) {
        match self.relative.to_str() {
            // The usual case: nothing to replace.
            Some(path) if std::path::MAIN_SEPARATOR == '/' => text.push_str(path),
            _ => {
                for (index, component) in self.relative.components().enumerate() {
                    if index > 0 {
                        text.push('/');
                    }
                    text.push_str(&readable(component.as_os_str()));
                }
            }
        }
        if let Some(fragment) = &self.fragment {
            text.push('#');
            text.push_str(fragment);
        }
    }
}

impl fmt::Display for SourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push_to(&mut text);
        f.write_str(&text)
    }
}

/// A file name as text; each byte that is not UTF-8 becomes `%XX`
/// (`openhuman-workspace.md` §7), so that two such names stay two names.
pub fn readable(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_all_before_the_last_double_underscore() {
        let key = SessionKey::new("1_a__2_b__3_c");
        assert_eq!(key.parent_stem(), Some("1_a__2_b"));
        assert_eq!(SessionKey::new("1_a").parent_stem(), None);
        assert_eq!(SessionKey::new("__1_a").parent_stem(), None);
    }

    #[test]
    fn sha256_survives_its_text() {
        let hash = Sha256::of(b"abc");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!("zz".parse::<Sha256>().is_err());
    }

    #[cfg(unix)]
    #[test]
    fn bytes_that_are_not_utf8_are_shown_and_hashed_raw() {
        use std::os::unix::ffi::OsStrExt as _;
        let path = SourcePath::file(Path::new(OsStr::from_bytes(b"session_raw/1_\xff.jsonl")));
        assert_eq!(path.to_string(), "session_raw/1_%FF.jsonl");
        assert_eq!(path.ledger_key(), Sha256::of(b"session_raw/1_\xff.jsonl"));
    }
}

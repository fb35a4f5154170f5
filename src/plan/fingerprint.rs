//! Whether the messages of one session are the first of another's, without
//! holding either (`openhuman-workspace.md` §6: role and content, in order).

use std::borrow::Cow;
use std::collections::BTreeMap;

use sha2::Digest as _;

use crate::error::Result;
use crate::model::key::Sha256;
use crate::model::message::{Message, Residue, Sink};
use crate::source::json;

/// A sink that hashes the messages it is given: all of them, and the first
/// so many of them for each number that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Fingerprint {
    count: u64,
    hasher: sha2::Sha256,
    /// Hash of the first so many messages.
    marks: BTreeMap<u64, Option<Sha256>>,
}

impl Fingerprint {
    /// With marks at these counts.
    pub(crate) fn with_marks(counts: impl IntoIterator<Item = u64>) -> Self {
        let mut this = Self {
            marks: counts.into_iter().map(|count| (count, None)).collect(),
            ..Self::default()
        };
        this.mark();
        this
    }

    /// Adds one message, by the texts of its two JSON strings.
    pub(crate) fn add(&mut self, role: &str, content: &str) {
        self.add_values(&value_of(role), &value_of(content));
    }

    /// Adds one message, by its two values.
    pub(crate) fn add_values(&mut self, role: &str, content: &str) {
        for value in [role, content] {
            self.hasher.update((value.len() as u64).to_le_bytes());
            self.hasher.update(value.as_bytes());
        }
        self.count += 1;
        self.mark();
    }

    fn mark(&mut self) {
        let hasher = &self.hasher;
        if let Some(mark) = self.marks.get_mut(&self.count) {
            *mark = Some(Sha256::from_digest(hasher.clone()));
        }
    }

    /// Number of messages.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The hash of all messages.
    pub(crate) fn whole(&self) -> Sha256 {
        Sha256::from_digest(self.hasher.clone())
    }

    /// The hash of the first so many messages, if there are that many and it
    /// was asked for.
    pub(crate) fn first(&self, count: u64) -> Option<Sha256> {
        self.marks.get(&count).copied().flatten()
    }
}

/// A JSON string's value; borrowed unless it holds an escape, since one text
/// may be written with escapes in one file and without in the other.
pub(crate) fn value_of(raw: &str) -> Cow<'_, str> {
    let inner = raw
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if memchr::memchr(b'\\', inner.as_bytes()).is_none() => Cow::Borrowed(inner),
        _ => json::decode(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
    }
}

impl Sink for Fingerprint {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        self.add(&message.role, &message.content);
        Ok(())
    }

    fn residue(&mut self, _: &Residue<'_>) -> Result<()> {
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        *self = Self::with_marks(self.marks.keys().copied());
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_messages_of_a_longer_session_have_the_shorter_ones_hash() {
        let mut short = Fingerprint::default();
        short.add("\"user\"", "\"caf\\u00e9\"");
        let mut long = Fingerprint::with_marks([0, 1, 5]);
        long.add("\"user\"", "\"café\"");
        long.add("\"assistant\"", "\"b\"");
        assert_eq!(long.first(1), Some(short.whole()));
        assert_eq!(long.first(0), Some(Fingerprint::default().whole()));
        assert_eq!(long.first(5), None);
        assert_ne!(long.whole(), short.whole());
    }

    #[test]
    fn role_and_content_do_not_run_together() {
        let mut one = Fingerprint::default();
        one.add("\"ab\"", "\"c\"");
        let mut other = Fingerprint::default();
        other.add("\"a\"", "\"bc\"");
        assert_ne!(one.whole(), other.whole());
    }

    #[test]
    fn a_compaction_starts_anew() {
        let mut sink = Fingerprint::with_marks([1]);
        sink.add("\"a\"", "\"b\"");
        sink.restart().unwrap();
        assert_eq!((sink.count(), sink.first(1)), (0, None));
    }
}

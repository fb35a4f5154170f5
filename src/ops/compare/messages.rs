//! What is told apart where two sessions no longer go the same way: words, and
//! what stands beside them.

use std::collections::HashMap;

use serde_json::Value;

use crate::model::key::Sha256;
use crate::model::message::Message;
use crate::plan::fingerprint::value_of;
use crate::store::journal::{self, Record};

/// What a message has beside its words.
#[derive(Debug)]
pub(super) struct Beside {
    id: Option<String>,
    /// Digest of `extra_metadata`.
    extra: Option<Sha256>,
    /// Digest of all else.
    rest: Option<Sha256>,
}

impl Beside {
    /// Of a record's value, a JSON text.
    pub(super) fn of(value: &str) -> Self {
        let Ok(Value::Object(mut members)) = serde_json::from_str(value) else {
            // Whatever that is, nothing but the same is as good.
            let rest = Some(Sha256::of(value.as_bytes()));
            return Self {
                id: None,
                extra: None,
                rest,
            };
        };
        let digest = |value: Value| Sha256::of(value.to_string().as_bytes());
        let id = members.remove("id");
        let extra = members.remove("extra_metadata").map(digest);
        // What is no text is no words.
        members.retain(|name, value| {
            !(value.is_string() && ["role", "content"].contains(&name.as_str()))
        });
        let id = match id {
            Some(Value::String(id)) => Some(id),
            Some(other) => {
                members.insert("id".to_owned(), other);
                None
            }
            None => None,
        };
        let rest = (!members.is_empty()).then(|| digest(Value::Object(members)));
        Self { id, extra, rest }
    }

    /// Whether all of another one is in this one.
    fn covers(&self, other: &Self) -> bool {
        let id = other.id.is_none() || self.id == other.id;
        let extra = other.extra.is_none() || self.extra == other.extra;
        id && extra && (other.rest.is_none() || self.rest == other.rest)
    }
}

/// Messages by the digest of role and content.
#[derive(Debug, Default)]
pub(super) struct Messages(HashMap<Sha256, Vec<Beside>>);

impl Messages {
    pub(super) fn add(&mut self, words: Sha256, beside: Beside) {
        self.0.entry(words).or_default().push(beside);
    }

    /// Takes out one that has all of a record; else one that only has its
    /// words, and of ids no other one.
    pub(super) fn take(&mut self, words: &Sha256, record: &Beside) -> bool {
        let Some(all) = self.0.get_mut(words) else {
            return false;
        };
        let same = |one: &Beside| one.covers(record) && record.covers(one);
        let same = all.iter().position(same);
        let whole = same.or_else(|| all.iter().position(|one| one.covers(record)));
        let fits = |one: &Beside| one.id == record.id || one.id.is_none() || record.id.is_none();
        let words = || all.iter().position(fits);
        if let Some(at) = whole.or_else(words) {
            all.swap_remove(at);
        }
        whole.is_some()
    }
}

/// The value that a message is written as.
fn value(message: &Message<'_>) -> String {
    let mut line = b"{".to_vec();
    // Writing to memory does not fail.
    let _ = journal::message_members(&mut line, message);
    line.push(b'}');
    String::from_utf8_lossy(&line).into_owned()
}

/// Whether all that `old` has is in `new`.
fn covers(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => old
            .iter()
            .all(|(key, old)| new.get(key).is_some_and(|new| covers(new, old))),
        _ => new == old,
    }
}

/// Whether a record has something that a message of the same words has not.
pub(super) fn has_more(record: &Record<'_>, message: &Message<'_>) -> bool {
    let (old, new) = (record.value(), value(message));
    let parse = serde_json::from_str::<Value>;
    old != new && !matches!((parse(&new), parse(old)), (Ok(new), Ok(old)) if covers(&new, &old))
}

pub(super) fn known_by(message: &Message<'_>) -> (Sha256, Beside) {
    let words = words(&value_of(&message.role), &value_of(&message.content));
    (words, Beside::of(&value(message)))
}

/// Digest of role and content.
pub(super) fn words(role: &str, content: &str) -> Sha256 {
    let length = role.len() as u64;
    let bytes = [&length.to_le_bytes(), role.as_bytes(), content.as_bytes()];
    Sha256::of(&bytes.concat())
}

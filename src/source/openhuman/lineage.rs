//! Parents, threads and runs (`openhuman-workspace.md` §5).

use std::collections::HashMap;

use super::discover::Place;
use super::run_ledger::RunLedger;
use super::subagents::Subagents;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::{SessionKey, parent_stem};
use crate::model::session::Session;

/// Which session each stem in each folder belongs to.
#[derive(Debug, Default)]
pub struct Stems {
    by_stem: HashMap<String, Vec<(Place, SessionKey)>>,
}

impl Stems {
    /// Notes a file: a session's own, or an older copy of it.
    pub fn add(&mut self, stem: &str, place: Place, key: SessionKey) {
        let files = self.by_stem.entry(stem.to_owned()).or_default();
        files.push((place, key));
        files.sort();
    }

    /// The parent by the stem chain: first in the child's own folder, then
    /// anywhere, in the order of §6. Its stem, and its key if it is there.
    pub fn parent(&self, stem: &str, place: &Place) -> Option<(String, Option<SessionKey>)> {
        let parent = parent_stem(stem)?;
        let files = self.by_stem.get(parent);
        let key = files.and_then(|files| {
            let beside = files.iter().find(|(other, _)| other == place);
            beside.or_else(|| files.first()).map(|(_, key)| key.clone())
        });
        Some((parent.to_owned(), key))
    }
}

/// Generations between a session and its root, by its stem: parents are read
/// before their children.
pub fn depth(stem: &str) -> usize {
    std::iter::successors(parent_stem(stem), |stem| parent_stem(stem)).count()
}

/// The session's thread: the header's unless that is blank, else one made of
/// the session's name in the store. `true` where it was made.
pub fn thread_id(header: Option<&str>, store_name: &str) -> (String, bool) {
    match header {
        Some(id) if !id.trim().is_empty() => (id.to_owned(), false),
        _ => (format!("imported-{store_name}"), true),
    }
}

/// Warns about a parent that is not there, and where the run ledger or the
/// sub-agents file names another parent thread than the stem chain: that one
/// was given when the session was written, and wins.
pub fn cross_check(
    session: &Session,
    thread_id: &str,
    parent_thread: Option<&str>,
    ledger: &RunLedger,
    subagents: &Subagents,
) -> Vec<Diagnostic> {
    let Some(parent_stem) = &session.parent_stem else {
        return Vec::new();
    };
    let Some(parent) = &session.parent else {
        let message = format!("the parent session {parent_stem} is not in the workspace");
        return vec![Diagnostic::new(Code::ParentMissing, message)];
    };
    let Some(parent_thread) = parent_thread else {
        return Vec::new();
    };
    let mut others = Vec::new();
    for thread in ledger.parent_threads(thread_id) {
        if thread != parent_thread {
            others.push(format!("the run ledger says thread {thread}"));
        }
    }
    if let Some(record) = subagents.by_worker_thread(thread_id) {
        let thread = record.parent_thread_id.as_deref();
        if let Some(thread) = thread.filter(|thread| *thread != parent_thread) {
            others.push(format!(
                "sub-agent record {} says thread {thread}",
                record.id
            ));
        }
        let key = record.parent_session.as_deref();
        if let Some(key) = key.filter(|key| *key != parent.as_str() && key != parent_stem) {
            others.push(format!("sub-agent record {} says session {key}", record.id));
        }
    }
    if others.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{}, but by its name the parent is {parent} (thread {parent_thread}); the name wins",
        others.join("; ")
    );
    vec![Diagnostic::new(Code::LineageDisagrees, message)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_sought_in_the_childs_own_folder_first() {
        let mut stems = Stems::default();
        stems.add("1_a", Place::Flat, SessionKey::new("1_a"));
        stems.add("1_a", Place::Profile("w".into()), SessionKey::new("1_a.w"));
        let in_profile = stems.parent("1_a__2_b", &Place::Profile("w".into()));
        assert_eq!(in_profile.unwrap().1, Some(SessionKey::new("1_a.w")));
        let elsewhere = stems.parent("1_a__2_b", &Place::Profile("x".into()));
        assert_eq!(elsewhere.unwrap().1, Some(SessionKey::new("1_a")));
        assert_eq!(stems.parent("9_z__2_b", &Place::Flat).unwrap().1, None);
        assert_eq!(stems.parent("1_a", &Place::Flat), None);
    }

    #[test]
    fn roots_come_before_their_children() {
        assert_eq!(
            (depth("1_a"), depth("1_a__2_b"), depth("1_a__2_b__3_c")),
            (0, 1, 2)
        );
    }

    #[test]
    fn a_blank_thread_is_none() {
        assert_eq!(thread_id(Some("t"), "n"), ("t".into(), false));
        assert_eq!(thread_id(Some(" \t"), "n"), ("imported-n".into(), true));
        assert_eq!(thread_id(None, "n"), ("imported-n".into(), true));
    }
}

//! The run in which nothing has changed: told from names and times alone
//! (`behaviour.md`, run: the marker makes a later run cheap, not blind).

use std::path::Path;

use super::run::Options;
use super::wave::Done;
use crate::model::key::{SessionKey, SourcePath};
use crate::model::session::Kind;
use crate::plan::cache::Quick;
use crate::plan::kind;
use crate::plan::survey::SUBAGENTS;
use crate::report::{Action, ItemReport};
use crate::source::openhuman::discover::Discovery;
use crate::store::Store;
use crate::store::clock::Clock;

/// The items, all of them skipped, if nothing at all has changed since a run
/// that left everything done.
pub(super) fn look(
    options: &Options,
    workspace: &Path,
    store: &Store,
    clock: &Clock,
    found: &Discovery,
) -> Option<Done> {
    let asks_for_more = options.force
        || options.overwrite
        || options.checksum
        || options.salvage
        || !options.only.is_empty();
    // With a clock that stands there is no cache.
    if asks_for_more || clock.is_fixed() || !found.unreadable.is_empty() {
        return None;
    }
    // Whether the store may be written at all, and whose it is, is told by one
    // small file that the cache says nothing of.
    let claim = store.claim(workspace).ok()?;
    if claim.is_new || !claim.diagnostics.is_empty() {
        return None;
    }
    let subagents = workspace.join(SUBAGENTS);
    let quick = Quick::look(store.layout(), &subagents, &found.files)?;
    let mut done = Done {
        is_brief: options.brief,
        ..Done::default()
    };
    for (index, key, is_accepted) in quick.sources {
        let Some(file) = found.files.get(index) else {
            continue;
        };
        let action = match is_accepted {
            true => Action::SkippedAccepted,
            false => Action::SkippedUnchanged,
        };
        done.skip_one(action, false, || {
            skipped(key, &file.path, kind(&file.place), action)
        });
    }
    done.report.rejected = quick.told.rejected;
    for id in quick.told.histories {
        let key = history_key(&id).to_string();
        let (source, action) = (SourcePath::record(SUBAGENTS, id), Action::SkippedUnchanged);
        done.skip_one(action, false, || {
            skipped(key, &source, Kind::SubagentHistory, action)
        });
    }
    Some(done)
}

/// The session key of a sub-agent's history (`openhuman-workspace.md` §4).
pub(crate) fn history_key(id: &str) -> SessionKey {
    SessionKey::new(format!("subagent-{id}"))
}

fn skipped(session_key: String, source: &SourcePath, kind: Kind, action: Action) -> ItemReport {
    let reason = match action {
        Action::SkippedAccepted => "accepted",
        _ => "unchanged",
    };
    ItemReport {
        session_key,
        source: source.to_string(),
        kind,
        action,
        reason: reason.to_owned(),
        stream: None,
        thread_id: None,
        dialect: None,
        messages: 0,
        lines: Default::default(),
        warnings: Vec::new(),
        diagnostics: Vec::new(),
    }
}

//! The run in which nothing has changed: told from names and times alone
//! (`behaviour.md`, run: the marker makes a later run cheap, not blind).

use std::path::Path;

use super::run::Options;
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
) -> Option<Vec<ItemReport>> {
    let asks_for_more = options.force
        || options.overwrite
        || options.checksum
        || options.salvage
        || !options.only.is_empty();
    // With a clock that stands there is no cache.
    if asks_for_more || clock.is_fixed() || !found.unreadable.is_empty() {
        return None;
    }
    let subagents = workspace.join(SUBAGENTS);
    let quick = Quick::look(store.layout(), &subagents, &found.files)?;
    let files = quick
        .sources
        .into_iter()
        .filter_map(|(index, key, accepted)| {
            let file = found.files.get(index)?;
            let mut item = skipped(key, &file.path, kind(&file.place));
            if accepted {
                item.action = Action::SkippedAccepted;
                item.reason = "accepted".to_owned();
            }
            Some(item)
        });
    let histories = quick.histories.into_iter().map(|id| {
        let key = history_key(&id);
        let source = SourcePath::record(SUBAGENTS, id);
        skipped(key.to_string(), &source, Kind::SubagentHistory)
    });
    Some(files.chain(histories).collect())
}

/// The session key of a sub-agent's history (`openhuman-workspace.md` §4).
pub(crate) fn history_key(id: &str) -> SessionKey {
    SessionKey::new(format!("subagent-{id}"))
}

fn skipped(session_key: String, source: &SourcePath, kind: Kind) -> ItemReport {
    ItemReport {
        session_key,
        source: source.to_string(),
        kind,
        action: Action::SkippedUnchanged,
        reason: "unchanged".to_owned(),
        stream: None,
        thread_id: None,
        dialect: None,
        messages: 0,
        lines: Default::default(),
        warnings: Vec::new(),
        diagnostics: Vec::new(),
    }
}

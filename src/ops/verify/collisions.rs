//! Entries that claim one session, or one stream.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::model::check::Check;
use crate::model::key::Sha256;
use crate::model::remedy::Remedy;
use crate::plan::Item;
use crate::report::Finding;
use crate::store::layout::Namespace;
use crate::store::name::StoreName;
use crate::store::record::{Descriptor, Entry};
use crate::store::{Store, kv};

/// Entries that claim a session or a stream which another one has, by ledger
/// key. The one whose descriptor is there, or else that of a source, keeps it.
pub(super) fn collisions(
    store: &Store,
    entries: &HashMap<Sha256, Entry>,
    items: &[Item],
) -> Result<HashMap<Sha256, Finding>> {
    let mut claims: HashMap<String, Vec<(&Sha256, &Entry)>> = HashMap::new();
    // The earlier importer gave one stream to several sessions; that is known.
    for (key, entry) in entries.iter().filter(|(_, entry)| entry.has_record()) {
        let stream = format!("stream {}", entry.stream.to_ascii_lowercase());
        let session = format!("session {}", entry.session_key);
        for claim in [stream, session] {
            claims.entry(claim).or_default().push((key, entry));
        }
    }
    claims.retain(|_, claims| claims.len() > 1);
    if claims.is_empty() {
        return Ok(HashMap::new());
    }
    let sources: HashSet<Sha256> = items.iter().map(Item::ledger_key).collect();
    let mut found = HashMap::new();
    for claims in claims.into_values() {
        let mut ranked = Vec::new();
        for (key, entry) in claims {
            let fits = match entry.store_name() {
                Some(name) => is_descriptor_of(store, &name, entry)?,
                None => false,
            };
            ranked.push((!fits, !sources.contains(key), &entry.source, key, entry));
        }
        ranked.sort_by_key(|(fits, has_source, source, ..)| (*fits, *has_source, *source));
        let Some((.., first)) = ranked.first().map(|(.., entry)| ((), *entry)) else {
            continue;
        };
        // A run drops what claims the record of a source that is there.
        let remedy = match ranked.iter().all(|(_, is_gone, ..)| *is_gone) {
            true => Remedy::CopyOfStore,
            false => Remedy::Checksum,
        };
        for (.., key, _) in ranked.iter().skip(1) {
            let message = format!(
                "the entry of {} has this session, or its stream, already",
                first.source
            );
            found.insert(
                **key,
                Finding::new(Check::KeyCollision, message).helped_by(remedy),
            );
        }
    }
    Ok(found)
}

/// Whether a descriptor is the one that an entry vouches for, and says whose
/// it is as the entry does.
fn is_descriptor_of(store: &Store, name: &StoreName, entry: &Entry) -> Result<bool> {
    let path = store.layout().key_file(Namespace::Sessions, name.as_str());
    let Some(Ok(bytes)) = kv::read(&path)? else {
        return Ok(false);
    };
    let named: Option<Descriptor> = serde_json::from_slice(&bytes).ok();
    let same_key = named.is_some_and(|named| named.session_key == entry.session_key);
    Ok(same_key && entry.descriptor_sha256 == Some(Sha256::of(&bytes)))
}

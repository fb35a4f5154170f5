//! Descriptor and entry, field by field: what reading the source gives, and
//! what one of them says about the other.

use serde::Serialize;
use serde_json::{Map, Value};

use super::difference::{self, Field};
use super::examine::State;
use super::judge::{Judge, about};
use crate::model::check::{Check, Weight};
use crate::model::key::Sha256;
use crate::model::session::Reading;
use crate::ops::import::defaults;
use crate::plan::identity::has_unix_time;
use crate::plan::{Item, Reads};
use crate::report::{Difference, Finding};
use crate::source::openhuman::lineage;
use crate::store::kv;
use crate::store::record::{Descriptor, TOOL_NAME};

/// Keys of an entry that reading its source does not give, or that are looked
/// at by themselves.
const NOT_READ: [&str; 11] = [
    "imported_at",
    "mtime_ms",
    "journal_sha256",
    "residue_sha256",
    "descriptor_sha256",
    "replaced",
    "accepted",
    "tool",
    "subagent",
    "older_copies",
    "salvage",
];

/// Keys that go with the source's path.
const OF_PATH: [&str; 3] = ["source", "kind", "profile"];

impl Judge<'_> {
    pub(super) fn descriptor(&mut self, is_written_on: bool) {
        let file = format!("kv/sessions/{}.json", self.name);
        let bytes = match self.held.descriptor.take() {
            Some(Ok(bytes)) => bytes,
            Some(Err(reason)) => {
                self.tell(Check::DescriptorDamaged, file, reason);
                return;
            }
            None => {
                self.tell(
                    Check::DescriptorMissing,
                    file,
                    "its descriptor is not there",
                );
                return;
            }
        };
        if serde_json::from_slice::<Descriptor>(&bytes).is_err() {
            let message = "its descriptor is no JSON, or not a descriptor";
            self.tell(Check::DescriptorDamaged, file, message);
            return;
        }
        if is_written_on {
            // The application has put its own.
            return;
        }
        let is_as_left = self.entry.descriptor_sha256 == Some(Sha256::of(&bytes));
        let stored = object(&serde_json::from_slice::<Value>(&bytes).unwrap_or_default());
        let fields = match self.expected_descriptor() {
            Some(expected) => difference::fields(&stored, &object(&expected)),
            None => Vec::new(),
        };
        let (mut fields, outdated) = self.sort_out(fields);
        if is_as_left {
            self.check_against_descriptor(&stored, &mut fields);
            if !outdated.is_empty() {
                let message = format!("what is known of its {} changed since", outdated.join(", "));
                self.tell(Check::LineageOutdated, file.clone(), message);
            }
            if fields.is_empty() {
                return;
            }
        }
        let code = match is_as_left {
            true => Check::DescriptorDiffers,
            false => Check::DescriptorChanged,
        };
        let message = match fields.is_empty() {
            true => "its descriptor's bytes are not those that were written".to_owned(),
            false => format!("its descriptor differs in {}", list(&fields)),
        };
        let differences = self.shown(fields, "descriptor");
        self.found.push(Finding {
            differences,
            ..about(code, file, message)
        });
    }

    /// The descriptor that reading the source gives.
    fn expected_descriptor(&self) -> Option<Value> {
        let (State::Same(source), Some(item)) = (&self.state, self.item) else {
            return None;
        };
        let header = source.reading.header.thread_id.as_deref();
        let (thread_id, _) = lineage::thread_id(header, self.name.as_str());
        let importer = self.examiner.importer;
        let descriptor = importer.descriptor(item, self.name, &source.reading, thread_id, 0);
        serde_json::to_value(descriptor).ok()
    }

    /// Takes out of a descriptor's differing fields those that change without
    /// the source: they are named apart.
    fn sort_out(&self, fields: Vec<Field>) -> (Vec<Field>, Vec<&'static str>) {
        let mut outdated = Vec::new();
        let kept = fields.into_iter().filter(|field| {
            let what = match field.name.as_str() {
                "run_ids" if !self.examiner.knows_runs => "",
                "run_ids" => "runs",
                "parent_session_key" => "parent",
                "source" if self.is_moved => "",
                "source" => "companion",
                "import" => "",
                // The source does not say when it ended; its file's time did.
                "updated" if self.is_end_from_mtime() => "",
                _ => return true,
            };
            if !what.is_empty() {
                outdated.push(what);
            }
            false
        });
        (kept.collect(), outdated)
    }

    /// Whether the end that reading gives is the time of the source's file,
    /// which salvage takes where there is no header.
    fn is_end_from_mtime(&self) -> bool {
        let (State::Same(source), Some(item)) = (&self.state, self.item) else {
            return false;
        };
        let header = &source.reading.header;
        source.reading.salvaged && defaults(item).updated == header.updated
    }

    /// A descriptor that is as it was written tells what its entry must say.
    fn check_against_descriptor(&mut self, stored: &Map<String, Value>, fields: &mut Vec<Field>) {
        let imported_at = stored
            .get("import")
            .and_then(|import| import.get("imported_at"));
        let pairs = [
            (
                "session_key",
                stored.get("session_key"),
                self.entry.session_key.as_str(),
            ),
            ("stream", stored.get("stream"), self.entry.stream.as_str()),
            ("imported_at", imported_at, self.entry.imported_at.as_str()),
        ];
        for (name, given, found) in pairs {
            if given.and_then(Value::as_str) != Some(found) {
                fields.retain(|field| field.name != name);
                self.wrong.push(Field {
                    name: name.to_owned(),
                    store: Some(found.into()),
                    given: given.cloned(),
                });
            }
        }
    }

    /// The entry against what reading the source gives.
    pub(super) fn entry(&mut self) {
        if self.entry.rules.is_none() {
            self.wrong.push(missing("rules"));
        }
        if self
            .entry
            .tool
            .as_ref()
            .is_none_or(|tool| tool.name != TOOL_NAME)
        {
            self.wrong.push(missing("tool"));
        }
        if let (State::Same(source), Some(item)) = (&self.state, self.item) {
            let importer = self.examiner.importer;
            let (reading, hash) = (&source.reading, source.hash);
            let expected = importer.entry(item, self.name, reading, hash, source.stat);
            let told = self
                .found
                .iter()
                .any(|finding| finding.code == Check::LinesOff);
            let fields = difference::fields(&object(self.entry), &object(&expected));
            // A transcript's is that of another file, and changes with each use.
            let is_history = matches!(item.reads, Reads::History(_));
            let fields = fields.into_iter().filter(|field| {
                let name = field.name.as_str();
                if is_history && name == "subagent" {
                    return true;
                }
                !(NOT_READ.contains(&name)
                    || name == "rules"
                    || is_generation_by_place(field, item, reading)
                    || (self.is_moved && OF_PATH.contains(&name))
                    || (told && name == "lines"))
            });
            self.wrong.extend(fields.collect::<Vec<_>>());
        }
        if self.wrong.is_empty() {
            // Whatever a version does not read of its own entry is damage too.
            let tool = self.entry.tool.as_ref();
            let mut found = self.found.iter();
            if found.all(|finding| finding.severity == Weight::Notice)
                && let Some(Ok(bytes)) = &self.held.entry
                && !kv::is_as_written(bytes, self.entry, tool)
            {
                let message = "its item ledger entry does not have the bytes that are written";
                self.found.push(Finding::new(Check::EntryDiffers, message));
            }
            return;
        }
        let fields = std::mem::take(&mut self.wrong);
        let message = format!("its item ledger entry is wrong in {}", list(&fields));
        let differences = self.shown(fields, "entry");
        self.found.push(Finding {
            differences,
            ..Finding::new(Check::EntryDiffers, message)
        });
    }

    fn shown(&self, fields: Vec<Field>, place: &str) -> Vec<Difference> {
        match self.examiner.shown {
            0 => Vec::new(),
            _ => fields
                .into_iter()
                .map(|field| field.shown(place.to_owned()))
                .collect(),
        }
    }
}

/// Whether a generation differs only as the places where its source has lain:
/// a transcript of the second is told from one of the third by its date folder
/// alone, and the record of a source that moves stays as it is.
fn is_generation_by_place(field: &Field, item: &Item, reading: &Reading) -> bool {
    let is_second_or_third = |value: &Option<Value>| {
        let generation = value.as_ref().and_then(Value::as_u64);
        matches!(generation, Some(2 | 3))
    };
    field.name == "generation"
        && is_second_or_third(&field.store)
        && is_second_or_third(&field.given)
        && reading.header.thread_id.is_none()
        && !has_unix_time(&item.session.stem)
}

fn missing(name: &str) -> Field {
    Field {
        name: name.to_owned(),
        store: None,
        given: None,
    }
}

/// Names of descriptor or entry fields; all of them are ours or the design's.
fn list(fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    names.join(", ")
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

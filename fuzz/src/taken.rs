//! A sink that takes everything, and what holds for every source that is read
//! into one.

use serde_json::Value;
use session_import::Result;
use session_import::fuzzing;
use session_import::model::message::{Message, Residue, Sink};
use session_import::model::session::Reading;
use session_import::source::openhuman::Format;
use session_import::source::openhuman::salvage::Defaults;

/// A message whose JSON texts the strict reader has accepted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) id: Option<String>,
    pub(crate) role: String,
    pub(crate) content: String,
    pub(crate) extra_metadata: Option<Value>,
    pub(crate) unmapped: Option<Value>,
    pub(crate) salvaged: Option<Value>,
    /// `unmapped` as it came: a parsed object has each key once.
    pub(crate) unmapped_text: Option<String>,
    /// Its journal record's value.
    value: String,
}

/// A residue line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) line: u64,
    pub(crate) why: &'static str,
    pub(crate) error: String,
    pub(crate) text: Vec<u8>,
}

/// All that a reader gave, compactions taken into account.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) messages: Vec<Told>,
    pub(crate) residue: Vec<Left>,
    /// Residue that stands before the last compaction.
    settled: usize,
}

/// A source that was read, and what it gave.
pub(crate) struct Whole {
    pub(crate) reading: Reading,
    pub(crate) taken: Taken,
}

impl Whole {
    /// Whether a line that is no record may hold a header all the same.
    pub(crate) fn has_damaged_header(&self) -> bool {
        let may = |left: &Left| left.text.windows(4).any(|part| part == b"meta");
        self.taken.residue.iter().any(may)
    }
}

/// Reads a transcript, and checks what holds for every one.
pub(crate) fn read(format: Format, bytes: &[u8], salvage: bool) -> Result<Whole> {
    let defaults = salvage.then(|| Defaults {
        agent: "helper \"é\"".to_owned(),
        created: "2026-05-02T08:00:00Z".to_owned(),
        updated: String::new(),
    });
    let mut taken = Taken::default();
    let (reading, sha256) = fuzzing::transcript(format, bytes, defaults.as_ref(), &mut taken)?;
    assert_eq!(
        sha256,
        session_import::model::key::Sha256::of(bytes),
        "the hash is not that of the file"
    );
    taken.check(&reading);
    if !salvage {
        assert!(!reading.salvaged, "a plain read has salvaged something");
    }
    Ok(Whole { reading, taken })
}

impl Sink for Taken {
    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        self.messages.push(Told::new(message));
        Ok(())
    }

    fn residue(&mut self, residue: &Residue<'_>) -> Result<()> {
        let error = residue.error.as_deref().unwrap_or_default();
        self.residue.push(Left {
            line: residue.line,
            why: residue.why.as_str(),
            error: error.to_owned(),
            text: residue.text.to_owned(),
        });
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        self.messages.clear();
        self.residue.truncate(self.settled);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.settled = self.residue.len();
        Ok(())
    }
}

impl Told {
    fn new(message: &Message<'_>) -> Self {
        let mut members = Vec::new();
        let mut value = |key: &str, text: Option<&str>| {
            let text = text?;
            let value = serde_json::from_str(text);
            let value: Value = value.unwrap_or_else(|error| panic!("{key}: {error}: {text:?}"));
            members.push(format!("\"{key}\":{text}"));
            Some(value)
        };
        let string = |key: &str, value: Value| match value {
            Value::String(text) => text,
            other => panic!("{key} is no string: {other}"),
        };
        let id = value("id", message.id.as_deref()).map(|id| string("id", id));
        let role = value("role", Some(&message.role)).unwrap_or_default();
        let content = value("content", Some(&message.content)).unwrap_or_default();
        let extra_metadata = value("extra_metadata", message.extra_metadata.as_deref());
        assert_ne!(extra_metadata, Some(Value::Null));
        let own: Vec<String> = std::mem::take(&mut members);
        let mut value = |key: &str, text: Option<&str>| {
            let text = text?;
            let value = serde_json::from_str(text);
            let value: Value = value.unwrap_or_else(|error| panic!("{key}: {error}: {text:?}"));
            let is_empty = value.as_object().is_none_or(serde_json::Map::is_empty);
            assert!(!is_empty, "{key} is no object, or empty: {text}");
            members.push(format!("\"{key}\":{text}"));
            Some(value)
        };
        let unmapped = value("unmapped", message.unmapped.as_deref());
        let salvaged = value("salvaged", message.salvaged.as_deref());
        let mut all = own.join(",");
        if !members.is_empty() {
            all = format!("{all},\"session_import\":{{{}}}", members.join(","));
        }
        Self {
            id,
            role: string("role", role),
            content: string("content", content),
            extra_metadata,
            unmapped,
            salvaged,
            unmapped_text: message.unmapped.as_deref().map(str::to_owned),
            // As a draft writes it.
            value: format!("{{{all}}}").replace('\n', " "),
        }
    }
}

impl Taken {
    /// What holds for every source: the counts fit what came, and the strict
    /// reader takes the journal.
    pub(crate) fn check(&self, reading: &Reading) {
        assert!(reading.lines.add_up(), "{:?}", reading.lines);
        assert_eq!(reading.messages, self.messages.len() as u64);
        let mut journal = String::new();
        for (offset, told) in self.messages.iter().enumerate() {
            let value = &told.value;
            journal.push_str(&format!(
                "{{\"offset\":{offset},\"value\":{value},\"created_at_ms\":1}}\n"
            ));
        }
        let mut stream = fuzzing::stream(journal.as_bytes())
            .expect("the journal can be opened")
            .expect("the journal is there");
        for (offset, told) in (0..).zip(&self.messages) {
            let record = stream.next().unwrap_or_else(|damaged| {
                panic!("the strict reader refuses {damaged:?}: {}", told.value)
            });
            let record = record.expect("the journal ends too soon");
            assert_eq!(record.offset, offset);
            assert_eq!(record.id.as_deref(), told.id.as_deref());
            assert_eq!(record.role.as_deref(), Some(&*told.role));
            assert_eq!(record.content.as_deref(), Some(&*told.content));
        }
        assert_eq!(stream.next(), Ok(None), "the journal has more records");
    }

    /// The messages that salvage had no part in.
    pub(crate) fn not_salvaged(&self) -> Vec<Told> {
        let messages = self.messages.iter();
        messages
            .filter(|told| told.salvaged.is_none())
            .cloned()
            .collect()
    }

    /// Roles and contents.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let messages = self.messages.iter();
        messages
            .map(|told| (told.role.clone(), told.content.clone()))
            .collect()
    }
}

/// Where a plain read succeeds, salvage adds messages to it and changes nothing.
pub(crate) fn check_salvage_only_adds(plain: &Whole, salvaged: &Whole) {
    assert_eq!(plain.taken.messages, salvaged.taken.not_salvaged());
    assert_eq!(plain.taken.residue, salvaged.taken.residue);
    assert_eq!(plain.reading.lines, salvaged.reading.lines);
    // Several records ran together on a line: one may be a refreshed header.
    if !plain.has_damaged_header() {
        assert_eq!(plain.reading.header, salvaged.reading.header);
        assert_eq!(plain.reading.unmapped_meta, salvaged.reading.unmapped_meta);
    }
    assert_eq!(plain.reading.rejected, salvaged.reading.rejected);
}

/// Each line of the file, without its newline.
pub(crate) fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

/// The bytes behind UTF-8's byte order mark.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes)
}

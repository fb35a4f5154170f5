//! A sub-agent's history as a session: the messages that only this file holds
//! (`openhuman-workspace.md` §4).

use std::borrow::Cow;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::stream::{self, Unusable};
use super::{FILE, FOLDER, Subagent, json, record};
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::key::Sha256;
use crate::model::message::{Message, Residue, Sink, Why};
use crate::model::session::{Header, Reading};
use crate::source::openhuman::locate::Refused;

/// The strict reader takes 127 levels, and in a journal `extra_metadata` lies
/// in the record and in its value.
const DEEPEST_METADATA: usize = 125;
/// The same for what lies in `session_import.unmapped` there.
const DEEPEST_UNMAPPED: usize = 123;

/// Reads the history of one record again from the file and feeds it to the
/// sink. Line numbers are those of the entries, from 1.
///
/// # Errors
/// [`Code::ChangedWhileRead`] if the file no longer holds this very record,
/// [`Code::Vanished`] if there is no file any more, [`Code::Unreadable`] if it
/// cannot be read, and whatever the sink cannot do.
pub fn read_history(workspace: &Path, subagent: &Subagent, sink: &mut dyn Sink) -> Result<Reading> {
    let path = workspace.join(FOLDER).join(FILE);
    let trouble = |unusable| match unusable {
        Unusable::Refused(Refused::Io(error)) => Error::io("read", &path)(error),
        other => Error::source(Code::ChangedWhileRead, format!("{FOLDER}/{FILE}: {other}")),
    };
    let Some(file) = stream::open(workspace).map_err(trouble)? else {
        let message = format!("{FOLDER}/{FILE} is not there any more");
        return Err(Error::source(Code::Vanished, message));
    };
    // Where it was before: a file of many sub-agents is not read through for
    // each of them.
    if let Some(raw) = record_at(&file, subagent) {
        return feed(&raw, subagent, sink);
    }
    let mut found = None;
    let outcome = stream::records(file, stream::LARGEST_RECORD, &mut |_, _, raw| {
        let is_it =
            raw.len() as u64 == subagent.bytes && Sha256::of(raw.as_bytes()) == subagent.sha256;
        if !is_it {
            return ControlFlow::Continue(());
        }
        found = Some(feed(raw, subagent, sink));
        ControlFlow::Break(())
    });
    match (found, outcome) {
        (Some(reading), _) => reading,
        (None, Err(unusable)) => Err(trouble(unusable)),
        (None, Ok(())) => Err(Error::source(
            Code::ChangedWhileRead,
            format!("{FOLDER}/{FILE}: the sub-agent's record changed since it was looked at"),
        )),
    }
}

/// The record's text, if it lies where it lay when it was looked at.
fn record_at(file: &File, subagent: &Subagent) -> Option<String> {
    let mut raw = vec![0; usize::try_from(subagent.bytes).ok()?];
    file.read_exact_at(&mut raw, subagent.at).ok()?;
    let is_it = Sha256::of(&raw) == subagent.sha256;
    String::from_utf8(raw).ok().filter(|_| is_it)
}

fn feed(raw: &str, subagent: &Subagent, sink: &mut dyn Sink) -> Result<Reading> {
    let mut reading = Reading {
        header: header(subagent),
        ..Reading::default()
    };
    let mut outcome = Ok(());
    json::elements(record::history(raw).unwrap_or("[]"), &mut |entry| {
        reading.lines.total += 1;
        outcome = feed_entry(entry, &mut reading, sink);
        outcome.is_ok()
    });
    outcome?;
    let plural = if reading.messages == 1 { "" } else { "s" };
    let message = format!(
        "its {} message{plural} came from {FOLDER}/{FILE}; there is no transcript",
        reading.messages
    );
    let diagnostics = &mut reading.diagnostics;
    diagnostics.push(Diagnostic::new(Code::SubagentHistory, message));
    Ok(reading)
}

fn header(subagent: &Subagent) -> Header {
    let agent_id = subagent.agent_id.clone();
    Header {
        agent: agent_id.clone().unwrap_or_else(|| "unknown".to_owned()),
        agent_id,
        agent_type: Some("subagent".to_owned()),
        dispatcher: "native".to_owned(),
        model: subagent.model.clone(),
        created: subagent.created_at.clone().unwrap_or_default(),
        updated: subagent.updated_at.clone().unwrap_or_default(),
        thread_id: subagent.worker_thread_id.clone(),
        task_id: subagent.task_id.clone(),
        ..Header::default()
    }
}

fn feed_entry(raw: &str, reading: &mut Reading, sink: &mut dyn Sink) -> Result<()> {
    let line = reading.lines.total;
    match parse(raw) {
        Ok(entry) => {
            if entry.has_text {
                let message = "a value was kept as text";
                let diagnostic = Diagnostic::at(Code::ValueAsText, line, message);
                reading.diagnostics.push(diagnostic);
            }
            reading.lines.messages += 1;
            reading.messages += 1;
            reading.tool_call_markup |= entry.message.content.contains("<tool_call>");
            sink.message(&entry.message)
        }
        Err(reason) => {
            reading.lines.residue += 1;
            reading.rejected += u64::from(reason.why == Why::Malformed);
            let message = format!("entry {line} of the history: {}", reason.words);
            reading
                .diagnostics
                .push(Diagnostic::at(reason.code, line, message));
            sink.residue(&Residue {
                line,
                why: reason.why,
                error: Some(format!("{}: {}", reason.code, reason.words).into()),
                text: raw.as_bytes(),
            })
        }
    }
}

/// A usable entry.
#[derive(Debug)]
struct Parsed<'r> {
    message: Message<'r>,
    /// Some value of it is kept as text.
    has_text: bool,
}

/// Why an entry is no message.
#[derive(Debug)]
struct Reason {
    code: Code,
    why: Why,
    words: &'static str,
}

impl Reason {
    fn malformed(words: &'static str) -> Self {
        Self {
            code: Code::MalformedLine,
            why: Why::Malformed,
            words,
        }
    }
}

fn parse(raw: &str) -> Result<Parsed<'_>, Reason> {
    let [mut id, mut role, mut content, mut extra_metadata] = [None; 4];
    let mut is_twice = false;
    let mut unmapped = Unmapped::default();
    let is_object = json::members(raw, &mut |key, value| {
        let field = match key.as_str() {
            "id" => &mut id,
            "role" => &mut role,
            "content" => &mut content,
            "extra_metadata" => &mut extra_metadata,
            _ => return unmapped.add(&key, value),
        };
        is_twice |= field.replace(value).is_some();
    });
    if !is_object {
        return Err(Reason::malformed("it is no object"));
    }
    if is_twice {
        let words = "one of id, role, content, extra_metadata is there twice";
        return Err(Reason::malformed(words));
    }
    let string = |field: Option<&'_ str>| field.is_some_and(json::is_string);
    if !string(role) {
        return Err(Reason::malformed("role is no text"));
    }
    if !string(content) {
        return Err(Reason::malformed("content is no text"));
    }
    let there = |field: &&str| *field != "null";
    let (id, extra_metadata) = (id.filter(there), extra_metadata.filter(there));
    if extra_metadata.is_some_and(|value| json::depth(value) > DEEPEST_METADATA) {
        return Err(Reason {
            code: Code::TooDeep,
            why: Why::TooDeep,
            words: "extra_metadata nests too deep for a journal",
        });
    }
    let message = Message {
        id: unmapped
            .unless(json::is_string, "id", id)
            .map(Cow::Borrowed),
        role: role.map(Cow::Borrowed).unwrap_or_default(),
        content: content.map(Cow::Borrowed).unwrap_or_default(),
        extra_metadata: unmapped
            .unless(json::is_strict, "extra_metadata", extra_metadata)
            .map(json::compact),
        unmapped: unmapped.object(),
        salvaged: None,
    };
    Ok(Parsed {
        message,
        has_text: unmapped.has_text,
    })
}

/// The keys of an entry that are not among the four fields of a message.
#[derive(Default)]
struct Unmapped {
    /// JSON text, without its braces.
    members: String,
    has_text: bool,
}

impl Unmapped {
    fn add(&mut self, key: &str, value: &str) {
        let fits = json::depth(value) <= DEEPEST_UNMAPPED && json::is_strict(value);
        let value = match fits {
            true => json::compact(value),
            false => {
                self.has_text = true;
                Cow::Owned(serde_json::json!({ "json": value }).to_string())
            }
        };
        if !self.members.is_empty() {
            self.members.push(',');
        }
        self.members
            .push_str(&serde_json::Value::from(key).to_string());
        self.members.push(':');
        self.members.push_str(&value);
    }

    /// The field, if it is as it should be; what is not stays beside the message.
    fn unless<'r>(
        &mut self,
        fits: fn(&str) -> bool,
        key: &str,
        field: Option<&'r str>,
    ) -> Option<&'r str> {
        let misfit = field.filter(|value| !fits(value));
        if let Some(value) = misfit {
            self.add(key, value);
        }
        field.filter(|_| misfit.is_none())
    }

    fn object(&self) -> Option<Cow<'static, str>> {
        let is_empty = self.members.is_empty();
        (!is_empty).then(|| Cow::Owned(format!("{{{}}}", self.members)))
    }
}

#[cfg(test)]
mod tests;

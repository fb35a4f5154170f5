//! Every warning and failure the tool can report, each with a stable code.
//!
//! One table makes the enum, the texts of `--explain` and `docs/warnings.md`:
//! a code that is not explained cannot exist (`behaviour.md`, Warnings).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::codes::UnknownCode;
use super::codes::code_table;

/// How much a diagnostic weighs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; not a warning.
    Info,
    /// Something was odd, or decided for the operator.
    Warning,
    /// Something was not imported.
    Error,
}

code_table! {
    /// A stable code. Its text never changes; codes are only added.
    pub enum Code weighs Severity;

    // What is not imported.
    /// The source cannot be read.
    Unreadable = "unreadable", Error,
        "The operating system refused to open or read the file, or the folder that holds it. Nothing of it was imported, and nothing that an earlier import stored of it was changed. Give the user that runs the import the right to read it, and run again.";
    /// A source folder cannot be listed.
    UnreadableFolder = "unreadable-folder", Error,
        "The sessions in this folder are not known, so they are not in the counts either: the result cannot be called complete, the exit code is 3 and no marker is written. Make the folder readable and run again.";
    /// A Markdown view waits for a folder that cannot be listed.
    HeldBack = "held-back", Warning,
        "Markdown is imported only where a session has no JSONL. A folder that may hold it cannot be listed, so nobody knows; imported in its place, the view would lack tool calls and metadata and keep the session's key. It is not in the counts. Make the folder readable and run again.";
    /// The file is empty.
    EmptyFile = "empty-file", Error,
        "The file holds no line at all. The application truncates a transcript for a moment while it rewrites it, so an empty file may fill again: run again later. If it stays empty there is nothing to import: settle it with `accept`.";
    /// The first line is no valid header.
    NoHeader = "no-header", Error,
        "A transcript starts with a `_meta` line that has all of its required fields. The application's reader gives up the whole file without one, so a plain import does too. `run --salvage` takes what there is, with the usable fields of the header or with defaults from the file's name.";
    /// The file is in an encoding that is not UTF-8.
    ForeignEncoding = "foreign-encoding", Error,
        "The file starts with the byte order mark of UTF-16 or UTF-32. Convert a copy to UTF-8 (`iconv -t UTF-8`), put it in its place and run again.";
    /// The Markdown transcript cannot be read.
    BadMarkdown = "bad-markdown", Error,
        "A legacy Markdown transcript needs its `<!-- session_transcript` header and must be UTF-8. `run --salvage` reads it without the header.";
    /// One line is larger than the reader takes.
    LineTooLong = "line-too-long", Error,
        "A single record is larger than the limit that keeps memory bounded. The file was left alone and nothing of it was imported. Split it, or take the payload (usually base64) out of that line.";
    /// The source changed each time it was read and now holds less than the store.
    ChangedWhileRead = "changed-while-read", Error,
        "The file gave fewer messages than the store holds, and it changed while it was read, three times in a row, or was written to less than two seconds before: it may be in the middle of being rewritten. So nothing was written. Run again a little later; a file that is left alone and shorter is imported then.";
    /// The source is gone since it was found.
    Vanished = "vanished", Error,
        "The file was there when the folder was listed and is not there any more. If it was moved, the next run finds it at its new place.";
    /// The store's stream and the source have gone different ways.
    StoreDiverged = "store-diverged", Error,
        "The application (or someone else) has written to this session's stream since the import, and what it holds is neither the beginning nor a continuation of the source. Both are kept as they are. Compare them with `verify --diff`; `run --overwrite` replaces the stream by the source.";
    /// The store's stream is damaged.
    StoreDamaged = "store-damaged", Error,
        "The stream has a line that the application's reader refuses, or it differs from what was imported although its source did not change. `run --checksum` or `run --force` replaces it.";
    /// The store cannot be written.
    StoreWrite = "store-write", Error,
        "A file of the store could not be written or put in place. The session's earlier record, if any, is as it was. Make room, repair the permissions or move away what lies in the file's place (the message says which), and run again: what is done is not done twice.";
    /// The application keeps writing to the session's stream.
    StoreBusy = "store-busy", Error,
        "Each time the stream was about to be replaced, the application had written to it since it was looked at. Nothing was changed. Run again when the session is idle.";
    /// The run was interrupted before this item.
    Interrupted = "interrupted", Error,
        "A signal asked the run to stop. What was committed is kept and the next run goes on from there.";
    /// The end of an import could not be recorded.
    MarkerNotWritten = "marker-not-written", Error,
        "What the result counts as imported is in the store, but a record that belongs to the end of an import (its report, or the marker that says that it is complete) could not be written. The message names the file. Repair that and run again: nothing is imported twice.";

    // Lines that are not messages.
    /// The application's reader skips this line.
    MalformedLine = "malformed-line", Warning,
        "The line is not a record that the application's reader accepts, so it is no message. It is kept byte for byte in the session's residue stream with the reason. `run --salvage` brings back what can be brought back.";
    /// The last line is cut off.
    TornLine = "torn-line", Warning,
        "The last line has no end: the application was stopped, or is still writing it. It is kept in the residue stream. If the session goes on, the next run reads it again.";
    /// The message nests too deep for the application's reader once it is in a journal.
    TooDeep = "too-deep", Warning,
        "The application's reader takes 127 levels of nesting. In the journal the message's metadata lies a few levels deeper than in the source, and this one would make the reader refuse the whole stream. The line is kept in the residue stream.";
    /// The file starts with a byte order mark.
    ByteOrderMark = "byte-order-mark", Warning,
        "The application's own reader fails on the mark; the import skips it and reads the file.";

    // Markdown.
    /// Read from the human-readable view.
    LossyMarkdown = "lossy-markdown", Warning,
        "The JSONL of this session is gone; only the rendered Markdown is left. Texts are kept; tool calls, ids and metadata are not in the view. The item ledger entry says `lossy`.";
    /// A message holds what looks like a heading of the view.
    AmbiguousMarkdown = "ambiguous-markdown", Warning,
        "A message's text may itself contain a line that looks like the heading of the next message, so the borders between messages are a guess here.";
    /// A message is not closed.
    UnclosedMessage = "unclosed-message", Warning,
        "The closing tag of a legacy Markdown message is missing. The reader drops the message; its text is kept in the residue stream. `run --salvage` closes it at the next opening tag or at the end.";
    /// Two messages were read as one.
    MergedMessages = "merged-messages", Warning,
        "A closing tag is missing, so the application's reader (and the import) reads on into the next message: an opening tag stands inside the content.";
    /// Text outside of messages.
    TextOutside = "text-outside", Warning,
        "The Markdown holds text between messages that the reader ignores. It is kept in the residue stream.";
    /// Windows line ends in a Markdown transcript.
    CarriageReturns = "carriage-returns", Warning,
        "The application's reader keeps the carriage returns as part of the texts, and so does the import.";

    // Salvage.
    /// A message was brought back from a line that the reader skips.
    SalvagedLine = "salvaged-line", Warning,
        "`--salvage` was given. The message carries `session_import.salvaged` with line and rule; the original line is in the residue stream.";
    /// The header was replaced.
    SalvagedHeader = "salvaged-header", Warning,
        "`--salvage` was given and the header is missing or wrong: usable fields were taken, the others come from the file's name and time.";
    /// The session was read from its Markdown view.
    SalvagedFromMarkdown = "salvaged-from-markdown", Warning,
        "`--salvage` was given and the JSONL gives no message, so its Markdown was read instead.";

    // A live workspace.
    /// The source changed while it was read.
    ImportedWhileChanging = "imported-while-changing", Warning,
        "The application was writing the file during three readings. It was imported as last read, and the next run reads it again.";
    /// The store had messages that the source does not hold.
    DroppedMessages = "dropped-messages", Warning,
        "Before its fifth format the application rewrote transcripts and could shorten them; or a stream that had gone another way was replaced with `--overwrite`. What only the store had, messages and other lines, is kept in the session's residue stream as `dropped`; so is a line of the store that nobody can read any more.";
    /// The application wrote to the stream while it was replaced.
    StreamWrittenOn = "stream-written-on", Warning,
        "Between the last look at the stream and the end of the commit the application wrote to it. The next run looks at it again.";
    /// The store is ahead of the source.
    StoreAhead = "store-ahead", Info,
        "The stream holds all of the source's messages and more: the application goes on in the store. It was left alone.";
    /// A stream that was not ours was replaced.
    RecordReplaced = "record-replaced", Info,
        "The store held a record of this session that this tool had not written (the earlier importer's, or the application's), and it was replaced. Messages that only it held are in the residue stream as `dropped`.";
    /// A damaged record was replaced.
    Mended = "mended", Warning,
        "The store's record of this session was not what the item ledger says. It was written again from the source.";

    // An undo.
    /// The application has gone on with an imported session.
    WrittenOnSince = "written-on-since", Warning,
        "The session's stream or descriptor is not as the import left it: the application has written on in it, or it was damaged. `undo` kept all of it, its item ledger entry too, so that `run` still knows it. `undo --overwrite` removes it.";
    /// An import had replaced a record that was not its own.
    NotBroughtBack = "not-brought-back", Warning,
        "When this session was imported, the store already held a record of it that the earlier importer or the application had written, and the import replaced it. `undo` cannot bring that one back, so it kept the one that took its place: without it the application would have none.";
    /// The store may hold the only copy.
    OnlyCopy = "only-copy", Warning,
        "The session's source is gone, or no longer holds messages that an earlier import took from it. Removing the record would lose them, so `undo` kept it. If the source was only moved, `run` first; `undo --overwrite` removes the record all the same.";
    /// An undo was cut off and had to be finished.
    UndoUnfinished = "undo-unfinished", Warning,
        "A crash or a full disk had cut an undo off between two steps. What it was about to remove has no item ledger entry any more; the next command that writes to the store removes it before anything else, and gives a session on which the application has written since its entry back.";
    /// An item ledger entry cannot be used.
    EntryUnusable = "entry-unusable", Warning,
        "The file is damaged, so nobody can tell which files it vouches for. `undo` left it and them alone; `run --checksum` imports its source again (a plain `run` only once something else has changed: else it does not read the entries). What is no file at all (a folder, a pipe) it does not replace: move that away.";

    // Sub-agents and run ledger.
    /// The messages come from the sub-agents file.
    SubagentHistory = "subagent-history", Warning,
        "The sub-agent has no transcript; the copy of its messages in `subagent_sessions.json` is the only one, and was imported as a session.";
    /// The sub-agents file, or a record in it, cannot be used.
    SubagentsUnusable = "subagents-unusable", Warning,
        "`.openhuman/subagent_sessions.json` must be an array of records. What cannot be read was left out: lineage was not checked against it, and messages that only it holds were not imported.";
    /// The run ledger cannot be used.
    RunLedgerUnusable = "run-ledger-unusable", Warning,
        "`session_db/sessions.db` could not be read (the message says why). Sessions are imported without run ids and without its check of the lineage. Run with `--force` when it is readable again to add them.";
    /// Some rows or columns of the run ledger cannot be used.
    RunLedgerPartial = "run-ledger-partial", Warning,
        "The run ledger has another shape than expected, or rows with values of the wrong type. What could be read was used.";

    // What is not a source.
    /// A file that looks like a transcript is not read.
    NotScanned = "not-scanned", Warning,
        "It lies where the application keeps no transcripts, or its name is not quite one (`.JSONL` in capitals, `session_raw-` without a profile). Move or rename it if it should be imported.";
    /// A link leads outside of the workspace or nowhere.
    ForeignLink = "foreign-link", Warning,
        "Only files inside the workspace are read. Put a copy in the link's place if it should be imported.";
    /// Something in a source folder is not a transcript.
    NotASource = "not-a-source", Info,
        "Hidden, temporary and backup files, other extensions, pipes, devices and notes are not transcripts.";

    // The workspace and the store.
    /// The application keeps its sessions elsewhere.
    RemoteStorage = "remote-storage", Warning,
        "`OPENHUMAN_STORAGE_URL` is set: the application keeps its sessions in that storage. Only what lies in the workspace is imported.";
    /// The workspace has no session.
    NothingFound = "nothing-found", Info,
        "None of the places where the application keeps sessions exists here. Check the path of the workspace.";
    /// A pattern fits no session.
    NothingSelected = "nothing-selected", Warning,
        "`--only` takes patterns on session keys, and this one fits none. A key is the transcript's name without its ending, perhaps with a folder behind it; `run --dry-run` shows them all. `*` stands for any characters: `--only '*_helper'`.";
    /// The store belonged to a workspace that no longer exists.
    WorkspaceMoved = "workspace-moved", Warning,
        "A store outside of its workspace belongs to one workspace. The one it names is gone, so the store was taken over for this one.";
    /// Free space could not be determined.
    SpaceUnknown = "space-unknown", Info,
        "The file system does not say how much room there is.";
    /// A cleaning step failed.
    Leftover = "leftover", Warning,
        "Something that no import needs any more (a temporary file of an interrupted one, say) could not be removed. It does no harm.";

    // Lineage and names.
    /// The header names no thread.
    ThreadIdSynthesized = "thread-id-synthesized", Warning,
        "The transcript is older than threads, or its thread id is blank. The session has a thread of its own, `imported-{name}`, and its descriptor says `thread_id_synthesized`.";
    /// The parent session is not in the workspace.
    ParentMissing = "parent-missing", Warning,
        "The stem names a parent session (all before the last `__`) that has no transcript here. The session is imported without a parent.";
    /// Another record names another parent than the stem does.
    LineageDisagrees = "lineage-disagrees", Warning,
        "The run ledger or the sub-agents file names another parent thread than the parent in the transcript's name. The name was given when the session was written and wins.";
    /// An older copy of the session is ignored.
    OlderCopy = "older-copy", Warning,
        "Another file has the same bytes, or its messages are the beginning of this session's. It was left alone and is not an item of its own.";
    /// Another session has the same stem.
    SameStem = "same-stem", Warning,
        "Two files with one stem hold different conversations (the numbered names of the first releases started anew each day). Both are imported; the later one's key has its folder behind the stem.";
    /// The session's name in the store was taken.
    NameTaken = "name-taken", Warning,
        "The session key becomes a file name that another session has, that differs only in case, or that is reserved on Windows. The name got the beginning of the key's SHA-256 behind it. The descriptor has the exact key.";
    /// The session's name in the store was shortened.
    NameShortened = "name-shortened", Info,
        "A file name may not be longer than 200 bytes. The descriptor has the exact key.";
    /// A Markdown file is the session's human-readable companion.
    Companion = "companion", Info,
        "The application writes a view of each transcript. It is named in the descriptor and not read.";
    /// A value nests too deep and is kept as text.
    ValueAsText = "value-as-text", Info,
        "A value that the session's record has no place for could not be kept as JSON without loss (it nests too deep, or holds a number with more digits than the reader keeps). It is kept as `{\"json\": text}`.";

    // What ends a whole command.
    /// There is no workspace where one was named or sought.
    NoWorkspace = "no-workspace", Error,
        "The message names every place that was looked at. Name the workspace with `--workspace` or `OPENHUMAN_WORKSPACE`. A workspace is never created.";
    /// Another import holds the store's lock.
    Locked = "locked", Error,
        "One import writes to a store at a time; the message says who holds the lock. Wait for it with `--retry-lock 5m`. A lock never outlives its process: there is nothing to remove by hand.";
    /// The command line asks for something that cannot be.
    Usage = "usage", Error,
        "A pattern or a combination of arguments is wrong; nothing was read or written. `--help` shows what a command takes.";
    /// The store cannot be used as it is.
    StoreUnusable = "store-unusable", Error,
        "The store belongs to another workspace, was written by a newer version of this tool, or holds a link where a folder should be. The message says which. Nothing was written.";
    /// The operating system refused something that the whole command needs.
    System = "system", Error,
        "The message names the file and what the system said. Repair that and run again: what is done is not done twice.";
}

/// One thing that was found, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Diagnostic {
    /// The stable code.
    pub code: Code,
    /// How much it weighs.
    pub severity: Severity,
    /// Line of the source, from 1, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What was found and what was done; never any message's content.
    pub message: String,
}

impl Diagnostic {
    /// A diagnostic about the whole of something.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: code.severity(),
            line: None,
            message: message.into(),
        }
    }

    /// A diagnostic about one line.
    pub fn at(code: Code, line: u64, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::new(code, message)
        }
    }

    /// `code: sentence`, as it stands in `warnings`.
    pub fn sentence(&self) -> String {
        match self.line {
            Some(line) => format!("{}: line {line}: {}", self.code, self.message),
            None => format!("{}: {}", self.code, self.message),
        }
    }

    /// How many times its code was given: more than one where it stands for
    /// lines that were only counted.
    pub fn occurrences(&self) -> u64 {
        let counted = self.message.strip_prefix("and ");
        let counted = counted.and_then(|rest| rest.strip_suffix(ONLY_COUNTED));
        let counted = counted.and_then(|rest| rest.split(' ').next());
        counted.and_then(|number| number.parse().ok()).unwrap_or(1)
    }

    /// Whether it belongs in `warnings`.
    pub fn is_warning(&self) -> bool {
        self.severity > Severity::Info
    }
}

/// How many lines are named per item and code before they are only counted.
const NAMED_PER_CODE: u64 = 20;

/// Ends the message that stands for the others: `and 5 more lines` and this.
const ONLY_COUNTED: &str = "; all of them are in the residue stream";

/// The diagnostics of one item: the first lines of each code, then a count
/// (`behaviour.md`, run). Memory does not grow with the damage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    named: Vec<Diagnostic>,
    lines: BTreeMap<Code, u64>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.line.is_some() {
            let count = self.lines.entry(diagnostic.code).or_default();
            *count += 1;
            if *count > NAMED_PER_CODE {
                return;
            }
        }
        self.named.push(diagnostic);
    }

    /// Adds another item's.
    pub fn extend(&mut self, others: impl IntoIterator<Item = Diagnostic>) {
        others.into_iter().for_each(|other| self.push(other));
    }

    /// Adds another collection behind this one, counts and all.
    pub fn append(&mut self, other: Self) {
        let Self { named, lines } = other;
        for diagnostic in named {
            let at_line = diagnostic.line.is_some();
            let before = self.lines_of(diagnostic.code);
            if !at_line || before < NAMED_PER_CODE {
                self.push(diagnostic);
            } else {
                *self.lines.entry(diagnostic.code).or_default() += 1;
            }
        }
        // Those that were only counted there.
        for (code, count) in lines {
            let more = count.saturating_sub(NAMED_PER_CODE);
            *self.lines.entry(code).or_default() += more;
        }
    }

    /// Lines that a code was given for, named or only counted.
    pub fn lines_of(&self, code: Code) -> u64 {
        self.lines.get(&code).copied().unwrap_or(0)
    }

    /// Whether a code was given at all.
    pub fn has(&self, code: Code) -> bool {
        self.named.iter().any(|diagnostic| diagnostic.code == code)
    }

    /// All of them, with one more per code for what was only counted.
    pub fn into_vec(self) -> Vec<Diagnostic> {
        let mut all = self.named;
        for (code, count) in self.lines {
            if count > NAMED_PER_CODE {
                let more = super::plural::count(count - NAMED_PER_CODE, "more line");
                all.push(Diagnostic::new(code, format!("and {more}{ONLY_COUNTED}")));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_kebab_case_and_differ() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{text}"
            );
            assert!(seen.insert(text), "{text} twice");
            assert_eq!(text.parse(), Ok(*code));
            assert!(!code.summary().is_empty() && !code.explanation().is_empty());
        }
    }

    #[test]
    fn lines_beyond_the_twentieth_are_counted() {
        let mut all = Diagnostics::default();
        (1..=25).for_each(|line| all.push(Diagnostic::at(Code::MalformedLine, line, "x")));
        assert_eq!(all.lines_of(Code::MalformedLine), 25);
        let all = all.into_vec();
        assert_eq!(all.len(), 21);
        assert!(all[20].message.contains("5 more"));
        assert_eq!(all.iter().map(Diagnostic::occurrences).sum::<u64>(), 25);
    }
}

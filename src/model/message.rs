//! What a session is made of, as any source yields it: messages and residue.

use std::borrow::Cow;

/// The text of one JSON value that the strict reader accepts: every nested
/// string decodes, every number is in range (`openhuman-workspace.md` §1.3).
///
/// Text instead of a parsed value, so that what stood in the source goes to
/// the store without being built up and taken apart again, digits and all.
pub type Json<'a> = Cow<'a, str>;

/// One message as the application's reader returns it, and beside it what that
/// reader drops (`openhuman-workspace.md` §1, "What the importer does beyond
/// the reader").
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message<'a> {
    /// JSON string.
    pub id: Option<Json<'a>>,
    /// JSON string.
    pub role: Json<'a>,
    /// JSON string.
    pub content: Json<'a>,
    /// Any JSON but `null`.
    pub extra_metadata: Option<Json<'a>>,
    /// JSON object of the top-level keys of the line that did not make it into
    /// the four fields above; never an empty one.
    pub unmapped: Option<Json<'a>>,
    /// JSON object; set where `--salvage` brought the message back.
    pub salvaged: Option<Json<'a>>,
}

/// Why a line is not a message (`tinyagents-store.md`, Journals).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// A refreshed header.
    Header,
    /// A record that the application's reader skips.
    Malformed,
    /// A message that would nest too deep for the strict reader once inside its record.
    TooDeep,
    /// A message that a later compaction replaced.
    Superseded,
    /// A partial answer, kept for display only.
    Interrupted,
    /// A compaction record.
    Compaction,
    /// A declaration of tools.
    Tools,
    /// A message that the source no longer holds.
    Dropped,
}

impl Why {
    /// The word that stands in the residue record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Malformed => "malformed",
            Self::TooDeep => "too-deep",
            Self::Superseded => "superseded",
            Self::Interrupted => "interrupted",
            Self::Compaction => "compaction",
            Self::Tools => "tools",
            Self::Dropped => "dropped",
        }
    }
}

/// A non-blank line of the source that is not a message, as it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct Residue<'a> {
    /// Line number in the source, from 1.
    pub line: u64,
    /// Why it is not a message.
    pub why: Why,
    /// Code and words of ours, never a parser's message: those quote contents.
    pub error: Option<Cow<'a, str>>,
    /// The line without its newline, untrimmed; perhaps not UTF-8.
    pub text: &'a [u8],
}

/// Where a session's messages and residue go while it is read.
///
/// A run writes them to the store, a dry run counts them, `verify` compares
/// them: the reader is the same one, so a plan cannot drift from a run.
pub trait Sink {
    /// The next message, in order.
    ///
    /// # Errors
    /// What the sink itself could not do, such as writing to the store.
    fn message(&mut self, message: &Message<'_>) -> Result<(), crate::Error>;

    /// The next residue line, in order of the source.
    ///
    /// # Errors
    /// What the sink itself could not do.
    fn residue(&mut self, residue: &Residue<'_>) -> Result<(), crate::Error>;

    /// A compaction: forget every message so far, and all residue since the
    /// last [`Sink::settle`]. The reader gives that stretch again as residue.
    ///
    /// # Errors
    /// What the sink itself could not do.
    fn restart(&mut self) -> Result<(), crate::Error>;

    /// All residue so far is final: it stands before a compaction.
    ///
    /// # Errors
    /// What the sink itself could not do.
    fn settle(&mut self) -> Result<(), crate::Error>;

    /// A message that the source holds and that is none of its messages: a
    /// compaction has replaced it, or it is a partial answer. Its line comes as
    /// residue as well; this is for sinks that ask whether a message is still
    /// in the source, and in which line.
    fn set_aside(&mut self, _line: u64, _message: &Message<'_>) {}
}

/// Takes everything and keeps nothing: for a dry run, and where a reader's
/// counts are all that is wanted.
#[derive(Debug, Default)]
pub struct Discard;

impl Sink for Discard {
    fn message(&mut self, _: &Message<'_>) -> Result<(), crate::Error> {
        Ok(())
    }

    fn residue(&mut self, _: &Residue<'_>) -> Result<(), crate::Error> {
        Ok(())
    }

    fn restart(&mut self) -> Result<(), crate::Error> {
        Ok(())
    }

    fn settle(&mut self) -> Result<(), crate::Error> {
        Ok(())
    }
}

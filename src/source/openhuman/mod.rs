//! The OpenHuman workspace: transcripts in every generation of their format,
//! the run ledger, the sub-agents file.

use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fs::open_regular;
use crate::model::key::Sha256;
use crate::model::message::{Discard, Sink};
use crate::model::session::Reading;
use crate::source::input::Input;

pub mod discover;
pub(crate) mod header;
pub(crate) mod line;
pub mod lineage;
mod locate;
pub(crate) mod markdown_blocks;
pub(crate) mod markdown_legacy;
pub(crate) mod markdown_rendered;
pub(crate) mod record;
pub(crate) mod replay;
pub mod run_ledger;
pub mod salvage;
pub mod subagents;
pub(crate) mod values;

use salvage::Defaults;

/// How a transcript file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSONL of any generation.
    Jsonl,
    /// Markdown with `<!--MSG-->` comments.
    MarkdownLegacy,
    /// The human-readable view.
    MarkdownRendered,
}

/// Largest Markdown file that is read, in bytes: it is read whole.
pub(crate) const MAX_MARKDOWN: u64 = 1 << 30;

/// How much of a Markdown file tells what it is in the usual case.
const HEAD: u64 = 4096;

/// What a Markdown file is: `None` where it has neither header nor messages
/// nor the rendered title, and so is no transcript (`openhuman-workspace.md` §7).
pub(crate) fn markdown_format(path: &Path) -> io::Result<Option<Format>> {
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut bytes)?;
    if markdown_rendered::looks_like(&bytes) {
        return Ok(Some(Format::MarkdownRendered));
    }
    if !markdown_legacy::looks_like(&bytes) {
        // Messages count anywhere in the file.
        file.take(MAX_MARKDOWN).read_to_end(&mut bytes)?;
    }
    Ok(markdown_legacy::looks_like(&bytes).then_some(Format::MarkdownLegacy))
}

/// Reads a transcript into a sink, and hashes it.
///
/// # Errors
/// What makes the application's reader give up the file, what `salvage` (if
/// given) could not help either; what the sink could not do.
pub(crate) fn read(
    format: Format,
    input: &Input<'_>,
    salvage: Option<&Defaults>,
    sink: &mut dyn Sink,
) -> Result<(Reading, Sha256)> {
    match format {
        Format::Jsonl => replay::read(input, salvage, sink),
        Format::MarkdownLegacy => {
            let (bytes, hash) = input.whole(MAX_MARKDOWN)?;
            Ok((markdown_legacy::read(&bytes, salvage, sink)?, hash))
        }
        Format::MarkdownRendered => {
            let (bytes, hash) = input.whole(MAX_MARKDOWN)?;
            Ok((markdown_rendered::read(&bytes, salvage, sink)?, hash))
        }
    }
}

/// Messages that `--salvage` would bring back from a file that a plain read
/// gives up.
pub(crate) fn salvageable(format: Format, input: &Input<'_>) -> u64 {
    let reading = read(format, input, Some(&Defaults::default()), &mut Discard);
    reading.map_or(0, |(reading, _)| reading.messages)
}

/// Adds to a failure what `--salvage` would bring back.
pub(crate) fn with_salvageable(error: Error, format: Format, input: &Input<'_>) -> Error {
    match error {
        Error::Source { code, message, .. } => Error::Source {
            code,
            message,
            salvageable: salvageable(format, input),
        },
        other => other,
    }
}

//! What puts a finding of `verify` right.

use serde::{Deserialize, Serialize};

/// What helps against a finding: a command only where it does.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// `run --checksum`.
    Checksum,
    /// `run --checksum --overwrite`, which replaces what the application has
    /// written.
    Overwrite,
    /// `run --force --overwrite`: other runs skip what was accepted.
    Force,
    /// The source gives no session as it is.
    MendSource,
    /// No source can give it again; `undo` takes the session out.
    CopyOfStore,
    /// No source can give it again, and `undo` does not know whose it is.
    CopyOrRemove,
    /// Something else than a file lies in the file's place.
    MoveAway,
    /// Nothing needs the file, and no run will write it.
    Remove,
}

impl Remedy {
    /// The same in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Checksum => "`run --checksum` mends it",
            Self::Overwrite => {
                "`run --checksum --overwrite` writes it anew from the source, and what only the \
                 store has goes to its residue; a divergence that a run has refused can also be \
                 settled by `accept`"
            }
            Self::Force => {
                "its failure was accepted, so that a run skips it; `run --force --overwrite` \
                 writes it anew from the source all the same"
            }
            Self::MendSource => {
                "mend the source (or its rights), then `run --checksum`; until then only a copy \
                 of the store has what was there"
            }
            Self::CopyOfStore => {
                "no source gives it again: bring the file back from a copy of the store, or give \
                 the session up with `undo --only KEY --overwrite`"
            }
            Self::CopyOrRemove => {
                "no source gives it again: bring the file (or its session's entry) back from a \
                 copy of the store, or remove it if nobody needs it"
            }
            Self::MoveAway => {
                "something else lies in the file's place: move it away, then `run --checksum`"
            }
            Self::Remove => "nothing needs the file any more: remove it",
        }
    }
}

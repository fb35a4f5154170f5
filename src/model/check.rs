//! All that `verify` can say, each with a stable code (`behaviour.md`,
//! Warnings; issue "Trust", verify).

use super::codes::code_table;

/// How much it weighs.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// The store is as it should be, and this is worth knowing.
    Notice,
    /// Something in the store is not what it should be.
    Finding,
}

code_table! {
    /// A stable code of `verify`. Its text never changes; codes are only added.
    pub enum Check weighs Weight;

    // The messages.
    /// Neither the stream nor the descriptor of a session is there.
    RecordMissing = "record-missing", Finding,
        "The item ledger says that the session was imported under this name, and nothing of it is there. `run` imports it again, if its source is still there; `run --checksum` also puts right an entry that names the wrong stream.";
    /// A session's stream of messages is gone.
    StreamMissing = "stream-missing", Finding,
        "The item ledger says that the session was imported, and its stream is not there. `run` imports it again, if its source is still there.";
    /// The application would refuse a session's stream.
    StreamRefused = "stream-refused", Finding,
        "A line of the stream is no record that the application's reader accepts, and for one such line it refuses the whole stream. `run --checksum` writes it again from the source, if that is still there.";
    /// The offsets of a stream have a gap.
    StreamGap = "stream-gap", Finding,
        "Offsets count from 0, one for each record. The message number says where they do not. `run --checksum` writes the stream again from the source, if that is still there.";
    /// A stream was changed since it was imported, and not by writing on.
    StreamChanged = "stream-changed", Finding,
        "The stream's bytes are not those of `journal_sha256` in its item ledger entry, its source is what it was (or gone, or gives no session), and the stream is no continuation of it. `--diff` shows what differs; `run --checksum` writes the stream again from the source, if that gives it.";
    /// A stream is as it was written, and not what its source gives.
    StreamDiffers = "stream-differs", Finding,
        "The stream's bytes are those that the import wrote, and its source has not changed, yet the source gives other messages. `--diff` shows which; `run --checksum` imports the session again. If that does not help, it is a fault of this tool: please report it.";
    /// A stream and its source, both changed, have gone different ways.
    StreamDiverged = "stream-diverged", Finding,
        "Stream and source have both changed since the import, and neither is the beginning of the other. An import keeps both and fails with `store-diverged`. Look at both (`--diff`); `run --overwrite` replaces the stream by the source, and `accept` settles it with a reason, which is a notice from then on.";

    // The residue.
    /// A session's residue stream is gone.
    ResidueMissing = "residue-missing", Finding,
        "Lines of the source that are no messages lay in a residue stream, which is not there any more. `run --checksum` writes it again from the source, if that is still there. Messages that only the residue held (`dropped`) are lost with it.";
    /// A residue stream has a line that is no record.
    ResidueRefused = "residue-refused", Finding,
        "A line of the residue stream is no record. `run --checksum` writes it again from the source, if that is still there, and keeps what can be read of messages that only the residue holds.";
    /// A residue stream was changed since it was imported.
    ResidueChanged = "residue-changed", Finding,
        "The residue stream's bytes are not those of `residue_sha256` in the item ledger entry. Only imports write to it. `run --checksum` writes it again from the source, if that is still there.";
    /// A residue stream is as it was written, and not what its source gives.
    ResidueDiffers = "residue-differs", Finding,
        "The residue stream is what the import wrote, and its source has not changed, yet the source gives other residue. `run --checksum` imports the session again. If that does not help, it is a fault of this tool: please report it.";
    /// A residue stream is there that the session's entry knows nothing of.
    ResidueExtra = "residue-extra", Finding,
        "The session's source left no residue when it was imported, and there is a residue stream under its name. `run --checksum` imports the session again, and what the stream held stays in it as `dropped`.";
    /// Nothing vouches for a residue stream.
    ResidueOrphan = "residue-orphan", Finding,
        "Only this tool writes residue streams, so this one belongs to an entry that is gone; and so is the source. It may be the only copy of what it holds, so no command removes it. Bring its entry back from a copy of the store, or remove the file by hand if nobody needs it.";

    // The descriptor.
    /// A session's descriptor is gone.
    DescriptorMissing = "descriptor-missing", Finding,
        "Without its descriptor the application does not know the session. `run` imports it again, if its source is still there.";
    /// A descriptor cannot be read.
    DescriptorDamaged = "descriptor-damaged", Finding,
        "The file is no JSON, or has not the fields that the application insists on. `run --checksum` writes it again from the source, if that is still there.";
    /// A descriptor was changed since it was imported.
    DescriptorChanged = "descriptor-changed", Finding,
        "The descriptor's bytes are not those of `descriptor_sha256` in the item ledger entry, though the stream is as it was imported: the application would have written both. `run --checksum` writes it again from the source, if that is still there.";
    /// A descriptor is as it was written, and not what its source gives.
    DescriptorDiffers = "descriptor-differs", Finding,
        "The descriptor is what the import wrote, and its source has not changed, yet the source gives other values. `run --checksum` imports the session again. If that does not help, it is a fault of this tool: please report it.";

    // The item ledger.
    /// An item ledger entry cannot be read.
    EntryDamaged = "entry-damaged", Finding,
        "The file is no JSON, or not an entry, so its source counts as not imported. `run --checksum` imports it again and writes the entry anew. A plain `run` does so too once anything else has changed: as long as no name, size or time has, it does not read the entries. An entry that no source has can only come back from a copy of the store, or be removed by hand.";
    /// An item ledger entry is not what its source and its record give.
    EntryDiffers = "entry-differs", Finding,
        "The source has not changed, and the fields named here are not those that reading it gives, or not those of the record that the entry vouches for. `run --checksum` imports the session again.";
    /// Two item ledger entries claim one session or one stream.
    KeyCollision = "key-collision", Finding,
        "A session has one source and one stream. An import that was cut off while a source moved leaves such a pair, and so does damage. `run --checksum` keeps the right one.";
    /// The sum of a source's lines is off.
    LinesOff = "lines-off", Finding,
        "Every line of a source is a header, a message, residue or blank; each entry has the counts, and they do not add up, or are not those of the streams. `run --checksum` imports the session again.";
    /// A source has other bytes, but the same size and time.
    SourceSilent = "source-silent", Finding,
        "The source's bytes are not those of `sha256` in its item ledger entry, though size and time are the same. Either it was changed and given its old time, which a plain `run` may not notice, or the entry is damaged. `run --checksum` imports it again.";
    /// A source cannot be read.
    SourceUnreadable = "source-unreadable", Finding,
        "What cannot be read cannot be compared, so nothing can be said of this source's record but what the store itself tells. Give the user that runs the command the right to read it, or mend the source; `accept` settles one that nobody can help, once a run has failed over it.";

    // The marker and the failures.
    /// The marker cannot be read.
    MarkerDamaged = "marker-damaged", Finding,
        "The record that says that an import went through is no JSON, not a marker, or not as one is written. `run --checksum` writes it anew.";
    /// The marker vouches for more than there is.
    MarkerCounts = "marker-counts", Finding,
        "The marker says how many sessions the last complete import had. There are fewer entries in the item ledger now, or the marker's own numbers do not add up. `run --checksum` imports what is missing and writes the marker anew.";
    /// There is a marker, and there are failed items.
    MarkerWithFailures = "marker-with-failures", Finding,
        "The marker says that nothing failed in the last complete import, and the store holds records of failed items. `run --checksum` tries them again, and either removes the record or the marker.";
    /// The record of a failed item cannot be read.
    FailureDamaged = "failure-damaged", Finding,
        "The file is no JSON, or not such a record. A complete `run --checksum` tries every source again and removes it.";

    // The sources since the import.
    /// A source is not imported.
    NotImported = "not-imported", Notice,
        "`run` imports it.";
    /// A source changed since it was imported.
    SourceChanged = "source-changed", Notice,
        "Its record was not compared with it, only with its item ledger entry. `run` imports it again.";
    /// A source has another time than when it was imported, but the same bytes.
    SourceTouched = "source-touched", Notice,
        "Its record is what it gives. `run` looks at it again.";
    /// A source is gone since it was imported.
    SourceGone = "source-gone", Notice,
        "Its record may be the only copy left. It was compared with its item ledger entry, and nothing overwrites it.";
    /// A source has moved since it was imported.
    SourceMoved = "source-moved", Notice,
        "It lies elsewhere now. `run` gives its record to the new path.";
    /// A source is an older copy or a view of another session by now.
    SourceAbsorbed = "source-absorbed", Notice,
        "It was a session of its own when it was imported. Its record stays, and was compared with its item ledger entry.";
    /// An import of this source failed.
    FailedItem = "failed-item", Notice,
        "The last import could not take it; the sentence says why, and `--explain` with that code what to do. `accept` settles what nobody can help.";
    /// A failure that was settled by `accept`.
    AcceptedItem = "accepted-item", Notice,
        "Somebody settled it, with a reason. `run` skips the source, and what the store has of it stays. A changed source is tried again.";
    /// The next run reads this source again.
    Unsettled = "unsettled", Notice,
        "Source or stream were being written when it was imported. `run` looks again.";
    /// The source or the stream is being written to just now.
    ChangedMeanwhile = "changed-meanwhile", Notice,
        "It changed each time that it was read, so it was not compared. Verify again when the session is idle.";

    // The application and other importers.
    /// The application has written on in a stream.
    WrittenOn = "written-on", Notice,
        "Stream and descriptor are not those of the import any more; the stream agrees with its source as far as both go. `run` leaves it alone, or brings it up to its source.";
    /// A session of the application's own.
    ApplicationRecord = "application-record", Notice,
        "No item ledger entry vouches for it: the application wrote it, and this tool has no part in it.";
    /// A record that is not whole, or whose entry is gone.
    UnfinishedRecord = "unfinished-record", Notice,
        "No item ledger entry vouches for it. The application is just writing the session, or an import was cut off, or the entry was lost. If the session has a source, `run` finishes it; if it has none, the record may be the only copy left.";
    /// An entry of the earlier importer.
    OlderImporter = "older-importer", Notice,
        "The application's earlier importer wrote it, and left out what is not a message. `run` takes it over.";
    /// An entry by other reading rules.
    OtherRules = "other-rules", Notice,
        "Another version of this tool read the source by rules that are not this version's, so its record was compared with its item ledger entry alone. If the rules are older ones, `run` reads it again.";
    /// What is known of a session's lineage is not what its descriptor says.
    LineageOutdated = "lineage-outdated", Notice,
        "Runs, a parent or a companion came or went since the import, which is no change of the source. `run --force` refreshes the descriptor.";

    // The store.
    /// There is no marker of a completed import.
    NoMarker = "no-marker", Notice,
        "The last import failed in part, was cut off, or was one with `--only`; or an `undo` has removed sessions, and the marker with them. `run` writes the marker when nothing fails.";
    /// The store does not say of what format it is.
    NoFormat = "no-format", Notice,
        "`run` writes the record that says so.";
    /// The report of an import cannot be read.
    ImportReportDamaged = "import-report-damaged", Notice,
        "It is history only, and nothing depends on it.";
    /// A temporary file of an import that was cut off.
    LeftoverFile = "leftover-file", Notice,
        "It does no harm. The next `run` removes it.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::diagnostic::Code;

    #[test]
    fn codes_are_kebab_case_and_nobody_elses() {
        let mut seen: std::collections::BTreeSet<_> =
            Code::ALL.iter().map(|code| code.as_str()).collect();
        for code in Check::ALL {
            let text = code.as_str();
            let allowed = |b: u8| b.is_ascii_lowercase() || b == b'-';
            assert!(text.bytes().all(allowed), "{text}");
            assert!(seen.insert(text), "{text} twice");
            assert_eq!(text.parse(), Ok(*code));
            assert!(!code.summary().is_empty() && !code.explanation().is_empty());
        }
    }

    #[test]
    fn findings_come_before_notices() {
        let weights = Check::ALL.iter().map(|code| code.severity());
        assert!(weights.is_sorted_by(|a, b| a >= b));
    }
}

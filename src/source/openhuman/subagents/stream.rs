//! The sub-agents file, one record in memory at a time.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::{FILE, FOLDER};
use crate::fs::open_regular;
use crate::source::openhuman::locate::{Refused, locate};

/// A record that is larger than this many bytes ends the reading.
pub(super) const LARGEST_RECORD: u64 = 256 << 20;

/// A file of more records ends the reading too: it is none of the
/// application's, and a gigabyte of `0,` would keep a run busy for minutes.
const MOST_RECORDS: usize = 1_000_000;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Why the file cannot be used. Never a parser's words: those quote contents.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("it is no array of records")]
    NoArray,
    #[error("it is cut off at line {line}, column {column}")]
    Cut { line: usize, column: usize },
    #[error("it is no JSON in UTF-8 at line {line}, column {column}")]
    NoJson { line: usize, column: usize },
    #[error("it has more than {MOST_RECORDS} records")]
    TooMany,
    #[error("record {record} is larger than {limit} bytes")]
    TooLarge { record: usize, limit: u64 },
}

/// Opens the file; `None` if there is none. Nothing beside it is ever read:
/// the application writes `subagent_sessions.json.tmp-…` and renames it.
pub(super) fn open(workspace: &Path) -> Result<Option<File>, Unusable> {
    let Some(path) = locate(workspace, FOLDER, FILE)? else {
        return Ok(None);
    };
    Ok(Some(open_regular(&path).map_err(Refused::Io)?))
}

/// Calls `each` with every record, its number from 1 and the offset at which it
/// begins, until it breaks or something is wrong. Only `Ok` says that the whole file is as it should be.
pub(super) fn records(
    file: File,
    largest: u64,
    each: &mut dyn FnMut(usize, u64, &str) -> ControlFlow<()>,
) -> Result<(), Unusable> {
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(Refused::Io)?;
    let mut read = 0;
    if start.starts_with(BYTE_ORDER_MARK) {
        read = BYTE_ORDER_MARK.len();
        file.consume(read);
    }
    let meter = Meter {
        read: Cell::new(read as u64),
        left: Cell::new(largest),
        record: Cell::new(1),
        end: Cell::new(None),
    };
    let mut reader = serde_json::Deserializer::from_reader(Metered {
        file,
        meter: &meter,
    });
    let visitor = Records {
        largest,
        meter: &meter,
        each,
    };
    let outcome = reader.deserialize_seq(visitor).and_then(|()| reader.end());
    let Err(error) = outcome else {
        return Ok(());
    };
    let (line, column) = (error.line(), error.column());
    Err(match (meter.end.get(), error.classify()) {
        (Some(End::Stopped), _) => return Ok(()),
        (Some(End::TooMany), _) => Unusable::TooMany,
        (Some(End::TooLarge), _) => Unusable::TooLarge {
            record: meter.record.get(),
            limit: largest,
        },
        (None, Category::Io) => Refused::Io(error.into()).into(),
        (None, Category::Data) => Unusable::NoArray,
        (None, Category::Eof) => Unusable::Cut { line, column },
        (None, Category::Syntax) => Unusable::NoJson { line, column },
    })
}

/// What the parser and its input tell each other.
struct Meter {
    /// Bytes that the parser has taken.
    read: Cell<u64>,
    /// Bytes that the record in hand may still take.
    left: Cell<u64>,
    record: Cell<usize>,
    end: Cell<Option<End>>,
}

/// Why the parser was made to stop.
#[derive(Clone, Copy)]
enum End {
    /// The caller has what it sought.
    Stopped,
    TooMany,
    TooLarge,
}

struct Metered<'m> {
    file: BufReader<File>,
    meter: &'m Meter,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.meter.read.set(self.meter.read.get() + read as u64);
        match self.meter.left.get().checked_sub(read as u64) {
            Some(left) => self.meter.left.set(left),
            None => {
                self.meter.end.set(Some(End::TooLarge));
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        Ok(read)
    }
}

struct Records<'m, 'f> {
    largest: u64,
    meter: &'m Meter,
    each: &'f mut dyn FnMut(usize, u64, &str) -> ControlFlow<()>,
}

impl<'de> Visitor<'de> for Records<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        while let Some(record) = array.next_element::<Box<RawValue>>()? {
            let number = self.meter.record.get();
            if number > MOST_RECORDS {
                self.meter.end.set(Some(End::TooMany));
                return Err(A::Error::custom("too many"));
            }
            // The parser takes no byte behind the end of an object.
            let at = self.meter.read.get() - record.get().len() as u64;
            if (self.each)(number, at, record.get()).is_break() {
                self.meter.end.set(Some(End::Stopped));
                return Err(A::Error::custom("stopped"));
            }
            self.meter.record.set(number + 1);
            self.meter.left.set(self.largest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records that were seen, and how it ended.
    fn read(bytes: &[u8], largest: u64) -> (Vec<String>, Result<(), String>) {
        use std::io::{Seek as _, Write as _};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let mut seen = Vec::new();
        let outcome = records(file, largest, &mut |number, at, raw| {
            if raw.starts_with('{') {
                let at = usize::try_from(at).unwrap();
                assert_eq!(&bytes[at..at + raw.len()], raw.as_bytes());
            }
            seen.push(format!("{number} {raw}"));
            ControlFlow::Continue(())
        });
        (seen, outcome.map_err(|error| error.to_string()))
    }

    #[test]
    fn records_come_one_by_one_as_they_stand() {
        let text = "\u{feff} [ {\"a\": 1.50} ,\n[ ],\t\"\\ud800\" ] \n";
        let (seen, outcome) = read(text.as_bytes(), 100);
        assert_eq!(seen, ["1 {\"a\": 1.50}", "2 [ ]", "3 \"\\ud800\""]);
        assert_eq!(outcome, Ok(()));
        assert_eq!(read(b"[]", 100), (vec![], Ok(())));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (bytes, expected) in [
            (&b"{\"sessions\": []}"[..], "it is no array of records"),
            (b"\"SECRET\"", "it is no array of records"),
            (b"7", "it is no array of records"),
            (b"", "it is cut off at line 1, column 0"),
            (b"[{},\n {\"a\": ", "it is cut off at line 2, column 7"),
            (b"[{}", "it is cut off at line 1, column 3"),
            (b"[{}] x", "it is no JSON in UTF-8 at line 1, column 6"),
            (b"SECRET", "it is no JSON in UTF-8 at line 1, column 1"),
            (b"[{}\n{}]", "it is no JSON in UTF-8 at line 2, column 1"),
            (
                b"[\n\"\xff\"]",
                "it is no JSON in UTF-8 at line 2, column 2",
            ),
            (
                b"\xff\xfe[\0]\0",
                "it is no JSON in UTF-8 at line 1, column 1",
            ),
        ] {
            let (_, outcome) = read(bytes, 100);
            assert_eq!(outcome, Err(expected.to_owned()), "{bytes:?}");
        }
    }

    #[test]
    fn nesting_as_deep_as_the_file_is_no_trouble() {
        let deep = "[".repeat(100_001) + &"]".repeat(100_001);
        let (seen, outcome) = read(deep.as_bytes(), 1 << 20);
        assert_eq!((seen.len(), outcome), (1, Ok(())));
    }

    #[test]
    fn a_file_of_too_many_records_ends_the_reading() {
        let mut text = "[0".to_owned() + &",0".repeat(MOST_RECORDS - 1) + "]";
        let (seen, outcome) = read(text.as_bytes(), 100);
        assert_eq!((seen.len(), outcome), (MOST_RECORDS, Ok(())));
        text.insert_str(1, "0,");
        let (_, outcome) = read(text.as_bytes(), 100);
        assert_eq!(outcome, Err("it has more than 1000000 records".to_owned()));
    }

    #[test]
    fn a_record_beyond_the_limit_ends_the_reading() {
        let record = format!("\"{}\"", "x".repeat(60));
        let (seen, outcome) = read(format!("[{record},{record},{record}]").as_bytes(), 70);
        assert_eq!((seen.len(), outcome), (3, Ok(())));
        let large = "y".repeat(100);
        let (seen, outcome) = read(format!("[{record},\"{large}\",{record}]").as_bytes(), 70);
        assert_eq!(seen.len(), 1);
        assert_eq!(outcome, Err("record 2 is larger than 70 bytes".to_owned()));
        // Neither is white space without end.
        let (_, outcome) = read(format!("[{record},{}", " ".repeat(100)).as_bytes(), 70);
        assert!(outcome.is_err());
    }
}

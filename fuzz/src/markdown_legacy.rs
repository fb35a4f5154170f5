//! Legacy Markdown: the reader against the naive one, and its invariants with
//! and without salvage.

use std::collections::HashSet;

use proptest::strategy::{BoxedStrategy, Just, Strategy as _};
use session_import::Error;
use session_import::source::openhuman::Format;

use crate::mutation::{self, Fresh};
use crate::naive::markdown::{LegacyMarkdown, read_legacy};
use crate::naive::strategies;
use crate::taken::{Left, Whole, check_salvage_only_adds, lines, read, without_mark};

/// Reads legacy Markdown in each way.
pub fn check(bytes: &[u8]) {
    let plain = read(Format::MarkdownLegacy, bytes, false);
    match (&plain, read_legacy(bytes)) {
        (Ok(plain), Ok(naive)) => compare(plain, &naive),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(naive)) => panic!("read, though the naive reader gives up: {naive:?}"),
        (Err(error), Ok(_)) => panic!("given up, though the naive reader reads it: {error}"),
    }
    let (from, to) = header(without_mark(bytes)).unwrap_or_default();
    check_invariants(bytes, &plain, Format::MarkdownLegacy, &|at, line| {
        (at < to && at + line.len() >= from) || line.contains("<!--") || line.contains("-->")
    });
}

/// Where the header's comment lies.
fn header(bytes: &[u8]) -> Option<(usize, usize)> {
    let find = |from: usize, what: &[u8]| {
        let found = bytes
            .get(from..)?
            .windows(what.len())
            .position(|part| part == what);
        found.map(|at| from + at)
    };
    let start = find(0, b"<!-- session_transcript")?;
    Some((start, find(start, b"-->")? + 3))
}

/// Lines that need not be told as text, by offset and line.
pub(crate) type IsStructure<'s> = &'s dyn Fn(usize, &str) -> bool;

/// What holds for Markdown of either kind.
pub(crate) fn check_invariants(
    bytes: &[u8],
    plain: &Result<Whole, Error>,
    format: Format,
    is_structure: IsStructure<'_>,
) {
    let salvaged = read(format, bytes, true);
    for whole in plain.iter().chain(&salvaged) {
        check_blocks(bytes, whole);
        check_nothing_is_lost(without_mark(bytes), whole, is_structure);
    }
    match (plain, &salvaged) {
        (Ok(plain), Ok(salvaged)) => {
            check_salvage_only_adds(plain, salvaged);
            let more = salvaged.reading.messages - plain.reading.messages;
            assert_eq!(plain.reading.salvageable, more, "salvageable messages");
        }
        (Err(Error::Source { salvageable, .. }), Ok(salvaged)) => {
            assert!(salvaged.reading.salvaged);
            assert_eq!(*salvageable, salvaged.reading.messages);
        }
        (Err(Error::Source { salvageable, .. }), Err(_)) => assert_eq!(*salvageable, 0),
        (Err(error), _) => panic!("{error}"),
        (Ok(_), Err(error)) => panic!("salvage gives up what a plain read takes: {error}"),
    }
}

/// The sums fit the file, and the residue is as it stood.
fn check_blocks(bytes: &[u8], whole: &Whole) {
    let bytes = without_mark(bytes);
    let all = lines(bytes);
    let counts = whole.reading.lines;
    assert_eq!(counts.total, all.len() as u64);
    let is_white = |line: &&&[u8]| String::from_utf8_lossy(line).trim().is_empty();
    let white = all.iter().filter(is_white).count() as u64;
    assert!(counts.blank <= white, "{counts:?}, white: {white}");
    let mut held = 0;
    for Left { line, text, .. } in &whole.taken.residue {
        // It starts in its line, and goes on as the file does.
        let before: usize = all[..*line as usize - 1]
            .iter()
            .map(|line| line.len() + 1)
            .sum();
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = all[*line as usize - 1];
        let starts = (0..=line.len()).filter(|at| line[*at..].starts_with(first));
        let mut starts = starts.map(|at| before + at);
        assert!(starts.any(|at| bytes[at..].starts_with(text)), "{text:?}");
        held += text.split(|byte| *byte == b'\n').count() as u64;
    }
    assert!(counts.residue <= held, "{counts:?}, held: {held}");
}

/// Every line of text is in a message or in the residue.
fn check_nothing_is_lost(bytes: &[u8], whole: &Whole, is_structure: IsStructure<'_>) {
    let mut told: HashSet<String> = HashSet::new();
    let mut tell = |text: &str| told.extend(text.split('\n').map(|line| line.trim().to_owned()));
    for message in &whole.taken.messages {
        // A role reaches over several lines where its tag is damaged.
        tell(&message.role);
        tell(&message.content);
        let reasoning = message.unmapped.as_ref();
        let reasoning = reasoning.and_then(|unmapped| unmapped.get("reasoning_content")?.as_str());
        tell(reasoning.unwrap_or_default());
    }
    for left in &whole.taken.residue {
        tell(&String::from_utf8_lossy(&left.text));
    }
    let mut at = 0;
    for line in lines(bytes) {
        let text = String::from_utf8_lossy(line);
        let is_told = is_structure(at, text.trim()) || told.contains(text.trim());
        assert!(is_told || text.trim().is_empty(), "lost: {text:?}");
        at += line.len() + 1;
    }
}

fn compare(ours: &Whole, naive: &LegacyMarkdown) {
    assert_eq!(ours.taken.texts(), naive.messages);
    let header = &ours.reading.header;
    assert_eq!(header.agent, naive.agent);
    assert_eq!(header.dispatcher, naive.dispatcher);
    assert_eq!(header.created, naive.created);
    assert_eq!(header.updated, naive.updated);
    assert_eq!(header.turn_count, naive.turn_count);
    assert_eq!(header.input_tokens, naive.input_tokens);
    assert_eq!(header.output_tokens, naive.output_tokens);
    assert_eq!(header.cached_input_tokens, naive.cached_input_tokens);
    assert_eq!(header.charged_amount_usd, naive.charged_usd);
    assert_eq!(header.thread_id, naive.thread_id);
    for told in &ours.taken.messages {
        assert_eq!((&told.id, &told.extra_metadata), (&None, &None));
    }

    // Where a message is not closed, the two part the rest differently; it is
    // the same text.
    let mut residue = Vec::new();
    let mut is_unclosed = false;
    for left in &ours.taken.residue {
        residue.push((left.line, String::from_utf8_lossy(&left.text).into_owned()));
        is_unclosed |= left.error.starts_with("unclosed-message");
    }
    let (ours, naive) = (
        without_white_space(&residue),
        without_white_space(&naive.residue),
    );
    match is_unclosed {
        true => assert_eq!(all_text(&ours), all_text(&naive)),
        false => assert_eq!(ours, naive),
    }
}

fn all_text(residue: &[(u64, String)]) -> String {
    residue.iter().map(|(_, text)| text.as_str()).collect()
}

fn without_white_space(residue: &[(u64, String)]) -> Vec<(u64, String)> {
    let residue = residue.iter();
    let residue = residue.map(|(line, text)| (*line, text.split_whitespace().collect()));
    // Several of one line come in no order.
    let mut residue: Vec<(u64, String)> = residue.collect();
    residue.sort();
    residue
}

thread_local! {
    static FILE: BoxedStrategy<Vec<u8>> = strategies::legacy_markdown();
    static TEXT: BoxedStrategy<Vec<u8>> = strategies::quoted().prop_map(String::into_bytes).boxed();
}

const TOKENS: &[&str] = &[
    "<!-- session_transcript",
    "<!-- session_transcript\nagent: a\n-->\n",
    "-->",
    "\"-->",
    "<!--MSG role=\"",
    "<!--MSG role=\"user\"-->\n",
    "\n<!--/MSG-->\n",
    "<!--/MSG-->",
    "<!--\\/MSG-->",
    "agent: b\n",
    "dispatcher:\n",
    "turn_count: +1\n",
    "charged_usd: $$0.5\n",
    "charged_usd: inf\n",
    "thread_id: \n",
    "input_tokens: 1\n",
    "\n",
    "\r\n",
    "\r",
    "\u{a0}",
    "\u{2028}",
    "\u{85}",
    "\u{feff}",
    "text",
];

/// A mutation of legacy Markdown.
pub fn mutate(bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutation::mutate(
        bytes,
        size,
        max_size,
        seed,
        TOKENS,
        &|fresh, runner| match fresh {
            Fresh::File | Fresh::Line => FILE.with(|strategy| mutation::one(strategy, runner)),
            Fresh::FirstLine => mutation::one(&Just(TOKENS[1].into()), runner),
            Fresh::Value => TEXT.with(|strategy| mutation::one(strategy, runner)),
        },
    )
}

//! Legacy Markdown: the transcript format of the first generation, read as the
//! application's reader reads it (`openhuman-workspace.md` §2).
//!
//! A header comment anywhere, messages anywhere. Whatever the reader's rules
//! give is the result, also where it is odd: a missing closing tag merges two
//! messages, Windows line ends stay. Such oddities are warnings.
//!
//! The sum of lines goes by blocks, as `markdown_blocks` defines it: a line
//! belongs to the first of header comment, message and residue that touches
//! it; a message reaches from its opening to its closing tag. Two kinds of
//! text become residue, each with the number of its first line: what stands
//! outside of header and messages and is not white space (`text-outside`), and
//! each message that is not closed (`unclosed-message`), up to the next opening
//! tag or the end.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::{self, Finder};
use serde_json::Map;

use super::markdown_blocks::{Tally, Text, Texts, Unmapped, part};
use super::salvage::Defaults;
use super::salvage::markdown::{self as relaxed, UNCLOSED, text as decode};
use crate::error::Result;
use crate::model::diagnostic::Code;
use crate::model::message::Sink;
use crate::model::session::{Header, Reading};

const HEADER: &[u8] = b"<!-- session_transcript";
const OPENING: &[u8] = b"<!--MSG role=\"";
const OPENING_END: &[u8] = b"\"-->";
const CLOSING: &[u8] = b"<!--/MSG-->";
const CLOSING_LINE: &[u8] = b"\n<!--/MSG-->";

/// Whether this is a legacy transcript, or wants to be one: it holds the start
/// of the header or of a message. `head` is the file or its first 64 KiB.
///
/// A rendered view may quote either in a message: ask
/// [`markdown_rendered::looks_like`](super::markdown_rendered::looks_like) first.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    // Also where the rest of the tag is damaged: then reading it says so.
    const MESSAGE: &[u8] = b"<!--MSG";
    [HEADER, MESSAGE]
        .iter()
        .any(|start| memmem::find(head, start).is_some())
}

/// Reads a legacy transcript. `defaults` is there under `--salvage`, and what
/// the header says if it is missing.
///
/// # Errors
/// [`Code::ForeignEncoding`]; [`Code::BadMarkdown`] where the file has no
/// header or is not UTF-8 (under salvage: where it gives no message besides);
/// what the sink could not do. The first two come before anything is given to
/// the sink.
pub(crate) fn read(
    bytes: &[u8],
    defaults: Option<&Defaults>,
    sink: &mut dyn Sink,
) -> Result<Reading> {
    let text = Text::new(bytes)?;
    let (comment, wrong) = match header_comment(text.bytes) {
        Ok(range) => (Some(range), None),
        Err(wrong) => (None, Some(wrong)),
    };
    let salvaged = text.accept(wrong, defaults.is_some(), || {
        Blocks::new(text.bytes)
            .filter(|block| block.role.is_some())
            .count()
    })?;

    let mut tally = Tally::new(&text, 1, sink);
    tally.reading.salvaged = salvaged;
    match (&comment, defaults) {
        (Some(range), _) => {
            let (header, unmapped) = parse_header(&decode(part(text.bytes, range.clone())));
            tally.reading.header = header;
            tally.reading.unmapped_meta = unmapped.finish();
        }
        (None, Some(defaults)) => {
            tally.reading.header = relaxed::header(defaults);
            tally
                .warn_of_header("the header is missing; it was made from the file's name and time");
        }
        (None, None) => {}
    }

    // The header may stand anywhere, inside a message too.
    let mut comment = comment;
    for block in Blocks::new(text.bytes) {
        if let Some(range) = comment.take_if(|range| range.start <= block.range.start) {
            tally.outside(range.start)?;
            tally.header(range)?;
        }
        tally.outside(block.range.start)?;
        give(&mut tally, text.bytes, block, defaults.is_some())?;
    }
    if let Some(range) = comment {
        tally.outside(range.start)?;
        tally.header(range)?;
    }
    tally.finish()
}

/// One message to the sink, or to the residue.
fn give(tally: &mut Tally<'_, '_>, bytes: &[u8], block: Block, salvage: bool) -> Result<()> {
    let line = tally.line(block.range.start);
    let Some(role) = block.role else {
        let message = "the opening tag of a message does not end; kept in the residue";
        tally.warn(Code::UnclosedMessage, line, message);
        return tally.rejected(
            block.range,
            "unclosed-message: the opening tag does not end",
        );
    };
    let error = "unclosed-message: there is no closing tag";
    if !block.closed && !salvage {
        tally.reading.salvageable += 1;
        let message = "a message has no closing tag and is none; kept in the residue";
        tally.warn(Code::UnclosedMessage, line, message);
        return tally.rejected(block.range, error);
    }
    let (role, content) = (part(bytes, role), part(bytes, block.content));
    let texts = Texts {
        role: decode(role),
        content: unescape(decode(content)),
        unmapped: Map::new(),
    };
    if !block.closed {
        let what = "a message without a closing tag ends at the next opening tag or the end";
        return tally.salvaged_message(block.range, texts, UNCLOSED, what, error);
    }
    // The role counts as well: a damaged opening tag swallows the next one.
    if [role, content]
        .iter()
        .any(|text| memmem::find(text, OPENING).is_some())
    {
        let message = "an opening tag stands inside a message: two were read as one";
        tally.warn(Code::MergedMessages, line, message);
    }
    tally.message(block.range, texts)
}

/// The only escape there is: a closing tag within a text.
fn unescape(content: Cow<'_, str>) -> Cow<'_, str> {
    const ESCAPED: &str = "<!--\\/MSG-->";
    if content.contains(ESCAPED) {
        Cow::Owned(content.replace(ESCAPED, "<!--/MSG-->"))
    } else {
        content
    }
}

/// Where a message lies in the file.
#[derive(Debug)]
struct Block {
    /// From the opening tag to the end of the closing tag.
    range: Range<usize>,
    /// None where the opening tag does not end.
    role: Option<Range<usize>>,
    content: Range<usize>,
    closed: bool,
}

/// The messages of a file in order, and behind them those that the reader does
/// not take since nothing closes them.
struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
    opening: Finder<'static>,
    closing: Finder<'static>,
    closing_line: Finder<'static>,
    /// There is none from here on. Once true it stays true, and to seek again
    /// for every message would take time that grows with the file's square.
    no_closing: bool,
    no_closing_line: bool,
}

impl<'a> Blocks<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            opening: Finder::new(OPENING),
            closing: Finder::new(CLOSING),
            closing_line: Finder::new(CLOSING_LINE),
            no_closing: false,
            no_closing_line: false,
        }
    }

    /// Where the content that starts at `from` ends, and where its closing tag
    /// does. A tag at the start of a line goes before any other, however far it
    /// is: that is how the reader seeks.
    fn close(&mut self, from: usize) -> Option<(usize, usize)> {
        let rest = self.bytes.get(from..)?;
        let found = seek(&self.closing_line, rest, &mut self.no_closing_line)
            .map(|at| (from + at, from + at + CLOSING_LINE.len()));
        found.or_else(|| {
            seek(&self.closing, rest, &mut self.no_closing)
                .map(|at| (from + at, from + at + CLOSING.len()))
        })
    }
}

fn seek(finder: &Finder<'_>, rest: &[u8], none: &mut bool) -> Option<usize> {
    if *none {
        return None;
    }
    let found = finder.find(rest);
    *none = found.is_none();
    found
}

impl Iterator for Blocks<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let start = self.at + self.opening.find(self.bytes.get(self.at..)?)?;
        let role = start + OPENING.len();
        let Some(length) = memmem::find(self.bytes.get(role..)?, OPENING_END) else {
            self.at = self.bytes.len();
            return Some(Block {
                range: start..self.at,
                role: None,
                content: self.at..self.at,
                closed: false,
            });
        };
        let role = role..role + length;
        let mut content = role.end + OPENING_END.len();
        if self.bytes.get(content) == Some(&b'\n') {
            content += 1;
        }
        let closed = self.close(content);
        let (content_end, end) = closed.unwrap_or_else(|| {
            let end = relaxed::end_of_unclosed(self.bytes, content, &self.opening);
            (relaxed::content_end(self.bytes, content, end), end)
        });
        self.at = end;
        Some(Block {
            range: start..end,
            role: Some(role),
            content: content..content_end,
            closed: closed.is_some(),
        })
    }
}

/// From the first `<!-- session_transcript` to the next `-->`, or what is
/// wrong with it.
fn header_comment(bytes: &[u8]) -> Result<Range<usize>, &'static str> {
    let start = memmem::find(bytes, HEADER).ok_or("it has no `session_transcript` header")?;
    let length = memmem::find(bytes.get(start..).unwrap_or_default(), b"-->")
        .ok_or("its `session_transcript` header is not closed")?;
    Ok(start..start + length + 3)
}

/// The fields of the header comment, and what has no field: other keys, values
/// that are none, repeats, and under `text` what is no `key: value`.
fn parse_header(comment: &str) -> (Header, Unmapped) {
    let mut header = Header {
        agent: "unknown".to_owned(),
        dispatcher: "native".to_owned(),
        ..Header::default()
    };
    let mut unmapped = Unmapped::default();
    let (start, lines) = comment.split_at_checked(HEADER.len()).unwrap_or_default();
    debug_assert_eq!(start.as_bytes(), HEADER);
    for (number, line) in lines.lines().map(str::trim).enumerate() {
        // The first line is that of the tag: the reader finds no key in it.
        let (key, value) = match line.split_once(':') {
            Some((key, value)) if number > 0 => (key, value.trim()),
            _ => match line.strip_suffix("-->").unwrap_or(line).trim() {
                "" => continue,
                text => ("text", text),
            },
        };
        let nth = unmapped.meet(key);
        if nth > 1 || !set(&mut header, key, value) {
            unmapped.keep(key, nth, value);
        }
    }
    (header, unmapped)
}

/// Sets the field of a key; false where there is none, or no such value.
fn set(header: &mut Header, key: &str, value: &str) -> bool {
    fn text(field: &mut String, value: &str) -> bool {
        value.clone_into(field);
        true
    }
    fn count(field: &mut u64, value: &str) -> bool {
        value.parse().map(|count| *field = count).is_ok()
    }
    match key {
        "agent" => text(&mut header.agent, value),
        "dispatcher" => text(&mut header.dispatcher, value),
        "created" => text(&mut header.created, value),
        "updated" => text(&mut header.updated, value),
        "turn_count" => count(&mut header.turn_count, value),
        "input_tokens" => count(&mut header.input_tokens, value),
        "output_tokens" => count(&mut header.output_tokens, value),
        "cached_input_tokens" => count(&mut header.cached_input_tokens, value),
        "charged_usd" => match value.trim_start_matches('$').parse::<f64>() {
            Ok(dollars) if dollars.is_finite() => {
                header.charged_amount_usd = dollars;
                true
            }
            _ => false,
        },
        "thread_id" => {
            header.thread_id = Some(value).filter(|id| !id.is_empty()).map(str::to_owned);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::markdown_blocks::testing::{
        Taken, check_sums, codes, nothing_is_lost, number_words,
    };
    use super::*;
    use crate::error::Error;

    const TAG: &str = "<!-- session_transcript\nagent: main\n-->\n";

    fn read_as(bytes: &[u8], defaults: Option<&Defaults>) -> (Reading, Taken) {
        let mut taken = Taken::default();
        let reading = read(bytes, defaults, &mut taken).unwrap();
        check_sums(bytes, &reading, &taken);
        (reading, taken)
    }

    #[track_caller]
    fn plain(text: &str) -> (Reading, Taken) {
        read_as(text.as_bytes(), None)
    }

    fn salvage(bytes: &[u8]) -> (Reading, Taken) {
        read_as(bytes, Some(&defaults()))
    }

    fn defaults() -> Defaults {
        Defaults {
            agent: "stem".into(),
            created: "c".into(),
            updated: "u".into(),
        }
    }

    #[track_caller]
    fn fails(bytes: &[u8], defaults: Option<&Defaults>) -> (Code, String, u64) {
        let mut taken = Taken::default();
        let error = read(bytes, defaults, &mut taken).unwrap_err();
        assert!(
            taken.messages.is_empty() && taken.residue.is_empty(),
            "given before it failed"
        );
        match error {
            Error::Source {
                code,
                message,
                salvageable,
            } => (code, message, salvageable),
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    fn contents(after_header: &str) -> Vec<(String, String)> {
        let (_, taken) = plain(&format!("{TAG}{after_header}"));
        let texts = taken.texts();
        texts
            .iter()
            .map(|(role, content)| ((*role).to_owned(), (*content).to_owned()))
            .collect()
    }

    #[track_caller]
    fn content(after_header: &str) -> String {
        let all = contents(after_header);
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap().1
    }

    fn header(lines: &str) -> (Header, Option<Value>) {
        let (reading, _) = plain(&format!("<!-- session_transcript\n{lines}\n-->\n"));
        (reading.header, reading.unmapped_meta.map(Value::Object))
    }

    #[test]
    fn looks_at_either_tag() {
        assert!(looks_like(b"x <!-- session_transcript_v2"));
        assert!(looks_like(b"<!--MSG role=\"user\"-->"));
        assert!(looks_like(b"<!--MSG role=user"));
        assert!(!looks_like(b"# notes\n<!-- session -->"));
    }

    #[test]
    fn a_whole_transcript() {
        let text = "<!-- session_transcript\nagent: main\ndispatcher: xml\ncreated: C\nupdated: U\n\
            turn_count: 3\ninput_tokens: +5\noutput_tokens: 6\ncached_input_tokens: 7\n\
            charged_usd: $0.0123\nthread_id: t\n-->\n\n<!--MSG role=\"system\"-->\nYou are.\n<!--/MSG-->\n\n\
            <!--MSG role=\"user\"-->\na\n\nb\n<!--/MSG-->\n";
        let (reading, taken) = plain(text);
        assert_eq!(taken.texts(), [("system", "You are."), ("user", "a\n\nb")]);
        assert!(taken.residue.is_empty());
        assert_eq!(
            reading.header,
            Header {
                agent: "main".into(),
                dispatcher: "xml".into(),
                created: "C".into(),
                updated: "U".into(),
                turn_count: 3,
                input_tokens: 5,
                output_tokens: 6,
                cached_input_tokens: 7,
                charged_amount_usd: 0.0123,
                thread_id: Some("t".into()),
                ..Header::default()
            }
        );
        assert!(codes(&reading).is_empty());
        assert_eq!(
            (reading.generation, reading.unmapped_meta, reading.lossy),
            (1, None, false)
        );
        let lines = reading.lines;
        assert_eq!(
            (lines.headers, lines.messages, lines.residue, lines.blank),
            (12, 8, 0, 2)
        );
    }

    // The header.

    #[test]
    fn missing_keys_have_their_defaults() {
        let (header, unmapped) = header("");
        assert_eq!(
            header,
            Header {
                agent: "unknown".into(),
                dispatcher: "native".into(),
                ..Header::default()
            }
        );
        assert_eq!(unmapped, None);
    }

    #[test]
    fn an_empty_value_is_a_value_but_for_the_thread() {
        let (header, _) = header("agent:\n  dispatcher:   \nthread_id: \n");
        assert_eq!(
            (
                header.agent.as_str(),
                header.dispatcher.as_str(),
                header.thread_id
            ),
            ("", "", None)
        );
    }

    #[test]
    fn the_first_of_each_key_counts_and_the_others_are_kept() {
        let (header, unmapped) = header(
            "agent: a\nagent: b\ncache_hit_pct: 1\ncache_hit_pct: 2\nthread_id:\nthread_id: t",
        );
        assert_eq!((header.agent.as_str(), header.thread_id), ("a", None));
        let kept = json!({ "agent#2": "b", "cache_hit_pct": "1", "cache_hit_pct#2": "2", "thread_id#2": "t" });
        assert_eq!(unmapped, Some(kept));
    }

    #[test]
    fn a_value_that_is_none_is_kept_and_counts_as_zero() {
        let (header, unmapped) = header(
            "turn_count: many\nturn_count: 2\ninput_tokens: -1\ncharged_usd: $inf\ncache_boundary: 9",
        );
        assert_eq!(
            (
                header.turn_count,
                header.input_tokens,
                header.charged_amount_usd
            ),
            (0, 0, 0.0)
        );
        let kept = json!({
            "turn_count": "many", "turn_count#2": "2", "input_tokens": "-1", "charged_usd": "$inf", "cache_boundary": "9",
        });
        assert_eq!(unmapped, Some(kept));
    }

    #[test]
    fn charged_in_all_spellings() {
        for (text, dollars) in [
            ("$0.5", 0.5),
            ("0.5", 0.5),
            ("$$2", 2.0),
            ("$ 1", 0.0),
            ("NaN", 0.0),
            ("1e999", 0.0),
            ("", 0.0),
        ] {
            assert_eq!(
                header(&format!("charged_usd: {text}")).0.charged_amount_usd,
                dollars,
                "{text}"
            );
        }
    }

    #[test]
    fn a_longer_word_starts_the_header_and_its_rest_is_kept() {
        let (reading, _) =
            plain("<!-- session_transcript_v2 agent: x\nagent: y\nnote\n\n more -->");
        assert_eq!(reading.header.agent, "y");
        let kept = json!({ "text": "_v2 agent: x", "text#2": "note", "text#3": "more" });
        assert_eq!(reading.unmapped_meta.map(Value::Object), Some(kept));
    }

    #[test]
    fn a_header_on_one_line_has_no_keys() {
        let (reading, _) = plain("<!-- session_transcript agent: x -->");
        assert_eq!(reading.header.agent, "unknown");
    }

    #[test]
    fn the_closing_of_the_comment_is_part_of_a_value_before_it() {
        let (reading, _) = plain("<!-- session_transcript\nagent: x -->");
        assert_eq!(reading.header.agent, "x -->");
    }

    #[test]
    fn an_unclosed_header_ends_with_the_next_opening_tag() {
        let text = "<!-- session_transcript\nagent: x\n<!--MSG role=\"user\"-->\nhi\n<!--/MSG-->\n";
        let (reading, taken) = plain(text);
        assert_eq!(reading.header.agent, "x");
        assert_eq!(taken.texts(), [("user", "hi")]);
        assert_eq!((reading.lines.headers, reading.lines.messages), (3, 2));
    }

    #[test]
    fn the_first_header_counts_and_may_stand_in_a_message() {
        let text = format!("<!--MSG role=\"user\"-->\n{TAG}<!--/MSG-->\n\n{TAG}");
        let (reading, taken) = plain(&text);
        assert_eq!(taken.texts(), [("user", TAG.trim_end())]);
        assert_eq!(reading.header.agent, "main");
        let lines = reading.lines;
        assert_eq!(
            (lines.headers, lines.messages, lines.residue, lines.blank),
            (0, 5, 3, 1)
        );
        assert_eq!(taken.residue(), [(7, "text-outside", TAG.trim_end())]);
    }

    #[test]
    fn messages_before_the_header_count() {
        let (reading, taken) = plain(&format!("<!--MSG role=\"user\"-->\nhi\n<!--/MSG-->\n{TAG}"));
        assert_eq!(taken.texts(), [("user", "hi")]);
        assert_eq!((reading.lines.headers, reading.lines.messages), (3, 3));
    }

    // Messages.

    #[test]
    fn one_newline_behind_the_tag_is_not_content() {
        assert_eq!(
            content("<!--MSG role=\"u\"-->\n\n a \n\n<!--/MSG-->"),
            "\n a \n"
        );
        assert_eq!(content("<!--MSG role=\"u\"-->a\n<!--/MSG-->"), "a");
        assert_eq!(content("<!--MSG role=\"u\"-->\n\n<!--/MSG-->"), "");
    }

    #[test]
    fn a_closing_tag_within_a_line_is_content_if_another_follows() {
        assert_eq!(
            content("<!--MSG role=\"u\"-->\na<!--/MSG-->b\n<!--/MSG-->"),
            "a<!--/MSG-->b"
        );
        assert_eq!(content("<!--MSG role=\"u\"-->\na<!--/MSG-->"), "a");
        assert_eq!(content("<!--MSG role=\"u\"-->\n<!--/MSG-->"), "");
    }

    #[test]
    fn escaped_closing_tags_are_restored_once() {
        assert_eq!(
            content("<!--MSG role=\"u\"-->\n<!--\\/MSG--> <!--\\\\/MSG-->\n<!--/MSG-->"),
            "<!--/MSG--> <!--\\\\/MSG-->"
        );
    }

    #[test]
    fn a_role_runs_to_the_end_of_a_tag() {
        let all = contents("<!--MSG role=\"a\" x=\"b\"-->\nhi\n<!--/MSG-->");
        assert_eq!(all, [("a\" x=\"b".to_owned(), "hi".to_owned())]);
        let (reading, taken) = plain(&format!(
            "{TAG}<!--MSG role=\"a\" -->\nx\n<!--/MSG-->\n<!--MSG role=\"b\"-->\ny\n<!--/MSG-->\n"
        ));
        assert_eq!(
            taken.texts(),
            [("a\" -->\nx\n<!--/MSG-->\n<!--MSG role=\"b", "y")]
        );
        assert_eq!(codes(&reading), [("merged-messages", Some(4))]);
    }

    #[test]
    fn a_missing_closing_tag_merges_two_messages() {
        let text =
            format!("{TAG}<!--MSG role=\"a\"-->\nx\n\n<!--MSG role=\"b\"-->\ny\n<!--/MSG-->\n");
        for (reading, taken) in [plain(&text), salvage(text.as_bytes())] {
            assert_eq!(taken.texts(), [("a", "x\n\n<!--MSG role=\"b\"-->\ny")]);
            assert_eq!(codes(&reading), [("merged-messages", Some(4))]);
            assert_eq!((reading.lines.messages, reading.salvageable), (6, 0));
            assert!(!reading.salvaged);
        }
    }

    #[test]
    fn carriage_returns_stay_with_one_warning() {
        let text = format!(
            "{TAG}<!--MSG role=\"u\"-->\nhi\n<!--/MSG-->\n<!--MSG role=\"u\"-->\nho\n<!--/MSG-->\n"
        );
        let (reading, taken) = plain(&text.replace('\n', "\r\n"));
        assert_eq!(taken.texts(), [("u", "\r\nhi\r"), ("u", "\r\nho\r")]);
        assert_eq!(codes(&reading), [("carriage-returns", None)]);
        assert_eq!(reading.header.agent, "main");
    }

    #[test]
    fn a_progress_bar_is_no_windows_file() {
        let (reading, _) = plain(&format!("{TAG}<!--MSG role=\"u\"-->\n1%\r2%\n<!--/MSG-->"));
        assert!(codes(&reading).is_empty());
    }

    #[test]
    fn the_mark_is_skipped_with_a_warning() {
        let text = format!("\u{feff}{TAG}<!--MSG role=\"u\"-->\nhi\n<!--/MSG-->");
        let (reading, taken) = plain(&text);
        assert_eq!(taken.texts(), [("u", "hi")]);
        assert!(taken.residue.is_empty());
        assert_eq!(codes(&reading), [("byte-order-mark", None)]);
    }

    #[test]
    fn markup_of_tool_calls_is_noticed() {
        assert!(
            plain(&format!(
                "{TAG}<!--MSG role=\"a\"-->\n<tool_call>x\n<!--/MSG-->"
            ))
            .0
            .tool_call_markup
        );
        assert!(
            !plain(&format!(
                "{TAG}<!--MSG role=\"a\"-->\n<tool_cal>x\n<!--/MSG-->"
            ))
            .0
            .tool_call_markup
        );
    }

    // Residue.

    #[test]
    fn text_outside_goes_to_the_residue() {
        let text =
            format!("zero\n{TAG}one\n\n<!--MSG role=\"u\"-->\nhi\n<!--/MSG--> two\n \nthree\n\n");
        let (reading, taken) = plain(&text);
        assert_eq!(taken.texts(), [("u", "hi")]);
        assert_eq!(
            taken.residue(),
            [
                (1, "text-outside", "zero"),
                (5, "text-outside", "one"),
                (9, "text-outside", " two\n \nthree"),
            ]
        );
        let lines = reading.lines;
        assert_eq!(
            (
                lines.total,
                lines.headers,
                lines.messages,
                lines.residue,
                lines.blank
            ),
            (12, 3, 3, 4, 2)
        );
        assert_eq!(
            codes(&reading),
            [
                ("text-outside", Some(1)),
                ("text-outside", Some(5)),
                ("text-outside", Some(9))
            ]
        );
        assert_eq!((reading.rejected, reading.salvageable), (3, 0));
    }

    const UNCLOSED: &str = "<!--MSG role=\"a\"-->\nx\n<!--/MSG-->\n<!--MSG role=\"b\"-->\ny\n\n<!--MSG role=\"c\"-->\n<!--\\/MSG-->z";

    #[test]
    fn unclosed_messages_go_to_the_residue() {
        let (reading, taken) = plain(&format!("{TAG}{UNCLOSED}"));
        assert_eq!(taken.texts(), [("a", "x")]);
        assert_eq!(
            taken.residue(),
            [
                (7, "unclosed-message", "<!--MSG role=\"b\"-->\ny\n"),
                (
                    10,
                    "unclosed-message",
                    "<!--MSG role=\"c\"-->\n<!--\\/MSG-->z"
                ),
            ]
        );
        assert_eq!(
            codes(&reading),
            [
                ("unclosed-message", Some(7)),
                ("unclosed-message", Some(10))
            ]
        );
        assert_eq!(
            (reading.rejected, reading.salvageable, reading.salvaged),
            (2, 2, false)
        );
        assert_eq!((reading.lines.messages, reading.lines.residue), (3, 5));
    }

    #[test]
    fn an_opening_tag_without_an_end_stops_the_reader() {
        let text =
            format!("{TAG}<!--MSG role=\"a\"-->\nx\n<!--/MSG-->\n<!--MSG role=\"b\nthe rest");
        for (reading, taken) in [plain(&text), salvage(text.as_bytes())] {
            assert_eq!(taken.texts(), [("a", "x")]);
            assert_eq!(
                taken.residue(),
                [(7, "unclosed-message", "<!--MSG role=\"b\nthe rest")]
            );
            assert_eq!(codes(&reading), [("unclosed-message", Some(7))]);
            assert_eq!(
                (reading.rejected, reading.salvageable, reading.salvaged),
                (1, 0, false)
            );
        }
    }

    // Files that fail, and salvage.

    #[test]
    fn a_header_must_be_there_and_closed() {
        let (code, message, salvageable) = fails(UNCLOSED.as_bytes(), None);
        assert_eq!((code, salvageable), (Code::BadMarkdown, 3));
        assert!(
            message.contains("no `session_transcript` header"),
            "{message}"
        );
        let (code, message, salvageable) = fails(
            format!("{UNCLOSED}\n<!-- session_transcript\nx").as_bytes(),
            None,
        );
        assert_eq!((code, salvageable), (Code::BadMarkdown, 3));
        assert!(message.contains("not closed"), "{message}");
    }

    #[test]
    fn a_file_that_is_not_utf8_fails() {
        let bytes = [TAG.as_bytes(), b"<!--MSG role=\"a\"-->\n\xFF\n<!--/MSG-->"].concat();
        let (code, message, salvageable) = fails(&bytes, None);
        assert_eq!((code, salvageable), (Code::BadMarkdown, 1));
        assert!(message.contains("not UTF-8 from line 5 on"), "{message}");
    }

    #[test]
    fn utf16_fails_with_its_name_even_under_salvage() {
        let bytes: Vec<u8> = "\u{feff}<!--MSG"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        for defaults in [None, Some(&defaults())] {
            let (code, message, _) = fails(&bytes, defaults);
            assert_eq!(code, Code::ForeignEncoding);
            assert!(message.contains("UTF-16"), "{message}");
        }
    }

    #[test]
    fn salvage_makes_a_header() {
        let (reading, taken) = salvage(b"text\n<!--MSG role=\"a\"-->\nx\n<!--/MSG-->\n");
        assert_eq!(taken.texts(), [("a", "x")]);
        assert_eq!(reading.header, relaxed::header(&defaults()));
        assert_eq!(
            codes(&reading),
            [("salvaged-header", None), ("text-outside", Some(1))]
        );
        assert!(reading.salvaged);
        assert_eq!(taken.messages[0].salvaged, None);
        assert_eq!(reading.lines.messages, 3);
    }

    #[test]
    fn salvage_closes_what_is_not_closed() {
        let text = format!("{TAG}{UNCLOSED}");
        let (reading, taken) = salvage(text.as_bytes());
        assert_eq!(
            taken.texts(),
            [("a", "x"), ("b", "y\n"), ("c", "<!--/MSG-->z")]
        );
        assert_eq!(taken.messages[0].salvaged, None);
        assert_eq!(
            taken.messages[1].salvaged,
            Some(json!({ "line": 7, "rule": "unclosed-message" }))
        );
        assert_eq!(
            taken.messages[2].salvaged,
            Some(json!({ "line": 10, "rule": "unclosed-message" }))
        );
        let (_, without) = plain(&text);
        assert_eq!(taken.residue, without.residue);
        assert_eq!(
            codes(&reading),
            [("salvaged-line", Some(7)), ("salvaged-line", Some(10))]
        );
        assert!(reading.salvaged);
        assert_eq!(
            (
                reading.salvageable,
                reading.lines.messages,
                reading.lines.residue
            ),
            (0, 3, 5)
        );
    }

    #[test]
    fn salvage_replaces_bytes_that_are_not_utf8() {
        let bytes = b"<!-- session_transcript\nagent: \xFE\n-->\n<!--MSG role=\"a\"-->\n\xE2\x82\n<!--/MSG-->\n\
            <!--MSG role=\"b\"-->\ny\n<!--/MSG-->\n";
        let (reading, taken) = salvage(bytes);
        assert_eq!(taken.texts(), [("a", "\u{fffd}"), ("b", "y")]);
        assert_eq!(
            taken.messages[0].salvaged,
            Some(json!({ "line": 4, "rule": "not-utf8" }))
        );
        assert_eq!(taken.messages[1].salvaged, None);
        assert_eq!(reading.header.agent, "\u{fffd}");
        let residue: Vec<_> = taken
            .residue
            .iter()
            .map(|(line, _, text)| (*line, text.as_slice()))
            .collect();
        assert_eq!(
            residue,
            [
                (1, &b"<!-- session_transcript\nagent: \xFE\n-->"[..]),
                (4, b"<!--MSG role=\"a\"-->\n\xE2\x82\n<!--/MSG-->"),
            ]
        );
        assert_eq!(
            codes(&reading),
            [("salvaged-header", None), ("salvaged-line", Some(4))]
        );
        let lines = reading.lines;
        assert_eq!((lines.headers, lines.messages, lines.residue), (0, 3, 6));
    }

    #[test]
    fn a_file_that_only_salvage_reads_is_salvaged_though_its_messages_are_whole() {
        let (reading, taken) =
            salvage(b"<!-- session_transcript\n-->\n\xFF\n<!--MSG role=\"a\"-->\nx\n<!--/MSG-->\n");
        assert_eq!(taken.messages[0].salvaged, None);
        assert!(reading.salvaged);
    }

    #[test]
    fn a_file_that_gives_no_message_stays_failed() {
        for bytes in [
            &b"<!--MSG role=\"a"[..],
            b"",
            b"notes",
            b"<!-- session_transcript\n\xFF-->",
        ] {
            let (code, _, salvageable) = fails(bytes, Some(&defaults()));
            assert_eq!((code, salvageable), (Code::BadMarkdown, 0));
        }
        assert_eq!(fails(b"<!-- session_transcript\nagent: x", None).2, 0);
    }

    /// Each would take hours, were a tag sought anew from every position.
    #[test]
    fn hostile_files_take_time_in_proportion_to_their_size() {
        const MANY: usize = 100_000;
        for text in [
            "<!--MSG role=\"a\"-->\n".repeat(MANY),
            "<!--MSG role=\"a\"-->x<!--/MSG-->".repeat(MANY),
            "<!--MSG role=\"".repeat(MANY),
            format!("{}\"-->", "<!--MSG role=\"".repeat(MANY)),
            "x\n<!--MSG role=\"a\"-->\n<!--/MSG-->".repeat(MANY),
        ] {
            let bytes = format!("{TAG}{text}");
            let (_, taken) = plain(&bytes);
            assert!(!taken.messages.is_empty() || !taken.residue.is_empty());
            salvage(bytes.as_bytes());
        }
        plain(&format!(
            "<!-- session_transcript\n{}-->",
            "a: b\na#2: c\n".repeat(MANY / 10)
        ));
    }

    /// The rules once more, as plainly as they can be put.
    fn naive(text: &str) -> Option<Vec<(String, String)>> {
        let header = text.find("<!-- session_transcript")?;
        text[header..].find("-->")?;
        let mut messages = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("<!--MSG role=\"") {
            rest = &rest[start + 14..];
            let Some(end) = rest.find("\"-->") else { break };
            let role = rest[..end].to_owned();
            rest = &rest[end + 4..];
            rest = rest.strip_prefix('\n').unwrap_or(rest);
            let (end, length) = match (rest.find("\n<!--/MSG-->"), rest.find("<!--/MSG-->")) {
                (Some(end), _) => (end, 12),
                (None, Some(end)) => (end, 11),
                (None, None) => break,
            };
            messages.push((role, rest[..end].replace("<!--\\/MSG-->", "<!--/MSG-->")));
            rest = &rest[end + length..];
        }
        Some(messages)
    }

    /// Mixtures of tags, parts of tags and words that differ.
    fn mixture() -> impl Strategy<Value = String> {
        let pieces = prop_oneof![
            3 => Just("<!--MSG role=\"a\"-->\n"),
            1 => Just("<!--MSG role=\""),
            1 => Just("\"-->"),
            3 => Just("\n<!--/MSG-->"),
            1 => Just("<!--/MSG-->"),
            1 => Just("<!--\\/MSG-->"),
            1 => Just("<!-- session_transcript"),
            1 => Just("-->"),
            1 => Just("\nagent: "),
            1 => Just("\nturn_count: "),
            3 => Just("\n"),
            1 => Just("\r\n"),
            1 => Just(" \u{a0}"),
            4 => Just("WORD"),
        ];
        proptest::collection::vec(pieces, 0..40).prop_map(|pieces| number_words(&pieces.concat()))
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for defaults in [None, Some(&defaults())] {
                let mut taken = Taken::default();
                if let Ok(reading) = read(&bytes, defaults, &mut taken) {
                    check_sums(&bytes, &reading, &taken);
                }
            }
        }

        #[test]
        fn mixtures_equal_the_naive_reader(text in mixture()) {
            let mut taken = Taken::default();
            let result = read(text.as_bytes(), None, &mut taken);
            match (naive(&text), result) {
                (None, Err(Error::Source { salvageable, .. })) => {
                    let mut taken = Taken::default();
                    let again = read(text.as_bytes(), Some(&defaults()), &mut taken);
                    prop_assert_eq!(taken.messages.len() as u64, salvageable);
                    prop_assert_eq!(again.is_ok(), salvageable > 0);
                }
                (Some(expected), Ok(reading)) => {
                    let texts: Vec<_> = taken.messages.iter()
                        .map(|told| (told.role.clone(), told.content.clone())).collect();
                    prop_assert_eq!(texts, expected);
                    check_sums(text.as_bytes(), &reading, &taken);
                    nothing_is_lost(&text, &reading, &taken);
                    let (again, brought_back) = salvage(text.as_bytes());
                    prop_assert_eq!(again.messages, reading.messages + reading.salvageable);
                    prop_assert_eq!(&brought_back.residue, &taken.residue);
                    prop_assert_eq!(again.lines, reading.lines);
                }
                (expected, result) => prop_assert!(false, "{:?} but {:?}", expected, result),
            }
        }

        #[test]
        fn mixtures_with_bad_bytes_add_up(text in mixture(), at in any::<prop::sample::Index>()) {
            let mut bytes = text.into_bytes();
            bytes.insert(at.index(bytes.len() + 1), 0xFF);
            let mut taken = Taken::default();
            match read(&bytes, None, &mut taken) {
                Err(Error::Source { salvageable, .. }) => {
                    let result = read(&bytes, Some(&defaults()), &mut taken);
                    prop_assert_eq!(taken.messages.len() as u64, salvageable);
                    if let Ok(reading) = result {
                        check_sums(&bytes, &reading, &taken);
                        nothing_is_lost(&String::from_utf8_lossy(&bytes), &reading, &taken);
                    }
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// What the application writes is what comes back.
        #[test]
        fn written_messages_come_back(messages in proptest::collection::vec(("[a-z]{1,6}", content_text()), 0..6)) {
            let mut text = TAG.to_owned();
            for (role, content) in &messages {
                let content = content.replace("<!--/MSG-->", "<!--\\/MSG-->");
                text.push_str(&format!("\n<!--MSG role=\"{role}\"-->\n{content}\n<!--/MSG-->\n"));
            }
            let (reading, taken) = plain(&text);
            let expected: Vec<_> = messages.iter().map(|(role, content)| (role.as_str(), content.as_str())).collect();
            prop_assert_eq!(taken.texts(), expected);
            prop_assert!(taken.residue.is_empty());
            prop_assert_eq!(reading.rejected, 0);
        }
    }

    fn content_text() -> impl Strategy<Value = String> {
        let pieces = prop_oneof![
            Just("\n".to_owned()),
            Just("<!--/MSG-->".to_owned()),
            Just("<!--MSG role=\"x\"-->".to_owned()),
            Just("-->".to_owned()),
            Just("\r".to_owned()),
            any::<String>(),
        ];
        proptest::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
    }
}

//! Rendered Markdown: the view for humans that the application writes beside
//! each JSONL transcript, and never reads (`openhuman-workspace.md` §2).
//!
//! Read only where the JSONL is gone, as a best effort: texts, roles and what
//! the headings say come back, tool calls, ids and times were never in it.
//!
//! # Borders
//!
//! The writer ends a content with a newline and begins the next message with a
//! blank line, `---`, a blank line and a heading. So a border is exactly
//! newline, blank line, `---`, blank line and a well-formed heading, behind at
//! least one line of content, be it empty; nothing less is one, and a content
//! may have rules and headings of its own. The same holds for the reasoning,
//! which ends at the first two blank lines in a row.
//!
//! # Where it is a guess
//!
//! The view escapes nothing, so a content may imitate all of this. A warning
//! (`ambiguous-markdown`) gives the line of
//!
//! - a heading whose role is none of the usual ones;
//! - a heading that stands in a code block which its message leaves open;
//! - a heading without a blank line below it (or below its provider line);
//! - a reasoning with more than one place where it may end, with none, or of
//!   another role than the assistant;
//! - a line in a message that is a heading but for its surroundings, or is
//!   surrounded like one and is none.
//!
//! The sum of lines goes by blocks, as `markdown_blocks` defines it: title and
//! list are the header, a message reaches from its `---` to the newline behind
//! its content, and what stands before the first message and is no list is
//! residue.

mod grammar;

use std::ops::Range;

use memchr::memmem::{self, Finder};

use self::grammar::{Heading, ProviderLine, TITLE};
use super::markdown_blocks::{Tally, Text, Texts, Unmapped, line_at, part, without_mark};
use super::salvage::Defaults;
use super::salvage::markdown::{self as relaxed, text as decode};
use crate::error::Result;
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::message::Sink;
use crate::model::session::{Header, Reading};

/// Whether this is a rendered view: it starts with the title line. `head` is
/// the file or its beginning.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    without_mark(head).0.starts_with(TITLE.as_bytes())
}

/// Reads a rendered view. `defaults` is there under `--salvage`, and what the
/// header says if there is no title.
///
/// # Errors
/// [`Code::ForeignEncoding`]; [`Code::BadMarkdown`] where the file has no title
/// or is not UTF-8 (under salvage: where it gives no message besides); what
/// the sink could not do. The first two come before anything is given to the
/// sink.
pub(crate) fn read(
    bytes: &[u8],
    defaults: Option<&Defaults>,
    sink: &mut dyn Sink,
) -> Result<Reading> {
    let text = Text::new(bytes)?;
    let titled = text.bytes.starts_with(TITLE.as_bytes());
    let wrong = (!titled).then_some("it does not start with the title of the rendered view");
    let view = View::new(text.bytes, titled);
    let salvaged = text.accept(wrong, defaults.is_some(), || view.messages().count())?;

    let mut tally = Tally::new(&text, 2, sink);
    tally.reading.salvaged = salvaged;
    tally.reading.lossy = true;
    tally.reading.diagnostics.push(Diagnostic::new(
        Code::LossyMarkdown,
        "read from the rendered view; tool calls, ids and times are not in it",
    ));
    let mut messages = view.messages();
    let preamble = messages
        .next
        .as_ref()
        .map_or(text.bytes.len(), |border| border.range.start);
    match defaults {
        Some(defaults) if !titled => {
            tally.reading.header = relaxed::header(defaults);
            tally.warn_of_header(
                "the title is missing; the header was made from the file's name and time",
            );
        }
        _ => read_header(&view, preamble, &mut tally)?,
    }
    messages.try_for_each(|found| give(&mut tally, &view, found))?;
    tally.finish()
}

/// Title and list. The list ends at the first line that is none of it.
fn read_header(view: &View<'_>, end: usize, tally: &mut Tally<'_, '_>) -> Result<()> {
    let mut header = Header {
        dispatcher: "native".to_owned(),
        ..Header::default()
    };
    let mut unmapped = Unmapped::default();
    let title = line_at(view.bytes, 0);
    let agent = decode(view.without_eol(title.clone()));
    agent
        .strip_prefix(TITLE)
        .unwrap_or_default()
        .clone_into(&mut header.agent);
    let mut at = title.end;
    tally.header(title)?;
    while at < end {
        let range = line_at(view.bytes, at);
        at = range.end;
        let line = decode(view.without_eol(range.clone()));
        let Some((key, value)) = grammar::list_item(&line) else {
            if line.trim().is_empty() {
                continue;
            }
            break;
        };
        tally.header(range)?;
        let nth = unmapped.meet(key);
        let mut more = None;
        if nth > 1 || !grammar::set(&mut header, key, value, &mut more) {
            unmapped.keep(key, nth, value);
        }
        if let Some((key, value)) = more {
            let nth = unmapped.meet(key);
            unmapped.keep(key, nth, &value);
        }
    }
    tally.reading.header = header;
    tally.reading.unmapped_meta = unmapped.finish();
    Ok(())
}

/// One message to the sink.
fn give(tally: &mut Tally<'_, '_>, view: &View<'_>, found: Found) -> Result<()> {
    tally.outside(found.range.start)?;
    let reasoning = found
        .reasoning
        .map(|range| decode(part(view.bytes, range)).into_owned());
    let texts = Texts {
        role: found.heading.role.into(),
        content: decode(part(view.bytes, found.content)),
        unmapped: grammar::unmapped(found.heading.metrics, found.provider, reasoning),
    };
    tally.message(found.range, texts)?;
    if let Some(doubt) = found.doubt {
        let line = tally.line(found.heading_at);
        tally.warn(Code::AmbiguousMarkdown, line, doubt);
    }
    for at in view.imitations(found.body) {
        let line = tally.line(at);
        let message = "a line within a message looks like the heading of another";
        tally.warn(Code::AmbiguousMarkdown, line, message);
    }
    Ok(())
}

/// A rendered view, whose lines all end alike.
struct View<'a> {
    bytes: &'a [u8],
    /// Where the search for the first border starts: at the end of the title,
    /// so that its newline may be the one that a border begins with.
    start: usize,
    /// What lines end with: `\r\n` if the first one does.
    eol: &'static str,
    border: Finder<'static>,
    section: Finder<'static>,
}

impl<'a> View<'a> {
    fn new(bytes: &'a [u8], titled: bool) -> Self {
        let first = line_at(bytes, 0);
        let windows = part(bytes, first.clone()).ends_with(b"\r\n");
        let (eol, border, section) = if windows {
            ("\r\n", "\r\n\r\n---\r\n\r\n## [", "\r\n\r\n\r\n")
        } else {
            ("\n", "\n\n---\n\n## [", "\n\n\n")
        };
        let start = if titled {
            first.end.saturating_sub(eol.len())
        } else {
            0
        };
        Self {
            bytes,
            start,
            eol,
            border: Finder::new(border),
            section: Finder::new(section),
        }
    }

    fn messages(&self) -> Messages<'a, '_> {
        Messages {
            view: self,
            next: self.next_border(self.start),
        }
    }

    fn without_eol(&self, range: Range<usize>) -> &'a [u8] {
        let line = self.bytes.get(range).unwrap_or_default();
        line.strip_suffix(self.eol.as_bytes()).unwrap_or(line)
    }

    fn starts_with(&self, at: usize, text: &str) -> bool {
        self.bytes
            .get(at..)
            .is_some_and(|rest| rest.starts_with(text.as_bytes()))
    }

    fn heading(&self, line: Range<usize>) -> Option<Heading> {
        Heading::parse(&decode(self.without_eol(line)))
    }

    /// The next border whose content may end at `from` or behind it.
    fn next_border(&self, from: usize) -> Option<Border> {
        let rest = self.bytes.get(from..)?;
        self.border.find_iter(rest).find_map(|found| {
            let content_end = from + found;
            let rule = content_end + 2 * self.eol.len();
            let line = line_at(self.bytes, rule + "---".len() + 2 * self.eol.len());
            let heading = self.heading(line.clone())?;
            Some(Border {
                content_end,
                range: rule..line.end,
                heading_at: line.start,
                heading,
            })
        })
    }

    /// Lines of a message that would be headings elsewhere: those that have the
    /// form, and those that have only the surroundings.
    fn imitations(&self, body: Range<usize>) -> impl Iterator<Item = usize> {
        let text = part(self.bytes, body.clone());
        memmem::find_iter(text, b"## [")
            .map(move |found| body.start + found)
            .filter(|&at| {
                let before = self.bytes.get(..at).unwrap_or_default();
                let surroundings = self.border.needle();
                let surroundings = surroundings.strip_suffix(b"## [").unwrap_or(surroundings);
                before.ends_with(b"\n")
                    && (before.ends_with(surroundings)
                        || self.heading(line_at(self.bytes, at)).is_some())
            })
    }
}

/// Where one message ends and the next begins.
#[derive(Debug)]
struct Border {
    /// The end of the content before it.
    content_end: usize,
    /// From the `---` to the end of the heading's line.
    range: Range<usize>,
    heading_at: usize,
    heading: Heading,
}

/// A message of the view.
#[derive(Debug)]
struct Found {
    /// From the `---` to the newline behind the content.
    range: Range<usize>,
    heading_at: usize,
    heading: Heading,
    provider: Option<ProviderLine>,
    /// Reasoning and content.
    body: Range<usize>,
    reasoning: Option<Range<usize>>,
    content: Range<usize>,
    /// Why its beginning is a guess.
    doubt: Option<&'static str>,
}

/// The messages of a view, in order.
struct Messages<'a, 'v> {
    view: &'v View<'a>,
    /// The border at which the next one begins.
    next: Option<Border>,
}

impl Iterator for Messages<'_, '_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        let Border {
            range,
            heading_at,
            heading,
            ..
        } = self.next.take()?;
        let (view, length) = (self.view, self.view.bytes.len());
        let mut at = range.end;
        let below = line_at(view.bytes, at);
        let provider = ProviderLine::parse(&decode(view.without_eol(below.clone())));
        if provider.is_some() {
            at = below.end;
        }
        let blank = view.starts_with(at, view.eol);
        if blank {
            at += view.eol.len();
        }

        self.next = view.next_border(at);
        let (body, end) = match &self.next {
            Some(border) => (at..border.content_end, border.content_end + view.eol.len()),
            None => {
                let rest = view.without_eol(at..length);
                (at..at + rest.len(), length)
            }
        };
        let (reasoning, content, parted) = thoughts(view, &body);
        let doubt = if !heading.is_usual() {
            Some("the heading's role is unusual; it may be part of the message before it")
        } else if !blank && at < length {
            Some("the heading has no blank line below it")
        } else if !parted || (reasoning.is_some() && heading.role != "assistant") {
            Some("where the reasoning ends and the text begins is a guess")
        } else if self.next.is_some() && leaves_code_open(part(view.bytes, body.clone())) {
            Some("the message ends within a code block; the heading behind it may be part of that")
        } else {
            None
        };
        Some(Found {
            range: range.start..end,
            heading_at,
            heading,
            provider,
            body,
            reasoning,
            content,
            doubt,
        })
    }
}

/// Parts a message's body into reasoning and content, and says whether there
/// is only one way to do so.
fn thoughts(view: &View<'_>, body: &Range<usize>) -> (Option<Range<usize>>, Range<usize>, bool) {
    let text = part(view.bytes, body.clone());
    let eol = view.eol.as_bytes();
    let rest = text
        .strip_prefix(b"### Thoughts")
        .and_then(|rest| rest.strip_prefix(eol)?.strip_prefix(eol));
    let Some(rest) = rest else {
        return (None, body.clone(), true);
    };
    let start = body.end - rest.len();
    let Some(end) = view.section.find(rest) else {
        return (None, body.clone(), false);
    };
    let other = rest
        .get(end + eol.len()..)
        .and_then(|rest| view.section.find(rest));
    let content = start + end + 3 * eol.len();
    (Some(start..start + end), content..body.end, other.is_none())
}

/// Whether a fenced code block is begun and not ended.
fn leaves_code_open(text: &[u8]) -> bool {
    let mut open: Option<(u8, usize)> = None;
    for line in text.split(|&byte| byte == b'\n') {
        let fence = line.trim_ascii_start();
        let Some(&mark) = fence.first().filter(|&&mark| mark == b'`' || mark == b'~') else {
            continue;
        };
        let length = fence.iter().take_while(|&&byte| byte == mark).count();
        if length < 3 || line.len() - fence.len() > 3 {
            continue;
        }
        let info = fence.get(length..).unwrap_or_default();
        match open {
            None if mark == b'~' || !info.contains(&b'`') => open = Some((mark, length)),
            Some((opened, least))
                if opened == mark && length >= least && info.trim_ascii().is_empty() =>
            {
                open = None;
            }
            _ => {}
        }
    }
    open.is_some()
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

    /// A message as the application renders it.
    #[derive(Debug, Clone, Default)]
    struct Rendered {
        role: &'static str,
        /// What follows `## [role]`.
        metrics: &'static str,
        provider: Option<&'static str>,
        reasoning: Option<String>,
        content: String,
    }

    fn said(role: &'static str, content: &str) -> Rendered {
        Rendered {
            role,
            content: content.to_owned(),
            ..Rendered::default()
        }
    }

    fn render(list: &str, messages: &[Rendered]) -> String {
        let mut text = format!("# Session transcript — main\n\n{list}");
        for message in messages {
            text.push_str(&format!(
                "\n---\n\n## [{}]{}\n",
                message.role, message.metrics
            ));
            if let Some(provider) = message.provider {
                text.push_str(&format!("{provider}\n"));
            }
            if let Some(reasoning) = &message.reasoning {
                text.push_str(&format!("\n### Thoughts\n\n{reasoning}\n\n"));
            }
            text.push_str(&format!("\n{}\n", message.content));
        }
        text
    }

    const LIST: &str = "- Dispatcher: native\n- Turns: 1\n";

    fn defaults() -> Defaults {
        Defaults {
            agent: "stem".into(),
            created: "c".into(),
            updated: "u".into(),
        }
    }

    fn read_as(bytes: &[u8], defaults: Option<&Defaults>) -> (Reading, Taken) {
        let mut taken = Taken::default();
        let reading = read(bytes, defaults, &mut taken).unwrap();
        check_sums(bytes, &reading, &taken);
        assert!(reading.lossy);
        assert_eq!(reading.generation, 2);
        (reading, taken)
    }

    #[track_caller]
    fn plain(text: &str) -> (Reading, Taken) {
        read_as(text.as_bytes(), None)
    }

    /// The warnings but for the one that there always is.
    fn doubts(reading: &Reading) -> Vec<(&'static str, Option<u64>)> {
        let all = codes(reading);
        assert!(all.contains(&("lossy-markdown", None)));
        all.into_iter()
            .filter(|(code, _)| *code != "lossy-markdown")
            .collect()
    }

    #[track_caller]
    fn comes_back(contents: &[&str]) {
        let messages: Vec<_> = contents
            .iter()
            .map(|content| said("user", content))
            .collect();
        let (_, taken) = plain(&render(LIST, &messages));
        let texts: Vec<_> = taken
            .messages
            .iter()
            .map(|told| told.content.as_str())
            .collect();
        assert_eq!(texts, contents);
        assert!(taken.residue.is_empty());
    }

    #[test]
    fn looks_at_the_title() {
        assert!(looks_like("# Session transcript — main".as_bytes()));
        assert!(looks_like("\u{feff}# Session transcript — main".as_bytes()));
        assert!(!looks_like(b"# Session transcript - main"));
        assert!(!looks_like("\n# Session transcript — main".as_bytes()));
    }

    #[test]
    fn a_view_with_everything() {
        let list = "- Dispatcher: xml\n- Agent ID: `main`\n- Agent type: `root`\n- Provider: `p`\n- Model: `m`\n\
            - Task: `task`\n- Thread: `thr`\n- Turns: 2\n- Tokens: 40 in / 12 out / 8 cached (20.0% hit)\n\
            - Charged: $0.0021\n- Updated: 2026-05-02T08:09:00Z\n";
        let messages = [
            said("user", "hi"),
            Rendered {
                role: "assistant",
                metrics: " · m-small · 10 in / 4 out / 1 cached · $0.000100",
                provider: Some("_provider: `p` · iteration: 2 · context window: 9000_"),
                reasoning: Some("so\n\nthus".into()),
                content: "ho".into(),
            },
        ];
        let (reading, taken) = plain(&render(list, &messages));
        assert_eq!(taken.texts(), [("user", "hi"), ("assistant", "ho")]);
        assert_eq!(taken.messages[0].unmapped, None);
        assert_eq!(
            taken.messages[1].unmapped,
            Some(json!({
                "model": "m-small", "provider": "p", "iteration": 2, "reasoning_content": "so\n\nthus",
                "usage": { "input": 10, "output": 4, "cached_input": 1, "cost_usd": 0.0001, "context_window": 9000 },
            }))
        );
        assert_eq!(
            reading.header,
            Header {
                agent: "main".into(),
                dispatcher: "xml".into(),
                agent_id: Some("main".into()),
                agent_type: Some("root".into()),
                provider: Some("p".into()),
                model: Some("m".into()),
                task_id: Some("task".into()),
                thread_id: Some("thr".into()),
                turn_count: 2,
                input_tokens: 40,
                output_tokens: 12,
                cached_input_tokens: 8,
                charged_amount_usd: 0.0021,
                updated: "2026-05-02T08:09:00Z".into(),
                ..Header::default()
            }
        );
        assert_eq!(
            reading.unmapped_meta.clone().map(Value::Object),
            Some(json!({ "cache_hit_pct": "20.0" }))
        );
        assert_eq!(doubts(&reading), []);
        let lines = reading.lines;
        assert_eq!(
            (lines.headers, lines.messages, lines.residue, lines.blank),
            (12, 18, 0, 3)
        );
    }

    #[test]
    fn a_view_of_another_release() {
        let (reading, taken) =
            plain("# Session transcript — a b\n- Turns: some\n- Weather: `fine`\n- Turns: 3\n");
        assert!(taken.messages.is_empty());
        assert_eq!(
            (
                reading.header.agent.as_str(),
                reading.header.dispatcher.as_str()
            ),
            ("a b", "native")
        );
        let kept = json!({ "Turns": "some", "Turns#2": "3", "Weather": "`fine`" });
        assert_eq!(reading.unmapped_meta.clone().map(Value::Object), Some(kept));
        assert_eq!(reading.lines.headers, 4);
    }

    #[test]
    fn contents_come_back_byte_for_byte() {
        comes_back(&["hi", "ho"]);
        comes_back(&["", "", "x", ""]);
        comes_back(&["\n\nhi\n\n", "\n", "\n\n\n"]);
        comes_back(&["a\n---\nb\n\n---\n\nc\n---", "---", "\n---\n\n"]);
        comes_back(&["# a\n\n## b\n\n### Thoughts\n\nc", "### Thoughts\n\nd"]);
        comes_back(&["1\r\n2\r", "\u{a0}"]);
    }

    #[test]
    fn a_view_that_is_cut_off_gives_what_there_is() {
        let text = render(LIST, &[said("user", "hi"), said("assistant", "ho")]);
        let cut = |end: &str| plain(&text[..text.find(end).unwrap() + end.len()]).1;
        assert_eq!(
            cut("[assistant]\n\nh").texts(),
            [("user", "hi"), ("assistant", "h")]
        );
        assert_eq!(
            cut("[assistant]\n").texts(),
            [("user", "hi"), ("assistant", "")]
        );
        assert_eq!(
            cut("[assistant]").texts(),
            [("user", "hi"), ("assistant", "")]
        );
        assert_eq!(cut("[assis").texts(), [("user", "hi\n\n---\n\n## [assis")]);
    }

    #[test]
    fn text_before_the_first_message_is_residue() {
        let (reading, taken) = plain(&render(
            "- Turns: 1\n\nnote\n- Turns: 2\n",
            &[said("user", "hi")],
        ));
        assert_eq!(taken.residue(), [(5, "text-outside", "note\n- Turns: 2")]);
        assert_eq!(reading.header.turn_count, 1);
        assert_eq!(doubts(&reading), [("text-outside", Some(5))]);
        assert_eq!((reading.rejected, reading.salvageable), (1, 0));
        let lines = reading.lines;
        assert_eq!(
            (lines.headers, lines.messages, lines.residue, lines.blank),
            (2, 5, 2, 3)
        );
    }

    #[test]
    fn a_rule_right_below_a_heading_is_content() {
        let (reading, taken) = plain(&render(LIST, &[said("user", "---\n\n## [user]\n\nx")]));
        assert_eq!(taken.texts(), [("user", "---\n\n## [user]\n\nx")]);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(12))]);
    }

    // What is a guess.

    #[test]
    fn unusual_roles_are_doubted() {
        let (reading, taken) = plain(&render(
            LIST,
            &[said("user", "see\n\n---\n\n## [Unreleased]\n\n- all")],
        ));
        assert_eq!(taken.texts(), [("user", "see"), ("Unreleased", "- all")]);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(14))]);
    }

    #[test]
    fn headings_within_messages_are_doubted() {
        let (reading, taken) = plain(&render(
            LIST,
            &[said("user", "see\n## [user]\n ## [user]\n## [1.0.0] - x")],
        ));
        assert_eq!(taken.messages.len(), 1);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(11))]);
        let (reading, taken) = plain(&render(
            LIST,
            &[said("user", "see\n\n---\n\n## [1.0.0] - x")],
        ));
        assert_eq!(taken.messages.len(), 1);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(14))]);
    }

    #[test]
    fn a_border_in_a_code_block_is_doubted() {
        let messages = [
            said("user", "```\na\n````\n~~~~ b\n~~~"),
            said("user", "~~~\n~~~"),
            said("user", "```"),
        ];
        let (reading, taken) = plain(&render(LIST, &messages));
        assert_eq!(taken.messages.len(), 3);
        // The first one leaves `~~~~` open; behind the last there is no border.
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(8))]);
    }

    #[test]
    fn a_heading_without_a_blank_line_is_doubted() {
        let text = render(LIST, &[said("user", "x")]).replace("[user]\n\n", "[user]\n");
        let (reading, taken) = plain(&text);
        assert_eq!(taken.texts(), [("user", "x")]);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(8))]);
    }

    #[test]
    fn a_reasoning_with_two_ends_is_doubted() {
        let message = |reasoning: &str, content: &str| Rendered {
            reasoning: Some(reasoning.into()),
            ..said("assistant", content)
        };
        for (reasoning, content, guessed) in [
            ("a\n\n\nb", "c", ("a", "b\n\n\nc")),
            ("a", "b\n\n\nc", ("a", "b\n\n\nc")),
            ("a\n", "c", ("a", "\nc")),
        ] {
            let (reading, taken) = plain(&render(LIST, &[message(reasoning, content)]));
            let told = &taken.messages[0];
            assert_eq!(told.content, guessed.1);
            assert_eq!(
                told.unmapped,
                Some(json!({ "reasoning_content": guessed.0 }))
            );
            assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(8))]);
        }
        for (reasoning, content) in [("a", ""), ("", "b"), ("a\n\nb", "c\n\nd")] {
            let (reading, taken) = plain(&render(
                LIST,
                &[message(reasoning, content), said("user", "x")],
            ));
            assert_eq!(taken.texts(), [("assistant", content), ("user", "x")]);
            assert_eq!(
                taken.messages[0].unmapped,
                Some(json!({ "reasoning_content": reasoning }))
            );
            assert_eq!(doubts(&reading), []);
        }
    }

    #[test]
    fn thoughts_of_a_user_are_doubted() {
        let (reading, taken) = plain(&render(LIST, &[said("user", "### Thoughts\n\na\n\n\nb")]));
        assert_eq!(taken.texts(), [("user", "b")]);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(8))]);
        let (reading, taken) = plain(&render(LIST, &[said("assistant", "### Thoughts\n\na")]));
        assert_eq!(taken.texts(), [("assistant", "### Thoughts\n\na")]);
        assert_eq!(doubts(&reading), [("ambiguous-markdown", Some(8))]);
    }

    // Encodings, salvage, hostile files.

    #[test]
    fn windows_line_ends_are_read() {
        let text =
            render(LIST, &[said("user", "one"), said("assistant", "")]).replace('\n', "\r\n");
        let (reading, taken) = plain(&text);
        assert_eq!(taken.texts(), [("user", "one"), ("assistant", "")]);
        assert_eq!(
            (reading.header.agent.as_str(), reading.header.turn_count),
            ("main", 1)
        );
        assert_eq!(doubts(&reading), []);
        let (reading, taken) = plain(&render(LIST, &[said("user", "1\n2")]).replace('\n', "\r\n"));
        assert_eq!(taken.texts(), [("user", "1\r\n2")]);
        assert_eq!(doubts(&reading), [("carriage-returns", None)]);
    }

    #[test]
    fn the_mark_is_skipped_with_a_warning() {
        let (reading, taken) = plain(&format!("\u{feff}{}", render(LIST, &[said("user", "hi")])));
        assert_eq!(taken.texts(), [("user", "hi")]);
        assert_eq!(doubts(&reading), [("byte-order-mark", None)]);
    }

    #[test]
    fn a_file_that_is_not_utf8_is_read_under_salvage() {
        let mut bytes = render(
            "- Model: `?`\n",
            &[said("user", "x?"), said("assistant", "y")],
        )
        .into_bytes();
        bytes
            .iter_mut()
            .filter(|byte| **byte == b'?')
            .for_each(|byte| *byte = 0xFF);
        let mut taken = Taken::default();
        match read(&bytes, None, &mut taken) {
            Err(Error::Source {
                code, salvageable, ..
            }) => {
                assert_eq!((code, salvageable), (Code::BadMarkdown, 2));
            }
            other => panic!("{other:?}"),
        }
        let (reading, taken) = read_as(&bytes, Some(&defaults()));
        assert_eq!(taken.texts(), [("user", "x\u{fffd}"), ("assistant", "y")]);
        assert_eq!(
            taken.messages[0].salvaged,
            Some(json!({ "line": 5, "rule": "not-utf8" }))
        );
        assert_eq!(taken.messages[1].salvaged, None);
        let residue: Vec<_> = taken
            .residue
            .iter()
            .map(|(line, _, text)| (*line, text.as_slice()))
            .collect();
        assert_eq!(
            residue,
            [
                (3, &b"- Model: `\xFF`"[..]),
                (5, b"---\n\n## [user]\n\nx\xFF")
            ]
        );
        assert_eq!(reading.header.model.as_deref(), Some("\u{fffd}"));
        assert!(reading.salvaged);
        assert_eq!(
            doubts(&reading),
            [("salvaged-header", None), ("salvaged-line", Some(5))]
        );
    }

    #[test]
    fn a_view_that_only_salvage_reads_is_salvaged_though_its_messages_are_whole() {
        let text = render("a note?\n", &[said("user", "hi")]);
        let mut bytes = text.into_bytes();
        let mark = bytes.iter_mut().find(|byte| **byte == b'?').unwrap();
        *mark = 0xFF;
        let (reading, taken) = read_as(&bytes, Some(&defaults()));
        assert_eq!(taken.messages[0].salvaged, None);
        assert!(reading.salvaged);
    }

    #[test]
    fn a_view_without_a_title_is_read_under_salvage() {
        let text = render(LIST, &[said("user", "hi")]).replace("# Session", "# Sessions");
        let mut taken = Taken::default();
        let error = read(text.as_bytes(), None, &mut taken).unwrap_err();
        assert_eq!(error.code(), Code::BadMarkdown);
        let (reading, taken) = read_as(text.as_bytes(), Some(&defaults()));
        assert_eq!(taken.texts(), [("user", "hi")]);
        assert_eq!(reading.header, relaxed::header(&defaults()));
        assert_eq!(taken.residue.len(), 1);
        assert!(read(b"notes", Some(&defaults()), &mut Taken::default()).is_err());
    }

    #[test]
    fn hostile_files_take_time_in_proportion_to_their_size() {
        const MANY: usize = 100_000;
        for piece in [
            "\n\n---\n\n## [x",
            "\n\n---\n\n## [user]\n",
            "\n\n---\n\n## [user]\n\n### Thoughts\n\n",
            "## [user]\n",
            "\n\n---\n\n## [user]\n_",
            "\n\n---\n\n## [user] · m",
            "] · ",
            "\n",
            "```\n",
            "- Turns: x\n",
        ] {
            for list in [LIST.to_owned(), format!("{LIST}\n---\n\n## [user]\n\n")] {
                plain(&render(&format!("{list}{}", piece.repeat(MANY)), &[]));
            }
        }
    }

    /// Mixtures of what the view is made of, and words that differ.
    fn pieces() -> impl Strategy<Value = String> {
        let pieces = prop_oneof![
            4 => Just("\n".to_owned()),
            2 => Just("---".to_owned()),
            1 => Just("\n\n---\n\n".to_owned()),
            1 => Just("\r\n".to_owned()),
            1 => Just("## ".to_owned()),
            1 => Just("```".to_owned()),
            1 => Just("- Turns: ".to_owned()),
            1 => Just("_provider: `WORD` · iteration: 1_".to_owned()),
            1 => Just("### Thoughts\n\n".to_owned()),
            2 => Just("WORD".to_owned()),
            1 => any::<String>(),
        ];
        proptest::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
    }

    /// A text without lines that look like headings.
    fn content() -> impl Strategy<Value = String> {
        pieces().prop_filter("imitates a heading", |text| {
            !text.contains("## [") && !text.starts_with("### Thoughts\n\n")
        })
    }

    fn reasoning() -> impl Strategy<Value = String> {
        content().prop_filter("has more than one end", |text| {
            !text.contains("\n\n\n") && !text.ends_with('\n') && !text.starts_with('\n')
        })
    }

    fn message() -> impl Strategy<Value = Rendered> {
        let metrics = prop_oneof![Just(""), Just(" · m · 1 in / 2 out / 3 cached · $0.000004")];
        let provider = prop_oneof![
            Just(None),
            Just(Some("_provider: `p` · iteration: 1 · context window: 5_"))
        ];
        let answer = (
            metrics,
            provider,
            proptest::option::of(reasoning()),
            content(),
        )
            .prop_map(|(metrics, provider, reasoning, content)| Rendered {
                role: "assistant",
                metrics,
                provider,
                reasoning,
                content,
            });
        let role = prop_oneof![Just("user"), Just("system"), Just("tool")];
        prop_oneof![
            answer,
            (role, content()).prop_map(|(role, content)| said(role, &content))
        ]
    }

    proptest! {
        #[test]
        fn rendered_messages_come_back(messages in proptest::collection::vec(message(), 0..6)) {
            let (reading, taken) = plain(&render(LIST, &messages));
            let expected: Vec<_> = messages.iter().map(|message| (message.role, message.content.as_str())).collect();
            prop_assert_eq!(taken.texts(), expected);
            for (told, message) in taken.messages.iter().zip(&messages) {
                let reasoning = told.unmapped.as_ref().and_then(|unmapped| unmapped.get("reasoning_content"));
                prop_assert_eq!(reasoning.and_then(Value::as_str), message.reasoning.as_deref());
            }
            prop_assert!(taken.residue.is_empty());
            prop_assert_eq!(reading.lines.headers, 3);
        }

        #[test]
        fn any_view_is_read(
            list in pieces(),
            messages in proptest::collection::vec((pieces(), pieces()), 0..4),
            damage in any::<prop::sample::Index>(),
        ) {
            let mut text = format!("{TITLE}x\n{list}");
            for (index, (heading, content)) in messages.iter().enumerate() {
                let heading = if index % 2 == 0 { "user]\n" } else { heading };
                text.push_str(&format!("\n\n---\n\n## [{heading}{content}"));
            }
            let text = number_words(&text);
            for text in [text.replace('\n', "\r\n"), text.clone()] {
                let (reading, taken) = plain(&text);
                nothing_is_lost(&text, &reading, &taken);
            }
            let mut bytes = text.into_bytes();
            bytes.insert(damage.index(bytes.len() + 1), 0xFF);
            let mut taken = Taken::default();
            if let Ok(reading) = read(&bytes, Some(&defaults()), &mut taken) {
                check_sums(&bytes, &reading, &taken);
                nothing_is_lost(&String::from_utf8_lossy(&bytes), &reading, &taken);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let titled = [TITLE.as_bytes(), &bytes].concat();
            for (bytes, defaults) in [(&bytes, None), (&titled, None), (&titled, Some(&defaults()))] {
                let mut taken = Taken::default();
                if let Ok(reading) = read(bytes, defaults, &mut taken) {
                    check_sums(bytes, &reading, &taken);
                }
            }
        }
    }
}

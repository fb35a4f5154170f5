//! The relaxed rules for Markdown (`openhuman-workspace.md` §1, `--salvage`):
//! a header that is missing, a message that is not closed, bytes that are not
//! UTF-8.
//!
//! A missing closing tag with another one further on in the file is *not*
//! among them: the application's reader merges those messages, its result is
//! one message, and the import's four fields equal the reader's result. The
//! border would be a guess besides: the writer does not escape opening tags,
//! so one that stands in a text is a text's right.

use std::borrow::Cow;

use memchr::memmem::Finder;

use super::Defaults;
use crate::model::session::Header;

/// The rule that closes a message that is not closed.
pub(crate) const UNCLOSED: &str = "unclosed-message";

/// The rule that replaces bytes that are not UTF-8.
pub(crate) const NOT_UTF8: &str = "not-utf8";

/// The header of a file that has none.
pub(crate) fn header(defaults: &Defaults) -> Header {
    Header {
        agent: defaults.agent.clone(),
        dispatcher: "native".to_owned(),
        created: defaults.created.clone(),
        updated: defaults.updated.clone(),
        ..Header::default()
    }
}

/// Where the content of a message that is not closed ends: before the newline
/// that the closing tag would have taken, at the next opening tag or at the end
/// of the file.
pub(crate) fn content_end(bytes: &[u8], content: usize, end: usize) -> usize {
    let has_newline = end > content && bytes.get(end - 1) == Some(&b'\n');
    if has_newline { end - 1 } else { end }
}

/// Where a message that is not closed ends: at the next opening tag or at the
/// end of the file. `content` is where its content starts.
pub(crate) fn end_of_unclosed(bytes: &[u8], content: usize, opening_tag: &Finder<'_>) -> usize {
    bytes
        .get(content..)
        .and_then(|rest| opening_tag.find(rest))
        .map_or(bytes.len(), |found| content + found)
}

/// Bytes as text: what is not UTF-8 becomes U+FFFD.
///
/// Tags and heading lines begin and end with ASCII, so the text of a part is
/// the part of the text. A plain read refuses a file that is not UTF-8 before
/// it comes here, and then nothing is replaced.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_make_a_native_header_with_zero_counts() {
        let header = header(&Defaults {
            agent: "main".into(),
            created: "a".into(),
            updated: "b".into(),
        });
        assert_eq!(header.agent, "main");
        assert_eq!(header.dispatcher, "native");
        assert_eq!(
            (header.created.as_str(), header.updated.as_str()),
            ("a", "b")
        );
        assert_eq!((header.turn_count, header.input_tokens), (0, 0));
        assert_eq!(header.thread_id, None);
    }

    #[test]
    fn unclosed_ends_at_the_next_opening_tag_or_the_end() {
        let tag = Finder::new("<T");
        assert_eq!(end_of_unclosed(b"<T>ab<T>c", 3, &tag), 5);
        assert_eq!(end_of_unclosed(b"<T>ab", 3, &tag), 5);
        assert_eq!(end_of_unclosed(b"<T>", 3, &tag), 3);
    }
}

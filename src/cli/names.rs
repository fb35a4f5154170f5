//! Names and sentences from files, made fit for a terminal.
//!
//! A transcript's name, an agent's name or a path may hold escape sequences
//! that move the cursor, or marks that turn the direction of writing around.
//! Printed as they are, they could make a failure look like a success.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The text with everything that acts on a terminal written out, as `\u{1b}`.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Controls (C0, DEL, C1), line separators, and the marks for direction.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}'
        )
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Columns that the text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The text, its middle replaced by `…` if it takes more than `most` columns.
/// Names differ at both ends: the time in front, the agent at the back.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if columns(text) <= most {
        return Cow::Borrowed(text);
    }
    let kept = most.saturating_sub(1);
    let tail_columns = kept / 2;
    let head = prefix(text.chars(), kept - tail_columns);
    let tail: Vec<char> = prefix(text.chars().rev(), tail_columns);
    let tail = tail.into_iter().rev();
    Cow::Owned(head.into_iter().chain(['…']).chain(tail).collect())
}

/// As many characters as fit into that many columns.
fn prefix(chars: impl Iterator<Item = char>, most: usize) -> Vec<char> {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= most
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        assert_eq!(visible("1_a\u{1b}[2Jb"), "1_a\\u{1b}[2Jb");
        assert_eq!(
            visible("a\nb\rc\u{9b}d\u{7f}"),
            "a\\u{a}b\\u{d}c\\u{9b}d\\u{7f}"
        );
        for c in [
            '\u{200e}', '\u{200f}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}',
        ] {
            assert!(!visible(&format!("a{c}b")).contains(c));
        }
    }

    #[test]
    fn other_scripts_stay() {
        for text in ["plain", "Grüße", "日本語", "שלום", "👩‍👩‍👧"] {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shortened("1719800000_orchestrator", 11), "17198…rator");
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("日本語日本語", 7), "日…語");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "…");
    }
}

//! The few styles that text output has.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// Titles, and what can be looked up or typed.
pub(super) const HEADING: Style = Style::new().bold();
/// What was not imported.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What was odd.
pub(super) const ODD: Style = AnsiColor::Yellow.on_default().bold();

/// Text in a style. Whoever writes it takes the style off again where there
/// is no terminal.
pub(super) struct Styled<T>(pub(super) Style, pub(super) T);

impl<T: fmt::Display> fmt::Display for Styled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(style, text) = self;
        write!(f, "{style}{text}{style:#}")
    }
}

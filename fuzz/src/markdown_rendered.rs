//! The rendered view: invariants with and without salvage. There is no reader
//! to compare with; what is read is a best effort.

use proptest::strategy::{BoxedStrategy, Just, Strategy as _};
use session_import::model::diagnostic::Code;
use session_import::source::openhuman::Format;

use crate::markdown_legacy::check_invariants;
use crate::mutation::{self, Fresh};
use crate::naive::strategies;
use crate::taken::read;

/// Reads a rendered view in each way.
pub fn check(bytes: &[u8]) {
    let plain = read(Format::MarkdownRendered, bytes, false);
    if let Ok(plain) = &plain {
        assert!(plain.reading.lossy && plain.reading.diagnostics.has(Code::LossyMarkdown));
    }
    check_invariants(bytes, &plain, Format::MarkdownRendered, &is_structure);
}

/// Lines that the view itself may have written: they need not be told as text.
fn is_structure(_: usize, line: &str) -> bool {
    let starts = ["# Session transcript", "- ", "## [", "_", "### Thoughts"];
    line == "---" || starts.iter().any(|start| line.starts_with(start))
}

thread_local! {
    static FILE: BoxedStrategy<Vec<u8>> = strategies::rendered_markdown();
    static TEXT: BoxedStrategy<Vec<u8>> = strategies::quoted().prop_map(String::into_bytes).boxed();
}

const TOKENS: &[&str] = &[
    "# Session transcript — a\n\n",
    "- Dispatcher: native\n",
    "- Model: `m`\n",
    "- Turns: 1\n",
    "- Tokens: 1 in / 2 out / 3 cached (0.0% hit)\n",
    "- Charged: $0.1\n",
    "- Updated:\n",
    "\n\n---\n\n## [user]\n\n",
    "\r\n\r\n---\r\n\r\n## [user]\r\n\r\n",
    "\n---\n\n## [assistant] · m · 1 in / 2 out / 3 cached · $0.1\n",
    "## [tool]",
    "---\n",
    "_provider: `p` · iteration: 1 · context window: 2_\n",
    "_iteration: 1_\n",
    "\n### Thoughts\n\n",
    "\n\n\n",
    "\n\n",
    "\n",
    "\r\n",
    "\r",
    "```\n",
    "~~~~",
    " · ",
    "` ",
    "]",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "text",
];

/// A mutation of a rendered view.
pub fn mutate(bytes: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    mutation::mutate(
        bytes,
        size,
        max_size,
        seed,
        TOKENS,
        &|fresh, runner| match fresh {
            Fresh::File | Fresh::Line => FILE.with(|strategy| mutation::one(strategy, runner)),
            Fresh::FirstLine => mutation::one(&Just(TOKENS[0].into()), runner),
            Fresh::Value => TEXT.with(|strategy| mutation::one(strategy, runner)),
        },
    )
}

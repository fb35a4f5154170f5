//! `--explain CODE`.

use std::io::{self, Write};
use std::str::FromStr;

use anstyle::Style;
use session_import::model::check::{Check, Weight};
use session_import::model::diagnostic::{Code, Severity, UnknownCode};

/// A code of any of the tables; no two have one in common.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Explained {
    /// A warning or error.
    Code(Code),
    /// A finding or notice of `verify`.
    Check(Check),
}

impl Explained {
    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let codes = Code::ALL.iter().copied().map(Self::Code);
        codes.chain(Check::ALL.iter().copied().map(Self::Check))
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Code(code) => code.as_str(),
            Self::Check(check) => check.as_str(),
        }
    }

    pub(crate) fn summary(self) -> &'static str {
        match self {
            Self::Code(code) => code.summary(),
            Self::Check(check) => check.summary(),
        }
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::Code(code) => code.explanation(),
            Self::Check(check) => check.explanation(),
        }
    }

    fn weight(self) -> &'static str {
        match self {
            Self::Code(code) => match code.severity() {
                Severity::Info => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            Self::Check(check) => match check.severity() {
                Weight::Notice => "notice of verify",
                Weight::Finding => "finding of verify",
            },
        }
    }
}

impl FromStr for Explained {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let code = text.parse().map(Self::Code);
        code.or_else(|_| text.parse().map(Self::Check))
    }
}

/// Writes what the code means and what to do.
pub(crate) fn write(code: Explained, out: &mut dyn Write) -> io::Result<()> {
    let bold = Style::new().bold();
    let (name, weight) = (code.as_str(), code.weight());
    writeln!(out, "{bold}{name}{bold:#} ({weight})\n")?;
    writeln!(out, "{}\n", code.summary())?;
    writeln!(out, "{}", code.explanation())
}

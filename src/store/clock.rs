//! One clock reading per import (`tinyagents-store.md`, Writing).

use chrono::{DateTime, SecondsFormat, Utc};

use crate::error::{Error, Result};

/// The time of an import: the same in every record that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    now: DateTime<Utc>,
    fixed: bool,
}

impl Clock {
    /// Reads the clock, or takes `SOURCE_DATE_EPOCH` if that is set and not
    /// empty.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is set to anything but seconds since 1970, up to
    /// the year 9999.
    pub fn from_env() -> Result<Self> {
        let set = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty());
        match set {
            Some(text) => text.to_str().and_then(Self::parse).ok_or_else(|| {
                let text = text.to_string_lossy();
                Error::Usage(format!(
                    "SOURCE_DATE_EPOCH must be whole seconds since 1970, not {text:?}"
                ))
            }),
            None => Ok(Self::at(Utc::now(), false)),
        }
    }

    /// A clock that stands, for tests and for hosts that have their own.
    pub fn fixed(now: DateTime<Utc>) -> Self {
        Self::at(now, true)
    }

    fn at(now: DateTime<Utc>, fixed: bool) -> Self {
        // Whole milliseconds, so that all of its forms say the same.
        let now = DateTime::from_timestamp_millis(now.timestamp_millis()).unwrap_or(now);
        Self { now, fixed }
    }

    fn parse(text: &str) -> Option<Self> {
        const YEAR_10000: i64 = 253_402_300_800;
        let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let seconds: i64 = text.parse().ok().filter(|_| digits)?;
        let now = DateTime::from_timestamp(seconds, 0).filter(|_| seconds < YEAR_10000)?;
        Some(Self::fixed(now))
    }

    /// Whether it stands: then the stat cache is not written.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// The time itself.
    pub fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// RFC 3339 in UTC, with milliseconds and `Z`.
    pub fn imported_at(&self) -> String {
        self.now.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    /// Milliseconds since 1970, as in `created_at_ms`.
    pub fn ms(&self) -> u64 {
        u64::try_from(self.now.timestamp_millis()).unwrap_or(0)
    }

    /// `{YYYYMMDD}T{HHMMSS}Z`, the beginning of an import report's key.
    pub fn stamp(&self) -> String {
        self.now.format("%Y%m%dT%H%M%SZ").to_string()
    }

    /// An mtime as it stands in an entry, and as it is compared with one: with
    /// a clock that stands it is never later than that, since a fresh checkout
    /// gives files the time of the checkout.
    pub fn cap_mtime(&self, ms: u64) -> u64 {
        if self.fixed { ms.min(self.ms()) } else { ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_says_the_same_time() {
        let clock = Clock::parse("1767225600").unwrap();
        assert!(clock.is_fixed());
        assert_eq!(clock.imported_at(), "2026-01-01T00:00:00.000Z");
        assert_eq!(clock.ms(), 1_767_225_600_000);
        assert_eq!(clock.stamp(), "20260101T000000Z");
        assert_eq!(clock.cap_mtime(u64::MAX), clock.ms());
        assert_eq!(clock.cap_mtime(5), 5);
    }

    #[test]
    fn what_is_not_whole_seconds_is_refused() {
        for text in [
            "",
            "x",
            "-1",
            "+1",
            "1.5",
            " 1",
            "253402300800",
            "99999999999999999999",
        ] {
            assert_eq!(Clock::parse(text), None, "{text:?}");
        }
        assert!(Clock::parse("0").is_some());
        assert!(Clock::parse("253402300799").is_some());
    }
}

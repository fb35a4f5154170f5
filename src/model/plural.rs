//! Numbers in sentences.

/// `1 line`, `2 lines`: for words that take an `s`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {}", plural(number, what))
}

/// `line` for one, else `lines`.
pub fn plural(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(0, "line"), "0 lines");
        assert_eq!(count(1, "line"), "1 line");
        assert_eq!(count(2, "failed item"), "2 failed items");
    }
}

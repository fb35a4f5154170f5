//! The lines of the rendered view that say something: title, list, heading,
//! provider line (`openhuman-workspace.md` §2, Rendered format).

use serde_json::{Map, Value, json};

use crate::model::session::Header;

/// What the first line starts with; the agent's name follows.
pub(super) const TITLE: &str = "# Session transcript — ";

/// A message's heading: `## [role]`, perhaps with what the answer took.
#[derive(Debug, PartialEq)]
pub(super) struct Heading {
    pub(super) role: String,
    pub(super) metrics: Option<Metrics>,
}

/// ` · model · A in / B out / C cached · $X`.
#[derive(Debug, PartialEq)]
pub(super) struct Metrics {
    model: String,
    tokens: Tokens,
    cost_usd: f64,
}

/// `A in / B out / C cached`, in the list with ` (P% hit)`.
#[derive(Debug, PartialEq)]
struct Tokens {
    input: u64,
    output: u64,
    cached: u64,
    hit: Option<String>,
}

impl Heading {
    /// Reads a heading. The two forms of the contract and nothing else: a text
    /// has headings of its own, `## [1.0.0] - 2024-01-01` for one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("## [")?;
        let (role, metrics) = match rest.split_once("] · ") {
            Some((role, metrics)) => (role, Some(Metrics::parse(metrics)?)),
            None => (rest.strip_suffix(']')?, None),
        };
        (!role.contains(['[', ']'])).then(|| Self {
            role: role.to_owned(),
            metrics,
        })
    }

    /// Whether messages of such a role are known.
    pub(super) fn is_usual(&self) -> bool {
        const USUAL: [&str; 6] = [
            "system",
            "user",
            "assistant",
            "tool",
            "developer",
            "function",
        ];
        USUAL.contains(&self.role.as_str())
    }
}

impl Metrics {
    fn parse(text: &str) -> Option<Self> {
        let (rest, cost) = text.rsplit_once(" · $")?;
        let (model, tokens) = rest.rsplit_once(" · ")?;
        Some(Self {
            model: model.to_owned(),
            tokens: Tokens::parse(tokens).filter(|tokens| tokens.hit.is_none())?,
            cost_usd: dollars(cost)?,
        })
    }
}

impl Tokens {
    fn parse(text: &str) -> Option<Self> {
        let (input, rest) = text.split_once(" in / ")?;
        let (output, rest) = rest.split_once(" out / ")?;
        let (cached, hit) = rest.split_once(" cached")?;
        let hit = match hit {
            "" => None,
            hit => Some(hit.strip_prefix(" (")?.strip_suffix("% hit)")?.to_owned()),
        };
        Some(Self {
            input: integer(input)?,
            output: integer(output)?,
            cached: integer(cached)?,
            hit,
        })
    }
}

/// `` _provider: `X` · iteration: N · context window: N_ ``, of which any part
/// may be absent.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ProviderLine {
    provider: Option<String>,
    iteration: Option<u64>,
    context_window: Option<u64>,
}

impl ProviderLine {
    /// Reads the line below a heading.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for item in line.strip_prefix('_')?.strip_suffix('_')?.split(" · ") {
            let (key, value) = item.split_once(": ")?;
            let twice = match key {
                "provider" => parsed.provider.replace(bare(value).to_owned()).is_some(),
                "iteration" => parsed.iteration.replace(integer(value)?).is_some(),
                "context window" => parsed.context_window.replace(integer(value)?).is_some(),
                _ => return None,
            };
            if twice {
                return None;
            }
        }
        Some(parsed)
    }
}

/// What the view says of a message beside its texts, under the names that its
/// JSONL line had. It has no time, so there is no turn usage
/// (`openhuman-workspace.md` §1, rule 6) and all of it is unmapped.
pub(super) fn unmapped(
    metrics: Option<Metrics>,
    provider: Option<ProviderLine>,
    reasoning: Option<String>,
) -> Map<String, Value> {
    let mut map = Map::new();
    let mut usage = Map::new();
    if let Some(Metrics {
        model,
        tokens,
        cost_usd,
    }) = metrics
    {
        map.insert("model".into(), model.into());
        usage.insert("input".into(), tokens.input.into());
        usage.insert("output".into(), tokens.output.into());
        usage.insert("cached_input".into(), tokens.cached.into());
        usage.insert("cost_usd".into(), json!(cost_usd));
    }
    let line = provider.unwrap_or_default();
    if let Some(window) = line.context_window {
        usage.insert("context_window".into(), window.into());
    }
    if !usage.is_empty() {
        map.insert("usage".into(), usage.into());
    }
    if let Some(provider) = line.provider {
        map.insert("provider".into(), provider.into());
    }
    if let Some(iteration) = line.iteration {
        map.insert("iteration".into(), iteration.into());
    }
    if let Some(reasoning) = reasoning {
        map.insert("reasoning_content".into(), reasoning.into());
    }
    map
}

/// `- Key: value`, the form of the list below the title.
pub(super) fn list_item(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.strip_prefix("- ")?.split_once(':')?;
    // An editor may have taken the space of an empty value.
    let value = if value.is_empty() {
        value
    } else {
        value.strip_prefix(' ')?
    };
    (!key.is_empty()).then_some((key, value))
}

/// Sets the field of a list item; false where there is none, or no such value.
/// A second thing that the item says goes to `more`, by the name it has in the
/// legacy header.
pub(super) fn set(
    header: &mut Header,
    key: &str,
    value: &str,
    more: &mut Option<(&'static str, String)>,
) -> bool {
    let text = || Some(bare(value).to_owned());
    match key {
        "Dispatcher" => value.clone_into(&mut header.dispatcher),
        "Updated" => value.clone_into(&mut header.updated),
        "Agent ID" => header.agent_id = text(),
        "Agent type" => header.agent_type = text(),
        "Provider" => header.provider = text(),
        "Model" => header.model = text(),
        "Task" => header.task_id = text(),
        "Thread" => header.thread_id = text(),
        "Turns" => match integer(value) {
            Some(turns) => header.turn_count = turns,
            None => return false,
        },
        // Without its end it was cut off, and the number may be as well.
        "Tokens" => match Tokens::parse(value).filter(|tokens| tokens.hit.is_some()) {
            Some(tokens) => {
                header.input_tokens = tokens.input;
                header.output_tokens = tokens.output;
                header.cached_input_tokens = tokens.cached;
                *more = tokens.hit.map(|hit| ("cache_hit_pct", hit));
            }
            None => return false,
        },
        "Charged" => match value.strip_prefix('$').and_then(dollars) {
            Some(dollars) => header.charged_amount_usd = dollars,
            None => return false,
        },
        _ => return false,
    }
    true
}

/// The back-ticks are not part of a value.
fn bare(value: &str) -> &str {
    value
        .strip_prefix('`')
        .and_then(|value| value.strip_suffix('`'))
        .unwrap_or(value)
}

/// Digits only: `parse` alone would take a sign.
fn integer(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn dollars(text: &str) -> Option<f64> {
    text.parse()
        .ok()
        .filter(|dollars: &f64| dollars.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_of_both_forms() {
        let heading = Heading::parse("## [user]").unwrap();
        assert_eq!((heading.role.as_str(), heading.metrics), ("user", None));
        let line = "## [assistant] · m · 4 · 10 in / 4 out / 1 cached · $0.000100";
        let metrics = Heading::parse(line).unwrap().metrics.unwrap();
        assert_eq!(metrics.model, "m · 4");
        assert_eq!((metrics.tokens.input, metrics.tokens.cached), (10, 1));
        assert_eq!(metrics.cost_usd, 0.0001);
    }

    #[test]
    fn headings_of_texts_are_none() {
        for line in [
            "## user",
            "## [1.0.0] - 2024-01-01",
            "## [a](b) [c]",
            "## [assistant] · m",
            "## [assistant] · m · 1 in / 2 out · $1",
            "## [assistant] · m · 1 in / +2 out / 3 cached · $1",
            "## [assistant] · m · 1 in / 2 out / 3 cached (4% hit) · $1",
            "## [assistant] · m · 1 in / 2 out / 3 cached · $NaN",
            "# [user]",
            " ## [user]",
        ] {
            assert_eq!(Heading::parse(line), None, "{line}");
        }
    }

    #[test]
    fn unusual_roles() {
        assert!(Heading::parse("## [tool]").unwrap().is_usual());
        assert!(!Heading::parse("## [Unreleased]").unwrap().is_usual());
    }

    #[test]
    fn provider_lines() {
        let line =
            ProviderLine::parse("_provider: `p` · iteration: 2 · context window: 9_").unwrap();
        assert_eq!(line.provider.as_deref(), Some("p"));
        assert_eq!((line.iteration, line.context_window), (Some(2), Some(9)));
        assert_eq!(
            ProviderLine::parse("_iteration: 3_").unwrap().iteration,
            Some(3)
        );
        for line in [
            "_emphasis_",
            "_",
            "__",
            "_iteration: x_",
            "_a: b_",
            "_provider: `a` · provider: `b`_",
            "provider: `p`",
        ] {
            assert_eq!(ProviderLine::parse(line), None, "{line}");
        }
    }

    #[test]
    fn unmapped_has_the_names_of_the_line() {
        let heading =
            Heading::parse("## [assistant] · m · 1 in / 2 out / 3 cached · $0.5").unwrap();
        let line = ProviderLine::parse("_provider: `p` · iteration: 2 · context window: 9_");
        assert_eq!(
            Value::Object(unmapped(heading.metrics, line, Some("r".into()))),
            json!({
                "model": "m", "provider": "p", "iteration": 2, "reasoning_content": "r",
                "usage": { "input": 1, "output": 2, "cached_input": 3, "cost_usd": 0.5, "context_window": 9 },
            })
        );
        assert!(unmapped(None, None, None).is_empty());
    }

    #[test]
    fn list_items() {
        assert_eq!(list_item("- Agent ID: `x`"), Some(("Agent ID", "`x`")));
        assert_eq!(list_item("- Updated: "), Some(("Updated", "")));
        assert_eq!(list_item("- Updated:"), Some(("Updated", "")));
        assert_eq!(list_item("- see http://x"), None);
        assert_eq!(list_item("- : x"), None);
        assert_eq!(list_item("Turns: 1"), None);
    }
}

//! Section 2, naively: legacy Markdown as the application's own reader takes it, and the rendered view as well as it
//! can be taken back.

use super::NaiveError;

/// A legacy transcript: its header, its messages as `(role, content)`, and what is neither.
#[derive(Debug, Clone, PartialEq)]
pub struct LegacyMarkdown {
    pub agent: String,
    pub dispatcher: String,
    pub created: String,
    pub updated: String,
    pub turn_count: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cached_input_tokens: u64,
    pub charged_usd: f64,
    pub thread_id: Option<String>,
    pub messages: Vec<(String, String)>,
    /// Line of the first character, and the text without white space around it: text outside messages, and messages
    /// that are not closed.
    pub residue: Vec<(u64, String)>,
}

const HEADER: &str = "<!-- session_transcript";
const COMMENT_END: &str = "-->";
const OPEN: &str = "<!--MSG role=\"";
const OPEN_END: &str = "\"-->";
const CLOSE: &str = "<!--/MSG-->";
const ESCAPED_CLOSE: &str = "<!--\\/MSG-->";

/// Reads legacy Markdown.
pub fn read_legacy(bytes: &[u8]) -> Result<LegacyMarkdown, NaiveError> {
    let text = utf8(bytes)?;

    // The header may stand anywhere, and `find` does not care what it stands in.
    let header_start = text.find(HEADER).ok_or(NaiveError::NoMarkdownHeader)?;
    let header_len = text[header_start..]
        .find(COMMENT_END)
        .ok_or(NaiveError::NoMarkdownHeader)?;
    let header_end = header_start + header_len + COMMENT_END.len();
    // With the closing mark: a value on the same line carries it, as in the application.
    let header = &text[header_start..header_end];

    let mut taken = vec![(header_start, header_end)];
    let mut messages = Vec::new();
    let mut residue = Vec::new();
    let mut from = 0;
    while let Some(open) = find(text, from, OPEN) {
        let Some((role, content, end)) = legacy_message(text, open) else {
            // Each that is not closed by itself: up to the next one, or the end.
            let tag_end = find(text, open + OPEN.len(), OPEN_END);
            let next = tag_end.and_then(|end| find(text, end + OPEN_END.len(), OPEN));
            let end = next.unwrap_or(text.len());
            residue.push((line_of(text, open), text[open..end].trim().to_owned()));
            taken.push((open, end));
            from = end;
            continue;
        };
        messages.push((role.to_owned(), content.replace(ESCAPED_CLOSE, CLOSE)));
        taken.push((open, end));
        from = end;
    }

    // What lies between is not white space only by accident.
    taken.sort_unstable();
    taken.push((text.len(), text.len()));
    let mut at = 0;
    for (start, end) in taken {
        if start > at {
            let gap = &text[at..start];
            if !gap.trim().is_empty() {
                let first = at + (gap.len() - gap.trim_start().len());
                residue.push((line_of(text, first), gap.trim().to_owned()));
            }
        }
        at = at.max(end);
    }
    residue.sort();

    // The first line of each key counts, also where it has no value.
    let value = |key: &str| {
        let prefix = format!("{key}:");
        header
            .lines()
            .find_map(|line| line.trim().strip_prefix(&prefix).map(str::trim))
    };
    let number = |key: &str| {
        value(key)
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let charged =
        value("charged_usd").and_then(|text| text.trim_start_matches('$').parse::<f64>().ok());
    Ok(LegacyMarkdown {
        agent: value("agent").unwrap_or("unknown").to_owned(),
        dispatcher: value("dispatcher").unwrap_or("native").to_owned(),
        created: value("created").unwrap_or_default().to_owned(),
        updated: value("updated").unwrap_or_default().to_owned(),
        turn_count: number("turn_count"),
        input_tokens: number("input_tokens"),
        output_tokens: number("output_tokens"),
        cached_input_tokens: number("cached_input_tokens"),
        charged_usd: charged.filter(|amount| amount.is_finite()).unwrap_or(0.0),
        thread_id: value("thread_id")
            .filter(|text| !text.is_empty())
            .map(str::to_owned),
        messages,
        residue,
    })
}

/// Role, content and end of the message that opens at `open`; `None` if it is never closed.
fn legacy_message(text: &str, open: usize) -> Option<(&str, &str, usize)> {
    let role_start = open + OPEN.len();
    let role_end = find(text, role_start, OPEN_END)?;
    let mut start = role_end + OPEN_END.len();
    if text[start..].starts_with('\n') {
        start += 1;
    }
    // A closing tag on a line of its own wins even over a bare one that comes sooner: so two messages merge where
    // the first one's is missing.
    let end = find(text, start, &format!("\n{CLOSE}"));
    let (end, next) = match end {
        Some(end) => (end, end + 1 + CLOSE.len()),
        None => {
            let end = find(text, start, CLOSE)?;
            (end, end + CLOSE.len())
        }
    };
    Some((&text[role_start..role_end], &text[start..end], next))
}

/// A rendered view.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RenderedMarkdown {
    pub agent: String,
    pub dispatcher: Option<String>,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub task: Option<String>,
    pub thread: Option<String>,
    pub turns: Option<u64>,
    /// In, out, cached.
    pub tokens: Option<(u64, u64, u64)>,
    pub charged_usd: Option<f64>,
    pub updated: Option<String>,
    pub messages: Vec<RenderedMessage>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RenderedMessage {
    pub role: String,
    pub content: String,
    /// Model and usage stand in the heading together, or neither does.
    pub model: Option<String>,
    pub usage: Option<RenderedUsage>,
    /// From the line below the heading.
    pub provider: Option<String>,
    pub iteration: Option<u32>,
    pub context_window: Option<u64>,
    pub reasoning: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RenderedUsage {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cost_usd: f64,
}

const TITLE: &str = "# Session transcript — ";
const RULE: &str = "\n\n---\n\n";
const THOUGHTS: &str = "### Thoughts\n\n";

/// Reads a rendered view as a best effort.
pub fn read_rendered(bytes: &[u8]) -> Result<RenderedMarkdown, NaiveError> {
    let text = utf8(bytes)?;
    let title = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(TITLE));
    let agent = title.ok_or(NaiveError::NotRendered)?.to_owned();

    // A message starts at a blank line, `---`, a blank line and a heading that is one. Where its rule starts, its
    // heading, and where reasoning and content start and end: with the newline before the next one's blank line.
    let mut starts: Vec<(usize, RenderedMessage, usize)> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    // The title's own newline may be the one before the first blank line.
    let mut from = text.find('\n').unwrap_or(text.len());
    while let Some(content_end) = find(text, from, RULE) {
        let rule = content_end + 1;
        let heading_start = content_end + RULE.len();
        let heading = text[heading_start..].split('\n').next().unwrap_or_default();
        from = rule;
        if let Some(mut message) = parse_heading(heading) {
            let mut body = (heading_start + heading.len() + 1).min(text.len());
            let below = text[body..].split('\n').next().unwrap_or_default();
            if let Some((provider, iteration, context_window)) = parse_provider(below) {
                message.provider = Some(provider);
                message.iteration = Some(iteration);
                message.context_window = Some(context_window);
                body = (body + below.len() + 1).min(text.len());
            }
            if text[body..].starts_with('\n') {
                body += 1;
            }
            if !starts.is_empty() {
                ends.push(content_end);
            }
            starts.push((rule, message, body));
            from = body;
        }
    }
    ends.push(text.len() - usize::from(text.ends_with('\n')));

    let list_end = starts.first().map_or(text.len(), |(rule, _, _)| *rule);
    let list = &text[..list_end];
    let mut out = RenderedMarkdown {
        agent,
        dispatcher: item(list, "Dispatcher"),
        agent_id: item(list, "Agent ID"),
        agent_type: item(list, "Agent type"),
        provider: item(list, "Provider"),
        model: item(list, "Model"),
        task: item(list, "Task"),
        thread: item(list, "Thread"),
        turns: item(list, "Turns").and_then(|text| text.parse().ok()),
        tokens: item(list, "Tokens")
            .and_then(|text| parse_tokens(text.strip_suffix("% hit)")?.split(" (").next()?)),
        charged_usd: item(list, "Charged").and_then(|text| parse_dollars(&text)),
        updated: item(list, "Updated"),
        messages: Vec::new(),
    };

    for ((_, message, body), end) in starts.into_iter().zip(ends) {
        out.messages
            .push(with_body(message, text.get(body..end).unwrap_or_default()));
    }
    Ok(out)
}

/// `- KEY: VALUE` of the list, without back-ticks around the value; the first one counts. Where there is no value,
/// the space before it may be gone too.
fn item(list: &str, key: &str) -> Option<String> {
    let prefix = format!("- {key}:");
    let mut values = list.lines().filter_map(|line| line.strip_prefix(&prefix));
    let value = values.find_map(|value| match value {
        "" => Some(""),
        value => value.strip_prefix(' '),
    })?;
    let bare = value
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'));
    Some(bare.unwrap_or(value).to_owned())
}

/// `## [role]`, or the same with model and usage; anything else is no heading.
fn parse_heading(line: &str) -> Option<RenderedMessage> {
    let (role, rest) = line.strip_prefix("## [")?.split_once(']')?;
    let mut message = RenderedMessage {
        role: role.to_owned(),
        ..RenderedMessage::default()
    };
    if rest.is_empty() {
        return Some(message);
    }
    // From the right, since only the model is free text.
    let (rest, cost) = rest.strip_prefix(" · ")?.rsplit_once(" · ")?;
    let (model, tokens) = rest.rsplit_once(" · ")?;
    let (input, output, cached_input) = parse_tokens(tokens)?;
    let cost_usd = parse_dollars(cost)?;
    message.model = Some(model.to_owned());
    message.usage = Some(RenderedUsage {
        input,
        output,
        cached_input,
        cost_usd,
    });
    Some(message)
}

/// Perhaps thoughts, then the content. The reasoning ends at the first two blank lines in a row: its own, and that of
/// the content.
fn with_body(mut message: RenderedMessage, body: &str) -> RenderedMessage {
    let mut content = body;
    if let Some((reasoning, rest)) = body
        .strip_prefix(THOUGHTS)
        .and_then(|thoughts| thoughts.split_once("\n\n\n"))
    {
        message.reasoning = Some(reasoning.to_owned());
        content = rest;
    }
    message.content = content.to_owned();
    message
}

/// `` _provider: `X` · iteration: N · context window: N_ ``
fn parse_provider(line: &str) -> Option<(String, u32, u64)> {
    let rest = line.strip_prefix("_provider: `")?.strip_suffix('_')?;
    let (rest, window) = rest.rsplit_once(" · context window: ")?;
    let (provider, iteration) = rest.rsplit_once("` · iteration: ")?;
    Some((
        provider.to_owned(),
        iteration.parse().ok()?,
        window.parse().ok()?,
    ))
}

/// `A in / B out / C cached`
fn parse_tokens(text: &str) -> Option<(u64, u64, u64)> {
    let (input, rest) = text.split_once(" in / ")?;
    let (output, rest) = rest.split_once(" out / ")?;
    let cached = rest.strip_suffix(" cached")?;
    Some((
        input.parse().ok()?,
        output.parse().ok()?,
        cached.parse().ok()?,
    ))
}

/// `$X`
fn parse_dollars(text: &str) -> Option<f64> {
    text.strip_prefix('$')?
        .parse()
        .ok()
        .filter(|amount: &f64| amount.is_finite())
}

/// A file that is not UTF-8 fails; a byte order mark at its start is skipped.
fn utf8(bytes: &[u8]) -> Result<&str, NaiveError> {
    let text = std::str::from_utf8(bytes).map_err(|_| NaiveError::MarkdownNotUtf8)?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn find(text: &str, from: usize, what: &str) -> Option<usize> {
    text.get(from..)?.find(what).map(|at| from + at)
}

fn line_of(text: &str, offset: usize) -> u64 {
    1 + text[..offset].matches('\n').count() as u64
}

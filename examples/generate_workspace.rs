//! Writes a workspace of a given size, always the same for the same arguments:
//! what `benches/compare.sh` measures on.
//!
//! ```text
//! generate_workspace FOLDER SESSIONS BYTES_PER_SESSION
//! ```
//!
//! Two of three lines are answers with usage and tool calls, in several
//! scripts; the last argument is about how large each transcript gets.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// A small generator of numbers that only has to be the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

const WORDS: [&str; 24] = [
    "the",
    "train",
    "leaves",
    "at",
    "noon",
    "überall",
    "Straße",
    "café",
    "naïve",
    "дорога",
    "вечером",
    "你好",
    "世界",
    "東京",
    "🚀",
    "👩‍👩‍👧",
    "report",
    "list",
    "ports",
    "because",
    "\\n",
    "\\\"quoted\\\"",
    "\\u00e9t\\u00e9",
    "tab\\t",
];

fn text(numbers: &mut Numbers, words: u64) -> String {
    let mut text = String::new();
    for index in 0..words {
        if index > 0 {
            text.push(' ');
        }
        let word = numbers.below(WORDS.len() as u64);
        text.push_str(WORDS.get(word as usize).copied().unwrap_or("word"));
    }
    text
}

fn session(numbers: &mut Numbers, number: u64, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 2048);
    let _ = writeln!(
        out,
        r#"{{"_meta":{{"agent":"orchestrator","agent_id":"orchestrator","agent_type":"root","dispatcher":"native","provider":"acme","model":"m-large","created":"2026-07-01T08:00:00Z","updated":"2026-07-01T09:00:00Z","turn_count":3,"input_tokens":400,"output_tokens":40,"cached_input_tokens":8,"charged_amount_usd":0.004,"thread_id":"thr-{number}"}}}}"#
    );
    let mut turn = 0_u64;
    while turn == 0 || out.len() < bytes {
        turn += 1;
        let words = 8 + numbers.below(60);
        let question = text(numbers, words);
        let _ = writeln!(out, r#"{{"role":"user","content":"{question}"}}"#);
        for step in 1..=2 {
            let words = 20 + numbers.below(120);
            let answer = text(numbers, words);
            let (input, output) = (numbers.below(9000), numbers.below(900));
            let _ = writeln!(
                out,
                r#"{{"role":"assistant","content":"{answer}","provider":"acme","model":"m-large","usage":{{"input":{input},"output":{output},"cached_input":8,"context_window":128000,"cost_usd":0.00{output}}},"reasoning_content":"{reasoning}","tool_calls":[{{"id":"c{turn}-{step}","name":"shell","arguments":"{{\"command\":\"ls -la\",\"n\":{input}}}"}}],"iteration":{step},"ts":"2026-07-01T08:00:{second:02}Z"}}"#,
                reasoning = text(numbers, 12),
                second = turn % 60,
            );
        }
    }
    out
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, sessions, bytes] = arguments.as_slice() else {
        return Err("generate_workspace FOLDER SESSIONS BYTES_PER_SESSION".into());
    };
    let raw = Path::new(folder).join("session_raw");
    fs::create_dir_all(&raw)?;
    let bytes = bytes.parse()?;
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    for number in 0..sessions.parse::<u64>()? {
        let path = raw.join(format!("{}_orchestrator.jsonl", 1_780_000_000 + number));
        let mut file = fs::File::create(path)?;
        file.write_all(session(&mut numbers, number, bytes).as_bytes())?;
    }
    Ok(())
}

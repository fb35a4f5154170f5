//! How fast each reader and the writer are, one by one: `cargo bench`.
//!
//! The readers are measured through the interface, by dry runs of a workspace
//! in memory. So a figure includes looking through the folders and starting a
//! thread, some tenths of a millisecond beside a transcript of a megabyte.

#![allow(missing_docs, reason = "criterion's macros make a public function")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on may stop")]

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use session_import::model::key::SessionKey;
use session_import::model::message::{Message, Sink as _};
use session_import::ops::run::{Options, run};
use session_import::store::name::StoreName;
use session_import::store::{Clock, StreamReader, Writer};
use tempfile::TempDir;

/// About how large each transcript is.
const SIZE: usize = 1 << 20;

const HEADER: &str = r#"{"_meta":{"agent":"helper","agent_id":"helper","agent_type":"root","dispatcher":"native","provider":"acme","model":"m-large","created":"2026-07-01T08:00:00Z","updated":"2026-07-01T09:00:00Z","turn_count":3,"input_tokens":400,"output_tokens":40,"cached_input_tokens":8,"charged_amount_usd":0.004,"thread_id":"thr-1"}}"#;

const WORDS: &str =
    "the train leaves at noon, überall in der Straße, дорога вечером, 你好 世界 🚀 ";

const QUESTION: &str = "what did the list say about the ports?";

fn answer(number: usize) -> String {
    format!(
        r#"{{"role":"assistant","content":"{}\n\"quoted\" \u00e9t\u00e9","provider":"acme","model":"m-large","usage":{{"input":{number},"output":9,"cached_input":8,"context_window":128000,"cost_usd":0.0012}},"reasoning_content":"{WORDS}","tool_calls":[{{"id":"c{number}","name":"shell","arguments":"{{\"command\":\"ls\"}}"}}],"iteration":1,"ts":"2026-07-01T08:00:00Z"}}"#,
        WORDS.repeat(8),
    )
}

/// Lines are only ever added: what the application writes now.
fn append_only() -> String {
    let mut text = format!("{HEADER}\n");
    for number in 0.. {
        if text.len() > SIZE {
            break;
        }
        let _ = writeln!(text, r#"{{"role":"user","content":"{QUESTION}"}}"#);
        let _ = writeln!(text, "{}", answer(number));
    }
    text
}

/// With compactions: each takes back all before it, and that is told again.
fn full_history() -> String {
    let mut text = String::new();
    for (number, line) in append_only().lines().enumerate() {
        let _ = writeln!(text, "{line}");
        if number % 200 == 199 {
            let _ = writeln!(
                text,
                r#"{{"kind":"compaction","ts":"t","replacement":[{{"role":"user","content":"{QUESTION}"}}]}}"#
            );
        }
    }
    text
}

fn legacy_markdown() -> String {
    let mut text = String::from(
        "<!-- session_transcript\nagent: helper\ndispatcher: native\ncreated: 2026-03-01T08:00:00Z\nupdated: 2026-03-01T09:00:00Z\nturn_count: 3\ninput_tokens: 400\noutput_tokens: 40\ncached_input_tokens: 8\ncharged_usd: $0.01\n-->\n",
    );
    while text.len() < SIZE {
        for role in ["user", "assistant"] {
            let words = WORDS.repeat(4);
            let _ = write!(text, "\n<!--MSG role=\"{role}\"-->\n{words}\n<!--/MSG-->\n");
        }
    }
    text
}

fn rendered_markdown() -> String {
    let mut text =
        String::from("# Session transcript — helper\n\n- Dispatcher: native\n- Turns: 3\n\n---\n");
    while text.len() < SIZE {
        for role in ["user", "assistant"] {
            let _ = write!(text, "\n## [{role}]\n\n{}\n", WORDS.repeat(4));
        }
    }
    text
}

/// A folder in memory, where there is one.
fn folder() -> TempDir {
    match Path::new("/dev/shm").is_dir() {
        true => TempDir::new_in("/dev/shm").unwrap(),
        false => TempDir::new().unwrap(),
    }
}

fn dry_run(workspace: &Path) -> u64 {
    let options = Options {
        workspace: Some(workspace.to_owned()),
        dry_run: true,
        jobs: Some(1),
        ..Options::default()
    };
    let report = run(&options, &mut ()).unwrap();
    assert_eq!((report.failed, report.unreadable), (0, 0));
    assert!(report.imported > 0);
    report.imported
}

fn reader(
    group: &mut BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    file: &str,
    text: &str,
) {
    let workspace = folder();
    let path = workspace.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function(name, |bench| {
        bench.iter(|| black_box(dry_run(workspace.path())));
    });
}

fn readers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    let jsonl = "session_raw/1780000000_helper.jsonl";
    reader(&mut group, "append-only", jsonl, &append_only());
    reader(&mut group, "full history", jsonl, &full_history());
    let markdown = "sessions/2026_03_01/helper_0.md";
    reader(&mut group, "legacy Markdown", markdown, &legacy_markdown());
    reader(
        &mut group,
        "rendered Markdown",
        markdown,
        &rendered_markdown(),
    );

    // A header and nothing else: what each session costs beside its bytes.
    let workspace = folder();
    let raw = workspace.path().join("session_raw");
    fs::create_dir_all(&raw).unwrap();
    for number in 0..1000 {
        let path = raw.join(format!("{}_helper.jsonl", 1_780_000_000 + number));
        fs::write(path, format!("{HEADER}\n")).unwrap();
    }
    group.throughput(Throughput::Elements(1000));
    group.bench_function("1000 headers", |bench| {
        bench.iter(|| black_box(dry_run(workspace.path())));
    });
    group.finish();
}

/// The store's own: the strict reader of streams, and the writer.
fn store(criterion: &mut Criterion) {
    let workspace = folder();
    let root = workspace.path().join("store");
    let clock = Clock::fixed(Default::default());
    let (writer, _) = Writer::open(&root, workspace.path(), clock, None).unwrap();
    let name = StoreName::parse(SessionKey::new("1780000000_helper").as_str()).unwrap();
    let content = format!("\"{}\"", WORDS.repeat(8));
    let message = Message {
        role: "\"user\"".into(),
        content: content.as_str().into(),
        ..Message::default()
    };
    let write = || {
        let mut draft = writer.draft(&name).unwrap();
        for _ in 0..SIZE / content.len() {
            draft.message(&message).unwrap();
        }
        draft.finish().unwrap()
    };
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Bytes(write().bytes));
    group.bench_function("write", |bench| {
        bench.iter(|| black_box(write()));
    });

    let lines: String = (0..SIZE / content.len())
        .map(|offset| {
            format!(
                "{{\"offset\":{offset},\"value\":{{\"role\":\"user\",\"content\":{content}}},\"created_at_ms\":1}}\n"
            )
        })
        .collect();
    let stream = workspace.path().join("stream.jsonl");
    fs::write(&stream, &lines).unwrap();
    group.throughput(Throughput::Bytes(lines.len() as u64));
    group.bench_function("strict reader", |bench| {
        bench.iter(|| {
            let mut reader = StreamReader::open(&stream).unwrap().unwrap();
            while let Some(record) = reader.next().unwrap() {
                black_box(record.offset);
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .without_plots();
    targets = readers, store
}
criterion_main!(benches);

//! The live application, as it writes beside an import.
//!
//! After each turn it writes the transcript, in the manner of its generation,
//! and then mirrors the session into the store, without any lock: it removes
//! the stream, appends message by message through `JsonlAppendStore`, and puts
//! the descriptor through `FileStore`. So a stream is short for a moment by
//! the writer's own doing. Whoever wants to judge the importer looks while the
//! writer pauses ([`Pause`]): then every transcript and every stream that it
//! wrote is whole.
//!
//! All content follows from a session's stem and a message's number, so that
//! a test can tell what must be there.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Opened as _, V2,
    descriptor::{Descriptor, Import, Source, Usage},
};

/// A new session starts after so many rounds, up to [`MOST_SESSIONS`]. None ends:
/// only a further turn puts right what an import overtook.
const ROUNDS_PER_SESSION: usize = 8;

/// With more, a round, and so the wait for a pause, would get long.
const MOST_SESSIONS: usize = 12;

/// Long enough for an import to fall between two writes, short enough for many
/// turns in a few seconds.
const BREATH: Duration = Duration::from_millis(2);

/// What is known of the writer's work, at a pause and at its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    /// The number of messages of each session, by stem.
    pub messages: BTreeMap<String, usize>,
}

/// How the application keeps its transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Generation 4: the whole file is written anew at each turn, so it is
    /// empty for a moment.
    Gen4,
    /// Generation 5: lines are appended, a refreshed header after each turn.
    Gen5,
}

/// The message with this number, from 0, as the application's reader gives it
/// and as it mirrors it into the store.
#[must_use]
pub fn message(stem: &str, number: usize) -> Value {
    // Longer lines, and characters of several bytes, are torn more easily.
    let content = format!("tick {number}\n{stem} {}", "✓".repeat(60));
    let id = format!("m{number}");
    if is_answer(number) {
        json!({
            "id": id,
            "role": "assistant",
            "content": content,
            "extra_metadata": {
                "openhuman_turn_usage": {
                    "provider": "local",
                    "model": "small",
                    "usage": usage(),
                    "ts": stamp(number),
                    "tool_calls": [],
                    "iteration": 1,
                },
            },
        })
    } else {
        json!({ "id": id, "role": "user", "content": content })
    }
}

/// The same message as a line of the transcript.
fn line(mode: Mode, stem: &str, number: usize) -> String {
    let mut line = message(stem, number);
    if is_answer(number) {
        // What the reader makes the metadata of stands beside the message.
        if let Some(fields) = line.as_object_mut() {
            fields.remove("extra_metadata");
        }
        line["provider"] = json!("local");
        line["model"] = json!("small");
        line["usage"] = usage();
        line["ts"] = json!(stamp(number));
        line["iteration"] = json!(1);
    }
    if mode == Mode::Gen5 {
        line["request_id"] = json!(format!("r{}", number / 2));
    }
    format!("{line}\n")
}

fn is_answer(number: usize) -> bool {
    number % 2 == 1
}

fn usage() -> Value {
    json!({ "input": 10, "output": 5, "cached_input": 2, "context_window": 8192, "cost_usd": 0.25 })
}

fn stamp(number: usize) -> String {
    let (minute, second) = (number / 60, number % 60);
    let (hour, minute) = (minute / 60 % 24, minute % 60);
    format!("2026-08-01T{hour:02}:{minute:02}:{second:02}Z")
}

/// A session in the writer's hands.
struct Session {
    stem: String,
    parent: Option<String>,
    agent: &'static str,
    messages: usize,
}

impl Session {
    fn turns(&self) -> u64 {
        self.messages as u64 / 2
    }

    fn cost(&self) -> f64 {
        // A multiple of a quarter: exact, however it is added up.
        0.25 * self.turns() as f64
    }

    fn thread(&self) -> String {
        format!("thread-{}", self.stem)
    }

    fn updated(&self) -> String {
        stamp(self.messages.saturating_sub(1))
    }

    fn stream(&self) -> String {
        format!("session.{}.messages", self.stem)
    }

    fn transcript(&self) -> String {
        format!("session_raw/{}.jsonl", self.stem)
    }

    fn header(&self, mode: Mode) -> String {
        let mut meta = json!({
            "agent": self.agent,
            "agent_id": self.agent,
            "agent_type": "chat",
            "provider": "local",
            "model": "small",
            "dispatcher": "native",
            "created": stamp(0),
            "updated": self.updated(),
            "turn_count": self.turns(),
            "input_tokens": 10 * self.turns(),
            "output_tokens": 5 * self.turns(),
            "cached_input_tokens": 2 * self.turns(),
            "charged_amount_usd": self.cost(),
            "thread_id": self.thread(),
        });
        if mode == Mode::Gen5 {
            meta["version"] = json!(1);
        }
        format!("{}\n", json!({ "_meta": meta }))
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            session_key: self.stem.clone(),
            parent_session_key: self.parent.clone(),
            thread_id: self.thread(),
            thread_id_synthesized: false,
            task_id: None,
            run_ids: Vec::new(),
            stream: self.stream(),
            dispatcher: "native".into(),
            agent_name: self.agent.into(),
            agent_id: Some(self.agent.into()),
            agent_type: Some("chat".into()),
            provider: Some("local".into()),
            model: Some("small".into()),
            created: stamp(0),
            updated: self.updated(),
            turn_count: self.turns(),
            usage: Usage {
                input: 10 * self.turns(),
                output: 5 * self.turns(),
                cached_input: 2 * self.turns(),
                cost_usd: self.cost(),
            },
            source: Source {
                jsonl: Some(self.transcript()),
                md: None,
            },
            import: Import {
                version: 1,
                imported_at: self.updated(),
                warnings: 0,
            },
        }
    }
}

/// Pauses that another process asks for, through files in a folder: while
/// `pause` is there the writer waits, between two rounds, and `paused` says
/// what it has written so far. If it then finds `stop`, it ends.
pub struct Pause {
    dir: PathBuf,
}

impl Pause {
    /// Handshakes through files in `dir`, which must exist and not be in the
    /// workspace.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The file whose presence asks for a pause.
    #[must_use]
    pub fn asked(&self) -> PathBuf {
        self.dir.join("pause")
    }

    /// The file whose presence says that the writer waits: a [`Written`].
    #[must_use]
    pub fn answered(&self) -> PathBuf {
        self.dir.join("paused")
    }

    /// The file whose presence, in a pause, ends the writer.
    #[must_use]
    pub fn stop(&self) -> PathBuf {
        self.dir.join("stop")
    }

    /// Waits as long as a pause is asked for; whether to go on after it.
    fn wait(&self, written: &Written) -> Result<bool, Box<dyn Error>> {
        if !self.asked().exists() {
            return Ok(true);
        }
        let half = self.dir.join("paused.half");
        fs::write(&half, serde_json::to_vec(written)?)?;
        fs::rename(half, self.answered())?;
        while self.asked().exists() {
            if self.stop().exists() {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(self.answered())?;
        Ok(true)
    }
}

/// The application: a workspace and the sessions that are being held in it.
pub struct Writer {
    workspace: PathBuf,
    store: V2,
    mode: Mode,
    sessions: Vec<Session>,
    rounds: usize,
    written: Written,
}

impl Writer {
    /// Starts in this workspace, which is created.
    ///
    /// # Errors
    ///
    /// When the workspace's folders cannot be made.
    pub fn new(workspace: &Path, mode: Mode) -> io::Result<Self> {
        fs::create_dir_all(workspace.join("session_raw"))?;
        Ok(Self {
            workspace: workspace.to_owned(),
            store: V2::open(&workspace.join("tinyagents_store"))?,
            mode,
            sessions: first_sessions(),
            rounds: 0,
            written: Written {
                messages: BTreeMap::new(),
            },
        })
    }

    /// Holds sessions until the time is over, or a pause ends in a stop; at least
    /// one turn in each.
    ///
    /// # Errors
    ///
    /// Any error in writing, be it of the file system or of `tinyagents`: the
    /// importer must not make the application fail.
    pub fn work(
        mut self,
        time: Duration,
        pause: Option<&Pause>,
    ) -> Result<Written, Box<dyn Error>> {
        let end = Instant::now() + time;
        loop {
            self.round()?;
            let go_on = match pause {
                Some(pause) => pause.wait(&self.written)?,
                None => true,
            };
            if !go_on || Instant::now() >= end {
                return Ok(self.written);
            }
        }
    }

    /// One turn in each session.
    fn round(&mut self) -> Result<(), Box<dyn Error>> {
        self.rounds += 1;
        let count = self.sessions.len();
        if self.rounds.is_multiple_of(ROUNDS_PER_SESSION) && count < MOST_SESSIONS {
            self.sessions.push(new_session(count, "planner"));
        }
        for session in &mut self.sessions {
            session.messages += 2;
        }
        for session in &self.sessions {
            self.write_transcript(session)?;
            self.mirror(session)?;
            let messages = &mut self.written.messages;
            messages.insert(session.stem.clone(), session.messages);
            thread::sleep(BREATH);
        }
        Ok(())
    }

    /// Writes the last turn, a question and an answer.
    fn write_transcript(&self, session: &Session) -> io::Result<()> {
        let first = session.messages - 2;
        let path = self.workspace.join(session.transcript());
        let lines = |range: std::ops::Range<usize>| {
            range.map(|number| line(self.mode, &session.stem, number))
        };
        match self.mode {
            Mode::Gen4 => {
                let mut text = session.header(self.mode);
                text.extend(lines(0..session.messages));
                fs::write(path, text)
            }
            Mode::Gen5 => {
                let mut file = OpenOptions::new().create(true).append(true).open(path)?;
                if first == 0 {
                    file.write_all(session.header(self.mode).as_bytes())?;
                }
                for line in lines(first..session.messages) {
                    // A reader must be ready for half a line, and for half a
                    // character, so it gets to see them.
                    let (head, tail) = line.as_bytes().split_at(line.len() / 2);
                    file.write_all(head)?;
                    thread::sleep(BREATH / 4);
                    file.write_all(tail)?;
                }
                file.write_all(session.header(self.mode).as_bytes())
            }
        }
    }

    fn mirror(&self, session: &Session) -> Result<(), Box<dyn Error>> {
        let stream = session.stream();
        let file = format!("tinyagents_store/journal/{stream}.jsonl");
        match fs::remove_file(self.workspace.join(file)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        for number in 0..session.messages {
            self.store.append(&stream, message(&session.stem, number))?;
        }
        let descriptor = serde_json::to_value(session.descriptor())?;
        self.store.put("sessions", &session.stem, descriptor)?;
        Ok(())
    }
}

fn new_session(number: usize, agent: &'static str) -> Session {
    Session {
        stem: format!("{}_{agent}", 1_778_700_000 + number),
        parent: None,
        agent,
        messages: 0,
    }
}

/// Three sessions and a sub-agent of the first of them.
fn first_sessions() -> Vec<Session> {
    let root = new_session(0, "orchestrator");
    let child = new_session(3, "researcher");
    let child = Session {
        stem: format!("{}__{}", root.stem, child.stem),
        parent: Some(root.stem.clone()),
        ..child
    };
    vec![
        root,
        new_session(1, "orchestrator"),
        new_session(2, "planner"),
        child,
    ]
}

//! One stem, several files: which of them are one session, which are older
//! copies or views of it, and which are sessions of their own
//! (`openhuman-workspace.md` §6). Files are read only where a stem has more
//! than one; what the stat cache knows of unchanged files is not asked again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::cache::{Role, StatCache};
use super::fingerprint::Fingerprint;
use crate::error::{Error, Result};
use crate::model::diagnostic::{Code, Diagnostic};
use crate::model::interrupt::Interrupt;
use crate::model::key::{SessionKey, Sha256, SourcePath};
use crate::source::input::Input;
use crate::source::openhuman::discover::{Found, Place};
use crate::source::openhuman::{self, Format};

/// The files of one session.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The file that is imported.
    pub(crate) file: Found,
    /// What it is read as.
    pub(crate) format: Format,
    /// Files with the same bytes or with fewer messages, in order.
    pub(crate) older: Vec<Found>,
    /// The Markdown views of it, in path order.
    pub(crate) companions: Vec<Found>,
    /// Rank of its first file among the candidates for the stem.
    rank: usize,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Cluster {
    fn new(candidate: Candidate) -> Self {
        Self {
            rank: candidate.rank,
            format: candidate.format,
            file: candidate.file,
            older: Vec::new(),
            companions: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// The file that is imported, then the others.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Found> {
        std::iter::once(&self.file).chain(&self.older)
    }
}

/// A file of a stem, and what it may be read as.
#[derive(Debug, Clone)]
struct Candidate {
    file: Found,
    format: Format,
    rank: usize,
}

/// Reads what identity needs of files.
pub(crate) struct Identify<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) cache: &'a StatCache,
    pub(crate) interrupt: &'a Interrupt,
}

impl Identify<'_> {
    /// The sessions of all files, by stem and then in the order of §6; and
    /// the Markdown files that are no transcripts.
    #[expect(clippy::vec_box, reason = "see Keyed::cluster")]
    pub(crate) fn clusters(&self, files: Vec<Found>) -> Result<(Vec<Box<Cluster>>, Vec<Found>)> {
        let mut files = files;
        // Stable: within a stem they stay in the order of §6.
        files.sort_by(|a, b| a.stem.cmp(&b.stem));
        let mut files = files.into_iter().peekable();
        let (mut clusters, mut others) = (Vec::new(), Vec::new());
        while let Some(first) = files.next() {
            let stem = Arc::clone(&first.stem);
            let mut of_stem = vec![first];
            of_stem.extend(std::iter::from_fn(|| {
                files.next_if(|file| file.stem == stem)
            }));
            if self.interrupt.is_set() {
                return Err(Error::Interrupted);
            }
            let mut found = match self.remembered(&of_stem) {
                Some(clusters) => clusters,
                None => self.stem(of_stem, &mut others)?,
            };
            found.sort_by_key(|cluster| cluster.rank);
            clusters.extend(found.into_iter().map(Box::new));
        }
        Ok((clusters, others))
    }

    /// What an earlier run found out, if every file of the stem is as it was.
    fn remembered(&self, files: &[Found]) -> Option<Vec<Cluster>> {
        if let [file] = files {
            // One file with one JSONL: nothing to find out.
            if !file.place.is_markdown() {
                return None;
            }
        }
        let mut clusters: Vec<(SessionKey, Cluster)> = Vec::new();
        let roles = files
            .iter()
            .map(|file| self.cache.role(&file.path, file.stat));
        let roles: Vec<&Role> = roles.collect::<Option<_>>()?;
        let all = || files.iter().zip(&roles).enumerate();
        for (rank, (file, role)) in all() {
            if let Role::Source { key, format, .. } = role {
                let candidate = Candidate {
                    file: file.clone(),
                    format: *format,
                    rank,
                };
                clusters.push((key.clone(), Cluster::new(candidate)));
            }
        }
        for (rank, (file, role)) in all() {
            let of = match role {
                Role::Source { .. } => continue,
                Role::NoTranscript => return None,
                Role::OlderCopy { of } | Role::Companion { of } => of,
            };
            let cluster = clusters.iter_mut().find(|(key, _)| key == of);
            let (_, cluster) = cluster?;
            cluster.rank = cluster.rank.min(rank);
            match role {
                Role::OlderCopy { .. } => {
                    cluster.diagnostics.push(older_copy(&file.path));
                    cluster.older.push(file.clone());
                }
                _ => cluster.companions.push(file.clone()),
            }
        }
        Some(clusters.into_iter().map(|(_, cluster)| cluster).collect())
    }

    /// Finds out about one stem.
    fn stem(&self, files: Vec<Found>, others: &mut Vec<Found>) -> Result<Vec<Cluster>> {
        let (mut candidates, mut markdown) = (Vec::new(), Vec::new());
        for (rank, file) in files.into_iter().enumerate() {
            if !file.place.is_markdown() {
                let format = Format::Jsonl;
                candidates.push(Candidate { file, format, rank });
                continue;
            }
            match self.markdown_format(&file) {
                Some(format) => markdown.push(Candidate { file, format, rank }),
                None => others.push(file),
            }
        }
        let mut companions = Vec::new();
        if candidates.is_empty() {
            candidates = markdown;
        } else {
            for view in markdown {
                match self.companion_of(&view, &candidates)? {
                    Some(of) => companions.push((of, view.file)),
                    None => candidates.push(view),
                }
            }
        }
        let mut clusters = self.unite(candidates)?;
        for (of, file) in companions {
            let has = |cluster: &&mut Cluster| cluster.files().any(|file| file.path == of);
            if let Some(cluster) = clusters.iter_mut().find(has) {
                cluster.companions.push(file);
            }
        }
        Ok(clusters)
    }

    /// What a Markdown file is, by its first bytes. One that cannot be read
    /// is taken as a transcript: reading it will say why it fails.
    fn markdown_format(&self, file: &Found) -> Option<Format> {
        match self.cache.role(&file.path, file.stat) {
            Some(Role::NoTranscript) => return None,
            Some(Role::Source { format, .. }) => return Some(*format),
            _ => {}
        }
        match openhuman::markdown_format(&self.workspace.join(file.path.relative())) {
            Ok(format) => format,
            Err(_) => Some(Format::MarkdownLegacy),
        }
    }

    /// The JSONL that a Markdown file is a view of, if it is one.
    fn companion_of(&self, view: &Candidate, jsonl: &[Candidate]) -> Result<Option<SourcePath>> {
        let is_numbered = !has_unix_time(&view.file.stem);
        if view.format == Format::MarkdownRendered {
            if !is_numbered {
                return Ok(jsonl.first().map(|first| first.file.path.clone()));
            }
            // Numbered stems start anew each day: a view belongs to the
            // transcript of its own day.
            let day = day_of(&view.file.place);
            for candidate in jsonl {
                let same_day = match day_of(&candidate.file.place) {
                    Some(of) => Some(of) == day,
                    None => day.is_some_and(|day| self.was_alive_on(candidate, day)),
                };
                if same_day {
                    return Ok(Some(candidate.file.path.clone()));
                }
            }
            if day.is_some() {
                return Ok(None);
            }
        }
        // Legacy Markdown (or a view in a folder without a date) is a view
        // where its messages are the first of the transcript's.
        let Some(print) = self.fingerprint(view, &[])? else {
            return Ok(None);
        };
        for candidate in jsonl {
            let marks = [print.count()];
            let longer = self.fingerprint(candidate, &marks)?;
            if longer.is_some_and(|longer| longer.first(print.count()) == Some(print.whole())) {
                return Ok(Some(candidate.file.path.clone()));
            }
        }
        Ok(None)
    }

    /// Whether a transcript's header has that day between start and end.
    fn was_alive_on(&self, candidate: &Candidate, day: Day) -> bool {
        let reading = self.read(candidate, &mut Fingerprint::default());
        reading.is_ok_and(|(reading, _)| {
            let header = reading.header;
            [header.created, header.updated]
                .iter()
                .any(|time| Day::of_rfc3339(time) == Some(day))
        })
    }

    /// Unites files with the same bytes, and for stems with a Unix time those
    /// whose messages are the first of another's.
    fn unite(&self, candidates: Vec<Candidate>) -> Result<Vec<Cluster>> {
        if candidates.len() < 2 {
            return Ok(candidates.into_iter().map(Cluster::new).collect());
        }
        let mut clusters = self.unite_same_bytes(candidates);
        let by_messages = clusters
            .first()
            .is_some_and(|first| clusters.len() > 1 && has_unix_time(&first.file.stem));
        if !by_messages {
            return Ok(clusters);
        }
        let mut prints = Vec::new();
        for cluster in &clusters {
            prints.push(self.fingerprint(&cluster.candidate(), &[])?);
        }
        let counts: Vec<u64> = prints.iter().flatten().map(Fingerprint::count).collect();
        let mut measured = Vec::new();
        for (cluster, print) in clusters.drain(..).zip(prints) {
            let marked = match print {
                Some(_) => self.fingerprint(&cluster.candidate(), &counts)?,
                None => None,
            };
            measured.push((cluster, marked));
        }
        let count = |print: &Option<Fingerprint>| print.as_ref().map(Fingerprint::count);
        measured.sort_by_key(|(cluster, print)| (Reverse(count(print)), cluster.rank));
        let mut united: Vec<(Cluster, Option<Fingerprint>)> = Vec::new();
        for (cluster, print) in measured {
            let longer = united.iter_mut().find(|(_, longer)| {
                let (Some(print), Some(longer)) = (&print, longer) else {
                    return false;
                };
                longer.first(print.count()) == Some(print.whole())
            });
            match longer {
                Some((longer, _)) => longer.swallow(cluster),
                None => united.push((cluster, print)),
            }
        }
        Ok(united.into_iter().map(|(cluster, _)| cluster).collect())
    }

    fn unite_same_bytes(&self, candidates: Vec<Candidate>) -> Vec<Cluster> {
        let mut sizes: BTreeMap<Option<u64>, usize> = BTreeMap::new();
        let size = |candidate: &Candidate| candidate.file.stat.map(|stat| stat.size);
        for candidate in &candidates {
            *sizes.entry(size(candidate)).or_default() += 1;
        }
        let mut clusters: Vec<(Option<Sha256>, Cluster)> = Vec::new();
        for candidate in candidates {
            let has_rival = sizes.get(&size(&candidate)).is_some_and(|count| *count > 1);
            let hash = has_rival.then(|| self.hash(&candidate.file).ok()).flatten();
            let twin = clusters.iter_mut();
            let twin = hash.and_then(|_| twin.into_iter().find(|(other, _)| *other == hash));
            let cluster = Cluster::new(candidate);
            match twin {
                Some((_, twin)) => twin.swallow(cluster),
                None => clusters.push((hash, cluster)),
            }
        }
        clusters.into_iter().map(|(_, cluster)| cluster).collect()
    }

    /// The hash of a file's bytes.
    pub(crate) fn hash(&self, file: &Found) -> Result<Sha256> {
        let path = self.workspace.join(file.path.relative());
        let input = Input::open(&path, self.interrupt, &|_| ())?;
        input.hash()
    }

    /// A fingerprint of a file's messages; `None` for one that cannot be read.
    fn fingerprint(&self, candidate: &Candidate, marks: &[u64]) -> Result<Option<Fingerprint>> {
        let mut print = Fingerprint::with_marks(marks.iter().copied());
        match self.read(candidate, &mut print) {
            Ok(_) => Ok(Some(print)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(_) => Ok(None),
        }
    }

    /// The fingerprint of a cluster's file with marks at these counts.
    pub(crate) fn fingerprint_of(
        &self,
        cluster: &Cluster,
        marks: &[u64],
    ) -> Result<Option<Fingerprint>> {
        self.fingerprint(&cluster.candidate(), marks)
    }

    fn read(
        &self,
        candidate: &Candidate,
        print: &mut Fingerprint,
    ) -> Result<(crate::model::session::Reading, Sha256)> {
        let path = self.workspace.join(candidate.file.path.relative());
        let input = Input::open(&path, self.interrupt, &|_| ())?;
        openhuman::read(candidate.format, &input, None, print)
    }
}

impl Cluster {
    fn candidate(&self) -> Candidate {
        Candidate {
            file: self.file.clone(),
            format: self.format,
            rank: self.rank,
        }
    }

    /// Takes over another cluster as older copies.
    fn swallow(&mut self, other: Self) {
        self.rank = self.rank.min(other.rank);
        self.companions.extend(other.companions);
        for file in std::iter::once(other.file).chain(other.older) {
            self.diagnostics.push(older_copy(&file.path));
            self.older.push(file);
        }
    }
}

fn older_copy(path: &SourcePath) -> Diagnostic {
    let message = format!("{path} is an older copy of this session and was not imported");
    Diagnostic::new(Code::OlderCopy, message)
}

/// Whether a stem's own part begins with a Unix time: at least nine digits,
/// so that an agent called `2024` is not taken for one.
pub(crate) fn has_unix_time(stem: &str) -> bool {
    let own = stem.rsplit_once("__").map_or(stem, |(_, own)| own);
    let digits = own.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 9 && own.as_bytes().get(digits) == Some(&b'_')
}

/// A calendar day: year, month, day, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Day([u8; 8]);

impl Day {
    fn new(year: &str, month: &str, day: &str) -> Option<Self> {
        let text = [year, month, day].concat();
        let digits: [u8; 8] = text.as_bytes().try_into().ok()?;
        digits
            .iter()
            .all(u8::is_ascii_digit)
            .then_some(Self(digits))
    }

    fn of_rfc3339(time: &str) -> Option<Self> {
        Self::new(time.get(0..4)?, time.get(5..7)?, time.get(8..10)?)
    }
}

/// The day in a folder's name: `YYYY_MM_DD`, or the older `DDMMYYYY`.
pub(super) fn day_of(place: &Place) -> Option<Day> {
    let name = match place {
        Place::Date(name) | Place::Markdown(name) | Place::LooseMarkdown(name) => name,
        Place::Flat | Place::Profile(_) => return None,
    };
    match name.len() {
        8 => Day::new(name.get(4..8)?, name.get(2..4)?, name.get(0..2)?),
        10 if name.get(4..5) == Some("_") && name.get(7..8) == Some("_") => Day::of_rfc3339(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_stems_have_no_unix_time() {
        assert!(has_unix_time("1777000000_planner"));
        assert!(has_unix_time("main_0__1777000000_planner"));
        assert!(!has_unix_time("main_0"));
        assert!(!has_unix_time("2024_0"));
        assert!(!has_unix_time("1777000000"));
    }

    #[test]
    fn folders_name_their_day_in_two_ways() {
        let date = day_of(&Place::Date("02042026".into()));
        assert_eq!(date, day_of(&Place::Markdown("2026_04_02".into())));
        assert_eq!(date, Day::of_rfc3339("2026-04-02T10:00:00Z"));
        assert_eq!(day_of(&Place::Markdown("notes".into())), None);
    }
}

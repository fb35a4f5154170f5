//! Mutations that know of lines and of JSON, beside libFuzzer's own: most of
//! those break a record's syntax, and never get behind it.

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// What a target can make anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    File,
    Line,
    FirstLine,
    /// What stands between two of JSON's delimiters.
    Value,
}

/// Makes something anew.
pub(crate) type Make<'m> = &'m dyn Fn(Fresh, &mut TestRunner) -> Vec<u8>;

/// What a strategy gives.
pub(crate) fn one(strategy: &impl Strategy<Value = Vec<u8>>, runner: &mut TestRunner) -> Vec<u8> {
    strategy
        .new_tree(runner)
        .map(|tree| tree.current())
        .unwrap_or_default()
}

/// Changes `bytes[..size]`, and gives the new size.
pub(crate) fn mutate(
    bytes: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    tokens: &[&str],
    make: Make<'_>,
) -> usize {
    let mut dice = Dice::new(seed);
    if dice.below(5) < 2 {
        return libfuzzer_sys::fuzzer_mutate(bytes, size, max_size);
    }
    let mut rng = [0; 16];
    rng[..4].copy_from_slice(&seed.to_le_bytes());
    // A generator of zeros gives nothing else.
    rng[15] = 1;
    let rng = TestRng::from_seed(RngAlgorithm::XorShift, &rng);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut file = bytes[..size].to_vec();
    for _ in 0..=dice.below(3) {
        change(&mut file, &mut dice, &mut runner, tokens, make);
    }
    file.truncate(max_size);
    bytes[..file.len()].copy_from_slice(&file);
    file.len()
}

fn change(
    file: &mut Vec<u8>,
    dice: &mut Dice,
    runner: &mut TestRunner,
    tokens: &[&str],
    make: Make<'_>,
) {
    match dice.below(16) {
        0 => *file = make(Fresh::File, runner),
        kind @ 1..=7 => {
            let mut lines: Vec<Vec<u8>> = file
                .split(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            let (at, other) = (dice.below(lines.len()), dice.below(lines.len()));
            match kind {
                1 | 2 => lines.insert(at, make(Fresh::Line, runner)),
                3 => lines[at] = make(Fresh::Line, runner),
                4 => lines[0] = make(Fresh::FirstLine, runner),
                5 => drop(lines.remove(at)),
                6 => lines.insert(at, lines[other].clone()),
                _ => lines.swap(at, other),
            }
            *file = lines.join(&b'\n');
        }
        // A value in place of another one; its own kind is anybody's guess.
        8..=10 => {
            let (from, to) = span(file, dice);
            let value = make(Fresh::Value, runner);
            file.splice(from..to, value);
        }
        11 | 12 => {
            let (from, to) = span(file, dice);
            let token = tokens[dice.below(tokens.len())];
            file.splice(from..to, token.bytes());
        }
        // One member more.
        13 => {
            let (_, at) = span(file, dice);
            let token = tokens[dice.below(tokens.len())];
            file.splice(at..at, format!(",{token}").into_bytes());
        }
        14 => {
            let at = dice.below(file.len() + 1);
            let token = tokens[dice.below(tokens.len())];
            file.splice(at..at, token.bytes());
        }
        // A member or an element again, somewhere else.
        _ => {
            let (from, to) = span(file, dice);
            let copy = file[from..to].to_vec();
            let (_, at) = span(file, dice);
            file.splice(at..at, [b",", &copy[..]].concat());
        }
    }
}

/// From behind one of JSON's delimiters to before a later one, mostly the next.
fn span(file: &[u8], dice: &mut Dice) -> (usize, usize) {
    let is_delimiter = |byte: &u8| b"{}[],:\n".contains(byte);
    let somewhere = dice.below(file.len() + 1);
    let from = file[somewhere..].iter().position(is_delimiter);
    let from = from.map_or(somewhere, |found| somewhere + found + 1);
    let mut to = from;
    loop {
        let next = file[to..].iter().position(is_delimiter);
        to = next.map_or(file.len(), |found| to + found);
        if to >= file.len() || dice.below(4) > 0 {
            return (from, to);
        }
        to += 1;
    }
}

/// Pseudo-random numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: u32) -> Self {
        let mut dice = Self(u64::from(seed) << 1 | 1);
        for _ in 0..8 {
            dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 16) % limit.max(1) as u64) as usize
    }
}

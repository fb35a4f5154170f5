//! See `session_import_fuzz::markdown_rendered`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use session_import_fuzz::markdown_rendered::{check, mutate};

fuzz_target!(|bytes: &[u8]| check(bytes));

fuzz_mutator!(
    |bytes: &mut [u8], size: usize, max_size: usize, seed: u32| {
        mutate(bytes, size, max_size, seed)
    }
);

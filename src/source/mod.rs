//! Where conversations come from. A source knows nothing of the store.

pub(crate) mod input;
pub(crate) mod json;
pub mod openhuman;

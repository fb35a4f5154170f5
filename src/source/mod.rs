//! Where conversations come from. A source knows nothing of the store.

pub mod openhuman;

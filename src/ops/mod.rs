//! One verb each.

pub mod accept;
pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod import;
pub(crate) mod quick;
pub mod run;
pub mod undo;
pub(crate) mod workspace;

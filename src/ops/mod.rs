//! One verb each.

pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod import;
pub(crate) mod quick;
pub mod run;
pub mod verify;
pub(crate) mod workspace;

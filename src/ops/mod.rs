//! One verb each.

pub mod accept;
pub(crate) mod batch;
pub(crate) mod begin;
pub(crate) mod compare;
pub(crate) mod import;
pub(crate) mod mend;
pub(crate) mod options;
pub(crate) mod quick;
pub mod run;
pub(crate) mod settle;
pub mod status;
pub mod undo;
pub mod verify;
pub(crate) mod wave;
pub(crate) mod workspace;

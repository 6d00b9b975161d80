//! One file a verb. Each resolves what it needs, does the work, and returns the process's exit code.

pub mod daemon;
pub mod eval;
pub mod forward;
pub mod keys;
pub mod reach;
pub mod run;
pub mod sandbox;
pub mod serve;
pub mod stored;
pub mod view;

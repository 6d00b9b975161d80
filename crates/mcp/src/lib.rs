//! Sandboxes as tools of the Model Context Protocol: agents create sandboxes, run code and commands in them, and use their files. It is a
//! client of the public API, with the rights of one API key.
//!
//! [`answer`] answers one request, and knows nothing of how messages travel. [`serve`] has them on lines of a pipe, as programs that are
//! started by an agent do.
#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod call;
mod content;
mod message;
mod running;
mod serve;
mod tools;

pub use answer::answer;
pub use message::{INVALID_REQUEST, Message, PARSE_ERROR, failure};
pub use serve::serve;

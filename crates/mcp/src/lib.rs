//! Sandboxes as tools of the Model Context Protocol: agents create sandboxes, run code and commands in them, and use their files. It is a
//! client of the public API, with the rights of one API key.
//!
//! [`answer`] answers one request, and knows nothing of how messages travel. [`serve`] has them on lines of a pipe, as programs that are
//! started by an agent do. [`Sessions`] are for clients that send each request by itself, over HTTP.
#![forbid(unsafe_code)]

mod answer;
mod arguments;
mod call;
mod content;
mod event;
mod message;
mod replies;
mod running;
mod serve;
mod sessions;
mod tools;

pub use answer::{answer, is_version};
pub use message::{CANCELLED, INVALID_REQUEST, Message, failure};
pub use replies::{Event, Reader};
pub use serve::serve;
pub use sessions::{Busy, Session, Sessions};

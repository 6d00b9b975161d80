//! Templates: the base systems and layers that come with Sandcove, and how they are built.
//!
//! A layer is a plain directory tree whose files carry the ids they have inside a sandbox. It is stored under a name that
//! contains a digest of everything it is made from, so a layer that exists is right, and one whose recipe changed is a
//! new layer. Nothing here runs a container: steps inside a layer go through the caller's [`StepRunner`].
#![forbid(unsafe_code)]

mod archive;
mod bootstrap;
mod builder;
mod builtin;
mod certificates;
pub mod contained;
mod error;
pub mod lines;
mod recipe;
mod step;
mod store;

pub use builder::{Builder, Event, Sources};
pub use builtin::{Languages, Template, templates};
pub use certificates::HostCertificates;
pub use error::{Error, Result};
pub use recipe::{File, Layer, LayerId, Origin, Recipe};
pub use step::{StepRoot, StepRunner};
pub use store::LayerStore;

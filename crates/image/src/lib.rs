//! Templates: the base systems and layers that come with Sandcove, and how they are built.
//!
//! A layer is a plain directory tree whose files carry the ids they have inside a sandbox. It is stored under a name that
//! contains a digest of everything it is made from, so a layer that exists is right, and one whose recipe changed is a
//! new layer. Steps inside a layer go through the caller's [`StepRunner`]; [`ChrootRunner`] is the one for our own scripts.
//! [`oci`] imports images of registries as layers. [`files`] reads and changes files of volumes without following a path out of them.
#![forbid(unsafe_code)]

mod archive;
mod bootstrap;
mod builder;
mod builtin;
mod certificates;
mod chroot;
mod contained;
mod error;
pub mod files;
mod lines;
pub mod oci;
mod recipe;
mod step;
mod store;

pub use builder::{Builder, Event, Sources};
pub use builtin::{Languages, Template, templates};
pub use certificates::HostCertificates;
pub use chroot::ChrootRunner;
pub use error::{Error, Result};
pub use recipe::{File, Layer, LayerId, Origin, Recipe};
pub use step::{StepRoot, StepRunner};
pub use store::{LayerStore, Lease};

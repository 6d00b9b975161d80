//! Messages of the in-sandbox daemon's RPC services, generated from `proto/` by `cargo xtask codegen`.

mod timestamp;

pub use timestamp::Timestamp;

/// Messages of the service `process.Process` (contract: envd, section 2).
#[allow(missing_docs, clippy::all, clippy::wildcard_imports, rust_2018_idioms)]
pub mod process {
    include!("process.rs");
    include!("process.serde.rs");
}

/// Messages of the service `filesystem.Filesystem` (contract: envd, section 3).
#[allow(missing_docs, clippy::all, clippy::wildcard_imports, rust_2018_idioms)]
pub mod filesystem {
    include!("filesystem.rs");
    include!("filesystem.serde.rs");
}

//! Development chores. `cargo xtask codegen` writes the envd message types from `crates/wire/proto`; `cargo xtask check-deps` checks
//! the directions of imports between crates and between the rooms of a crate, that no two types of a crate share a name, and dependencies
//! against `deny.toml`; `cargo xtask rooms [crate]` prints rooms and imports; `cargo xtask sbom` prints the bill of materials; `cargo xtask words` checks texts. The tests of this crate check the documentation.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

mod codegen;
mod deps;
mod licenses;
mod links;
mod names;
mod rooms;
mod sbom;
mod spec;
mod words;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::write(root, &root.join("crates/wire/src/envd")),
        Some("codegen-check") => codegen::check(root),
        Some("check-deps") => {
            deps::check(root)?;
            rooms::check(root)?;
            names::check(root)?;
            licenses::check(root)
        }
        Some("sbom") => sbom::print(root),
        Some("words") => words::check(root),
        Some("rooms") => rooms::print(root, std::env::args().nth(2).as_deref()),
        other => {
            bail!("unknown chore {other:?}: use codegen, codegen-check, check-deps, sbom, words or rooms")
        }
    }
}

fn proto_dir(root: &Path) -> PathBuf {
    root.join("crates/wire/proto")
}

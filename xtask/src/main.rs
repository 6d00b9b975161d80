//! Development chores. `cargo xtask codegen` writes the envd message types from `crates/wire/proto`; `cargo xtask check-deps` checks
//! the directions of imports, and dependencies against `deny.toml`. The tests of this crate check the documentation.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

mod codegen;
mod deps;
mod licenses;
mod links;
mod spec;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::write(root, &root.join("crates/wire/src/envd")),
        Some("codegen-check") => codegen::check(root),
        Some("check-deps") => deps::check(root).and_then(|()| licenses::check(root)),
        other => bail!("unknown chore {other:?}: use codegen, codegen-check or check-deps"),
    }
}

fn proto_dir(root: &Path) -> PathBuf {
    root.join("crates/wire/proto")
}

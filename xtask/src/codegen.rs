//! Message types from the `.proto` files, with proto3 JSON mapping. They are checked in, so that a build needs no code
//! generator.

use std::path::Path;

use anyhow::{Context, Result, bail};

const PACKAGES: [&str; 2] = ["process", "filesystem"];

pub fn write(root: &Path, out: &Path) -> Result<()> {
    let protos = crate::proto_dir(root);
    let files = protox::compile(PACKAGES.map(|p| protos.join(format!("{p}.proto"))), [&protos])?;
    std::fs::create_dir_all(out)?;

    prost_build::Config::new()
        .out_dir(out)
        .bytes(["."])
        .btree_map(["."])
        .compile_well_known_types()
        .extern_path(".google.protobuf.Timestamp", "crate::envd::Timestamp")
        .compile_fds(files.clone())?;
    let mut json = pbjson_build::Builder::new();
    for file in &files.file {
        json.register_file_descriptor(file.clone());
    }
    json.btree_map(["."]).ignore_unknown_fields().out_dir(out).build(&PACKAGES.map(|p| format!(".{p}")))?;
    Ok(())
}

pub fn check(root: &Path) -> Result<()> {
    let fresh = std::env::temp_dir().join(format!("sandcove-codegen-{}", std::process::id()));
    write(root, &fresh)?;
    let kept = root.join("crates/wire/src/envd");
    for package in PACKAGES {
        for name in [format!("{package}.rs"), format!("{package}.serde.rs")] {
            let (a, b) = (fresh.join(&name), kept.join(&name));
            if std::fs::read(&a).with_context(|| format!("{}", a.display()))? != std::fs::read(&b)? {
                bail!("{} is stale: run `cargo xtask codegen`", b.display());
            }
        }
    }
    std::fs::remove_dir_all(fresh)?;
    Ok(())
}

//! Embeds the programs that run inside sandboxes: the files of `SANDCOVE_GUEST_DIR`, or of `target/guest-bin` in the
//! workspace. Without them the command still builds, and says at run time what is missing.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=SANDCOVE_GUEST_DIR");
    let directory = std::env::var_os("SANDCOVE_GUEST_DIR")
        .map_or_else(|| Path::new(&env("CARGO_MANIFEST_DIR")).join("../../target/guest-bin"), PathBuf::from);
    let mut files = Vec::new();
    if directory.is_dir() {
        collect(&directory, &directory, &mut files);
    }
    files.sort();
    // Files and not their directories: what Python caches there is no reason to build again. When the set of files changes,
    // all of them are written anew.
    for (_, path) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    if files.is_empty() {
        println!("cargo::rerun-if-changed={}", directory.display());
        println!("cargo::warning=no in-sandbox programs in {}: run `make build`", directory.display());
    }

    let mut source = String::from("static FILES: &[File] = &[\n");
    for (name, path) in &files {
        // Only programs are executable; they are the files at the top.
        let executable = !name.contains('/');
        let _ = writeln!(
            source,
            "    File {{ name: {name:?}, executable: {executable}, contents: include_bytes!({:?}) }},",
            path.display().to_string()
        );
    }
    source.push_str("];\n");
    let out = Path::new(&env("OUT_DIR")).join("guest_files.rs");
    if let Err(error) = std::fs::write(&out, source) {
        panic!("failed to write `{}`: {error}", out.display());
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, PathBuf)>) {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("failed to read `{}`: {error}", directory.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "__pycache__" && name != "tests") {
                collect(root, &path, files);
            }
        } else if let Ok(name) = path.strip_prefix(root) {
            let path = path.canonicalize().unwrap_or(path.clone());
            files.push((name.display().to_string(), path));
        }
    }
}

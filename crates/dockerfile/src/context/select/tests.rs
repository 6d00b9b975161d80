use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::plan::{Origin, Unpack};

fn copy(destination: &str) -> Copy {
    Copy {
        from: Origin::Context,
        sources: Vec::new(),
        destination: destination.to_owned(),
        owner: None,
        mode: None,
        exclude: Vec::new(),
        parents: false,
        unpack: Unpack::Never,
        checksum: None,
    }
}

fn files(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, name).unwrap();
    }
    dir
}

fn context(dir: &tempfile::TempDir, ignored: &[&str]) -> Context {
    Context::new(dir.path(), Ignore::new(ignored.iter().copied()).unwrap()).unwrap()
}

fn paths(selection: &Selection) -> Vec<&str> {
    selection.entries.iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn files_and_directories_keep_their_paths() {
    let dir = files(&["a.txt", "d/b", "d/e/c"]);
    let context = context(&dir, &[]);
    for (source, expected) in [
        ("a.txt", vec!["a.txt"]),
        ("/a.txt", vec!["a.txt"]),
        ("../a.txt", vec!["a.txt"]),
        ("d/", vec!["d", "d/b", "d/e", "d/e/c"]),
        ("./d/e", vec!["d/e", "d/e/c"]),
        (".", vec![".", "a.txt", "d", "d/b", "d/e", "d/e/c"]),
        ("d/..", vec![".", "a.txt", "d", "d/b", "d/e", "d/e/c"]),
    ] {
        assert_eq!(paths(&context.select(&copy("/x"), source).unwrap()), expected, "{source}");
    }
    let missing = context.select(&copy("/x"), "none").unwrap_err();
    assert!(missing.message.starts_with("no files match `none` in the build context"), "{missing}");
}

#[test]
fn wildcards_flatten_as_in_docker() {
    let dir = files(&["a.json", "b.json", "p/x/package.json", "q/y/package.json", "m1/f", "m2/g/h"]);
    let context = context(&dir, &[]);
    let select = |source: &str, destination: &str| context.select(&copy(destination), source).unwrap();
    let simple = select("*.json", "/x/");
    assert_eq!((simple.source.as_str(), paths(&simple)), ("*.json", vec!["a.json", "b.json"]));
    let one = select("a*.json", "/x.json");
    assert_eq!((one.source.as_str(), one.into_directory), ("a.json", false));
    let nested = select("*/x/package.json", "/x/");
    assert_eq!(
        (nested.source.as_str(), paths(&nested)),
        ("_/x/package.json", vec!["_/x/package.json", "_/x/package.json/package.json"])
    );
    let directories = select("m*", "/x/");
    assert_eq!(paths(&directories), ["m_", "m_/f", "m_/g", "m_/g/h"]);
    let deep = select("**/package.json", "/x/");
    assert_eq!(deep.entries.len(), 2, "the second package.json takes the place of the first");
    assert!(context.select(&copy("/x"), "*.none").is_err());
}

#[test]
fn ignored_files_are_left_out_and_exceptions_kept() {
    let dir = files(&["keep/a", "keep/secret", "drop/a", "drop/b", "f"]);
    let context = context(&dir, &["drop", "!drop/a", "keep/secret"]);
    assert_eq!(paths(&context.select(&copy("/x"), ".").unwrap()), [".", "drop/a", "f", "keep", "keep/a"]);
    assert_eq!(paths(&context.select(&copy("/x"), "drop").unwrap()), ["drop/a"]);
    assert!(context.select(&copy("/x"), "keep/secret").is_err());
    let excluding = Copy { exclude: vec!["a".into()], ..copy("/x") };
    assert_eq!(paths(&context.select(&excluding, "keep").unwrap()), ["keep"]);
}

#[test]
fn a_link_is_followed_within_the_context_only() {
    let dir = files(&["d/a", "secret"]);
    symlink("d", dir.path().join("to-d")).unwrap();
    symlink("/secret", dir.path().join("absolute")).unwrap();
    symlink("/etc/passwd", dir.path().join("outside")).unwrap();
    symlink("loop", dir.path().join("loop")).unwrap();
    symlink("../secret", dir.path().join("d/kept")).unwrap();
    let context = context(&dir, &[]);
    let select = |source: &str| context.select(&copy("/x"), source);
    assert_eq!(paths(&select("to-d").unwrap()), ["to-d", "to-d/a", "to-d/kept"]);
    assert!(matches!(select("absolute").unwrap().entries[0].content, Content::File { .. }));
    assert!(select("outside").is_err() && select("loop").is_err());
    let below = select("d").unwrap();
    assert_eq!(below.entries[2].content, Content::Link("../secret".into()));
}

#[test]
fn parents_are_kept_below_the_pivot() {
    let dir = files(&["a/b/c.txt", "a/d.txt"]);
    let context = context(&dir, &[]);
    let parents = Copy { parents: true, ..copy("/x/") };
    let selection = context.select(&parents, "a/**/*.txt").unwrap();
    assert_eq!(
        (selection.source.as_str(), paths(&selection)),
        (".", vec!["a", "a/b", "a/b/c.txt", "a/d.txt"])
    );
    let selection = context.select(&parents, "a/./b/c.txt").unwrap();
    assert_eq!((selection.source.as_str(), paths(&selection)), ("a", vec!["a/b", "a/b/c.txt"]));
}

#[test]
fn symbolic_modes_change_the_entries() {
    let dir = files(&["a"]);
    let context = context(&dir, &[]);
    let mode = |mode: &str| Copy { mode: Some(mode.into()), ..copy("/x") };
    let before = context.select(&copy("/x"), "a").unwrap().entries[0].mode;
    assert_eq!(context.select(&mode("a+x"), "a").unwrap().entries[0].mode, before | 0o111);
    assert_eq!(context.select(&mode("0755"), "a").unwrap().entries[0].mode, before, "the step has it");
}

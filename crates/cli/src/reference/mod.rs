//! The generated pages of `docs/reference`: what they say is read from the code, and a page that differs from it fails the
//! tests. `make reference` writes the pages anew.

mod api;
mod command_line;
mod configuration;
mod json;
mod metrics;

use std::path::{Path, PathBuf};

/// The variable that makes the tests write the pages instead of comparing them.
const UPDATE: &str = "UPDATE_REFERENCE";

/// The options and flags of a command, without positional arguments.
fn options(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().filter(|arg| !arg.is_positional())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = workspace().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares the page `name` with `text`, after writing it if that is asked for.
fn check(name: &str, text: &str) {
    let path = workspace().join("docs/reference").join(name);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let first = written.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        written == text,
        "docs/reference/{name} differs from the code; run `make reference`\nfirst difference: {first:#?}"
    );
}

/// Text for a cell of a table. Outside code spans, `<` would begin a tag.
fn cell(text: &str) -> String {
    let text = text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split('`').enumerate();
    let escaped = parts.map(|(n, part)| if n % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() });
    escaped.collect::<Vec<_>>().join("`")
}

/// A table with one row a line.
fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&header.map(str::to_owned));
    text += &line(&["---"; N].map(str::to_owned));
    for row in rows {
        text += &line(row);
    }
    text
}

#[test]
fn the_reference_has_the_unit_of_packages() {
    let guide = read("docs/operations/install.md");
    let shown = guide.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(shown, read("packaging/sandcove.service"));
}

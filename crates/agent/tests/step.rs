//! `sandcove-agent --step` as the server runs it: one message in, one line out.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use sandcove_agent::account::Accounts;
use sandcove_wire::step::{GuestStep, OPTION, StepOutcome};

fn run(arguments: &[&str]) -> Output {
    // At run time: a variable with a dash does not get through the shell around the compiler.
    let program = std::env::var_os("CARGO_BIN_EXE_sandcove-agent").unwrap();
    Command::new(program).args(arguments).output().unwrap()
}

fn step(step: &GuestStep) -> Result<StepOutcome, String> {
    let [option, message] = step.arguments().unwrap();
    let output = run(&[&option, &message]);
    let error = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        assert_eq!(error, "");
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    assert_eq!(
        (output.status.code(), output.stdout.len(), error.lines().count()),
        (Some(1), 0, 1),
        "{error}"
    );
    Err(error.trim().to_owned())
}

fn user() -> String {
    Accounts::load().unwrap().user_name(rustix::process::geteuid().as_raw())
}

/// An archive with one file, as clients upload it.
fn archive(path: &Path, name: &str, content: &str) {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o640);
    header.set_size(content.len() as u64);
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    fs::write(path, builder.into_inner().unwrap().finish().unwrap()).unwrap();
}

#[test]
fn a_file_is_copied_and_the_archive_is_removed() {
    let base = tempfile::tempdir().unwrap();
    let upload = base.path().join("upload");
    archive(&upload, "a.txt", "content");
    let copy = |source: &str| GuestStep::Copy {
        archive: upload.to_str().unwrap().to_owned(),
        source: source.to_owned(),
        destination: "app/".to_owned(),
        workdir: base.path().to_str().map(str::to_owned),
        user: user(),
        owner: None,
        mode: None,
    };
    assert_eq!(step(&copy("a.txt")), Ok(StepOutcome::default()));
    assert_eq!(fs::read_to_string(base.path().join("app/a.txt")).unwrap(), "content");
    assert!(step(&copy("a.txt")).unwrap_err().starts_with("failed to open"));
    archive(&upload, "a.txt", "content");
    assert!(step(&copy("b.txt")).unwrap_err().contains("no `b.txt`"));
    let left: Vec<_> = fs::read_dir(base.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["app"]);
}

#[test]
fn an_archive_that_is_cut_off_changes_nothing() {
    let base = tempfile::tempdir().unwrap();
    let upload = base.path().join("upload");
    archive(&upload, "a.txt", &"content ".repeat(10_000));
    let whole = fs::metadata(&upload).unwrap().len();
    fs::OpenOptions::new().write(true).open(&upload).unwrap().set_len(whole / 2).unwrap();
    let copy = GuestStep::Copy {
        archive: upload.to_str().unwrap().to_owned(),
        source: "a.txt".to_owned(),
        destination: base.path().join("a.txt").to_str().unwrap().to_owned(),
        workdir: None,
        user: user(),
        owner: None,
        mode: None,
    };
    assert!(step(&copy).unwrap_err().contains("archive"));
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_working_directory_is_created_and_returned() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().canonicalize().unwrap();
    let current = base.to_str().map(str::to_owned);
    let directory = GuestStep::WorkDirectory { path: "./a/../b".to_owned(), current, user: user() };
    let expected = base.join("b").to_str().map(str::to_owned);
    assert_eq!(step(&directory), Ok(StepOutcome { path: expected, ..StepOutcome::default() }));
    assert!(base.join("b").is_dir());
}

#[test]
fn a_malformed_step_is_an_error() {
    for message in ["", "{}", r#"{"type":"unknown"}"#, "\"\n\""] {
        let output = run(&[OPTION, message]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("malformed step") && error.lines().count() == 1, "{error}");
    }
    assert_eq!(run(&[OPTION]).status.code(), Some(2));
    assert_eq!(run(&[OPTION, "{}", "more"]).status.code(), Some(2));
}

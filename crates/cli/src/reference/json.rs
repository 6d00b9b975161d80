//! `--json`: commands that have none, each with the reason.

use clap::{Command, CommandFactory};

use crate::command_line::Cli;

const QUIET: &str = "prints nothing on standard output";
const FILES: &str = "writes files, and prints which";
const STREAM: &str = "standard output is that of a program or a file";
const FOREGROUND: &str = "runs until it is ended";
const REPORTS: &str = "results are in files or reports, whose format other options choose";

/// Commands without `--json`. All others have it, so that scripts may read what they print.
const WITHOUT: [(&str, &str); 43] = [
    ("up", "prints lines for `eval`; `env --json` has the same"),
    ("down", QUIET),
    ("purge", QUIET),
    ("trust", "its output is for people, or a certificate"),
    ("serve", FOREGROUND),
    ("sandbox cp", STREAM),
    ("sandbox cat", STREAM),
    ("sandbox connect", STREAM),
    ("secret rotate-key", QUIET),
    ("secret rotate-signing-key", QUIET),
    ("mcp", FOREGROUND),
    ("config set", QUIET),
    ("config unset", QUIET),
    ("auth login", QUIET),
    ("auth logout", QUIET),
    ("auth configure", QUIET),
    ("completions", "its output is for a shell"),
    ("man", QUIET),
    ("template init", FILES),
    ("template export", STREAM),
    ("generate dataset", FILES),
    ("generate assertions", FILES),
    ("eval", REPORTS),
    ("eval validate", REPORTS),
    ("eval validate config", REPORTS),
    ("eval validate target", REPORTS),
    ("eval rerun", REPORTS),
    ("eval retry", REPORTS),
    ("eval init", FILES),
    ("eval delete", QUIET),
    ("eval export", "prints JSON, or writes a file"),
    ("eval cache clear", "prints a number for people"),
    ("validate", REPORTS),
    ("validate config", REPORTS),
    ("validate target", REPORTS),
    ("redteam init", FILES),
    ("redteam setup", FOREGROUND),
    ("redteam generate", FILES),
    ("redteam run", REPORTS),
    ("redteam eval", REPORTS),
    ("redteam report", REPORTS),
    ("redteam plugins", "its output is for people"),
    ("view", FOREGROUND),
];

/// Adds the commands that do something by themselves, without the name of the program.
fn walk(command: &Command, path: &str, found: &mut Vec<(String, bool)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let path = format!("{path}{}", sub.get_name());
        if !sub.is_subcommand_required_set() {
            let has_json = sub.get_arguments().any(|arg| arg.get_long() == Some("json"));
            found.push((path.clone(), has_json));
        }
        walk(sub, &format!("{path} "), found);
    }
}

#[test]
fn what_a_command_prints_is_json_if_a_script_asks() {
    let mut found = Vec::new();
    walk(&Cli::command(), "", &mut found);
    let excepted = |name: &str| WITHOUT.iter().any(|(known, _)| *known == name);
    let lacking: Vec<_> = found.iter().filter(|(name, json)| !json && !excepted(name)).collect();
    assert!(found.len() > 80 && lacking.is_empty(), "commands without --json: {lacking:?}");
    let stale: Vec<_> = WITHOUT
        .iter()
        .filter(|(name, _)| !found.iter().any(|(known, json)| known == name && !json))
        .collect();
    assert!(stale.is_empty(), "exceptions that are none: {stale:?}");
}

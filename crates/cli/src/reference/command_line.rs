//! `cli.md`: every command and option, from the definitions that parse them.

use clap::{Arg, Command, CommandFactory};

use super::{cell, check, options, table};
use crate::command_line::Cli;

const INTRODUCTION: &str = "\
# Command line

Every command and option of `sandcove`. This page is generated from the program: `sandcove COMMAND --help` prints the same.

Standard output is data, standard error is for people. Every command that uses a server finds it by one rule: flags (`--url`,
`--context`, `--api-key-file`, `--data-dir`) win over the variables `E2B_API_URL`, `E2B_DOMAIN` and `E2B_API_KEY`, these over the selected context, and that over
the server of this machine. [The command line](../guides/command-line.md) has the details.

## Exit statuses

| status | meaning |
| --- | --- |
| 0 | success; of `eval`: every test passed |
| 1 | failure, with a message on standard error |
| 2 | the command line is wrong; of `eval`: there was nothing to run |
| 3 | `status`: no server is running; `redteam run`: nothing was attacked |
| 100 | `eval`: tests failed; `redteam`: a breach |
| 124 | `run`: stopped after `--timeout` |
| 128 + N | `run`, `sandbox exec` and `template build`: ended by signal N |
| other | `run` and `sandbox exec`: the exit status of the code or command |

";

/// The name of an argument as it is typed.
fn name(arg: &Arg) -> String {
    let values = if arg.get_action().takes_values() {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().map(|value| format!(" <{value}>")).collect()
    } else {
        String::new()
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let aliases = arg.get_visible_aliases().unwrap_or_default().into_iter().map(|alias| format!("--{alias}"));
    let names: Vec<String> = short.into_iter().chain(long).chain(aliases).collect();
    match names.is_empty() {
        true => format!("`{}`", values.trim()),
        false => format!("`{}{values}`", names.join(", ")),
    }
}

/// Meaning of an argument, its values and its variable.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    if arg.get_action().takes_values() {
        let values: Vec<_> =
            arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
        if !values.is_empty() {
            let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            text += &format!("; one of {}", names.join(", "));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !defaults.is_empty() {
            text += &format!(" [default: {}]", defaults.join(" "));
        }
    }
    if let Some(variable) = arg.get_env() {
        text += &format!(" [variable: `{}`]", variable.to_string_lossy());
    }
    cell(text.trim_start_matches("; "))
}

fn arguments<'a>(title: &str, of: impl Iterator<Item = &'a Arg>) -> String {
    let rows: Vec<_> = of.filter(|arg| !arg.is_hide_set()).map(|arg| [name(arg), meaning(arg)]).collect();
    if rows.is_empty() { String::new() } else { format!("{}\n", table([title, "meaning"], &rows)) }
}

fn section(command: &Command, path: &str, depth: usize) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().bin_name(path).render_usage().to_string();
    let usage = usage.trim().trim_start_matches("Usage: ");
    let mut text =
        format!("{} {path}\n\n{}\n\n```text\n{usage}\n```\n\n", "#".repeat(depth), sentence(&about));
    text += &arguments("argument", command.get_positionals());
    text += &arguments("option", options(command));
    if let Some(after) = command.get_after_help() {
        text += &format!("{}\n\n", cell(&after.to_string()));
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        text += &section(sub, &format!("{path} {}", sub.get_name()), (depth + 1).min(4));
    }
    text
}

/// A help text as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let rest = letters.as_str();
    let end = if rest.ends_with(['.', ')']) { "" } else { "." };
    format!("{first}{rest}{end}")
}

fn page() -> String {
    let root = Cli::command();
    let mut text = INTRODUCTION.to_owned();
    text += "## Options of every command\n\n";
    text += &arguments("option", options(&root));
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        text += &section(command, &format!("sandcove {}", command.get_name()), 2);
    }
    format!("{}\n", text.trim_end())
}

#[test]
fn the_page_is_what_the_program_parses() {
    check("cli.md", &page());
}

/// Every text of `--help` begins in lowercase and has no full stop at its end.
#[test]
fn help_texts_are_phrases() {
    fn walk(command: &Command, found: &mut Vec<String>) {
        let texts = command.get_arguments().filter_map(Arg::get_help).chain(command.get_about());
        found.extend(texts.map(ToString::to_string));
        command.get_subcommands().for_each(|sub| walk(sub, found));
    }
    let mut found = Vec::new();
    Cli::command().get_subcommands().for_each(|command| walk(command, &mut found));
    let is_phrase = |text: &&String| {
        let is_name =
            text.split_whitespace().next().is_some_and(|word| word.chars().skip(1).any(char::is_uppercase));
        !text.ends_with('.') && (is_name || !text.starts_with(char::is_uppercase))
    };
    let others: Vec<_> =
        found.iter().filter(|text| !is_phrase(text) && !text.starts_with("Debian")).collect();
    assert!(found.len() > 50 && others.is_empty(), "{others:#?}");
}

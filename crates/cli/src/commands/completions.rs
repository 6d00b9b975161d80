//! `sandcove completions` and `sandcove man`: files for shells and for `man`, made from the definitions that parse the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Shells, Zsh};

use crate::output;

/// Variable in which a shell says which shell asks.
const ASKED: &str = "SANDCOVE_COMPLETE";
/// Name of the command.
const NAME: &str = "sandcove";

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "bash: `sandcove completions bash > /etc/bash_completion.d/sandcove`. zsh: into a file `_sandcove` in a directory of \
                  $fpath. fish: into `~/.config/fish/completions/sandcove.fish`."
)]
pub struct CompletionsArgs {
    /// shell that reads the output
    #[arg(value_enum)]
    shell: For,
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

/// Prints what a shell reads to complete lines: it asks the command itself, for each.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let shell: &dyn EnvCompleter = match args.shell {
        For::Bash => &Bash,
        For::Zsh => &Zsh,
        For::Fish => &Fish,
    };
    let mut text = Vec::new();
    shell.write_registration(ASKED, NAME, NAME, NAME, &mut text)?;
    if shell.is("zsh") {
        // A file of $fpath is read at the first Tab, which else would only define what the next ones use.
        text.extend(
            b"if [[ $funcstack[1] = _sandcove ]]; then _clap_dynamic_completer_sandcove \"$@\"; fi\n",
        );
    }
    let _ = output::write(&text);
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that asks how its line can go on, and ends the process then.
pub fn answer(command: fn() -> Command) {
    // Hidden commands are those that the server starts.
    let visible = || {
        let command = command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
        Command::new(NAME).args(command.get_arguments().cloned()).subcommands(shown)
    };
    CompleteEnv::with_factory(visible).var(ASKED).shells(Shells(&[&Bash, &Fish, &Zsh])).complete();
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// directory to write the pages to, such as /usr/local/share/man/man1
    directory: PathBuf,
}

/// Writes a page for the command and for each of its subcommands.
pub fn man(command: Command, args: &ManArgs) -> Result<ExitCode> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command.disable_help_subcommand(true), directory))
        .with_context(|| format!("failed to write to `{}`", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

//! `sandcove completions` and `sandcove man`: files for shells and for `man`, made from the definitions that parse the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::output;

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

/// Prints the completions for a shell.
pub fn completions(command: &Command, args: &CompletionsArgs) -> ExitCode {
    let shell = match args.shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
    };
    // Hidden commands are those that the server starts.
    let mut visible = Command::new("sandcove")
        .args(command.get_arguments().cloned())
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible, "sandcove", &mut text);
    let _ = output::write(&text);
    ExitCode::SUCCESS
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

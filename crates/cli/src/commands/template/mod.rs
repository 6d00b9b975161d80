//! `sandcove template`: templates of a running server, and building them from Dockerfiles.

mod archive;
mod assemble;
mod build;
mod builtin;
mod download;
mod extract;
pub mod image;
mod init;
mod manage;
mod pinned;
mod printer;
mod project;
mod registry;
mod secret;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use sandcove_wire::api::build::RequestedBuild;

use super::candidates;
use super::format::Format;
use super::reach::{Place, Reach};
use crate::output::note;
use crate::signals::Signals;
use archive::{ExportArgs, GcArgs, ImportArgs};
use build::{BuildArgs, CreateArgs};
use init::InitArgs;
use manage::{BuildLogsArgs, DeleteArgs, PublishArgs, TagArgs};

/// Arguments of `template`.
#[derive(Debug, Args)]
pub struct TemplateArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: TemplateCommand,
}

/// Subcommands of `template`.
#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// build a template from a Dockerfile, and print its id
    #[command(
        visible_alias = "bd",
        after_help = "The Dockerfile is the one of --file, or `e2b.Dockerfile` or `Dockerfile` of the directory. CMD and ENTRYPOINT \
                      become the start command unless --cmd is given. `e2b.toml` in the directory gives defaults. The exit status is \
                      1 if a step fails, and 130 after Ctrl-C; the build then continues on the server."
    )]
    Build(BuildArgs),
    /// build a template with the arguments of the E2B CLI
    #[command(alias = "ct", hide = true)]
    Create(CreateArgs),
    /// write a Dockerfile, a .dockerignore and an e2b.toml to start from
    #[command(visible_alias = "it")]
    Init(InitArgs),
    /// list templates
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        format: Format,
    },
    /// show a template with its builds and tags: lines on a terminal, JSON otherwise
    Inspect {
        /// name or id of the template
        #[arg(add = candidates::templates())]
        template: String,
        #[command(flatten)]
        format: Format,
    },
    /// print the log of a build
    Logs(BuildLogsArgs),
    /// delete templates
    #[command(visible_alias = "dl")]
    Delete(DeleteArgs),
    /// let other teams use templates
    #[command(visible_alias = "pb")]
    Publish(PublishArgs),
    /// keep templates from other teams again
    #[command(visible_alias = "upb")]
    Unpublish(PublishArgs),
    /// give tags to a build, or remove them; without tags, list them
    Tag(TagArgs),
    /// write a template to a file, as an OCI image
    #[command(
        after_help = "The archive holds an OCI layout with one layer. `sandcove template import` makes it a template with the same \
                            user, directory, variables and commands; other tools read it as an image. The server reads the files \
                            twice, and sends the first byte when it knows their digest. The exit status is 130 after Ctrl-C, and 141 if \
                            the reader of standard output has gone; no file is left then."
    )]
    Export(ExportArgs),
    /// make a template of an archive, and print its id
    #[command(
        after_help = "The exit status is 1 if the archive cannot be a template, and 130 after Ctrl-C. A build that has begun then continues \
                      on the server; an upload that has not ended leaves nothing there."
    )]
    Import(ImportArgs),
    /// delete what builds have cached and no template needs
    #[command(
        after_help = "Files of cached steps, images that were pulled, layers of deleted templates, and uploads that were not used for an \
                            hour. What a template, a snapshot or a sandbox needs is kept. The next builds run all their steps."
    )]
    Gc(GcArgs),
}

/// Runs the subcommand.
pub async fn template(place: Place, args: TemplateArgs) -> Result<ExitCode> {
    if let TemplateCommand::Init(args) = &args.command {
        return init::init(args);
    }
    let client = args.reach.client(&place)?;
    match args.command {
        TemplateCommand::Build(args) => build::build(&client, args).await,
        TemplateCommand::Create(args) => build::build(&client, args.into()).await,
        TemplateCommand::List { format } => manage::list(&client, format.is_json()).await,
        TemplateCommand::Inspect { template, format } => manage::inspect(&client, &template, format).await,
        TemplateCommand::Logs(args) => manage::logs(&client, args).await,
        TemplateCommand::Delete(args) => manage::delete(&client, args).await,
        TemplateCommand::Publish(args) => manage::set_public(&client, args, true).await,
        TemplateCommand::Unpublish(args) => manage::set_public(&client, args, false).await,
        TemplateCommand::Tag(args) => manage::tag(&client, args).await,
        TemplateCommand::Export(args) => archive::export(&client, args).await,
        TemplateCommand::Import(args) => archive::import(&client, args).await,
        TemplateCommand::Gc(args) => archive::gc(&client, args).await,
        TemplateCommand::Init(_) => unreachable!("handled above"),
    }
}

/// Runs a command until it ends, or until a signal asks it to: then `outcome` says what becomes of it.
async fn interruptible(
    work: impl Future<Output = Result<ExitCode>>,
    outcome: impl FnOnce() -> String,
) -> Result<ExitCode> {
    let mut signals = Signals::catch()?;
    tokio::select! {
        ended = work => ended,
        signal = signals.next() => {
            note!("interrupted: {}", outcome());
            Ok(signal.status().into())
        }
    }
}

/// Describes what becomes of a build whose command is interrupted.
fn continues(build: &RequestedBuild) -> String {
    format!(
        "build {} continues on the server; `sandcove template logs --follow {}` shows its log",
        build.build_id, build.template_id
    )
}

//! The command line: its commands, short forms of them, and hints for what it refuses.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use crate::commands::reach::Reach;
use crate::settings::{DataDir, ServerArgs};
use crate::{bench, commands};

/// Run AI-generated code in sandboxes on your own machines, with unchanged E2B clients.
#[derive(Debug, Parser)]
#[command(name = "sandcove", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub place: DataDir,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// start a server in the background and print the variables that clients need
    Up(ServerArgs),
    /// stop the server that `up` started; sandboxes keep running
    Down {
        /// kill the sandboxes of all teams too, running and paused
        #[arg(long)]
        all: bool,
    },
    /// kill all sandboxes and delete everything that this data directory has on this host
    Purge {
        /// keep the data directory, with what is paused in it: end what is running, and remove everything else
        #[arg(long)]
        keep_data: bool,
        /// do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// write everything that a data directory keeps to a file, beside a server that runs or without one
    Backup(commands::backup::BackupArgs),
    /// fill an empty data directory from a backup
    Restore(commands::restore::RestoreArgs),
    /// show whether a server is running; the exit status is 3 if not
    Status {
        #[command(flatten)]
        reach: Reach,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// print the variables that clients need, key included: eval "$(sandcove env)"
    Env(commands::env::EnvArgs),
    /// have this machine trust the certificates of a server with `--tls local`
    Trust(commands::trust::TrustArgs),
    /// run a server in the foreground
    #[command(alias = "server")]
    Serve(ServerArgs),
    /// run code in a new sandbox and print its output
    Run(commands::run::CodeRunArgs),
    /// create, list, use, watch and kill sandboxes
    #[command(alias = "sbx")]
    Sandbox(commands::sandbox::SandboxArgs),
    /// show what all sandboxes use, live
    Top(commands::top::TopArgs),
    /// take, list and delete snapshots of sandboxes
    Snapshot(commands::snapshot::SnapshotArgs),
    /// create, list and delete volumes, which outlive sandboxes
    Volume(commands::volume::VolumeArgs),
    /// list what happened to sandboxes, newest first
    Events(commands::webhook::EventsArgs),
    /// have events of sandboxes delivered to URLs
    Webhook(commands::webhook::WebhookArgs),
    /// build, list, publish and delete templates
    #[command(alias = "tpl")]
    Template(commands::template::TemplateArgs),
    /// manage the API keys of this machine's server, running or not
    #[command(
        subcommand,
        after_help = "The keys are those of the default team, in the data directory. On a server elsewhere, `sandcove team keys create TEAM NAME --url URL` \
                      creates a key with the admin token: no API key may create another."
    )]
    Keys(commands::keys::KeysCommand),
    /// store values that sandboxes use in requests without having them
    Secret(commands::secret::SecretArgs),
    /// let agents use sandboxes as tools, by the Model Context Protocol on standard input and output
    Mcp(commands::mcp::McpArgs),
    /// manage the teams of a server, with its admin token
    Team(commands::operate::TeamArgs),
    /// show who did what with a server, with its admin token
    Audit(commands::audit::AuditArgs),
    /// show the host of a server, open it for new sandboxes or close it, with the admin token
    Node(commands::operate::NodeArgs),
    /// keep addresses and keys of servers under names, as contexts
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
    /// log in to a server with an API key, and out again
    Auth(commands::config::AuthArgs),
    /// print the completions of commands and options for a shell
    Completions(commands::completions::CompletionsArgs),
    /// write the manual pages of all commands to a directory
    Man(commands::completions::ManArgs),
    /// measure the speed of a server
    Bench(bench::BenchArgs),
    /// evaluate prompts, models and the code they write, from a promptfooconfig.yaml
    #[command(args_override_self = true)]
    Eval(Box<commands::eval::EvalArgs>),
    /// check a promptfooconfig.yaml without running it, or ask its providers for an answer
    #[command(args_override_self = true)]
    Validate(Box<commands::validate::TopLevelArgs>),
    /// have a model propose tests or assertions for a promptfooconfig.yaml
    Generate(commands::generate::GenerateArgs),
    /// attack sandboxes, checks of code before it runs, and models that write code
    #[command(args_override_self = true)]
    Redteam(Box<commands::redteam::RedteamArgs>),
    /// open stored evaluations in a browser
    View(commands::view::ViewArgs),
    /// check whether this host can run sandboxes
    Doctor {
        /// number of the user and group that the server's process is to run as [default: that of the configuration, or 60888]
        #[arg(long, env = "SANDCOVE_SERVER_ACCOUNT", value_name = "ID", value_parser = clap::value_parser!(u32).range(..1_000_000_000))]
        server_account: Option<u32>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// parent of all sandboxes; started by the server
    #[command(name = "__spawner", hide = true)]
    Spawner {
        pool: PathBuf,
        #[arg(required = true)]
        programs: Vec<PathBuf>,
        #[arg(long)]
        criu: Option<PathBuf>,
        #[arg(long)]
        log_refused_calls: bool,
    },
    /// the part of a server that has no privileges; started by the server
    #[command(name = "__server", hide = true)]
    ServerProcess {
        account: u32,
        directory: PathBuf,
        #[arg(long)]
        log_refused_calls: bool,
    },
    /// reads the database for a backup, without privileges; started by `backup`
    #[command(name = "__database", hide = true)]
    Database { account: u32, directory: PathBuf, task: commands::backup::DatabaseTask },
    /// the egress proxies of sandboxes; started by the server
    #[command(name = "__egress", hide = true)]
    EgressProcess {
        account: u32,
        #[arg(long)]
        log_refused_calls: bool,
    },
    /// unpacks the layers of an image; started by the server
    #[command(name = "__unpack", hide = true)]
    UnpackProcess {
        tree: PathBuf,
        #[arg(long)]
        log_refused_calls: bool,
    },
}

/// Takes what an error of the command line suggests, as lines of hints like those of other errors.
pub fn hints(error: &mut clap::Error) -> String {
    let meant = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
        .into_iter()
        .filter_map(|kind| match error.remove(kind)? {
            ContextValue::String(one) => Some(format!("`{one}`")),
            // The parser has the closest one last.
            ContextValue::Strings(mut all) if !all.is_empty() => {
                all.reverse();
                Some(format!("`{}`", all.join("` or `")))
            }
            _ => None,
        })
        .map(|meant| format!("hint: did you mean {meant}?\n"))
        .collect::<String>();
    // `sandbox cp` has both in one word.
    let path = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue)) {
        (Some(ContextValue::String(arg)), Some(ContextValue::String(value))) if arg == "<ID>" => {
            value.split_once(':').map_or_else(String::new, |(id, path)| {
                format!("hint: the path is an argument of its own: `{id} {path}`\n")
            })
        }
        _ => String::new(),
    };
    let meant = meant + &path;
    let tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    tips.iter().fold(meant, |hints, tip| hints + &format!("hint: {tip}\n"))
}

/// Commands about suites and stored runs that promptfoo has without a word before them; here they are commands of `eval`.
const OF_EVAL: [&str; 9] = ["cache", "delete", "export", "import", "init", "list", "retry", "share", "show"];

/// Makes the short form of a command of `eval` the one that the command line knows: `sandcove init` is `sandcove eval init`.
pub fn spell_out(arguments: &mut Vec<OsString>) {
    if arguments.get(1).is_some_and(|verb| OF_EVAL.iter().any(|command| verb == command)) {
        arguments.insert(1, "eval".into());
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_forms_hide_no_command() {
        let commands = Cli::command();
        let eval = commands.find_subcommand("eval").unwrap();
        for name in OF_EVAL {
            assert!(commands.find_subcommand(name).is_none(), "{name}");
            assert!(eval.find_subcommand(name).is_some(), "{name}");
        }
        let mut arguments: Vec<OsString> = ["sandcove", "retry", "eval-x"].map(Into::into).to_vec();
        spell_out(&mut arguments);
        assert_eq!(arguments, ["sandcove", "eval", "retry", "eval-x"]);
        spell_out(&mut arguments);
        assert_eq!(arguments.len(), 4);
    }

    #[test]
    fn what_the_parser_suggests_is_a_hint() {
        let hints = |line: &str| {
            let mut error = Cli::command().try_get_matches_from(line.split(' ')).unwrap_err();
            let hints = hints(&mut error);
            let rest = error.render().to_string();
            assert!(rest.starts_with("error: ") && !rest.contains("tip:"), "{rest}");
            hints
        };
        assert_eq!(hints("sandcove sandbox lst"), "hint: did you mean `list` or `ls`?\n");
        assert!(hints("sandcove template inspct").starts_with("hint: did you mean `inspect`"));
        assert_eq!(hints("sandcove sandbox list --stat running"), "hint: did you mean `--state`?\n");
        assert_eq!(hints("sandcove completions bahs"), "hint: did you mean `bash`?\n");
        assert_eq!(hints("sandcove sandbox kill"), "");
        assert_eq!(
            hints("sandcove sandbox cat iabc:/etc/hosts"),
            "hint: the path is an argument of its own: `iabc /etc/hosts`\n"
        );
        let value = hints("sandcove sandbox info -x");
        assert!(value.starts_with("hint: ") && value.ends_with('\n'), "{value}");
    }

    #[test]
    fn help_shows_the_options_of_a_command_before_those_of_all() {
        let help = Cli::command().try_get_matches_from(["sandcove", "sandbox", "list", "-h"]).unwrap_err();
        let help = help.render().to_string();
        let (own, global) = help.split_once("\nGlobal options:\n").unwrap();
        let names = ["--data-dir", "--config", "--url", "--context", "--api-key-file"];
        assert!(own.contains("--state") && !names.iter().any(|name| own.contains(name)), "{own}");
        assert!(names.iter().all(|name| global.contains(name)), "{global}");
    }

    #[test]
    fn the_spawner_is_not_advertised() {
        assert!(!Cli::command().render_help().to_string().contains("__spawner"));
    }
}

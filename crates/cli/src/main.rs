//! The `sandcove` command: composition root of the server, and what an operator types.
#![forbid(unsafe_code)]
// `output` writes both streams: these macros panic when the reader is gone or the disk is full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod bench;
mod commands;
mod contexts;
mod data_dir;
mod detach;
mod doctor;
mod guest;
mod host;
mod languages;
mod listening;
mod log_filter;
mod notify;
mod otlp;
mod output;
mod progress;
#[cfg(test)]
mod reference;
mod registries;
mod report;
mod server_dir;
mod settings;
mod signals;
mod split;
mod table;
mod terminal;
mod tls;
mod transfer;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use sandcove_image::oci;
use sandcove_isolate::Unprivileged;
use sandcove_server::otlp::{Log, Otlp};
use sandcove_wire::secret::Secret;

use commands::keys::Keys;
use commands::reach::{Place, Reach};
use log_filter::LogFormat;
use settings::{DataDir, ServerArgs, Settings};

#[cfg(target_env = "musl")]
compile_error!(
    "`sandcove` is built with glibc: run `make static` on a host that has it, and copy the program, which needs no C library, to this one"
);
// getrandom asks the dynamic linker for the function of the C library. Without one it opens /dev/urandom, which the server's process does not have.
#[cfg(all(
    target_feature = "crt-static",
    not(target_env = "musl"),
    not(getrandom_backend = "linux_getrandom")
))]
compile_error!(
    "a static `sandcove` needs `--cfg getrandom_backend=\"linux_getrandom\"` in RUSTFLAGS: `make static` builds it so"
);

/// Run AI-generated code in sandboxes on your own machines, with unchanged E2B clients.
#[derive(Debug, Parser)]
#[command(name = "sandcove", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    place: DataDir,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
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

fn main() -> ExitCode {
    // Before the first look-up, and before any other thread.
    if cfg!(target_feature = "crt-static")
        && let Err(error) = sandcove_isolate::use_hosts_file_and_dns()
    {
        report::report(&anyhow::Error::new(error).context("failed to choose how host names are looked up"));
        return ExitCode::FAILURE;
    }
    commands::completions::answer(Cli::command);
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    spell_out(&mut arguments);
    let parsed = Cli::command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let code = match parsed {
        Ok((cli, matches)) => start(cli, &matches).unwrap_or_else(|error| {
            report::report(&error);
            ExitCode::FAILURE
        }),
        Err(mut error) if error.use_stderr() => {
            // The list names the commands that only the server starts, too.
            error.remove(ContextKind::ValidSubcommand);
            let hints = hints(&mut error);
            let text = error.render();
            let is_coloured = std::io::stderr().is_terminal() && !output::is_plain();
            let text = if is_coloured { text.ansi().to_string() } else { text.to_string() };
            output::write_error((text + &hints).as_bytes());
            // An evaluation's exit code 2 means that there was nothing to run.
            let is_eval = arguments
                .get(1)
                .is_some_and(|verb| ["eval", "redteam", "validate"].iter().any(|eval| verb == eval));
            if is_eval { ExitCode::FAILURE } else { ExitCode::from(2) }
        }
        Err(help) => {
            let _ = output::write(help.render().to_string().as_bytes());
            ExitCode::SUCCESS
        }
    };
    output::finish(code)
}

/// Takes what an error of the command line suggests, as lines of hints like those of other errors.
fn hints(error: &mut clap::Error) -> String {
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
fn spell_out(arguments: &mut Vec<OsString>) {
    if arguments.get(1).is_some_and(|verb| OF_EVAL.iter().any(|command| verb == command)) {
        arguments.insert(1, "eval".into());
    }
}

fn start(cli: Cli, matches: &ArgMatches) -> Result<ExitCode> {
    // The spawner forks, so it must stay the only thread of its process: no runtime before this.
    if let Command::Spawner { pool, programs, criu, log_refused_calls } = &cli.command {
        sandcove_isolate::spawner_main(pool, programs, criu.as_deref(), *log_refused_calls)
            .context("the spawner failed")?;
        return Ok(ExitCode::SUCCESS);
    }
    // It gives up its rights, thread by thread: no runtime before this either.
    if let Command::ServerProcess { account, directory, log_refused_calls } = &cli.command {
        return split::run(*account, directory, *log_refused_calls, observe);
    }
    // As do these.
    if let Command::UnpackProcess { tree, log_refused_calls } = &cli.command {
        oci::unpack_as_asked(sandcove_isolate::enter_tree(tree, *log_refused_calls))
            .context("failed to unpack an image")?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Database { account, directory, .. } = &cli.command {
        server_dir::become_account(directory, *account)?;
    }
    let keys = match &cli.command {
        Command::Keys(_) => Some(Keys::prepare(&cli.place.path()?)?),
        _ => None,
    };
    if let Command::EgressProcess { account, log_refused_calls } = cli.command {
        return egress(account, log_refused_calls);
    }
    if matches!(cli.command, Command::Serve(_)) {
        // Before the runtime, whose threads inherit it.
        sandcove_isolate::take_precedence();
    }
    let is_server = matches!(cli.command, Command::Serve(_));
    if !is_server {
        signals::end_with_starter();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let code = runtime.block_on(dispatch(cli, matches, keys));
    if !is_server {
        // A command that has ended waits for no thread that writes to a pipe which nobody reads.
        runtime.shutdown_background();
    }
    code
}

/// Runs the egress proxies of a server, with the rights of `account`, or with those of this process if it is 0.
fn egress(account: u32, log_refused_calls: bool) -> Result<ExitCode> {
    let socket = sandcove_isolate::passed_socket().context("this command is started by the server")?;
    let roots = sandcove_egress::roots();
    if account != 0 {
        sandcove_isolate::renounce(account, Unprivileged::Egress, log_refused_calls)
            .with_context(|| format!("failed to give up the rights of root and become {account}"))?;
    }
    observe(&Otlp::default(), LogFormat::from_env())?;
    sandcove_egress::run(socket, roots).context("failed to talk to the host process")?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the log to standard error, and gives spans and lines of the log to `otlp`.
fn observe(otlp: &Otlp, format: LogFormat) -> Result<()> {
    otlp.observe(Log {
        written: log_filter::from_env()?,
        sent: log_filter::from_env()?,
        is_json: format == LogFormat::Json,
        is_coloured: std::io::stderr().is_terminal() && !output::is_plain(),
    });
    Ok(())
}

/// Runs a server in the foreground. In one process, it sends its last traces after it has stopped.
async fn serve(settings: &Settings) -> Result<ExitCode> {
    let account = (settings.server_account != 0).then_some(settings.server_account);
    let objection = account.and_then(sandcove_isolate::cannot_become);
    if let (Some(account), None) = (account, &objection) {
        observe(&Otlp::default(), settings.log_format)?;
        return commands::serve::serve(settings, Some(account)).await;
    }
    let otlp = Otlp::start(&settings.otlp)?;
    observe(&otlp, settings.log_format)?;
    if let (Some(account), Some(objection)) = (account, objection) {
        tracing::warn!("the server runs in one process, as root, and not as {account}: {objection}");
    }
    let code = commands::serve::serve(settings, None).await;
    otlp.stop().await;
    code
}

async fn dispatch(cli: Cli, matches: &ArgMatches, keys: Option<Keys>) -> Result<ExitCode> {
    let mut place = cli.place;
    if let Command::Eval(_) | Command::Validate(_) | Command::Redteam(_) | Command::Generate(_) = &cli.command
    {
        // They have an option of the same name, for suites.
        place.config = None;
    }
    let place = &place;
    if let Command::Serve(args) = &cli.command {
        return serve(&Settings::resolve(place, args)?).await;
    }
    observe(&Otlp::default(), LogFormat::from_env())?;
    let at = || -> Result<Place> {
        let explicit = matches.value_source("data_dir") == Some(ValueSource::CommandLine);
        Ok(Place { data_dir: place.path()?, explicit })
    };
    match cli.command {
        Command::Up(args) => {
            commands::daemon::up(&Settings::resolve(place, &args)?, &options_after("up")).await
        }
        Command::Down { all } => commands::daemon::down(&place.path()?, all).await,
        Command::Purge { yes, keep_data } => commands::purge::purge(&place.path()?, yes, keep_data).await,
        Command::Backup(args) => {
            commands::backup::backup(&Settings::resolve(place, &ServerArgs::default())?, place, args).await
        }
        Command::Restore(args) => {
            commands::restore::restore(&Settings::resolve(place, &ServerArgs::default())?, args).await
        }
        Command::Database { directory, task, .. } => commands::backup::run_task(&directory, task).await,
        Command::Status { reach, json } => commands::daemon::status(&reach, &at()?, json).await,
        Command::Env(args) => commands::env::env(&args, &at()?),
        Command::Trust(args) => commands::trust::trust(&place.path()?, &args),
        Command::Run(args) => {
            commands::run::run(&Settings::resolve(place, &ServerArgs::default())?, &at()?, &args).await
        }
        Command::Sandbox(args) => commands::sandbox::sandbox(at()?, args).await,
        Command::Top(args) => commands::top::top(at()?, args).await,
        Command::Snapshot(args) => commands::snapshot::top_level(at()?, args).await,
        Command::Volume(args) => commands::volume::volume(at()?, args).await,
        Command::Events(args) => commands::webhook::events(at()?, args).await,
        Command::Webhook(args) => commands::webhook::webhook(at()?, args).await,
        Command::Template(args) => commands::template::template(at()?, args).await,
        Command::Audit(args) => commands::audit::audit(at()?, args, admin_token(place)).await,
        Command::Team(args) => commands::operate::team(at()?, args, admin_token(place)).await,
        Command::Node(args) => commands::operate::node(at()?, args, admin_token(place)).await,
        Command::Mcp(args) => commands::mcp::mcp(at()?, args).await,
        Command::Config(command) => commands::config::config(command),
        Command::Auth(args) => commands::config::auth(at()?, args).await,
        Command::Completions(args) => commands::completions::completions(&args),
        Command::Man(args) => commands::completions::man(Cli::command(), &args),
        Command::Secret(args) => commands::secret::secret(at()?, args).await,
        Command::Keys(command) => keys.context("the keys were not prepared")?.run(command).await,
        Command::Bench(args) => bench::bench(&at()?, &args).await,
        Command::Eval(args) => commands::eval::eval(*args, &at()?).await,
        Command::Validate(args) => commands::validate::top_level(*args, &at()?).await,
        Command::Redteam(args) => commands::redteam::redteam(*args, &at()?).await,
        Command::Generate(args) => commands::generate::generate(args).await,
        Command::View(args) => commands::view::view(args, &at()?).await,
        Command::Doctor { server_account, json } => {
            let settings = Settings::resolve(place, &ServerArgs::default())?;
            let account = server_account.unwrap_or(settings.server_account);
            doctor::doctor(&settings.data_dir, account, json).await
        }
        Command::Spawner { .. }
        | Command::ServerProcess { .. }
        | Command::EgressProcess { .. }
        | Command::UnpackProcess { .. }
        | Command::Serve(_) => {
            unreachable!("handled above")
        }
    }
}

/// The admin token in the configuration of this machine's server, if this account may read it.
fn admin_token(place: &DataDir) -> Option<Secret> {
    Settings::resolve(place, &ServerArgs::default()).ok()?.admin_token
}

/// Arguments of this process without the verb: `up` passes its options on to `serve`.
fn options_after(verb: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == verb) {
        arguments.remove(at);
    }
    arguments
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

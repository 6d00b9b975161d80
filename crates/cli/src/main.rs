//! The `sandcove` command: composition root of the server, and what an operator types.
#![forbid(unsafe_code)]
// `output` writes both streams: these macros panic when the reader is gone or the disk is full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address;
mod bench;
mod command_line;
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
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::error::ContextKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use sandcove_image::oci;
use sandcove_isolate::Unprivileged;
use sandcove_server::otlp::{Log, Otlp};
use sandcove_wire::secret::Secret;

use command_line::{Cli, Command, hints, spell_out};
use commands::keys::Keys;
use commands::reach::Place;
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

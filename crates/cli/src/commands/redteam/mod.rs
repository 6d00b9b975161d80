//! `sandcove redteam`: attacks sandboxes, checks of code before it runs, and models that write code.

mod generate;
mod init;
mod report;
mod run;
mod setup;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use sandcove_eval::config::attacks::AttackOptions;

use sandcove_redteam::plugin::{self, Plugin};
use sandcove_redteam::probe::{self, Layer};
use sandcove_redteam::{attacker, category, framework, mutate, strategy};

use super::count;
use super::reach::Place;
use crate::output::out;

#[derive(Debug, Args)]
pub struct RedteamArgs {
    #[command(subcommand)]
    command: RedteamCommand,
}

#[derive(Debug, Subcommand)]
enum RedteamCommand {
    /// create a configuration, by questions about the target
    Init(init::InitArgs),
    /// create a configuration on pages in a browser, and run it from there
    Setup(setup::SetupArgs),
    /// write the attacks to a file, without running them
    Generate(generate::GenerateArgs),
    /// generate the attacks, run them and report
    Run(Box<run::RunArgs>),
    /// run the attacks of a generated file and report
    Eval(Box<run::RunArgs>),
    /// report a stored run
    Report(report::ReportArgs),
    /// list plugins, strategies and probes
    Plugins(PluginsArgs),
}

/// Options that say what is attacked, and with what.
#[derive(Debug, Clone, Default, Args)]
struct AttackArgs {
    /// configuration [default: promptfooconfig.yaml in this directory]
    // The server's commands have an option of this name too; where both are, their types must be the same.
    #[arg(id = "config", short = 'c', long = "config", num_args = 1.., value_name = "PATH")]
    configs: Vec<PathBuf>,
    /// purpose of the target, for the report and for models that grade
    #[arg(long, value_name = "TEXT")]
    purpose: Option<String>,
    /// variable of the prompts that carries the attack [default: the last one]
    #[arg(long = "injectVar", alias = "inject-var", value_name = "NAME")]
    inject_var: Option<String>,
    /// plugins to use instead of the configuration's, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    plugins: Vec<String>,
    /// strategies to use instead of the configuration's, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    strategies: Vec<String>,
    /// maximum number of probes per category [default: all]
    #[arg(short = 'n', long = "num-tests", value_name = "N")]
    tests: Option<usize>,
    /// languages of texts, separated by commas; a model translates them
    #[arg(long, value_delimiter = ',', value_name = "LANGUAGE")]
    language: Vec<String>,
    /// layers to attack, separated by commas: gate, wall or model [default: those that the targets have]
    #[arg(long, value_delimiter = ',', value_parser = layer, value_name = "LAYER")]
    layers: Vec<Layer>,
    /// seed for choosing mutators [default: 1]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// model that writes attacks [default: `redteam.provider`; without one they are skipped]
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
    /// include probes that may harm a host without limits
    #[arg(long)]
    allow_destructive: bool,
    /// write the attacks anew even if nothing has changed
    #[arg(long)]
    force: bool,
    /// fail if anything that was asked for is skipped
    #[arg(long)]
    strict: bool,
    /// accepted for compatibility; attacks are generated on this machine only
    #[arg(long, hide = true)]
    remote: bool,
}

impl AttackArgs {
    fn options(&self, env_files: &[PathBuf]) -> Result<AttackOptions> {
        let directory = std::env::current_dir()?;
        let config = match self.configs.as_slice() {
            [] => None,
            [path] if path.is_dir() => {
                let found = sandcove_eval::config::attacks::configuration(path);
                Some(found.with_context(|| format!("`{}` has no promptfooconfig.yaml", path.display()))?)
            }
            [path] => Some(path.clone()),
            _ => anyhow::bail!("a red team has one configuration; name one with -c"),
        };
        Ok(AttackOptions {
            config,
            directory,
            purpose: self.purpose.clone(),
            inject_var: self.inject_var.clone(),
            plugins: self.plugins.clone(),
            strategies: self.strategies.clone(),
            tests: self.tests,
            languages: self.language.clone(),
            layers: self.layers.clone(),
            seed: self.seed,
            destructive: self.allow_destructive,
            provider: self.provider.clone(),
            env_files: env_files.to_vec(),
        })
    }
}

#[derive(Debug, Args)]
struct PluginsArgs {
    /// print only ids
    #[arg(long)]
    ids_only: bool,
    /// list only the plugins of a run that names none
    #[arg(long)]
    default: bool,
}

fn layer(text: &str) -> Result<Layer, String> {
    Layer::named(text).ok_or_else(|| format!("unknown layer `{text}`; use gate, wall or model"))
}

/// Runs the command.
pub async fn redteam(args: RedteamArgs, place: &Place) -> Result<ExitCode> {
    match args.command {
        RedteamCommand::Init(args) => init::init(&args),
        RedteamCommand::Setup(args) => setup::setup(args, place).await,
        RedteamCommand::Generate(args) => generate::generate(&args).await,
        RedteamCommand::Run(args) => run::run(args, true, place).await,
        RedteamCommand::Eval(args) => run::run(args, false, place).await,
        RedteamCommand::Report(args) => report::report(args).await,
        RedteamCommand::Plugins(args) => {
            plugins(&args);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn plugins(args: &PluginsArgs) {
    for category in category::all() {
        if args.ids_only {
            out!("{}", category.plugin());
            continue;
        }
        let number = probe::builtin().iter().filter(|probe| probe.category == category.id).count();
        let plugin = category.plugin();
        out!(
            "{plugin:<34} {:<9} {:>10}  {}",
            category.severity.name(),
            count(number, "probe"),
            category.about
        );
    }
    if args.default {
        return;
    }
    if args.ids_only {
        plugin::known_elsewhere()
            .filter(|(_, found)| matches!(found, Plugin::Probes(_)))
            .for_each(|(id, _)| out!("{id}"));
        out!("intent");
        return;
    }
    out!("\nplugins of promptfoo that these probes answer:");
    for (id, found) in plugin::known_elsewhere() {
        if let Plugin::Probes(categories) = found {
            out!("{id:<40} {}", categories.join(", "));
        }
    }
    out!("intent{:<34} texts of your own, from `config.intent`", "");
    out!("\nplugins of promptfoo whose attacks a model writes, if `redteam.provider` names one:");
    for (id, found) in plugin::known_elsewhere() {
        let about = match found {
            Plugin::Written(written) if written.aim.is_empty() => {
                "break the rule in `config.policy`".to_owned()
            }
            Plugin::Written(written) => written.aim,
            Plugin::Several(ids) => ids.join(", "),
            _ => continue,
        };
        out!("{id:<40} {about}");
    }
    out!(
        "{:<40} their plugins and strategies together; also entries, such as owasp:llm:01",
        framework::names().join(", ")
    );
    out!("file://NAME.yaml{:<24} your own: `generator`, a prompt for attacks, and `grader`, a rubric", "");
    out!("\nplugins of promptfoo that are skipped, and reported as skipped:");
    for (id, found) in plugin::known_elsewhere() {
        if let Plugin::Unavailable(why) = found {
            out!("{id:<40} {why}");
        }
    }
    out!(
        "\nstrategies: basic, code (also code-injection), sandbox-bypass, answer, malicious-patches, layer, other-encodings, retry"
    );
    out!(
        "of programs: {}",
        mutate::names().iter().map(|name| format!("code:{name}")).collect::<Vec<_>>().join(", ")
    );
    out!(
        "of answers:  {}",
        mutate::WRAPPERS.iter().map(|name| format!("answer:{name}")).collect::<Vec<_>>().join(", ")
    );
    out!("of texts:    {}", strategy::TEXTS.join(", "));
    out!("by a model:  {}", strategy::rewriting().join(", "));
    out!("by answers:  {}", attacker::ids().collect::<Vec<_>>().join(", "));
}

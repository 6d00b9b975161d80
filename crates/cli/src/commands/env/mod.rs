//! `sandcove env`, and what `up` and `serve` print: the variables that clients need to use a server.

mod generation;
mod shell;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_dockerfile::quoted;
use serde_json::{Value, json};

use super::reach::{Place, Reach};
use super::serve::not_running;
use super::trust::Trusted;
use crate::data_dir::{Names, Records, ServerFile};
use crate::output;
pub use generation::Language;
use generation::{Generation, by_name};
use shell::Shell;

/// Variables whose value is the server's address.
const ADDRESSES: [&str; 3] = ["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"];
/// The variable for the links that the official command line prints: without it, they lead to the hosted service.
const DASHBOARD: &str = "E2B_DASHBOARD_BASE";
/// The variable whose value is a key.
const KEY: &str = "E2B_API_KEY";

/// Options of `env`.
#[derive(Debug, Args)]
pub struct EnvArgs {
    #[command(flatten)]
    reach: Reach,
    /// release of the E2B package that the variables are for, as `2.6.1`, `2.x`, `1.x` or `0.x`; with it, clients of a server with TLS
    /// find it by name [default: 2.7 or newer, by address]
    #[arg(long, value_name = "RELEASE")]
    sdk: Option<Generation>,
    /// language of the clients [default: both]
    #[arg(long, value_name = "LANGUAGE", value_enum)]
    lang: Option<Language>,
    /// shell that reads the output
    #[arg(long, value_name = "SHELL", value_enum, default_value_t)]
    shell: Shell,
    /// print JSON: variables with their values, and null for those to unset
    #[arg(long, conflicts_with_all = ["shell", "name"])]
    json: bool,
    /// print only the value of this variable
    name: Option<String>,
}

/// Variables to set and to unset.
#[derive(Debug, Default, PartialEq, Eq)]
struct Variables {
    set: Vec<(&'static str, String)>,
    /// Variables that would lead clients elsewhere.
    unset: Vec<&'static str>,
}

impl Variables {
    /// The addresses of the API, of sandboxes and of the dashboard, and the key.
    fn of_addresses(url: &str, sandboxes: &str, key: &str) -> Self {
        let [api, shared, volumes] = ADDRESSES;
        let dashboard = dashboard(url);
        let set = [(api, url), (shared, sandboxes), (volumes, url), (DASHBOARD, &dashboard), (KEY, key)];
        Self { set: set.map(|(name, value)| (name, value.to_owned())).into(), unset: Vec::new() }
    }

    fn json(&self) -> Value {
        let set = self.set.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let unset = self.unset.iter().map(|name| ((*name).to_owned(), Value::Null));
        set.chain(unset).collect()
    }

    fn value(&self, name: &str) -> Result<&str> {
        let found = self.set.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str()).with_context(|| {
            let known: Vec<&str> = self.set.iter().map(|(name, _)| *name).collect();
            format!("unknown variable `{name}`; use {}", known.join(", "))
        })
    }
}

/// Prints the variables for the server that a command would use, or the value of one of them.
pub fn env(args: &EnvArgs, place: &Place) -> Result<ExitCode> {
    let Some(target) = args.reach.target(place)? else { bail!(not_running(&place.data_dir)) };
    let key = target.api_key.expose();
    let sandboxes = target.sandbox_url.as_deref().unwrap_or(&target.url);
    let file = ServerFile::read(&place.data_dir).ok().flatten().filter(|file| file.url == target.url);
    let names = file.and_then(|file| file.names).or_else(|| names_in(&target.url));
    let variables = match (args.sdk, names) {
        (None, _) => Variables::of_addresses(&target.url, sandboxes, key),
        (Some(generation), Some(names)) => {
            names.records.lines(&names.domain).iter().for_each(|line| output::note!("{line}"));
            let trusted = names.is_local.then(|| Trusted::find(&place.data_dir));
            by_name(&names.domain, key, generation, args.lang, trusted.as_ref())
        }
        (Some(generation), None) if generation.takes_addresses() => {
            Variables::of_addresses(&target.url, sandboxes, key)
        }
        (Some(_), None) => bail!(
            "{} has no name with TLS, and releases before 2.7 know nothing but https://<name>\nhint: start the server with \
             `--tls local`, or with --domain, --tls-cert and --tls-key",
            target.url
        ),
    };
    let text = match &args.name {
        Some(name) => format!("{}\n", variables.value(name)?),
        None if args.json => format!("{}\n", variables.json()),
        None => args.shell.text(&variables),
    };
    let _ = output::write(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The address of the dashboard of the server at `url`.
fn dashboard(url: &str) -> String {
    format!("{}/dashboard", url.trim_end_matches('/'))
}

/// The names of a server that is reached at `https://api.<domain>`.
fn names_in(url: &str) -> Option<Names> {
    let domain = url.strip_prefix("https://api.")?;
    (!domain.contains('/')).then(|| Names {
        domain: domain.to_owned(),
        is_local: false,
        records: Records::default(),
    })
}

/// Prints the variables after a start. When the output may end in a log, a command that prints the key takes the place of
/// the key; `eval "$(sandcove up)"` works in both cases.
pub fn announce(file: &ServerFile, data_dir: &Path) -> Result<()> {
    let key = if std::io::stdout().is_terminal() {
        quoted(file.api_key.expose())
    } else {
        let program = std::env::current_exe().context("failed to find the path of this program")?;
        let data_dir = std::path::absolute(data_dir).context("failed to find the current directory")?;
        let [program, data_dir] = [program, data_dir].map(|path| quoted(&path.to_string_lossy()));
        format!("\"$({program} --data-dir {data_dir} env {KEY})\"")
    };
    let url = quoted(&file.url);
    let addresses = ADDRESSES.iter().map(|name| format!("export {name}={url}\n"));
    let dashboard = format!("export {DASHBOARD}={}\n", quoted(&dashboard(&file.url)));
    let text: String = addresses.chain([dashboard, format!("export {KEY}={key}\n")]).collect();
    let _ = output::write(text.as_bytes());
    Ok(())
}

/// Suggests what to try with a server that was started, on standard error.
pub fn suggest(file: &ServerFile) {
    output::note!(
        "\nset these in each shell, or run `eval \"$(sandcove env)\"`; then try\n  \
         sandcove run -c '6 * 7'          run a line of code in a new sandbox\n  \
         sandcove sandbox create          create a sandbox, and open a shell in it\n  \
         sandcove eval init               make a first suite that evaluates generated code\n\
         dashboard: {}/dashboard, where the key logs in",
        file.url
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_says_its_domain_by_its_address() {
        let domain = |url| names_in(url).map(|names| names.domain);
        assert_eq!(domain("https://api.example.com:8443").as_deref(), Some("example.com:8443"));
        for other in ["http://api.example.com", "https://example.com", "https://api.example.com/prefix"] {
            assert_eq!(domain(other), None, "{other}");
        }
    }
}

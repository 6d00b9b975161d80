//! Values that shells offer for arguments while a line is being typed: what the server of that line has.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use sandcove_client::{Client, ListFilter};
use sandcove_eval::{home, view::Library};
use sandcove_wire::api::sandbox::State;

use super::reach::{Place, Reach};
use crate::contexts::Contexts;
use crate::settings::DataDir;

/// Time that a shell waits for the values of an argument.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Ids of sandboxes.
pub fn sandboxes() -> ArgValueCandidates {
    in_state(None)
}

/// Ids of running sandboxes.
pub fn running() -> ArgValueCandidates {
    in_state(Some(State::Running))
}

/// Ids of paused sandboxes.
pub fn paused() -> ArgValueCandidates {
    in_state(Some(State::Paused))
}

fn in_state(state: Option<State>) -> ArgValueCandidates {
    of_server(async move |client| {
        let listed = client.list_where(&ListFilter { state, ..ListFilter::default() }).await?;
        let about = |alias: String, template: String| if alias.is_empty() { template } else { alias };
        let named = |one: sandcove_wire::api::sandbox::ListedSandbox| {
            described(one.sandbox_id.to_string(), about(one.alias, one.template_id))
        };
        Ok(listed.into_iter().map(named).collect())
    })
}

/// Names of templates.
pub fn templates() -> ArgValueCandidates {
    of_server(async |client| {
        let templates = client.templates().await?;
        let name = |aliases: Vec<String>, id: String| aliases.into_iter().next().unwrap_or(id);
        Ok(templates
            .into_iter()
            .map(|one| CompletionCandidate::new(name(one.aliases, one.template_id)))
            .collect())
    })
}

/// Ids of snapshots.
pub fn snapshots() -> ArgValueCandidates {
    of_server(async |client| {
        let snapshots = client.snapshots(None, None).await?;
        Ok(snapshots.into_iter().map(|one| described(one.snapshot_id, one.names.join(" "))).collect())
    })
}

/// Names of volumes.
pub fn volumes() -> ArgValueCandidates {
    of_server(async |client| {
        Ok(client.volumes().await?.into_iter().map(|one| CompletionCandidate::new(one.name)).collect())
    })
}

/// Names of secrets.
pub fn secrets() -> ArgValueCandidates {
    of_server(async |client| {
        Ok(client.secrets().await?.into_iter().map(|one| CompletionCandidate::new(one.name)).collect())
    })
}

/// Ids of webhooks.
pub fn webhooks() -> ArgValueCandidates {
    of_server(async |client| {
        Ok(client.webhooks().await?.into_iter().map(|one| described(one.id, one.name)).collect())
    })
}

/// Names of contexts.
pub fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let contexts = Contexts::load().ok();
        contexts.iter().flat_map(Contexts::all).map(|one| described(one.name, one.url)).collect()
    })
}

/// Ids of stored runs.
pub fn runs() -> ArgValueCandidates {
    offered(async || {
        let runs = Library::new(home::directory()).runs(None, false).await?;
        Ok(runs.into_iter().map(|one| described(one.eval_id, one.description.unwrap_or_default())).collect())
    })
}

fn described(value: String, about: String) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(about).filter(|about| !about.is_empty()).map(Into::into))
}

fn of_server(
    list: impl AsyncFn(Client) -> Result<Vec<CompletionCandidate>> + Clone + Send + Sync + 'static,
) -> ArgValueCandidates {
    offered(async move || list(client()?).await)
}

/// Offers what a list has. A shell has no place for an error while a line is being typed: then it offers nothing.
fn offered(
    list: impl AsyncFn() -> Result<Vec<CompletionCandidate>> + Send + Sync + 'static,
) -> ArgValueCandidates {
    let listed = move || -> Result<Vec<CompletionCandidate>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, list()).await })?
    };
    ArgValueCandidates::new(move || listed().unwrap_or_default())
}

/// The server that the line being typed names, or the one that a command without such options uses.
fn client() -> Result<Client> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
    let option = |name| option(&words, name);
    let given = option("--data-dir").map(PathBuf::from);
    let explicit = given.is_some();
    let data_dir = given.or_else(|| std::env::var_os("SANDCOVE_DATA_DIR").map(PathBuf::from));
    let config = option("--config").or_else(|| std::env::var("SANDCOVE_CONFIG").ok()).map(PathBuf::from);
    let place = Place { data_dir: DataDir { data_dir, config }.path()?, explicit };
    let reach = Reach::new(option("--url"), option("--context"), option("--api-key-file").map(PathBuf::from));
    reach.target(&place)?.context("no server")?.client()
}

/// The value of an option in the words of a line: `--name value` or `--name=value`.
fn option(words: &[OsString], name: &str) -> Option<String> {
    let text = |word: &OsString| word.to_str().map(str::to_owned);
    let at = words.iter().position(|word| word == name);
    let joined =
        || words.iter().find_map(|word| text(word)?.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
    at.and_then(|at| text(words.get(at + 1)?)).or_else(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_line_are_found_in_both_forms() {
        let words: Vec<OsString> =
            ["--", "sandcove", "sandbox", "kill", "--url", "http://h:1", "--context=far", "i"]
                .map(Into::into)
                .into();
        assert_eq!(option(&words, "--url").as_deref(), Some("http://h:1"));
        assert_eq!(option(&words, "--context").as_deref(), Some("far"));
        assert_eq!(option(&words, "--api-key-file"), None);
        assert_eq!(option(&words[..5], "--url"), None);
    }
}

//! The server that a command uses: from flags, then the `E2B_*` variables, then the server of this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_client::Client;
use sandcove_wire::secret::Secret;

use super::serve::not_running;
use crate::data_dir::ServerFile;

/// The data directory of a command.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory.
    pub data_dir: PathBuf,
    /// Whether `--data-dir` was given, which selects the server of that directory.
    pub explicit: bool,
}

/// Options of commands that need a server.
#[derive(Debug, Clone, Default, Args)]
pub struct Reach {
    /// address of the server [default: $E2B_API_URL, or the server of this machine]
    #[arg(long, global = true)]
    url: Option<String>,
    /// file with an API key of the server [default: $E2B_API_KEY, or the key of this machine's server]
    #[arg(long, value_name = "FILE", global = true)]
    api_key_file: Option<PathBuf>,
}

/// A server and a key for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address of the server, `http://host:port`.
    pub url: String,
    /// API key of a team.
    pub api_key: Secret,
    /// Process of the server, if it is the server of the data directory.
    pub pid: Option<u32>,
    /// Whether a flag or a variable named the server.
    pub is_named: bool,
}

impl Target {
    /// The server of the data directory, if one has run there.
    pub fn local(place: &Place) -> Result<Option<Self>> {
        let file = ServerFile::read(&place.data_dir)?;
        Ok(file.map(|file| Self {
            url: file.url,
            api_key: file.api_key,
            pid: Some(file.pid),
            is_named: false,
        }))
    }

    /// A client for the server, not yet connected.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.url, &self.api_key)?)
    }
}

impl Reach {
    /// Whether a flag names the server or the key.
    pub fn is_given(&self) -> bool {
        self.url.is_some() || self.api_key_file.is_some()
    }

    /// The server; `None` when nothing names one and none has run with the data directory.
    pub fn target(&self, place: &Place) -> Result<Option<Target>> {
        self.target_with(place, |name| std::env::var(name).ok())
    }

    fn target_with(
        &self,
        place: &Place,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Target>> {
        let variable =
            |name| Some(name).filter(|_| !place.explicit).and_then(&variable).filter(|text| !text.is_empty());
        let given_key = match &self.api_key_file {
            Some(path) => Some(read_key(path)?),
            None => variable("E2B_API_KEY").map(Secret::new),
        };
        let Some(url) = self.url.clone().or_else(|| variable("E2B_API_URL")) else {
            let Some(local) = Target::local(place)? else { return Ok(None) };
            let api_key = given_key.unwrap_or_else(|| local.api_key.clone());
            return Ok(Some(Target { api_key, ..local }));
        };
        let url = url.trim_end_matches('/').to_owned();
        // The key in the data directory is for its own server only. An account that cannot read it needs another key.
        let own = ServerFile::read(&place.data_dir).ok().flatten().filter(|file| file.url == url);
        let pid = own.as_ref().map(|file| file.pid);
        match given_key.or_else(|| own.map(|file| file.api_key)) {
            Some(api_key) => Ok(Some(Target { url, api_key, pid, is_named: true })),
            None => bail!("no API key for {url}\nhint: set E2B_API_KEY, or pass --api-key-file"),
        }
    }

    /// A client for the server; an error when there is none.
    pub fn client(&self, place: &Place) -> Result<Client> {
        match self.target(place)? {
            Some(target) => target.client(),
            None => bail!(not_running(None)),
        }
    }
}

fn read_key(path: &Path) -> Result<Secret> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("failed to read `{}`", path.display()))?;
    match text.trim() {
        "" => bail!("`{}` is empty; expected an API key", path.display()),
        key => Ok(Secret::new(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "http://127.0.0.1:3000";

    struct Case {
        dir: tempfile::TempDir,
        reach: Reach,
        explicit: bool,
        variables: Vec<(&'static str, &'static str)>,
    }

    impl Case {
        fn new(variables: &[(&'static str, &'static str)]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = ServerFile { url: LOCAL.into(), api_key: Secret::new("local"), pid: 7, names: None };
            file.write(dir.path()).unwrap();
            std::fs::write(dir.path().join("key"), "filed\n").unwrap();
            Self { dir, reach: Reach::default(), explicit: false, variables: variables.to_vec() }
        }

        fn found(&self) -> Result<(String, String)> {
            let place = Place { data_dir: self.dir.path().to_owned(), explicit: self.explicit };
            let variable = |name: &str| {
                self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let target = self.reach.target_with(&place, variable)?.context("none")?;
            Ok((target.url, target.api_key.expose().to_owned()))
        }

        fn finds(&self, url: &str, key: &str) {
            assert_eq!(self.found().unwrap(), (url.to_owned(), key.to_owned()));
        }
    }

    #[test]
    fn without_a_word_it_is_the_server_of_this_machine() {
        Case::new(&[]).finds(LOCAL, "local");
        Case::new(&[("E2B_API_URL", ""), ("E2B_API_KEY", "")]).finds(LOCAL, "local");
        Case::new(&[("E2B_API_KEY", "mine")]).finds(LOCAL, "mine");
    }

    #[test]
    fn variables_win_over_the_server_of_this_machine_and_flags_over_variables() {
        let variables = [("E2B_API_URL", "http://a:1/"), ("E2B_API_KEY", "mine")];
        let mut case = Case::new(&variables);
        case.finds("http://a:1", "mine");
        case.reach.url = Some("http://b:1".to_owned());
        case.finds("http://b:1", "mine");
        case.reach.api_key_file = Some(case.dir.path().join("key"));
        case.finds("http://b:1", "filed");
        let mut case = Case::new(&variables);
        case.explicit = true;
        case.finds(LOCAL, "local");
    }

    #[test]
    fn the_key_of_this_machines_server_is_sent_to_no_other() {
        let error = Case::new(&[("E2B_API_URL", "http://a:1")]).found().unwrap_err();
        assert!(error.to_string().starts_with("no API key for http://a:1\n"), "{error}");
        Case::new(&[("E2B_API_URL", LOCAL)]).finds(LOCAL, "local");
    }
}

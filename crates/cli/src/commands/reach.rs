//! The server that a command uses: from flags, then the `E2B_*` variables, then the selected context, then the server of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_client::{Client, ClientBuilder, Error as ClientError, Operator};
use sandcove_wire::secret::Secret;

use super::candidates;
use super::serve::not_running;
use crate::contexts::{Context as Named, Contexts};
use crate::data_dir::ServerFile;
use crate::settings::GLOBAL;

/// The data directory of a command.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory.
    pub data_dir: PathBuf,
    /// Whether `--data-dir` was given, which selects the server of that directory.
    pub explicit: bool,
}

impl Place {
    /// Returns the start of command lines that run this program for the same server.
    pub fn command(&self) -> Result<Vec<OsString>> {
        let program = std::env::current_exe().context("failed to find this program")?;
        let mut command = vec![program.into_os_string()];
        if self.explicit {
            command.extend(["--data-dir".into(), std::path::absolute(&self.data_dir)?.into_os_string()]);
        }
        Ok(command)
    }
}

/// Options of commands that need a server.
#[derive(Debug, Clone, Default, Args)]
pub struct Reach {
    /// address of the server [default: $E2B_API_URL, or that of the selected context, or the server of this machine]
    #[arg(long, global = true, help_heading = GLOBAL)]
    url: Option<String>,
    /// named server of `sandcove config` [default: $SANDCOVE_CONTEXT, or the selected one]
    #[arg(long, value_name = "NAME", global = true, help_heading = GLOBAL, conflicts_with = "url")]
    #[arg(add = candidates::contexts())]
    context: Option<String>,
    /// file with an API key of the server [default: $E2B_API_KEY, or the key of the context or of this machine's server]
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL)]
    api_key_file: Option<PathBuf>,
}

/// A server and a key for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address of the server, `http://host:port`.
    pub url: String,
    /// Address of the ports of all sandboxes, if it differs: that of `E2B_SANDBOX_URL`.
    pub sandbox_url: Option<String>,
    /// API key of a team.
    pub api_key: Secret,
    /// Process of the server, if it is the server of the data directory.
    pub pid: Option<u32>,
    /// Whether a flag, a variable or a context named the server.
    pub is_named: bool,
    /// Admin token of the context, if one named the server.
    pub admin_token: Option<Secret>,
}

impl Target {
    /// The server of the data directory, if one has run there.
    pub fn local(place: &Place) -> Result<Option<Self>> {
        let file = ServerFile::read(&place.data_dir)?;
        Ok(file.map(|file| Self {
            url: file.url,
            sandbox_url: None,
            api_key: file.api_key,
            pid: Some(file.pid),
            is_named: false,
            admin_token: None,
        }))
    }

    /// A client for the server, not yet connected. It sends each request once, because a sandbox that a proxy gave up waiting for may be there
    /// all the same, and waits as long as an answer takes.
    pub fn client(&self) -> Result<Client> {
        let ports = self.sandbox_url.as_ref().unwrap_or(&self.url);
        let settings = ClientBuilder::new(self.api_key.clone()).api_url(&self.url).sandbox_url(ports);
        Ok(settings.retries(0).request_timeout(None).build()?)
    }
}

impl Reach {
    /// The options of a line that is still being typed.
    pub fn new(url: Option<String>, context: Option<String>, api_key_file: Option<PathBuf>) -> Self {
        Self { url, context, api_key_file }
    }

    /// Whether a flag names the server or the key.
    pub fn is_given(&self) -> bool {
        self.url.is_some() || self.context.is_some() || self.api_key_file.is_some()
    }

    /// The server; `None` when nothing names one and none has run with the data directory.
    pub fn target(&self, place: &Place) -> Result<Option<Target>> {
        self.target_with(place, |name| std::env::var(name).ok(), Contexts::load)
    }

    fn target_with(
        &self,
        place: &Place,
        variable: impl Fn(&str) -> Option<String>,
        contexts: impl FnOnce() -> Result<Contexts>,
    ) -> Result<Option<Target>> {
        let variable = |name: &str| {
            Some(name).filter(|_| !place.explicit).and_then(&variable).filter(|text| !text.is_empty())
        };
        let is_flag = self.url.is_some() || self.context.is_some();
        let of_variables = (!is_flag).then(|| address_in(&variable)).flatten();
        // The address of sandboxes belongs to that of the API.
        let sandbox_url = of_variables.as_ref().and_then(|_| variable("E2B_SANDBOX_URL"));
        let url = self.url.clone().or(of_variables);
        let context = match (&self.context, &url) {
            (Some(name), _) => Some(contexts()?.named(name)?),
            (None, Some(_)) => None,
            (None, None) if place.explicit => None,
            (None, None) => match variable("SANDCOVE_CONTEXT") {
                Some(name) => Some(contexts()?.named(&name)?),
                None => contexts()?.selected()?,
            },
        };
        let given_key = match &self.api_key_file {
            Some(path) => Some(read_key(path)?),
            // A flag that names a context names its key too.
            None if self.context.is_some() => None,
            None => variable("E2B_API_KEY").map(Secret::new),
        };
        let (url, key, admin_token) = match context {
            Some(Named { url, credentials, .. }) => (Some(url), credentials.api_key, credentials.admin_token),
            None => (url, None, None),
        };
        let Some(url) = url else {
            let Some(local) = Target::local(place)? else { return Ok(None) };
            let api_key = given_key.unwrap_or_else(|| local.api_key.clone());
            return Ok(Some(Target { api_key, ..local }));
        };
        let url = url.trim_end_matches('/').to_owned();
        // The key in the data directory is for its own server only. An account that cannot read it needs another key.
        let own = ServerFile::read(&place.data_dir).ok().flatten().filter(|file| file.url == url);
        let pid = own.as_ref().map(|file| file.pid);
        match given_key.or(key).or_else(|| own.map(|file| file.api_key)) {
            Some(api_key) => Ok(Some(Target { url, sandbox_url, api_key, pid, is_named: true, admin_token })),
            None if !url.contains("://") => bail!(ClientError::Address(url)),
            None => bail!(
                "no API key for {url}\nhint: set E2B_API_KEY, or pass --api-key-file; `sandcove keys create NAME` on the host of the server \
                 prints a key"
            ),
        }
    }

    /// A client with the rights of the server's operator. `local` is the admin token in this machine's configuration file, which is
    /// for the server of this machine only.
    pub fn operator(&self, place: &Place, file: Option<&Path>, local: Option<Secret>) -> Result<Operator> {
        let Some(target) = self.target(place)? else { bail!(not_running(&place.data_dir)) };
        let given = match file {
            Some(path) => Some(read_key(path)?),
            None => {
                std::env::var("SANDCOVE_ADMIN_TOKEN").ok().filter(|text| !text.is_empty()).map(Secret::new)
            }
        };
        let token = given.or(target.admin_token).or_else(|| local.filter(|_| target.pid.is_some()));
        let Some(token) = token else {
            bail!(
                "no admin token for {}\nhint: start the server with SANDCOVE_ADMIN_TOKEN or `admin-token` in its configuration file, and \
                 set the variable here too, or pass --admin-token-file",
                target.url
            );
        };
        Ok(Operator::new(&target.url, &token)?)
    }

    /// A client for the server; an error when there is none.
    pub fn client(&self, place: &Place) -> Result<Client> {
        match self.target(place)? {
            Some(target) => target.client(),
            None => bail!(not_running(&place.data_dir)),
        }
    }
}

/// The address in the variables of the official clients, in their order.
fn address_in(variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let debug = || variable("E2B_DEBUG").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    variable("E2B_API_URL")
        .or_else(|| debug().then(|| "http://localhost:3000".to_owned()))
        .or_else(|| variable("E2B_DOMAIN").map(|domain| format!("https://api.{domain}")))
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
            let target = self.target()?;
            Ok((target.url, target.api_key.expose().to_owned()))
        }

        fn target(&self) -> Result<Target> {
            let place = Place { data_dir: self.dir.path().to_owned(), explicit: self.explicit };
            let variable = |name: &str| {
                self.variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let contexts = || Contexts::load_from(self.dir.path().join("contexts"));
            self.reach.target_with(&place, variable, contexts)?.context("none")
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
    fn sandboxes_are_where_the_variables_say_if_these_name_the_server() {
        let ports = ("E2B_SANDBOX_URL", "http://ports:1");
        let mut case = Case::new(&[("E2B_API_URL", "http://a:1"), ("E2B_API_KEY", "mine"), ports]);
        let sandbox_url = |case: &Case| case.target().unwrap().sandbox_url;
        assert_eq!(sandbox_url(&case).as_deref(), Some("http://ports:1"));
        case.reach.url = Some("http://b:1".to_owned());
        assert_eq!(sandbox_url(&case), None);
        assert_eq!(sandbox_url(&Case::new(&[ports])), None);
        let variables =
            [("E2B_API_URL", "http://a:1"), ("E2B_API_KEY", "mine"), ("E2B_SANDBOX_URL", "ports:1")];
        let error = Case::new(&variables).target().unwrap().client().unwrap_err();
        assert!(error.to_string().starts_with("`ports:1` is not the address of a server"), "{error}");
    }

    #[test]
    fn the_key_of_this_machines_server_is_sent_to_no_other() {
        let error = Case::new(&[("E2B_API_URL", "http://a:1")]).found().unwrap_err();
        assert!(error.to_string().starts_with("no API key for http://a:1\nhint: "), "{error}");
        assert!(error.to_string().contains("`sandcove keys create NAME`"), "{error}");
        Case::new(&[("E2B_API_URL", LOCAL)]).finds(LOCAL, "local");
    }

    #[test]
    fn an_address_without_a_scheme_is_named_before_a_missing_key() {
        let error = Case::new(&[("E2B_API_URL", "a:1")]).found().unwrap_err();
        assert!(error.to_string().contains("a:1") && !error.to_string().contains("API key"), "{error}");
    }

    #[test]
    fn a_domain_names_the_api_as_the_official_clients_do() {
        let key = ("E2B_API_KEY", "mine");
        Case::new(&[("E2B_DOMAIN", "example.com"), key]).finds("https://api.example.com", "mine");
        Case::new(&[("E2B_DOMAIN", "example.com"), ("E2B_DEBUG", "true"), key])
            .finds("http://localhost:3000", "mine");
        Case::new(&[("E2B_DOMAIN", "example.com"), ("E2B_API_URL", "http://a:1"), key])
            .finds("http://a:1", "mine");
    }

    #[test]
    fn a_context_is_between_the_variables_and_the_server_of_this_machine() {
        let mut case = Case::new(&[]);
        let mut contexts = Contexts::load_from(case.dir.path().join("contexts")).unwrap();
        for (name, url) in [("work", "http://work:1"), ("home", "http://home:1")] {
            contexts.set_url(name, url).unwrap();
            contexts.credentials(name).unwrap().api_key = Some(Secret::new(format!("key of {name}")));
        }
        contexts.select(Some("work")).unwrap();
        contexts.save().unwrap();
        case.finds("http://work:1", "key of work");
        case.variables = vec![("SANDCOVE_CONTEXT", "home")];
        case.finds("http://home:1", "key of home");
        case.variables = vec![("E2B_API_KEY", "mine")];
        case.finds("http://work:1", "mine");
        case.variables = vec![("E2B_API_URL", "http://a:1"), ("E2B_API_KEY", "mine")];
        case.finds("http://a:1", "mine");
        case.reach.context = Some("home".to_owned());
        case.finds("http://home:1", "key of home");
        case.reach.context = Some("hme".to_owned());
        assert_eq!(case.found().unwrap_err().to_string(), "unknown context `hme`; use home, work");
        case.reach.context = None;
        case.explicit = true;
        case.finds(LOCAL, "local");
    }
}

//! Named servers of a user: addresses in `config.toml` and keys in `keys.toml`, both in `~/.config/sandcove`.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use sandcove_wire::secret::Secret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const ADDRESSES: &str = "config.toml";
const KEYS: &str = "keys.toml";

/// The contexts of a user.
#[derive(Debug, Default)]
pub struct Contexts {
    directory: PathBuf,
    addresses: Addresses,
    keys: BTreeMap<String, Credentials>,
}

/// The contents of `config.toml`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Addresses {
    /// Name of the context that commands use.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    contexts: BTreeMap<String, Address>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Address {
    url: String,
}

/// The keys of a context.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Credentials {
    /// API key of a team.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// Admin token of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_token: Option<Secret>,
}

/// A server with a name.
#[derive(Debug, Clone)]
pub struct Context {
    /// Name of the context.
    pub name: String,
    /// Address of the server.
    pub url: String,
    /// Keys for the server.
    pub credentials: Credentials,
}

/// The directory of a user's files: `$XDG_CONFIG_HOME/sandcove`, or `~/.config/sandcove`; `None` without a home directory.
fn directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    Some(base.or_else(|| Some(variable("HOME")?.join(".config")))?.join("sandcove"))
}

impl Contexts {
    /// Reads the contexts of the user of this process; none if there are no files.
    pub fn load() -> Result<Self> {
        directory().map_or_else(|| Ok(Self::default()), Self::load_from)
    }

    /// Reads the contexts in a directory.
    pub fn load_from(directory: PathBuf) -> Result<Self> {
        let addresses = read(&directory.join(ADDRESSES))?;
        let keys = directory.join(KEYS);
        check_private(&keys)?;
        Ok(Self { addresses, keys: read(&keys)?, directory })
    }

    /// The path of the file with the addresses.
    pub fn path(&self) -> PathBuf {
        self.directory.join(ADDRESSES)
    }

    /// All contexts by name.
    pub fn all(&self) -> impl Iterator<Item = Context> + '_ {
        self.addresses.contexts.iter().map(|(name, address)| Context {
            name: name.clone(),
            url: address.url.clone(),
            credentials: self.keys.get(name).cloned().unwrap_or_default(),
        })
    }

    /// The context with a name.
    pub fn named(&self, name: &str) -> Result<Context> {
        if let Some(context) = self.all().find(|context| context.name == name) {
            return Ok(context);
        }
        let known: Vec<&str> = self.addresses.contexts.keys().map(String::as_str).collect();
        match known.as_slice() {
            [] => bail!(
                "unknown context `{name}`: none is configured\nhint: `sandcove config set {name}.url URL` makes one"
            ),
            known => bail!("unknown context `{name}`; use {}", known.join(", ")),
        }
    }

    /// Name of the selected context.
    pub fn selection(&self) -> Option<&str> {
        self.addresses.context.as_deref()
    }

    /// The selected context, if one is.
    pub fn selected(&self) -> Result<Option<Context>> {
        self.selection().map(|name| self.named(name)).transpose()
    }

    /// Selects a context, or none.
    pub fn select(&mut self, name: Option<&str>) -> Result<()> {
        self.addresses.context = name.map(|name| self.named(name)).transpose()?.map(|context| context.name);
        Ok(())
    }

    /// Sets the address of a context, and makes the context if it is new.
    pub fn set_url(&mut self, name: &str, url: &str) -> Result<()> {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            bail!("invalid context name `{name}`: use letters, digits, `-` and `_`");
        }
        // Refuses what no client could use.
        sandcove_client::Client::new(url, &Secret::new("-"))?;
        let address = Address { url: url.trim_end_matches('/').to_owned() };
        self.addresses.contexts.insert(name.to_owned(), address);
        Ok(())
    }

    /// The keys of a context, to be changed.
    pub fn credentials(&mut self, name: &str) -> Result<&mut Credentials> {
        self.named(name)?;
        Ok(self.keys.entry(name.to_owned()).or_default())
    }

    /// Removes a context with its keys.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        self.named(name)?;
        self.addresses.contexts.remove(name);
        self.keys.remove(name);
        self.addresses.context.take_if(|selected| selected == name);
        Ok(())
    }

    /// Writes the files, readable by their owner only.
    pub fn save(&self) -> Result<()> {
        if self.directory.as_os_str().is_empty() {
            bail!("no home directory to keep contexts in\nhint: set HOME or XDG_CONFIG_HOME");
        }
        let failed = || format!("failed to write to `{}`", self.directory.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).with_context(failed)?;
        write(&self.directory, KEYS, &toml::to_string(&self.keys)?).with_context(failed)?;
        write(&self.directory, ADDRESSES, &toml::to_string(&self.addresses)?).with_context(failed)
    }
}

fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map_err(|error| {
            anyhow!(
                "`{}` is invalid: {error}\nhint: correct it, or move it away and log in again with `sandcove auth login`",
                path.display()
            )
        }),
        // Another user's home directory, as with `sudo -u`, has no contexts for this one.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory
            ) =>
        {
            Ok(T::default())
        }
        Err(error) => Err(error).with_context(|| format!("failed to read `{}`", path.display())),
    }
}

fn check_private(path: &Path) -> Result<()> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if metadata.permissions().mode() & 0o077 != 0 {
        bail!("`{0}` is accessible to other accounts\nhint: run `chmod 600 {0}`", path.display());
    }
    Ok(())
}

/// Replaces a file by one that only its owner can read.
fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(directory.join(name))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> (tempfile::TempDir, Contexts) {
        let home = tempfile::tempdir().unwrap();
        let contexts = Contexts::load_from(home.path().join("sandcove")).unwrap();
        (home, contexts)
    }

    #[test]
    fn what_is_saved_is_loaded_and_private() {
        let (_home, mut contexts) = contexts();
        contexts.set_url("work", "https://api.example.com/").unwrap();
        contexts.credentials("work").unwrap().api_key = Some(Secret::new("e2b_x"));
        contexts.select(Some("work")).unwrap();
        contexts.save().unwrap();
        let again = Contexts::load_from(contexts.directory.clone()).unwrap();
        let selected = again.selected().unwrap().unwrap();
        assert_eq!((selected.name.as_str(), selected.url.as_str()), ("work", "https://api.example.com"));
        assert_eq!(selected.credentials.api_key.unwrap().expose(), "e2b_x");
        assert!(!std::fs::read_to_string(again.path()).unwrap().contains("e2b_x"));
        let keys = contexts.directory.join(KEYS);
        assert_eq!(std::fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Contexts::load_from(contexts.directory.clone()).unwrap_err().to_string();
        assert!(error.contains("hint: run `chmod 600"), "{error}");
    }

    #[test]
    fn a_removed_context_is_not_selected() {
        let (_home, mut contexts) = contexts();
        contexts.set_url("a", "http://a:1").unwrap();
        contexts.select(Some("a")).unwrap();
        contexts.remove("a").unwrap();
        assert!(contexts.selected().unwrap().is_none());
        assert!(contexts.named("a").unwrap_err().to_string().contains("config set a.url"));
        assert!(contexts.set_url("a.b", "http://a:1").is_err() && contexts.set_url("a", "a:1").is_err());
    }
}

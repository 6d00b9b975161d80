//! Checks of the names in requests.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::fcntl_get_seals;
use sandcove_image::LayerStore;
use sandcove_isolate::{Blueprint, Files, Mounted, NetworkPolicy, SandboxSpec};

use super::{Menu, Result};
use crate::failure::Failure;

/// Maximum number of rules in each list of a network policy.
const MAX_RULES: usize = 1024;
/// Maximum length of a rule, bytes.
const MAX_RULE: usize = 512;
/// Length of the headers of a policy and of the sealed secrets for them, bytes: more than the API allows.
const MAX_ADDED: usize = 4 << 20;
/// Directory of the files in a layer that a sandbox has written.
const WRITTEN_FILES: &str = "upper";

/// Checks that `name` is the name of a file that is not hidden.
pub(super) fn plain(name: &str) -> Result<&str> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Failure::refused("a name in a request is not plain"));
    }
    Ok(name)
}

/// Checks that `name` is as short as the name of a host.
pub(super) fn host(name: &str) -> Result<&str> {
    if name.is_empty() || name.len() > MAX_RULE {
        return Err(Failure::refused("the name of a host in a request is too long"));
    }
    Ok(name)
}

/// Checks that `path` leads to the files of a layer. Below a layer that is an image, everything is of strangers, links as well.
pub(super) fn layer(path: &Path) -> Result<()> {
    let names: Option<Vec<&str>> = path
        .components()
        .map(|component| match component {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match names.as_deref() {
        Some([name]) => plain(name).map(drop),
        Some([name, WRITTEN_FILES]) if name.starts_with(LayerStore::WRITTEN_PREFIX) => plain(name).map(drop),
        _ => Err(Failure::refused("a path in a request does not lead to a layer")),
    }
}

/// Checks that a log for a sandbox is a file in memory, which is written and read without waiting, and leads to nothing else.
pub(super) fn log(fd: Option<OwnedFd>) -> Result<Option<File>> {
    let Some(fd) = fd else { return Ok(None) };
    match fcntl_get_seals(&fd) {
        Ok(_) => Ok(Some(fd.into())),
        Err(_) => Err(Failure::refused("the log in a request is not a file in memory")),
    }
}

/// Checks that the files of a sandbox have a plain name.
pub(super) fn files(files: &Files) -> Result<()> {
    match files {
        Files::Snapshot(name) => plain(name).map(drop),
        Files::Empty | Files::Own => Ok(()),
    }
}

/// Checks that a policy is as short as the API's: it is kept as long as its sandbox lives.
pub(super) fn network(policy: &NetworkPolicy) -> Result<()> {
    let NetworkPolicy { deny_all: _, allow_out, deny_out, allow_names, dns, hosts, secrets, .. } = policy;
    // Everything else is short, or a text beside the lists.
    let NetworkPolicy { identity, upstream, rates: _, .. } = policy;
    let lists = [allow_out, deny_out, allow_names];
    let is_short =
        |list: &Vec<String>| list.len() <= MAX_RULES && list.iter().all(|rule| rule.len() <= MAX_RULE);
    let headers = hosts.iter().flat_map(|rule| &rule.headers);
    let identity = identity.as_ref().map_or(0, |identity| {
        let texts = identity.claims.iter().chain(&identity.audiences);
        texts.map(|(name, value)| name.len() + value.len()).sum::<usize>()
            + identity.issuer.len()
            + identity.subject.len()
    });
    let upstream = upstream.as_ref().map_or(0, |proxy| {
        let tls = proxy.tls.as_ref().map(|tls| [&tls.server_name, &tls.ca_cert]);
        let texts = tls.into_iter().flatten().chain([&proxy.username]).flatten().map(String::len);
        let password = proxy.password.as_ref().map_or(0, |one| one.context.len() + one.sealed.len());
        texts.sum::<usize>() + proxy.host.len() + password
    });
    let added = identity
        + upstream
        + hosts.iter().map(|rule| rule.host.len()).sum::<usize>()
        + headers.map(|(name, value)| name.len() + value.len()).sum::<usize>()
        + secrets.iter().map(|(name, one)| name.len() + one.context.len() + one.sealed.len()).sum::<usize>();
    if added > MAX_ADDED {
        return Err(Failure::refused("the headers of a network policy in a request are too long"));
    }
    if !lists.into_iter().all(is_short) || dns.as_ref().is_some_and(|servers| servers.len() > MAX_RULES) {
        return Err(Failure::refused("a network policy in a request is too long"));
    }
    Ok(())
}

impl Menu {
    /// Paths of layers on this host.
    pub(crate) fn layers(&self, layers: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
        let directory = self.backend.layer_dir();
        layers
            .into_iter()
            .map(|path| {
                layer(&path)?;
                Ok(directory.join(path))
            })
            .collect()
    }

    /// A blueprint with the paths of its layers on this host.
    pub(crate) fn resolved(&self, blueprint: Blueprint) -> Result<Blueprint> {
        if let Some(snapshot) = &blueprint.started {
            plain(snapshot)?;
        }
        Ok(Blueprint { layers: self.layers(blueprint.layers)?, ..blueprint })
    }

    /// The layers and volumes of a sandbox, on this host.
    pub(crate) fn mounted(&self, mounted: Mounted) -> Result<Mounted> {
        let Mounted { layers, volumes } = mounted;
        for mount in &volumes {
            plain(&mount.volume)?;
        }
        Ok(Mounted { layers: self.layers(layers)?, volumes })
    }

    /// A specification that names only what is in the pool.
    pub(crate) fn checked_spec(&self, spec: SandboxSpec) -> Result<SandboxSpec> {
        files(&spec.files)?;
        network(&spec.network)?;
        for mount in &spec.mounts {
            plain(&mount.volume)?;
        }
        Ok(SandboxSpec { blueprint: self.resolved(spec.blueprint)?, ..spec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out_of_their_directory() {
        for good in ["a", "t-0f", "f-00.x", "0190-x"] {
            assert_eq!(plain(good).unwrap(), good);
        }
        for bad in ["", ".", "..", ".lock", "a/b", "/", "../a", "a\0"] {
            assert!(plain(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_layers_are_layers() {
        for good in ["base-1", "oci-0f", "t-0f/upper"] {
            assert!(layer(Path::new(good)).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/",
            "/etc",
            "..",
            "../sandboxes",
            "a/../..",
            "oci-0f/upper",
            "t-0f/work",
            "t-0f/upper/etc",
            ".x",
        ] {
            assert!(layer(Path::new(bad)).is_err(), "{bad:?}");
        }
    }
}

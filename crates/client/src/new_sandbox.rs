//! The parameters of a new sandbox (contract: control-plane, section 6.2).

use std::collections::BTreeMap;

use sandcove_wire::api::network::Network;
use sandcove_wire::api::sandbox::{AutoResume, VolumeMount};
use serde::Serialize;

/// The parameters of a new sandbox.
///
/// ```
/// use sandcove_client::NewSandbox;
///
/// let new = NewSandbox::default().timeout(60).env("LANG", "C.UTF-8").label("user", "ada").volume("data", "/data");
/// assert_eq!(new.template, "code-interpreter-v1");
/// assert_eq!(new.metadata["user"], "ada");
/// ```
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSandbox {
    /// Name or id of the template, or id of a snapshot.
    #[serde(rename = "templateID")]
    pub template: String,
    /// Timeout, in seconds, after which the sandbox ends.
    pub timeout: u32,
    /// Variables of every process.
    #[serde(rename = "envVars")]
    pub envs: BTreeMap<String, String>,
    /// Labels of the sandbox.
    pub metadata: BTreeMap<String, String>,
    /// Whether the sandbox may reach the internet.
    #[serde(rename = "allow_internet_access")]
    pub allow_internet_access: bool,
    /// Network rules; none when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Whether the sandbox is paused instead of killed at its timeout.
    pub auto_pause: bool,
    /// Whether the pause at the timeout keeps memory, and not only files; true when unset. Traffic cannot resume a sandbox that keeps only
    /// files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_pause_memory: Option<bool>,
    /// Whether traffic resumes the sandbox when it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<AutoResume>,
    /// Volumes to mount.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
}

impl Default for NewSandbox {
    fn default() -> Self {
        Self {
            template: "code-interpreter-v1".to_owned(),
            timeout: 300,
            envs: BTreeMap::new(),
            metadata: BTreeMap::new(),
            allow_internet_access: true,
            network: None,
            auto_pause: false,
            auto_pause_memory: None,
            auto_resume: None,
            volume_mounts: Vec::new(),
        }
    }
}

impl NewSandbox {
    /// The parameters with defaults for a sandbox of a template, or of a snapshot.
    pub fn of(template: impl Into<String>) -> Self {
        Self { template: template.into(), ..Self::default() }
    }

    /// Sets the timeout, in seconds.
    #[must_use]
    pub fn timeout(mut self, seconds: u32) -> Self {
        self.timeout = seconds;
        self
    }

    /// Adds a variable of every process.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.insert(name.into(), value.into());
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Sets whether the sandbox may reach the internet.
    #[must_use]
    pub fn internet(mut self, is_allowed: bool) -> Self {
        self.allow_internet_access = is_allowed;
        self
    }

    /// Sets the network rules.
    #[must_use]
    pub fn network(mut self, rules: Network) -> Self {
        self.network = Some(rules);
        self
    }

    /// Lets the sandbox pause at its timeout, and with `resumes` run again when traffic comes.
    #[must_use]
    pub fn pauses_at_timeout(mut self, resumes: bool) -> Self {
        self.auto_pause = true;
        self.auto_resume = Some(AutoResume { enabled: resumes });
        self
    }

    /// Lets the sandbox pause at its timeout with its files only, and without its processes.
    #[must_use]
    pub fn pauses_files_at_timeout(mut self) -> Self {
        self.auto_pause = true;
        self.auto_pause_memory = Some(false);
        self
    }

    /// Mounts a volume, by its name, at an absolute path.
    #[must_use]
    pub fn volume(mut self, name: impl Into<String>, path: impl Into<String>) -> Self {
        self.volume_mounts.push(VolumeMount { name: name.into(), path: path.into() });
        self
    }
}

//! What a generation is valid for, and what it consists of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Mount;

/// Properties of the host that processes of a sandbox hold on to. A restore needs the same, or for the guest programs the same version beside others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostFacts {
    /// Version of CRIU.
    pub(crate) criu: String,
    /// Release and version of the kernel.
    pub(crate) kernel: String,
    /// Features of the processors, which programs have chosen their code by.
    pub(crate) processors: String,
    /// Name of the directory of the guest programs, which is a digest of them.
    pub(crate) programs: String,
}

/// The manifest of a generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Name of the generation: the id of a parked sandbox, or the name of a snapshot.
    pub(crate) id: String,
    /// Version of the server.
    pub(crate) server: String,
    /// The host.
    pub(crate) host: HostFacts,
    /// Layers of the template, topmost first.
    pub(crate) layers: Vec<PathBuf>,
    /// Volumes that the sandbox had mounted; unknown in manifests of earlier versions.
    #[serde(default)]
    pub(crate) mounts: Option<Vec<Mount>>,
    /// Slot of the sandbox, which its addresses follow from.
    pub(crate) slot: u32,
    /// Digests of the images by name, hexadecimal; filled in when the generation is published.
    #[serde(default)]
    pub(crate) images: BTreeMap<String, String>,
    /// Digests of the files about memory in common, in the same way; unknown to earlier versions, which must not restore such images.
    #[serde(default)]
    pub(crate) common: BTreeMap<String, String>,
}

impl HostFacts {
    /// The host of this process, with the given CRIU and guest programs.
    pub(crate) fn here(criu: String, programs: String) -> Self {
        let name = rustix::system::uname();
        let kernel = format!("{} {}", name.release().to_string_lossy(), name.version().to_string_lossy());
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let features =
            text.lines().find_map(|line| line.strip_prefix("flags").or(line.strip_prefix("Features")));
        let processors =
            features.map(|line| line.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default();
        Self { criu, kernel, processors, programs }
    }

    /// Name of the first difference to another host, guest programs aside; `None` when there is none. Another boot of the kernel is no difference: CRIU gives
    /// the processes clocks that go on from the dump.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            ("another version of CRIU", self.criu == other.criu),
            ("another kernel", self.kernel == other.kernel),
            ("other processors", self.processors == other.processors),
        ]
        .into_iter()
        .find_map(|(difference, is_same)| (!is_same).then_some(difference))
    }
}

//! The directory where stored runs and cached answers are.

use std::path::PathBuf;

/// Returns `PROMPTFOO_CONFIG_DIR`, or `~/.sandcove`.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("PROMPTFOO_CONFIG_DIR").filter(|name| !name.is_empty());
    named.map_or_else(own_directory, PathBuf::from)
}

/// Returns `~/.sandcove`, which is this program's alone.
pub fn own_directory() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".sandcove")
}

//! The directory where stored runs and cached answers are.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory that the program was started in.
static START: OnceLock<PathBuf> = OnceLock::new();

/// Returns `PROMPTFOO_CONFIG_DIR`, or `~/.sandcove`. A relative one is below the directory that the program was in at the first call of
/// this module: running a stored suite again enters the suite's directory.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("PROMPTFOO_CONFIG_DIR").filter(|name| !name.is_empty());
    below_start(&named.map_or_else(own_directory, PathBuf::from))
}

/// Returns the path below the directory that the program was started in; an absolute path as it is.
pub fn below_start(path: &Path) -> PathBuf {
    START.get_or_init(|| std::env::current_dir().unwrap_or_default()).join(path)
}

/// Returns `~/.sandcove`, which is this program's alone.
pub fn own_directory() -> PathBuf {
    std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default().join(".sandcove")
}

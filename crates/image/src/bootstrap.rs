//! Installs a Debian system into a directory, by mmdebstrap.

use std::path::Path;
use std::process::ExitStatus;

use crate::{contained, lines};

/// Options of dpkg, here and in every sandbox. Documentation and translations are left out; licences stay. Files are not written to disk
/// one by one: a layer and a snapshot are written to disk as a whole.
const DPKG_OPTIONS: [&str; 5] = [
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

fn arguments(suite: &str, packages: &[String], target: &Path, mirror: Option<&str>) -> Vec<String> {
    let mut arguments = vec![
        // Root mode: files get the ids they have inside a sandbox.
        "--mode=root".to_owned(),
        "--variant=minbase".to_owned(),
        // The target is an empty directory of ours; mmdebstrap refuses directories that exist.
        "--skip=check/empty".to_owned(),
        format!("--include={}", packages.join(",")),
    ];
    arguments.extend(DPKG_OPTIONS.map(|option| format!("--dpkgopt={option}")));
    arguments.push(suite.to_owned());
    arguments.push(target.display().to_string());
    // Without a mirror, mmdebstrap takes Debian's own, with its updates and security fixes.
    arguments.extend(mirror.map(str::to_owned));
    arguments
}

pub(crate) async fn debian(
    suite: &str,
    packages: &[String],
    target: &Path,
    mirror: Option<&str>,
    output: &mut (dyn FnMut(&str) + Send),
) -> std::io::Result<ExitStatus> {
    let mut command = contained::command("mmdebstrap");
    command.args(arguments(suite, packages, target, mirror)).env("LC_ALL", "C.UTF-8");
    lines::run(&mut command, output).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_complete() {
        let packages = ["jq".to_owned(), "git".to_owned()];
        let arguments = arguments("trixie", &packages, Path::new("/layer"), Some("http://mirror"));
        assert!(arguments.contains(&"--include=jq,git".to_owned()));
        assert_eq!(arguments[arguments.len() - 3..], ["trixie", "/layer", "http://mirror"]);
    }
}

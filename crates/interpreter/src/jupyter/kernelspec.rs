//! The installed kernels: directories with a `kernel.json`, where Jupyter looks for them too.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::DEFAULT_DIRECTORY;
use crate::kernel::{Escalation, InterruptMode, PipeOutput, Traits};
use crate::language::Language;

/// Limit on a `kernel.json`, in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// An installed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernelspec {
    /// Name of the kernel: that of its directory, in lowercase.
    pub name: String,
    /// Directory of the kernel.
    directory: PathBuf,
    manifest: Manifest,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Manifest {
    argv: Vec<String>,
    #[serde(default)]
    language: String,
    #[serde(default)]
    interrupt_mode: InterruptMode,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl Kernelspec {
    /// Finds all installed kernels, the first of each name. Kernels of this account come first, then those of the programs on the
    /// search path, then those of the system.
    pub fn installed(environment: &BTreeMap<OsString, OsString>) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for directory in directories(environment) {
            for spec in within(&directory) {
                if !found.iter().any(|other| other.name == spec.name) {
                    found.push(spec);
                }
            }
        }
        found
    }

    /// The kernel that `language` means: the one of this name, or else the first that declares this language.
    pub fn of<'a>(language: &Language, installed: &'a [Self]) -> Option<&'a Self> {
        let by_name = installed.iter().find(|spec| spec.name == language.as_str());
        by_name.or_else(|| installed.iter().find(|spec| spec.language().as_ref() == Some(language)))
    }

    /// The language that the kernel declares.
    pub fn language(&self) -> Option<Language> {
        Language::from_request(Some(&self.manifest.language))
    }

    /// The language name that selects this kernel: its language, unless that selects another kernel.
    pub fn known_as(&self, installed: &[Self]) -> String {
        match self.language() {
            Some(language) if Self::of(&language, installed) == Some(self) => language.to_string(),
            _ => self.name.clone(),
        }
    }

    /// The traits of the running kernel.
    ///
    /// Jupyter kernels keep their variables if they stop, but whether they can stop depends on who wrote them. Kernels written
    /// in Python are built on ipykernel, which reads its own descriptors, publishes what it reads, and passes it on.
    pub fn traits(&self) -> Traits {
        let program = self.manifest.argv.first().and_then(|program| Path::new(program).file_name()?.to_str());
        let pipes = match program {
            Some(name) if name.starts_with("python") => PipeOutput::Discard,
            _ => PipeOutput::Forward,
        };
        Traits { interrupt: self.manifest.interrupt_mode, escalation: Escalation::KillAfter(2), pipes }
    }

    /// The program, and its arguments, that start the kernel with this connection file.
    pub fn command(&self, connection_file: &Path) -> Option<(String, Vec<String>)> {
        let fill = |argument: &String| {
            argument
                .replace("{connection_file}", &connection_file.to_string_lossy())
                .replace("{resource_dir}", &self.directory.to_string_lossy())
        };
        let (program, arguments) = self.manifest.argv.split_first()?;
        Some((fill(program), arguments.iter().map(fill).collect()))
    }

    /// `environment` with the variables that the kernel declares, in which `${NAME}` stands for the value in `environment`.
    pub fn environment(&self, environment: &BTreeMap<OsString, OsString>) -> BTreeMap<OsString, OsString> {
        let mut own = environment.clone();
        for (name, value) in &self.manifest.env {
            own.insert(name.into(), fill_in(value, environment).into());
        }
        own
    }
}

fn fill_in(template: &str, environment: &BTreeMap<OsString, OsString>) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            filled.push_str("${");
            rest = after;
            continue;
        };
        let value = environment.get(OsStr::new(name));
        filled.push_str(&value.map(|value| value.to_string_lossy()).unwrap_or_default());
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

/// The directories in which kernels are looked for.
fn directories(environment: &BTreeMap<OsString, OsString>) -> Vec<PathBuf> {
    let variable = |name: &str| environment.get(OsStr::new(name));
    let listed = |name: &str| variable(name).into_iter().flat_map(std::env::split_paths);
    let share = |prefix: &Path| prefix.join("share/jupyter");
    let homes = variable("HOME").map(PathBuf::from).into_iter().chain([PathBuf::from(DEFAULT_DIRECTORY)]);

    let mut all: Vec<PathBuf> = listed("JUPYTER_PATH").collect();
    all.extend(homes.map(|home| share(&home.join(".local"))));
    // A kernel is installed beside the programs it belongs to, in virtual environments as well.
    all.extend(listed("PATH").filter_map(|programs| programs.parent().map(share)));
    all.extend(["/usr/local", "/usr"].map(|prefix| share(Path::new(prefix))));
    all.iter().map(|data| data.join("kernels")).collect()
}

/// The kernels of one directory, by name.
fn within(directory: &Path) -> Vec<Kernelspec> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<Kernelspec> = entries.flatten().filter_map(|entry| read(&entry.path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn read(directory: &Path) -> Option<Kernelspec> {
    let name = directory.file_name()?.to_str()?.to_lowercase();
    let path = directory.join("kernel.json");
    let mut text = String::new();
    std::fs::File::open(&path).ok()?.take(MAX_MANIFEST).read_to_string(&mut text).ok()?;
    match serde_json::from_str::<Manifest>(&text) {
        Ok(manifest) if !manifest.argv.is_empty() => {
            Some(Kernelspec { name, directory: directory.to_owned(), manifest })
        }
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "passed over a kernel that cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(data: &Path, name: &str, manifest: &str) {
        let directory = data.join("kernels").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("kernel.json"), manifest).unwrap();
    }

    fn environment(pairs: &[(&str, &Path)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| ((*name).into(), value.as_os_str().to_owned())).collect()
    }

    fn language(name: &str) -> Language {
        Language::from_request(Some(name)).unwrap()
    }

    fn found<'a>(name: &str, installed: &'a [Kernelspec]) -> Option<&'a str> {
        Kernelspec::of(&language(name), installed).map(|spec| spec.name.as_str())
    }

    #[test]
    fn kernels_are_found_where_jupyter_finds_them() {
        let root = tempfile::tempdir().unwrap();
        let (home, prefix, extra) =
            (root.path().join("home"), root.path().join("venv"), root.path().join("extra"));
        install(&home.join(".local/share/jupyter"), "mine", r#"{"argv": ["m"]}"#);
        install(&prefix.join("share/jupyter"), "IR", r#"{"argv": ["R"], "language": "R"}"#);
        install(&extra, "xcpp17", r#"{"argv": ["x"], "language": "C++17"}"#);
        let path = std::env::join_paths([prefix.join("bin"), root.path().join("none")]).unwrap();
        let environment =
            environment(&[("HOME", &home), ("PATH", Path::new(&path)), ("JUPYTER_PATH", &extra)]);

        let installed = Kernelspec::installed(&environment);
        for (asked, name) in
            [("mine", "mine"), ("R", "ir"), ("ir", "ir"), ("c++", "xcpp17"), ("CPP", "xcpp17")]
        {
            assert_eq!(found(asked, &installed), Some(name), "{asked}");
        }
        assert_eq!(found("cobol", &installed), None);
        let known: Vec<String> = installed.iter().map(|spec| spec.known_as(&installed)).collect();
        assert_eq!(known[..3], ["cpp", "mine", "r"]);
    }

    #[test]
    fn the_name_goes_before_the_language_and_ones_own_before_the_systems() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        install(&first, "aaa", r#"{"argv": ["1"], "language": "ruby"}"#);
        install(&second, "ruby", r#"{"argv": ["2"], "language": "other"}"#);
        install(&second, "aaa", r#"{"argv": ["3"], "language": "ruby"}"#);
        let both = std::env::join_paths([&first, &second]).unwrap();
        let installed = Kernelspec::installed(&environment(&[("JUPYTER_PATH", Path::new(&both))]));
        assert_eq!(found("ruby", &installed), Some("ruby"));
        let ours = Kernelspec::of(&language("aaa"), &installed).unwrap();
        assert_eq!(ours.command(Path::new("f")).unwrap().0, "1");
        install(&first, "py", r#"{"argv": ["/opt/x/bin/python3.12"]}"#);
        assert_eq!(within(&first.join("kernels"))[1].traits().pipes, PipeOutput::Discard);
    }

    #[test]
    fn what_cannot_be_read_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let huge = format!(r#"{{"argv": ["x"], "language": "{}"}}"#, "x".repeat(2 << 20));
        for (name, manifest) in [
            ("text", "no json"),
            ("none", r#"{"argv": []}"#),
            ("list", "[]"),
            ("args", r#"{"argv": "x"}"#),
            ("huge", &huge),
        ] {
            install(root.path(), name, manifest);
        }
        std::fs::create_dir_all(root.path().join("kernels/empty")).unwrap();
        install(root.path(), "good", r#"{"argv": ["x"], "metadata": {"a": 1}, "interrupt_mode": "message"}"#);
        let installed = Kernelspec::installed(&environment(&[("JUPYTER_PATH", root.path())]));
        let ours: Vec<_> = installed.iter().filter(|spec| spec.directory.starts_with(root.path())).collect();
        assert_eq!(ours.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["good"]);
        assert_eq!(ours[0].traits().interrupt, InterruptMode::Message);
        assert_eq!(ours[0].traits().pipes, PipeOutput::Forward);
    }

    #[test]
    fn the_command_line_and_the_environment_are_filled_in() {
        let root = tempfile::tempdir().unwrap();
        let manifest = r#"{
            "argv": ["java", "-jar", "{resource_dir}/k.jar", "--file={connection_file}"],
            "env": { "PATH": "/own:${PATH}", "X": "${NONE}-${", "Y": "$PATH" }
        }"#;
        install(root.path(), "k", manifest);
        let environment = environment(&[("JUPYTER_PATH", root.path()), ("PATH", Path::new("/bin"))]);
        let installed = Kernelspec::installed(&environment);
        let spec = Kernelspec::of(&language("k"), &installed).unwrap();
        let (program, arguments) = spec.command(Path::new("/run/c.json")).unwrap();
        let jar = format!("{}/kernels/k/k.jar", root.path().display());
        assert_eq!(
            (program.as_str(), &arguments[..]),
            ("java", &["-jar".into(), jar, "--file=/run/c.json".into()][..])
        );
        let own = spec.environment(&environment);
        let value = |name: &str| own[OsStr::new(name)].to_str().unwrap();
        assert_eq!((value("PATH"), value("X"), value("Y")), ("/own:/bin", "-${", "$PATH"));
    }
}

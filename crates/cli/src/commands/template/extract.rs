//! Files of another stage, image or template (`COPY --from`): a stage or an image is built as a template, and the files are taken out of
//! a sandbox of it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use sandcove_client::{Command, CommandEvent, Sandbox};
use sandcove_dockerfile::context::{Content, Entry, Selection};
use sandcove_dockerfile::fileset::FileSet;
use sandcove_dockerfile::plan::{Copy, Origin};
use sandcove_dockerfile::{Error, octal_mode, quoted};
use sandcove_wire::envd::filesystem::{EntryInfo, FileType};
use tokio::fs::File;
use tokio::io::AsyncSeekExt;

/// Levels of directories that are listed.
const DEPTH: u32 = 1000;

/// Exit status of the script when the sandbox lacks a program that the script needs.
const NO_PROGRAM: i32 = 90;
/// Exit status of the script when nothing matches.
const NO_FILES: i32 = 91;

/// Files to take out of a stage. Whether they are a file, a directory or several is known only then, so that the archive is laid out
/// relative to a destination that is right in all cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extraction {
    /// Line of the instruction that needs them first.
    pub line: usize,
    /// Where the files are.
    pub origin: Origin,
    /// Absolute path or pattern in the stage.
    pub source: String,
    /// Directory of the archive whose contents are copied, named so that the log shows the origin.
    pub root: String,
    /// Directory that they are copied to, with `/` at its end.
    pub destination: String,
    /// Name in that directory, if the destination of the instruction does not end with `/`.
    pub name: Option<String>,
}

impl Extraction {
    /// The extraction for a source of a `COPY --from`.
    pub fn new(line: usize, origin: &Origin, source: &str, copy: &Copy) -> Result<Self, Error> {
        let refused = |what: &str, hint: &str| {
            Err(Error::new(format!("{what} is not available with `--from`")).hint(hint))
        };
        if copy.parents {
            return refused("`COPY --parents`", "copy each directory to its own destination");
        }
        if !copy.exclude.is_empty() {
            return refused("`COPY --exclude`", "remove the files in the stage that they are copied from");
        }
        if let Some(mode) = copy.mode.as_deref().filter(|mode| octal_mode(mode).is_none()) {
            return refused(&format!("`--chmod={mode}`"), "use an octal mode such as 0755");
        }
        let from = match origin {
            Origin::Stage(stage) => format!("stage-{stage}"),
            Origin::Image(name) | Origin::Template(name) => {
                name.rsplit('/').next().unwrap_or(name).replace([':', '@'], "-")
            }
            Origin::Context => String::new(),
        };
        let plain: String = source.chars().map(|c| if "*?[]\\".contains(c) { '_' } else { c }).collect();
        let parts: Vec<&str> = plain.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        let root = std::iter::once(from.as_str()).chain(parts).collect::<Vec<_>>().join("/");
        let (destination, name) = match copy.destination.strip_suffix('/') {
            Some(_) => (copy.destination.clone(), None),
            None => match copy.destination.rsplit_once('/') {
                Some((parent, name)) => (format!("{parent}/"), Some(name.to_owned())),
                None => (format!("{}/", copy.destination), None),
            },
        };
        let source = format!("/{}", source.trim_start_matches('/'));
        Ok(Self { line, origin: origin.clone(), source, root, destination, name })
    }

    /// The archive of the files, from a sandbox of the stage.
    pub async fn archive(&self, sandbox: &Sandbox, directory: &Path) -> Result<File> {
        let mut output = String::new();
        let mut errors = String::new();
        let command = Command { line: self.script(), user: Some("root".to_owned()), ..Command::default() };
        let exit = sandbox
            .run(&command, |event| match event {
                CommandEvent::Stdout(bytes) => output.push_str(&String::from_utf8_lossy(&bytes)),
                CommandEvent::Stderr(bytes) => errors.push_str(&String::from_utf8_lossy(&bytes)),
            })
            .await;
        match exit.map(|exit| exit.code) {
            Ok(0) => {
                let path = directory.join(uuid::Uuid::new_v4().to_string());
                let mut file = File::options().create_new(true).read(true).write(true).open(&path).await?;
                sandbox.download(output.trim(), Some("root"), &mut file).await?;
                file.rewind().await?;
                Ok(file)
            }
            Ok(NO_FILES) => bail!("no files match `{}` in the stage that they are copied from", self.source),
            // An image without a shell or without tar.
            Err(_) | Ok(NO_PROGRAM | 126 | 127) => self.without_shell(sandbox, directory).await,
            Ok(code) => bail!(
                "failed to copy `{}` from its stage: {} (exit status {code})",
                self.source,
                errors.trim()
            ),
        }
    }

    /// Lays the files out as the archive has them, packs them, and prints the path of the archive.
    fn script(&self) -> String {
        let name = self.name.as_deref().map(quoted).unwrap_or_default();
        format!(
            "for program in tar gzip mktemp readlink cp; do command -v \"$program\" >/dev/null || exit {NO_PROGRAM}; done\n\
             set -e; work=$(mktemp -d); root=\"$work/files/\"{root}; mkdir -p \"$root\"; name={name}; found=\n\
             for path in {pattern}; do\n\
             \x20 real=$(readlink -f \"$path\") && [ -e \"$real\" ] || continue\n\
             \x20 found=1\n\
             \x20 if [ -d \"$real\" ]; then mkdir -p \"$root/$name\"; cp -a \"$real/.\" \"$root/$name/\"\n\
             \x20 else cp -a \"$real\" \"$root/${{name:-${{path##*/}}}}\"; fi\n\
             done\n\
             [ -n \"$found\" ] || exit {NO_FILES}\n\
             tar -C \"$work/files\" -czf \"$work/files.tar.gz\" .\n\
             printf '%s\\n' \"$work/files.tar.gz\"\n",
            root = quoted(&self.root),
            pattern = shell_pattern(&self.source),
        )
    }

    /// Reads the files through the files API, for images without the programs. Links point to what they resolve to.
    async fn without_shell(&self, sandbox: &Sandbox, directory: &Path) -> Result<File> {
        let missing = || format!("no files match `{}` in the stage that they are copied from", self.source);
        if self.source.contains(['*', '?', '[']) {
            bail!(
                "the wildcards in `COPY --from … {}` need a shell in the stage\nhint: name the files one by one",
                self.source
            );
        }
        let mut entry = sandbox.stat(&self.source).await?.with_context(missing)?;
        if let Some(target) = entry.symlink_target.take() {
            entry = sandbox.stat(&target).await?.with_context(missing)?;
        }
        let own_name = self.source.rsplit('/').next().unwrap_or_default();
        let mut entries =
            vec![Entry { path: self.root.clone(), mode: 0o40_755, modified: 0, content: Content::Directory }];
        if entry.r#type() == FileType::Directory {
            let base = match &self.name {
                Some(name) => format!("{}/{name}", self.root),
                None => self.root.clone(),
            };
            for below in sandbox.list_directory(&entry.path, DEPTH).await? {
                let path = format!("{base}{}", below.path.strip_prefix(&entry.path).unwrap_or(&below.path));
                entries.extend(fetched(sandbox, &below, path, directory).await?);
            }
        } else {
            let path = format!("{}/{}", self.root, self.name.as_deref().unwrap_or(own_name));
            entries.extend(fetched(sandbox, &entry, path, directory).await?);
        }
        let selection = Selection { source: self.root.clone(), entries, into_directory: false };
        let set = FileSet::new(selection, &self.destination);
        let archive = tokio::task::block_in_place(|| set.archive())?;
        Ok(File::from_std(archive))
    }
}

/// An entry of the sandbox, with its contents in a new file of `directory`; `None` for a socket or device.
async fn fetched(
    sandbox: &Sandbox,
    entry: &EntryInfo,
    path: String,
    directory: &Path,
) -> Result<Option<Entry>> {
    let content = match (&entry.symlink_target, entry.r#type()) {
        (Some(target), _) => Content::Link(target.clone()),
        (None, FileType::Directory) => Content::Directory,
        (None, FileType::File) => {
            let here = directory.join(uuid::Uuid::new_v4().to_string());
            let mut file = File::create(&here).await?;
            sandbox.download(&entry.path, Some("root"), &mut file).await?;
            Content::File { size: file.metadata().await?.len(), path: here }
        }
        (None, _) => return Ok(None),
    };
    let kind = match content {
        Content::Link(_) => 0o120_000,
        Content::Directory => 0o40_000,
        Content::File { .. } | Content::Bytes(_) => 0o100_000,
    };
    Ok(Some(Entry { path, mode: kind | (entry.mode & 0o7777), modified: 0, content }))
}

/// A pattern for a shell: wildcards work, and everything else is literal.
fn shell_pattern(pattern: &str) -> String {
    let mut shell = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => shell.extend(chars.next().into_iter().flat_map(|c| ['\\', c])),
            c if c.is_ascii_alphanumeric() || "-_./*?[]".contains(c) || !c.is_ascii() => shell.push(c),
            '\n' => shell.push_str("'\n'"),
            c => shell.extend(['\\', c]),
        }
    }
    shell
}

#[cfg(test)]
mod tests {
    use sandcove_dockerfile::plan::{Options, Plan, StepKind};
    use sandcove_dockerfile::source;

    use super::*;

    fn extraction(line: &str) -> Result<Extraction, Error> {
        let text = format!("FROM x AS a\nFROM y\n{line}");
        let plan = Plan::new(&source::parse(&text).unwrap(), &Options::default()).unwrap();
        let copy = plan.stages[1].steps.iter().find_map(|step| match &step.kind {
            StepKind::Copy(copy) => Some(copy.clone()),
            _ => None,
        });
        Extraction::new(3, &Origin::Stage(0), "out/app", &copy.unwrap())
    }

    #[test]
    fn a_destination_is_a_directory_and_perhaps_a_name() {
        let one = extraction("COPY --from=a out/app /opt/server").unwrap();
        assert_eq!((one.destination.as_str(), one.name.as_deref()), ("/opt/", Some("server")));
        assert_eq!((one.source.as_str(), one.root.as_str()), ("/out/app", "stage-0/out/app"));
        let into = extraction("COPY --from=a out/app /opt/bin/").unwrap();
        assert_eq!((into.destination.as_str(), into.name), ("/opt/bin/", None));
        assert_eq!(extraction("COPY --from=a out/app /x").unwrap().destination, "/");
        assert!(extraction("COPY --from=a --parents out/app /opt/").is_err());
        assert!(extraction("COPY --from=a --chmod=u+x out/app /opt/").is_err());
    }

    #[test]
    fn the_script_lays_files_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a b/sub")).unwrap();
        std::fs::write(at("a b/sub/f"), "f").unwrap();
        std::fs::write(at("one.txt"), "1").unwrap();
        std::os::unix::fs::symlink("one.txt", at("two.txt")).unwrap();
        let listed = |source: &str, name: Option<&str>| {
            let extraction = Extraction {
                line: 1,
                origin: Origin::Stage(0),
                source: at(source).to_str().unwrap().to_owned(),
                root: "stage-0/x".to_owned(),
                destination: "/d/".to_owned(),
                name: name.map(str::to_owned),
            };
            let output =
                std::process::Command::new("sh").args(["-c", &extraction.script()]).output().unwrap();
            if !output.status.success() {
                return vec![format!("{:?}", output.status.code())];
            }
            let archive = String::from_utf8(output.stdout).unwrap();
            let list = std::process::Command::new("tar").args(["-tzf", archive.trim()]).output().unwrap();
            std::fs::remove_dir_all(Path::new(archive.trim()).parent().unwrap()).unwrap();
            let mut names: Vec<String> = String::from_utf8(list.stdout)
                .unwrap()
                .lines()
                .filter(|line| !line.ends_with('/'))
                .map(|line| line.trim_start_matches("./stage-0/x/").to_owned())
                .collect();
            names.sort();
            names
        };
        assert_eq!(listed("one.txt", Some("name")), ["name"]);
        assert_eq!(listed("two.txt", None), ["two.txt"]);
        assert_eq!(listed("a b", None), ["sub/f"]);
        assert_eq!(listed("a b", Some("c")), ["c/sub/f"]);
        assert_eq!(listed("*.txt", None), ["one.txt", "two.txt"]);
        assert_eq!(listed("none*", None), [format!("Some({NO_FILES})")]);
    }
}

//! COPY (contract: templates, section 9.3). The archive is unpacked into a directory beside it that only root can enter, with
//! owner and mode as they will be, and then moved: in the usual case by one rename for each name at the top.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::error::{Result, StepError, shown};
use super::tree::{Attributes, DIRECTORY_MODE, Inside, Tree};
use super::{archive, merge, owner, resolve};
use crate::account::Accounts;
use crate::filesystem::directories;

/// The arguments of COPY.
pub(super) struct Copy<'a> {
    /// Path or glob within the archive.
    pub(super) source: &'a str,
    /// Path in the sandbox.
    pub(super) destination: &'a str,
    /// Directory where a relative destination starts; the home directory of `user` when unset.
    pub(super) workdir: Option<&'a str>,
    /// Current user of the build.
    pub(super) user: &'a str,
    /// Owner of the files.
    pub(super) owner: Option<&'a str>,
    /// Mode of the files, in octal.
    pub(super) mode: Option<&'a str>,
}

/// Copies from `archive`, which is removed in any case.
pub(super) fn run(archive: &Path, copy: &Copy<'_>, accounts: &Accounts) -> Result<()> {
    let file = File::open(archive).map_err(|e| StepError::file("open", archive.display(), e))?;
    // Its space is free once it is closed.
    fs::remove_file(archive).map_err(|e| StepError::file("remove", archive.display(), e))?;
    let user = owner::account(accounts, copy.user)?;
    let owner = owner::parse(copy.owner, &user, accounts)?;
    let attributes = Attributes { owner, mode: owner::mode(copy.mode)? };
    let destination = Destination::new(copy.destination, copy.workdir, &user.home);

    let staging = Staging::create(archive)?;
    let mut tree = Tree::new(&staging.tree(), attributes)?;
    archive::unpack(BufReader::with_capacity(64 << 10, file), &mut tree)?;
    drop(tree);
    let source = Source::find(&staging.tree(), copy.source)?;
    place(&source, &destination, attributes)?;
    staging.remove()
}

/// The source in the unpacked archive.
struct Source {
    /// Path of the source.
    path: PathBuf,
    /// Whether its contents are copied, and not the thing itself.
    is_directory: bool,
    /// Whether the contents are what matches a pattern: the directory is then not what is copied.
    is_glob: bool,
}

impl Source {
    /// Finds `source` in `tree`. Of a glob, the directory above the first part with special characters is meant: the archive has
    /// only what matches.
    fn find(tree: &Path, source: &str) -> Result<Self> {
        let inside = Inside::parse(source.as_bytes())?;
        let mut path = tree.to_owned();
        let (mut is_directory, mut matches) = (true, false);
        for part in inside.parts() {
            let next = path.join(OsStr::from_bytes(part));
            let found =
                if is_directory { fs::symlink_metadata(&next) } else { Err(io::ErrorKind::NotFound.into()) };
            match found {
                // A name with brackets is more likely a name than a glob if there is a file of that name.
                Ok(found) if !is_glob(part, b"*?") => {
                    is_directory = found.is_dir();
                    path = next;
                }
                _ if is_directory && is_glob(part, b"*?[{") => {
                    matches = true;
                    break;
                }
                _ => {
                    return Err(StepError::invalid(format!(
                        "the uploaded files have no `{}`; build the template again from a context with it",
                        shown(source.as_bytes())
                    )));
                }
            }
        }
        Ok(Self { path, is_directory, is_glob: matches })
    }

    /// Name of the source.
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

fn is_glob(part: &[u8], special: &[u8]) -> bool {
    part.iter().any(|byte| special.contains(byte))
}

/// The destination as it is written.
struct Destination {
    path: PathBuf,
    /// Whether it is a directory by the way it is written.
    is_directory: bool,
}

impl Destination {
    fn new(text: &str, workdir: Option<&str>, home: &str) -> Self {
        let base = workdir.filter(|workdir| !workdir.is_empty()).unwrap_or(home);
        let last = text.rsplit('/').next().unwrap_or_default();
        Self { path: Path::new("/").join(base).join(text), is_directory: matches!(last, "" | "." | "..") }
    }
}

fn place(source: &Source, destination: &Destination, attributes: Attributes) -> Result<()> {
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
    if source.is_directory {
        let target = resolve::canonical(&destination.path)?;
        if !target.is_dir() {
            create_all(&parent(&target), attributes)?;
            create_like(source, &target)?;
        }
        return merge::contents(
            &merge::open(&source.path)?,
            &merge::open(&target)?,
            &target.display().to_string(),
        );
    }
    let exact = match destination.path.file_name() {
        Some(name) if !destination.is_directory => {
            let directory = resolve::canonical(&parent(&destination.path))?;
            // A directory that exists takes the file, as with `mv` and Docker.
            (!directory.join(name).is_dir()).then_some((directory, name))
        }
        _ => None,
    };
    let (directory, name) = match exact {
        Some(exact) => exact,
        None => (resolve::canonical(&destination.path)?, source.name()),
    };
    create_all(&directory, attributes)?;
    let from = merge::open(&parent(&source.path))?;
    let to = merge::open(&directory)?;
    merge::one(&from, source.name().as_bytes(), &to, name.as_bytes(), &directory.display().to_string())
}

fn create_all(directory: &Path, attributes: Attributes) -> Result<()> {
    directories::create_all(directory, attributes.owner)
        .map_err(|e| StepError::file("create directory", directory.display(), e))
}

/// Creates the directory `target` with owner and mode of `source`; of a pattern, the mode is for what matches, which could not be entered with
/// that of files.
fn create_like(source: &Source, target: &Path) -> Result<()> {
    let create = || {
        let like = fs::metadata(&source.path)?;
        let mode = if source.is_glob { DIRECTORY_MODE } else { like.mode() & 0o7777 };
        DirBuilder::new().mode(0o700).create(target)?;
        chown(target, Some(like.uid()), Some(like.gid()))?;
        fs::set_permissions(target, fs::Permissions::from_mode(mode))
    };
    create().map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => StepError::invalid(format!(
            "the destination `{}` is not a directory, but a directory is copied to it; remove it in an earlier step",
            target.display()
        )),
        _ => StepError::file("create directory", target.display(), e),
    })
}

/// Creates a directory beside the archive that only root can enter: on the same file system as most destinations.
pub(super) fn private_directory(archive: &Path) -> Result<PathBuf> {
    let beside = archive.parent().unwrap_or(Path::new("/"));
    for number in 0..u32::MAX {
        let directory = beside.join(format!(".sandcove-copy-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StepError::file("create", directory.display(), error)),
        }
    }
    Err(StepError::invalid(format!("there is no free name in `{}`", beside.display())))
}

/// The directory that an archive is unpacked in.
struct Staging {
    directory: PathBuf,
    removed: bool,
}

impl Staging {
    fn create(archive: &Path) -> Result<Self> {
        let staging = Self { directory: private_directory(archive)?, removed: false };
        let tree = staging.tree();
        fs::create_dir(&tree).map_err(|e| StepError::file("create", tree.display(), e))?;
        Ok(staging)
    }

    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    fn remove(mut self) -> Result<()> {
        self.removed = true;
        fs::remove_dir_all(&self.directory)
            .map_err(|e| StepError::file("remove", self.directory.display(), e))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.removed {
            // The error that led here is the one to report.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tar::{Builder, EntryType, Header};

    use super::*;

    /// A directory with an archive in it, and a directory `home` to copy to.
    struct Build {
        base: tempfile::TempDir,
        accounts: Accounts,
        user: String,
    }

    impl Build {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            fs::create_dir(base.path().join("home")).unwrap();
            let accounts = Accounts::load().unwrap();
            let user = accounts.user_name(rustix::process::geteuid().as_raw());
            Self { base, accounts, user }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.base.path().join("home").join(path)
        }

        fn text(&self, path: &str) -> String {
            fs::read_to_string(self.at(path)).unwrap()
        }

        fn mode(&self, path: &str) -> u32 {
            fs::metadata(self.at(path)).unwrap().mode() & 0o7777
        }

        /// Copies `source` of an archive with `files` to `destination`, below the directory `home`.
        fn copy(
            &self,
            files: &[(&str, Kind<'_>)],
            source: &str,
            destination: &str,
        ) -> std::result::Result<(), String> {
            self.copy_as(
                files,
                Copy { source, destination, workdir: None, user: "", owner: None, mode: None },
            )
        }

        fn copy_as(&self, files: &[(&str, Kind<'_>)], copy: Copy<'_>) -> std::result::Result<(), String> {
            let archive = self.base.path().join("archive");
            fs::write(&archive, pack(files)).unwrap();
            let workdir = self.base.path().join("home");
            let copy = Copy { workdir: workdir.to_str(), user: &self.user, ..copy };
            let outcome = run(&archive, &copy, &self.accounts).map_err(|error| error.to_string());
            let left: Vec<_> =
                fs::read_dir(self.base.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["home"]);
            outcome
        }
    }

    #[derive(Clone, Copy)]
    enum Kind<'a> {
        File(&'a str),
        Executable(&'a str),
        Directory(u32),
        Link(&'a str),
        HardLink(&'a str),
    }

    fn pack(files: &[(&str, Kind<'_>)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind) in files {
            let mut header = Header::new_gnu();
            let (entry_type, mode, content, target) = match *kind {
                Kind::File(content) => (EntryType::Regular, 0o644, content, ""),
                Kind::Executable(content) => (EntryType::Regular, 0o755, content, ""),
                Kind::Directory(mode) => (EntryType::Directory, mode, "", ""),
                Kind::Link(target) => (EntryType::Symlink, 0o777, "", target),
                Kind::HardLink(target) => (EntryType::Link, 0o644, "", target),
            };
            header.set_entry_type(entry_type);
            header.set_mode(mode);
            header.set_uid(4711);
            header.set_gid(4711);
            header.set_size(content.len() as u64);
            match target {
                "" => builder.append_data(&mut header, path, content.as_bytes()).unwrap(),
                target => builder.append_link(&mut header, path, target).unwrap(),
            }
        }
        builder.into_inner().unwrap()
    }

    use Kind::{Directory, Executable, HardLink, Link};

    #[test]
    fn a_file_gets_the_name_of_the_destination() {
        let build = Build::new();
        let files = [("a.txt", Kind::File("a"))];
        build.copy(&files, "a.txt", "deep/er/b.txt").unwrap();
        assert_eq!(build.text("deep/er/b.txt"), "a");
        build.copy(&files, "./a.txt", "deep/dir/").unwrap();
        assert_eq!(build.text("deep/dir/a.txt"), "a");
        build.copy(&files, "a.txt", ".").unwrap();
        assert_eq!(build.text("a.txt"), "a");
        // A directory that exists takes the file.
        build.copy(&files, "a.txt", "deep").unwrap();
        assert_eq!(build.text("deep/a.txt"), "a");
        let owner = fs::metadata(build.at("deep")).unwrap().uid();
        assert_eq!(owner, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn a_file_of_an_earlier_layer_is_replaced_and_a_link_to_it_not_followed() {
        let build = Build::new();
        fs::write(build.at("target"), "old").unwrap();
        symlink("target", build.at("link")).unwrap();
        symlink("nowhere", build.at("dangling")).unwrap();
        let files = [("f", Executable("new"))];
        for destination in ["link", "dangling"] {
            build.copy(&files, "f", destination).unwrap();
            assert!(build.at(destination).symlink_metadata().unwrap().is_file());
            assert_eq!((build.text(destination).as_str(), build.mode(destination)), ("new", 0o755));
        }
        assert_eq!(build.text("target"), "old");
    }

    #[test]
    fn the_content_of_a_directory_is_merged() {
        let build = Build::new();
        fs::create_dir_all(build.at("app/kept")).unwrap();
        fs::set_permissions(build.at("app/kept"), PermissionsExt::from_mode(0o711)).unwrap();
        fs::write(build.at("app/kept/old"), "old").unwrap();
        fs::create_dir(build.at("elsewhere")).unwrap();
        symlink("../elsewhere", build.at("app/linked")).unwrap();
        fs::write(build.at("app/replaced"), "old").unwrap();
        let files = [
            ("src", Directory(0o755)),
            ("src/kept", Directory(0o755)),
            ("src/kept/new", Kind::File("new")),
            ("src/linked", Directory(0o755)),
            ("src/linked/in", Kind::File("in")),
            ("src/replaced", Link("kept/new")),
            ("src/fresh", Directory(0o750)),
            ("src/fresh/.hidden", Kind::File("h")),
        ];
        build.copy(&files, "src/", "app").unwrap();
        assert_eq!((build.text("app/kept/old"), build.text("app/kept/new")), ("old".into(), "new".into()));
        assert_eq!((build.mode("app/kept"), build.mode("app/fresh")), (0o711, 0o750));
        assert_eq!(build.text("elsewhere/in"), "in");
        assert!(build.at("app/linked").is_symlink());
        assert_eq!(build.text("app/replaced"), "new");
        assert_eq!(build.text("app/fresh/.hidden"), "h");
        // A destination that is new has the mode of the source.
        build.copy(&files, "src/fresh", "other").unwrap();
        assert_eq!((build.mode("other"), build.text("other/.hidden")), (0o750, "h".into()));
        // The whole archive.
        build.copy(&files, ".", "all/of/it/").unwrap();
        assert_eq!(build.text("all/of/it/src/kept/new"), "new");
        assert_eq!(build.mode("all/of/it"), 0o755);
    }

    #[test]
    fn of_a_glob_the_directory_above_it_is_merged() {
        let build = Build::new();
        let files = [("dir/run.sh", Executable("r")), ("dir/sub/go.sh", Executable("g"))];
        build.copy(&files, "dir/*.sh", "x/").unwrap();
        build.copy(&files, "**/*.sh", "y").unwrap();
        assert_eq!((build.text("x/run.sh"), build.text("x/sub/go.sh")), ("r".into(), "g".into()));
        assert_eq!(build.text("y/dir/run.sh"), "r");
        let files = [("pages/[id].tsx", Kind::File("page"))];
        build.copy(&files, "pages/[id].tsx", "page.tsx").unwrap();
        assert_eq!(build.text("page.tsx"), "page");
    }

    #[test]
    fn the_directory_that_takes_what_matches_can_be_entered() {
        let build = Build::new();
        let files = [("a.txt", Kind::File("a"))];
        let copy = Copy {
            source: "*.txt",
            destination: "data/",
            workdir: None,
            user: "",
            owner: None,
            mode: Some("0640"),
        };
        build.copy_as(&files, copy).unwrap();
        assert_eq!((build.mode("data"), build.mode("data/a.txt")), (0o755, 0o640));
    }

    #[test]
    fn links_and_hard_links_are_kept() {
        let build = Build::new();
        let files = [
            ("d/a", Kind::File("a")),
            ("d/b", HardLink("d/a")),
            ("d/l", Link("/etc/hostname")),
            ("l", Link("d")),
        ];
        build.copy(&files, "d", "d").unwrap();
        let ino = |path: &str| fs::metadata(build.at(path)).unwrap().ino();
        assert_eq!(ino("d/a"), ino("d/b"));
        assert_eq!(fs::read_link(build.at("d/l")).unwrap(), Path::new("/etc/hostname"));
        build.copy(&files, "l", "into/").unwrap();
        assert_eq!(fs::read_link(build.at("into/l")).unwrap(), Path::new("d"));
    }

    #[test]
    fn a_mode_is_for_everything_but_links() {
        let build = Build::new();
        let files = [("d/sub/f", Kind::File("f")), ("d/l", Link("/etc/hostname")), ("d/x", Executable("x"))];
        let before = fs::metadata("/etc/hostname").unwrap().mode();
        let copy =
            Copy { source: "d", destination: "d", workdir: None, user: "", owner: None, mode: Some("0711") };
        build.copy_as(&files, copy).unwrap();
        for path in ["d", "d/sub", "d/sub/f", "d/x"] {
            assert_eq!(build.mode(path), 0o711, "{path}");
        }
        assert_eq!(fs::metadata("/etc/hostname").unwrap().mode(), before);
    }

    #[test]
    fn an_owner_is_for_everything_that_is_new() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let build = Build::new();
        let files = [("d/sub/f", Kind::File("f")), ("d/l", Link("gone"))];
        let owner = Some("1234:5678");
        let copy = Copy { source: "d", destination: "new/d", workdir: None, user: "", owner, mode: None };
        build.copy_as(&files, copy).unwrap();
        for path in ["new", "new/d", "new/d/sub", "new/d/sub/f", "new/d/l"] {
            let found = build.at(path).symlink_metadata().unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 5678), "{path}");
        }
        assert_eq!(fs::metadata(build.at(".")).unwrap().uid(), 0);
    }

    #[test]
    fn what_cannot_be_copied_is_named() {
        let build = Build::new();
        let files = [("d/f", Kind::File("f"))];
        fs::write(build.at("file"), "").unwrap();
        fs::create_dir_all(build.at("dir/f")).unwrap();
        let error = |source: &str, destination: &str| build.copy(&files, source, destination).unwrap_err();
        assert!(error("missing", "x").contains("no `missing`"));
        assert!(error("d/f/x", "x").contains("no `d/f/x`"));
        assert!(error("../d", "x").contains(".."));
        assert!(error("d", "file").contains("is not a directory"));
        assert!(error("d/f", "file/x").contains("file"));
        assert!(error("d", "dir").contains("dir/f` is a directory"));
        let broken = build.copy(&[("d", Link("..")), ("d/f", Kind::File("x"))], "d", "x").unwrap_err();
        assert!(broken.contains("entry `d/f`") && broken.contains("not a directory"), "{broken}");
        fs::write(build.base.path().join("archive"), "x".repeat(2000)).unwrap();
        let copy =
            Copy { source: "d", destination: "x", workdir: None, user: &build.user, owner: None, mode: None };
        let malformed = run(&build.base.path().join("archive"), &copy, &build.accounts).unwrap_err();
        assert!(malformed.to_string().starts_with("failed to read the archive"), "{malformed}");
    }
}

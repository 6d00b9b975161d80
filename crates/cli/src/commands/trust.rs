//! `sandcove trust`: has this machine, or a client on it, trust a server's own certificate authority.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_server::tls::LocalFiles;
use sha2::{Digest, Sha256};

use crate::data_dir::tls_dir;
use crate::output::{self, note, out};

/// The stores of distributions.
const STORES: [Store; 2] = [
    Store {
        directory: "/usr/local/share/ca-certificates",
        extension: "crt",
        bundle: "/etc/ssl/certs/ca-certificates.crt",
        update: &["update-ca-certificates"],
        // Without it, links to what is gone stay.
        update_removed: &["update-ca-certificates", "--fresh"],
    },
    Store {
        directory: "/etc/pki/ca-trust/source/anchors",
        extension: "pem",
        bundle: "/etc/pki/tls/certs/ca-bundle.crt",
        update: &["update-ca-trust"],
        update_removed: &["update-ca-trust"],
    },
];

/// Where a distribution keeps the authorities that its administrator has added.
#[derive(Debug, Clone, Copy)]
struct Store {
    directory: &'static str,
    extension: &'static str,
    /// The certificates that programs of the host trust.
    bundle: &'static str,
    update: &'static [&'static str],
    update_removed: &'static [&'static str],
}

/// Options of `trust`.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// print the certificate of the authority, and change nothing
    #[arg(long, conflicts_with_all = ["path", "uninstall"])]
    print: bool,
    /// print the path of that certificate, and change nothing
    #[arg(long, conflicts_with = "uninstall")]
    path: bool,
    /// remove the authority from the system's store
    #[arg(long)]
    uninstall: bool,
    /// certificate of the authority, from the machine of the server [default: that of this data directory]
    file: Option<PathBuf>,
}

/// Files for clients that take what they trust from a variable.
#[derive(Debug)]
pub struct Trusted {
    /// The certificate of the authority.
    pub certificate: PathBuf,
    /// The certificates of that authority and of all others that the host trusts.
    pub bundle: PathBuf,
}

impl Trusted {
    /// The files of the system's store if the authority of `data_dir` is in it, which every account can read; otherwise those of the data
    /// directory.
    pub fn find(data_dir: &Path) -> Self {
        let files = LocalFiles::below(&tls_dir(data_dir));
        let own = Self { certificate: files.certificate(), bundle: files.bundle() };
        let installed = std::fs::read(files.certificate()).ok().and_then(|pem| {
            STORES.iter().find_map(|store| {
                let path = store.path(&pem);
                path.exists().then(|| Self { certificate: path, bundle: store.bundle.into() })
            })
        });
        installed.unwrap_or(own)
    }
}

impl Store {
    /// The store of this machine.
    fn find() -> Result<&'static Self> {
        let found = STORES.iter().find(|store| Path::new(store.directory).is_dir());
        found.context(
            "no store of certificate authorities that this program knows; install ca-certificates (Debian, Ubuntu, Fedora), or give \
             clients the certificate of `sandcove trust --print`",
        )
    }

    /// The file of an authority, named by what is in it: servers of several data directories do not get into each other's way.
    fn path(&self, pem: &[u8]) -> PathBuf {
        let digest = Sha256::digest(pem);
        let name: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Path::new(self.directory).join(format!("sandcove-{name}.{}", self.extension))
    }
}

/// Installs, removes or prints the authority.
pub fn trust(data_dir: &Path, args: &TrustArgs) -> Result<ExitCode> {
    let path = args.file.clone().unwrap_or_else(|| LocalFiles::below(&tls_dir(data_dir)).certificate());
    let pem = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound && args.file.is_none() => bail!(
            "no authority in `{}`; start the server with `--tls local`, or name the certificate of another machine's server",
            data_dir.display()
        ),
        read => read.with_context(|| format!("failed to read `{}`", path.display()))?,
    };
    if !pem.starts_with(b"-----BEGIN CERTIFICATE-----") {
        bail!(
            "`{}` is not a certificate in PEM form\nhint: `sandcove trust --print` on the host of the server prints it",
            path.display()
        );
    }
    if args.print {
        let _ = output::write(&pem);
    } else if args.path {
        out!("{}", path.display());
    } else if args.uninstall {
        uninstall(Store::find()?, &pem)?;
    } else {
        install(Store::find()?, &pem)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn install(store: &Store, pem: &[u8]) -> Result<()> {
    let path = store.path(pem);
    std::fs::write(&path, pem).with_context(|| format!("failed to write `{}`", path.display()))?;
    run(store.update)?;
    note!("installed {}", path.display());
    note!(
        "curl, Go, Ruby and others that use the system's store trust the server now; Node and Python bring their own:\n  \
         NODE_EXTRA_CA_CERTS={}\n  SSL_CERT_FILE={bundle} REQUESTS_CA_BUNDLE={bundle}\n`sandcove env --sdk 2.x` prints them with the \
         others. Chromium and Firefox have stores of their own too: import the file there.",
        path.display(),
        bundle = store.bundle
    );
    Ok(())
}

fn uninstall(store: &Store, pem: &[u8]) -> Result<()> {
    let path = store.path(pem);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => note!("not installed"),
        removed => {
            removed.with_context(|| format!("failed to remove `{}`", path.display()))?;
            run(store.update_removed)?;
            note!("removed {}", path.display());
        }
    }
    Ok(())
}

fn run(command: &[&str]) -> Result<()> {
    let [program, arguments @ ..] = command else { return Ok(()) };
    let done = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("failed to run `{program}`; install ca-certificates"))?;
    if !done.status.success() {
        bail!("`{}` failed: {}", command.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

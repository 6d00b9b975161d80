//! Downloads for `ADD` with a URL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

/// How long a server may send nothing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Downloads a URL to a new file of `directory`, and checks its digest if one is given.
pub async fn download(url: &str, checksum: Option<&str>, directory: &Path) -> Result<PathBuf> {
    // An earlier download may have chosen the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().connect_timeout(TIMEOUT).read_timeout(TIMEOUT).build()?;
    let failed = |error: reqwest::Error| {
        anyhow::Error::new(error.without_url()).context(format!("failed to download {url}"))
    };
    let mut response = client.get(url).send().await.map_err(failed)?;
    if !response.status().is_success() {
        bail!("failed to download {url}: HTTP status {}", response.status().as_u16());
    }
    let path = directory.join(uuid::Uuid::new_v4().to_string());
    let mut file =
        File::create(&path).await.with_context(|| format!("failed to write `{}`", path.display()))?;
    let mut digest = Sha256::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        digest.update(&piece);
        file.write_all(&piece).await.with_context(|| format!("failed to write `{}`", path.display()))?;
    }
    file.flush().await.with_context(|| format!("failed to write `{}`", path.display()))?;
    if let Some(wanted) = checksum {
        let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let Some(expected) = wanted.strip_prefix("sha256:") else {
            bail!("unknown checksum `{wanted}`; use sha256:DIGITS");
        };
        if !found.eq_ignore_ascii_case(expected) {
            bail!(
                "{url} has the checksum sha256:{found}, not {wanted}\nhint: check whether the file was changed, or correct --checksum in the Dockerfile"
            );
        }
    }
    Ok(path)
}

/// The file name of a URL, for a destination that is a directory.
pub fn name(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?.split_once("://")?.1.split_once('/')?.1;
    Some(path.rsplit('/').next()?.to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_have_a_file_name() {
        assert_eq!(name("https://host/a/b.tgz?x=/y#z").as_deref(), Some("b.tgz"));
        for none in ["https://host", "https://host/", "https://host/a/"] {
            assert_eq!(name(none), None, "{none}");
        }
    }
}

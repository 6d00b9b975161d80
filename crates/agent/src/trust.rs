//! Certificates of authorities that the host adds to those that programs in this sandbox trust.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The bundle of certificates that programs trust.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Path at which the certificate survives a rebuild of the bundle.
const PERSISTED: &str = "/usr/local/share/ca-certificates/e2b-ca.crt";

/// Variables by which programs with a list of their own find the certificates: OpenSSL and its like, Python's requests and pip, curl, the AWS
/// clients, Node.
pub(crate) const VARIABLES: [(&str, &str); 5] = [
    ("SSL_CERT_FILE", BUNDLE),
    ("REQUESTS_CA_BUNDLE", BUNDLE),
    ("CURL_CA_BUNDLE", BUNDLE),
    ("AWS_CA_BUNDLE", BUNDLE),
    ("NODE_EXTRA_CA_CERTS", PERSISTED),
];

/// Makes `certificates` trusted, and replaces those of an earlier call.
pub(crate) fn install(certificates: &str) -> io::Result<()> {
    trust(Path::new(BUNDLE), Path::new(PERSISTED), certificates)
}

fn trust(bundle: &Path, persisted: &Path, certificates: &str) -> io::Result<()> {
    let read = |path| match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    };
    let ours = format!("{}\n", certificates.trim_end());
    let previous = read(persisted)?;
    let mut all = read(bundle)?;
    if !previous.is_empty() {
        all = all.replace(&previous, "");
    }
    if !all.is_empty() && !all.ends_with('\n') {
        all.push('\n');
    }
    all.push_str(&ours);
    for (path, text) in [(persisted, &ours), (bundle, &all)] {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = fs::File::create(path)?;
        file.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_certificates_take_the_place_of_old_ones() {
        let home = tempfile::tempdir().unwrap();
        let (bundle, persisted) = (home.path().join("a/bundle"), home.path().join("b/ours"));
        fs::create_dir(home.path().join("a")).unwrap();
        fs::write(&bundle, "SYSTEM").unwrap();
        trust(&bundle, &persisted, "ONE").unwrap();
        trust(&bundle, &persisted, "TWO\n").unwrap();
        assert_eq!(fs::read_to_string(&bundle).unwrap(), "SYSTEM\nTWO\n");
        assert_eq!(fs::read_to_string(&persisted).unwrap(), "TWO\n");
    }
}

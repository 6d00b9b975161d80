//! Metadata in the headers of an upload (contract: envd, section 4). Pure.

use http::HeaderMap;

use super::error::{Error, Result};
use crate::filesystem::metadata::Metadata;

const PREFIX: &str = "x-metadata-";
/// Limit on a key, in bytes. Linux allows 255 for the name of an attribute; `user.e2b.` takes nine.
const MAX_KEY: usize = 246;
/// Limit on all metadata of a file, in bytes: what the smallest common file system has room for.
const MAX_TOTAL: usize = 4096;
/// Length of the attribute's name in front of the key, in bytes.
const NAMESPACE: usize = 9;

/// Reads `X-Metadata-<key>: <value>`; of several with one key the first counts.
pub(super) fn read(headers: &HeaderMap) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    let mut total = 0;
    // Header names are lowercase already, and listed with their first value first.
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else { continue };
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(Error::bad_request(format!(
                "metadata key `{key}` must have 1 to {MAX_KEY} characters"
            )));
        }
        let Some(value) = headers.get(name) else { continue };
        let printable = |value: &&[u8]| value.iter().all(|b| matches!(b, b' '..=b'~'));
        let value = Some(value.as_bytes()).filter(printable).and_then(|v| std::str::from_utf8(v).ok());
        let Some(value) = value else {
            return Err(Error::bad_request(format!("value of metadata key `{key}` must be printable ASCII")));
        };
        total += NAMESPACE + key.len() + value.len();
        metadata.insert(key.to_owned(), value.to_owned());
    }
    if total > MAX_TOTAL {
        return Err(Error::bad_request(format!(
            "metadata takes {total} bytes, more than the limit of {MAX_TOTAL}"
        )));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn read_pairs(pairs: &[(String, &[u8])]) -> Result<Metadata> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        read(&headers)
    }

    #[test]
    fn keys_are_lower_case_and_first_values_count() {
        let metadata = read_pairs(&[
            ("X-Metadata-Author".into(), b"one"),
            ("x-metadata-author".into(), b"two"),
            ("X-Other".into(), b"x"),
            ("X-Metadata-Empty".into(), b""),
        ]);
        assert_eq!(
            metadata.unwrap(),
            [("author".into(), "one".into()), ("empty".into(), String::new())].into()
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = vec![b'v'; 4096 - 9 - 1];
        assert!(read_pairs(&[("x-metadata-k".into(), &long)]).is_ok());
        assert!(read_pairs(&[("x-metadata-kk".into(), &long)]).is_err());
        assert!(read_pairs(&[(format!("x-metadata-{}", "k".repeat(246)), b"")]).is_ok());
        assert!(read_pairs(&[(format!("x-metadata-{}", "k".repeat(247)), b"")]).is_err());
        assert!(read_pairs(&[("x-metadata-".into(), b"v")]).is_err());
        assert!(read_pairs(&[("x-metadata-k".into(), "é".as_bytes())]).is_err());
        assert!(read_pairs(&[("x-metadata-k".into(), b"a\tb")]).is_err());
    }
}

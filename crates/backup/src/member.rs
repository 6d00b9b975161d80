//! Members of an archive: their names, and the records of pax that go before a header.

use sandcove_image::oci::pax;

use crate::attributes::{Owned, Xattrs};
use crate::error::shown;
use crate::{Error, Result};

/// Name of the manifest, the first member.
pub(crate) const MANIFEST: &str = "sandcove-backup.json";
/// Name of the digest, the last member.
pub(crate) const DIGEST: &str = "sandcove-backup.sha256";

/// Prefix of the keys of extended attributes, as GNU tar, bsdtar and others have it.
const XATTR: &str = "SCHILY.xattr.";
/// Key of the name of an earlier member with the same content.
const COPY: &str = "SANDCOVE.copy";
/// Length of a name in a header.
pub(crate) const SHORT: usize = 100;

/// Properties of the member that the records precede.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) modified: Option<(i64, u32)>,
    pub(crate) copy: Option<Vec<u8>>,
    /// Size of a sparse file.
    pub(crate) real_size: Option<u64>,
    pub(crate) xattrs: Xattrs,
}

impl Records {
    /// The records as bytes; empty if there are none.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut add = |key: &str, value: &[u8]| record(&mut out, key, value);
        if let Some(path) = &self.path {
            add("path", path);
        }
        if let Some(link) = &self.link {
            add("linkpath", link);
        }
        if let Some(modified) = self.modified {
            add("mtime", time(modified).as_bytes());
        }
        if let Some(copy) = &self.copy {
            add(COPY, copy);
        }
        if let Some(size) = self.real_size {
            add("GNU.sparse.major", b"1");
            add("GNU.sparse.minor", b"0");
            add("GNU.sparse.realsize", size.to_string().as_bytes());
            if let Some(path) = &self.path {
                add("GNU.sparse.name", path);
            }
        }
        for (name, value) in &self.xattrs {
            add(&format!("{XATTR}{}", percent_encoded(name)), value);
        }
        out
    }

    /// Reads the records of a member.
    pub(crate) fn decode(data: &[u8]) -> Result<Self> {
        let wrong = |key: &str| Error::Damaged(format!("a record has a wrong value of `{key}`"));
        let mut records = Self::default();
        for record in pax::records(data) {
            let (key, value) = record.map_err(|why| Error::Damaged(why.to_owned()))?;
            match key {
                "path" => records.path = Some(value.to_vec()),
                "linkpath" => records.link = Some(value.to_vec()),
                "mtime" => records.modified = Some(pax::time(value).ok_or_else(|| wrong(key))?),
                COPY => records.copy = Some(value.to_vec()),
                "GNU.sparse.realsize" => {
                    records.real_size = Some(pax::decimal(value).ok_or_else(|| wrong(key))?);
                }
                "GNU.sparse.major" | "GNU.sparse.minor" | "GNU.sparse.name" => {}
                _ => {
                    let name = key.strip_prefix(XATTR).and_then(percent_decoded).ok_or_else(|| wrong(key))?;
                    records.xattrs.push((name, value.to_vec()));
                }
            }
        }
        Ok(records)
    }
}

/// Adds a record, whose length counts itself.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn time((seconds, nanoseconds): (i64, u32)) -> String {
    match (seconds, nanoseconds) {
        (_, 0) => seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanoseconds:09}"),
        // The fraction of a pax time points away from zero.
        _ => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

fn percent_encoded(name: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@/+".contains(&byte);
    let encode =
        |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    name.iter().map(encode).collect()
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let (mut name, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            name.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        name.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    (!name.is_empty() && !name.contains(&0)).then_some(name)
}

/// Splits a name into the directory it is in and its last part.
///
/// # Errors
/// For names that the writer does not write: absolute ones, and those with `.` or `..`.
pub(crate) fn split(name: &[u8]) -> Result<(&[u8], &[u8])> {
    let refuse = |reason| Error::Name { name: shown(name), reason };
    if name.starts_with(b"/") {
        return Err(refuse("is absolute"));
    }
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" => return Err(refuse("has an empty part")),
            b"." | b".." => return Err(refuse("has the part `.` or `..`")),
            part if part.contains(&0) => return Err(refuse("has a zero byte")),
            _ => {}
        }
    }
    Ok(match name.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (&[], name),
    })
}

/// A header of a member.
pub(crate) fn header(name: &[u8], kind: tar::EntryType, owned: &Owned, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    let length = name.len().min(SHORT);
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.name[..length].copy_from_slice(&name[..length]);
    }
    header.set_entry_type(kind);
    header.set_uid(owned.uid.into());
    header.set_gid(owned.gid.into());
    header.set_mode(owned.mode);
    header.set_mtime(u64::try_from(owned.modified.0).unwrap_or(0));
    header.set_size(size);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let records = Records {
            path: Some(b"pool/volumes/a/new\nline".to_vec()),
            link: Some(vec![b'x'; 300]),
            modified: Some((-2, 750_000_000)),
            copy: Some(b"pool/\xff".to_vec()),
            real_size: Some(1 << 50),
            xattrs: vec![
                (b"user.a=b%\xff\n".to_vec(), b"\n=\0".to_vec()),
                (b"trusted.overlay.opaque".to_vec(), b"y".to_vec()),
            ],
        };
        let back = Records::decode(&records.encode()).unwrap();
        assert_eq!(
            (back.path, back.link, back.modified, back.copy, back.real_size, back.xattrs),
            (records.path, records.link, records.modified, records.copy, records.real_size, records.xattrs)
        );
        for modified in [(0, 5), (-1, 0), (-1, 1), (1 << 40, 999_999_999)] {
            let records = Records { modified: Some(modified), ..Records::default() };
            assert_eq!(Records::decode(&records.encode()).unwrap().modified, Some(modified));
        }
        assert!(Records::decode(&Records::default().encode()).unwrap().xattrs.is_empty());
        for length in 80..120 {
            let records = Records { path: Some(vec![b'a'; length]), ..Records::default() };
            assert_eq!(Records::decode(&records.encode()).unwrap().path, records.path);
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        assert_eq!(split(b"pool/volumes/a").unwrap(), (&b"pool/volumes"[..], &b"a"[..]));
        assert_eq!(split(b"a").unwrap(), (&b""[..], &b"a"[..]));
        for name in
            [&b""[..], b"/", b"/etc/passwd", b"a/../b", b"..", b"a//b", b"./a", b"a/", b"a/.", b"a\0b"]
        {
            assert!(matches!(split(name), Err(Error::Name { .. })), "{name:?}");
        }
    }
}

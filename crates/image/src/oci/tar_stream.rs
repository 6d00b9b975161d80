//! Entries of a tar archive, one after the other, from any bytes. Ustar, GNU and pax are read as the programs that make images write
//! them; sizes of headers are bounded, and so is the memory.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::pax;
use super::sparse::SparseMap;
use super::xattrs;

const BLOCK: u64 = 512;
/// Maximum size of a long name or an extended header, bytes.
const MAX_EXTENSION: u64 = 1 << 20;
/// Maximum number of extended headers and long names before an entry.
const MAX_EXTENSIONS: u32 = 16;
const XATTR: &str = "SCHILY.xattr.";

/// Kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file; with a map if it is sparse.
    File(Option<SparseMap>),
    Directory,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A further name of the file with this path.
    HardLink(Vec<u8>),
    Pipe,
    Device,
}

/// An entry, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    /// Time of the last change: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Attributes that are kept, by name.
    pub xattrs: Vec<(String, Vec<u8>)>,
}

/// Reader of entries.
pub(super) struct TarStream<R> {
    input: R,
    /// Data of the current entry that has not been read.
    left: u64,
    /// Zeros after that data.
    padding: u64,
}

/// The values of extended headers for the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<(i64, u32)>,
    xattrs: Vec<(String, Vec<u8>)>,
    sparse: Sparse,
}

/// The values of an extended header for a sparse file.
#[derive(Default)]
struct Sparse {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    /// Version 1.0: the map precedes the data.
    is_in_data: bool,
    parts: Option<Vec<(u64, u64)>>,
    offset: Option<u64>,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl<R: Read> TarStream<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0 }
    }

    /// The input, behind what has been read of the current entry.
    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// Number of bytes of the current entry's data that have not been read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Reads the data of the current entry.
    pub(super) fn read_data(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if count == 0 {
            return Ok(0);
        }
        let read = self.input.read(&mut buffer[..count])?;
        if read == 0 {
            return Err(truncated());
        }
        self.left -= read as u64;
        Ok(read)
    }

    /// Skips the rest of the current entry and reads the next one. `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extension = Extension::default();
        let mut extensions = 0;
        loop {
            self.skip()?;
            let Some(header) = self.header()? else {
                return if extensions > 0 { Err(truncated()) } else { Ok(None) };
            };
            let kind = header.entry_type();
            let is_extension = matches!(
                kind,
                EntryType::XHeader
                    | EntryType::XGlobalHeader
                    | EntryType::GNULongName
                    | EntryType::GNULongLink
            );
            if !is_extension {
                return self.entry(&header, extension).map(Some);
            }
            let data = self.extension(number(&header.as_old().size, header.entry_size())?)?;
            match kind {
                EntryType::GNULongName => extension.path = Some(until_zero(data)),
                EntryType::GNULongLink => extension.link = Some(until_zero(data)),
                EntryType::XHeader => extension.read(&data).map_err(wrong)?,
                // For all entries; programs that make images write comments only.
                _ => continue,
            }
            extensions += 1;
            if extensions > MAX_EXTENSIONS {
                return Err(wrong("an entry has more than 16 extended headers"));
            }
        }
    }

    fn skip(&mut self) -> io::Result<()> {
        let count = self.left + self.padding;
        if count > 0 && io::copy(&mut (&mut self.input).take(count), &mut io::sink())? < count {
            return Err(truncated());
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// Reads a header. `None` at a block of zeros and at the end of the input: the digest of a layer says whether that is missing a part.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let mut count = 0;
        let block = header.as_mut_bytes();
        while count < block.len() {
            match self.input.read(&mut block[count..])? {
                0 if count == 0 => return Ok(None),
                0 => return Err(truncated()),
                more => count += more,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let (mut unsigned, mut signed) = (0_i64, 0_i64);
        for (index, byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&index) { b' ' } else { *byte };
            unsigned += i64::from(byte);
            signed += i64::from(byte.cast_signed());
        }
        let sum = header.cksum().map(i64::from)?;
        if sum != unsigned && sum != signed {
            return Err(wrong("the checksum of a header is wrong"));
        }
        Ok(Some(header))
    }

    fn extension(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTENSION {
            return Err(wrong(format!("a name or an extended header has {size} bytes; 1 MiB is supported")));
        }
        self.set_data(size)?;
        let mut data = Vec::new();
        (&mut self.input).take(size).read_to_end(&mut data)?;
        if data.len() as u64 != size {
            return Err(truncated());
        }
        self.left = 0;
        Ok(data)
    }

    fn set_data(&mut self, size: u64) -> io::Result<()> {
        if size > u64::MAX >> 1 {
            return Err(wrong("the size of an entry is too large"));
        }
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
        Ok(())
    }

    fn entry(&mut self, header: &Header, extension: Extension) -> io::Result<Entry> {
        let Extension { path, link, size, uid, gid, modified, xattrs, sparse } = extension;
        let path = sparse.name.clone().or(path).unwrap_or_else(|| header.path_bytes().into_owned());
        let link = || {
            link.clone()
                .or_else(|| header.link_name_bytes().map(|link| link.into_owned()))
                .unwrap_or_default()
        };
        let mut size = match size {
            Some(size) => size,
            None => number(&header.as_old().size, header.entry_size())?,
        };
        let kind = match header.entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(link()),
            EntryType::Link => Kind::HardLink(link()),
            EntryType::Fifo => Kind::Pipe,
            EntryType::Char | EntryType::Block => Kind::Device,
            // The oldest archives mark directories by their names only.
            EntryType::Regular if path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File(None),
            EntryType::GNUSparse => {
                let map = self.gnu_map(header)?;
                self.set_data(size)?;
                map.check(size).map_err(wrong)?;
                Kind::File(Some(map))
            }
            other => {
                return Err(wrong(format!("an entry has the unknown type {:#04x}", other.as_byte())));
            }
        };
        if !matches!(kind, Kind::File(_)) {
            // Some programs write the size of the target.
            size = 0;
        }
        if !matches!(kind, Kind::File(Some(_))) {
            self.set_data(size)?;
        }
        let kind = match kind {
            Kind::File(None) => Kind::File(self.pax_map(sparse)?),
            kind => kind,
        };
        let old = header.as_old();
        let uid = uid.map_or_else(|| number(&old.uid, header.uid()), Ok)?;
        let gid = gid.map_or_else(|| number(&old.gid, header.gid()), Ok)?;
        let seconds = header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(0);
        let mode = number(&old.mode, header.mode())? & 0o7777;
        Ok(Entry { path, kind, mode, uid, gid, modified: modified.unwrap_or((seconds, 0)), xattrs })
    }

    /// The map of a sparse file in the format of GNU tar: four parts in the header, the others in blocks after it.
    fn gnu_map(&mut self, header: &Header) -> io::Result<SparseMap> {
        let gnu = header.as_gnu().ok_or_else(|| wrong("a sparse file has no header of GNU tar"))?;
        let mut map = SparseMap { parts: Vec::new(), size: gnu.real_size()? };
        let mut add = |parts: &[GnuSparseHeader]| -> io::Result<()> {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                map.push(part.offset()?, part.length()?).map_err(wrong)?;
            }
            Ok(())
        };
        add(&gnu.sparse)?;
        let mut is_more = gnu.is_extended();
        let mut blocks = 0;
        while is_more {
            let mut block = GnuExtSparseHeader::new();
            self.input.read_exact(block.as_mut_bytes()).map_err(|_| truncated())?;
            add(block.sparse())?;
            is_more = block.is_extended();
            blocks += 1;
            if blocks > 10_000 {
                return Err(wrong("the map of a sparse file is too long"));
            }
        }
        Ok(map)
    }

    /// The map of a sparse file in one of the formats of pax; `None` for other files.
    fn pax_map(&mut self, sparse: Sparse) -> io::Result<Option<SparseMap>> {
        let Some(size) = sparse.size else { return Ok(None) };
        let parts = if sparse.is_in_data {
            let mut data = (&mut self.input).take(self.left);
            let (parts, read) = SparseMap::read(&mut data)?;
            self.left -= read;
            parts
        } else {
            sparse.parts.unwrap_or_default()
        };
        let map = SparseMap { parts, size };
        map.check(self.left).map_err(wrong)?;
        Ok(Some(map))
    }
}

impl Extension {
    fn read(&mut self, data: &[u8]) -> Result<(), String> {
        for record in pax::records(data) {
            let (key, value) = record?;
            self.set(key, value)
                .map_err(|why| format!("an extended header has a wrong value of '{key}'{why}"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let number = || pax::decimal(value).ok_or_else(String::new);
        let bytes = || (!value.is_empty()).then(|| value.to_vec());
        match key {
            "path" => self.path = bytes(),
            "linkpath" => self.link = bytes(),
            "size" => self.size = Some(number()?),
            "uid" => self.uid = Some(number()?),
            "gid" => self.gid = Some(number()?),
            "mtime" => self.modified = Some(pax::time(value).ok_or_else(String::new)?),
            "GNU.sparse.name" => self.sparse.name = bytes(),
            "GNU.sparse.size" | "GNU.sparse.realsize" => self.sparse.size = Some(number()?),
            "GNU.sparse.major" => self.sparse.is_in_data = number()? == 1,
            "GNU.sparse.map" => {
                self.sparse.parts = Some(SparseMap::from_list(value).map_err(|why| format!(": {why}"))?);
            }
            "GNU.sparse.offset" => self.sparse.offset = Some(number()?),
            "GNU.sparse.numbytes" => {
                let offset = self.sparse.offset.take().ok_or_else(String::new)?;
                self.sparse.parts.get_or_insert_default().push((offset, number()?));
            }
            _ => {
                if let Some(name) = key.strip_prefix(XATTR)
                    && let Some(value) = xattrs::kept(name, value)
                {
                    self.xattrs.push((name.to_owned(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn until_zero(mut data: Vec<u8>) -> Vec<u8> {
    if let Some(end) = data.iter().position(|byte| *byte == 0) {
        data.truncate(end);
    }
    data
}

/// The number in a field of a header; an empty field is 0.
fn number<T: Default>(field: &[u8], parsed: io::Result<T>) -> io::Result<T> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) { Ok(T::default()) } else { parsed }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends early")
}

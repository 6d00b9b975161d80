//! What the interpreter asks of a kernel, and how a host of our own reads it: frames of a line `<kind> <length>` and then
//! that many bytes, as in the other direction ([`super::frame`]).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bytes::{BufMut, Bytes, BytesMut};

/// The name of a variable and its new value, `None` to remove the variable.
pub type Change = (String, Option<String>);

/// A request to a kernel. Kernels handle requests in order, and answer [`Request::Execute`] only. The environment is set once, when a
/// kernel begins; variables are what the client has set, for the sandbox or for one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Replaces the whole environment of the kernel. The payload is made by [`environment_block`].
    Environment(Vec<u8>),
    /// Changes to a directory, if that exists.
    Directory(PathBuf),
    /// Sets and removes variables.
    Variables(Vec<Change>),
    /// Runs what first cells run, without a trace. Only Python kernels know this request.
    WarmUp,
    /// Seeds random numbers anew, after the memory of the kernel became that of another sandbox. Only Python kernels know this request.
    Reseed,
    /// Runs code.
    Execute(String),
    /// Stops the code that runs. Only for kernels that are interrupted by a message instead of a signal.
    Interrupt,
}

impl Request {
    /// The frames of this request. [`Request::Interrupt`] has none: our own hosts are interrupted by a signal.
    pub fn encode(&self) -> Bytes {
        let mut frames = BytesMut::new();
        match self {
            Self::Environment(block) => put_frame(&mut frames, "environ", &[block]),
            Self::Directory(path) => put_frame(&mut frames, "cwd", &[path.as_os_str().as_bytes()]),
            Self::Variables(changes) => {
                for (name, value) in changes {
                    match value {
                        Some(value) => {
                            put_frame(&mut frames, "env", &[name.as_bytes(), b"=", value.as_bytes()]);
                        }
                        None => put_frame(&mut frames, "unenv", &[name.as_bytes()]),
                    }
                }
            }
            Self::WarmUp => put_frame(&mut frames, "warmup", &[]),
            Self::Reseed => put_frame(&mut frames, "reseed", &[]),
            Self::Execute(code) => put_frame(&mut frames, "execute", &[code.as_bytes()]),
            Self::Interrupt => {}
        }
        frames.freeze()
    }
}

fn put_frame(frames: &mut BytesMut, kind: &str, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let header = format!("{kind} {length}\n");
    frames.reserve(header.len() + length);
    frames.put_slice(header.as_bytes());
    for part in parts {
        frames.put_slice(part);
    }
}

/// The payload of [`Request::Environment`]: `NAME=value` pairs, each followed by a zero byte.
pub fn environment_block<'a>(variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in variables {
        block.extend_from_slice(name.as_bytes());
        block.push(b'=');
        block.extend_from_slice(value.as_bytes());
        block.push(0);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_frames() {
        let changes = vec![("A".to_owned(), Some("b=c".to_owned())), ("D".to_owned(), None)];
        assert_eq!(Request::Variables(changes).encode(), "env 5\nA=b=cunenv 1\nD");
        assert_eq!(Request::Execute("é".into()).encode(), "execute 2\né");
        assert_eq!(Request::Directory("/tmp".into()).encode(), "cwd 4\n/tmp");
        assert_eq!(Request::WarmUp.encode(), "warmup 0\n");
        assert_eq!(Request::Reseed.encode(), "reseed 0\n");
        assert_eq!(Request::Interrupt.encode(), "");
    }

    #[test]
    fn an_environment_is_pairs_that_end_with_zero() {
        let pairs = [("A", "1"), ("B", "")].map(|(k, v)| (OsStr::new(k), OsStr::new(v)));
        assert_eq!(environment_block(pairs.into_iter()), b"A=1\0B=\0");
    }
}

//! Messages to and from `criu swrk`, which takes one request over a packet socket: those of CRIU's `rpc.proto` that a restore needs.

use std::collections::BTreeMap;
use std::io;

use super::fields::{Fields, Value, decode, encode, invalid};

/// Kinds of messages.
const RESTORE: u64 = 2;
const NOTIFY: u64 = 6;
/// Flag of a network namespace.
const NEW_NETWORK: u64 = 0x4000_0000;
/// Control groups are not CRIU's.
const IGNORE: u64 = 0;
/// How packets are held back until all connections are whole: by nftables.
const NFTABLES: u64 = 2;

/// Options of a restore.
#[derive(Debug, Default)]
pub(crate) struct RestoreOptions {
    /// Number of the descriptor of the images' directory in the process that has made the socket to CRIU.
    pub(crate) images: u64,
    /// Number of the descriptor of the directory that gets the log, in the same process.
    pub(crate) work: u64,
    /// Name of the log.
    pub(crate) log: String,
    /// Mount point of the new root.
    pub(crate) root: String,
    /// Paths of the mounts that are bound, by the name that the dump has given them.
    pub(crate) mounts: BTreeMap<String, String>,
    /// Numbers of the descriptors of files in CRIU's process, by CRIU's name for the file.
    pub(crate) files: BTreeMap<String, u64>,
}

/// A message of CRIU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A step is done, and CRIU waits for a [`reply`].
    Reached {
        /// Name of the step.
        step: String,
        /// Host pid of the first process, in steps that have it.
        pid: Option<u32>,
    },
    /// The processes run.
    Restored,
    /// The restore has failed, and CRIU has ended its processes.
    Failed,
}

/// Encodes the request for a restore.
pub(crate) fn restore_request(options: &RestoreOptions) -> Vec<u8> {
    let text = |text: &str| Value::Bytes(text.as_bytes().to_vec());
    let (yes, integer) = (Value::Integer(1), Value::Integer);
    let mut fields: Fields = vec![
        (1, integer(options.images)),
        (4, yes.clone()),
        (5, yes.clone()),
        (8, yes.clone()),
        (10, text(&options.log)),
        (12, yes.clone()),
        (13, text(&options.root)),
        (17, integer(options.work)),
        (24, yes),
        (34, integer(IGNORE)),
        (38, integer(NEW_NETWORK)),
        (64, integer(NFTABLES)),
    ];
    fields.extend(options.mounts.iter().map(|(name, path)| (37, text(&format!("mnt[{name}]:{path}")))));
    fields.extend(options.files.iter().map(|(name, descriptor)| {
        (27, Value::Bytes(encode(&[(1, text(name)), (2, Value::Integer(*descriptor))])))
    }));
    encode(&[(1, Value::Integer(RESTORE)), (2, Value::Bytes(encode(&fields)))])
}

/// Encodes the reply to [`Message::Reached`]: whether CRIU is to go on.
pub(crate) fn reply(goes_on: bool) -> Vec<u8> {
    encode(&[(1, Value::Integer(NOTIFY)), (3, Value::Integer(goes_on.into()))])
}

impl Message {
    /// Decodes a message.
    pub(crate) fn parse(message: &[u8]) -> io::Result<Self> {
        let fields = decode(message)?;
        match integer(&fields, 1) {
            Some(NOTIFY) => {
                let notice = bytes(&fields, 5).ok_or_else(invalid)?;
                let notice = decode(notice)?;
                let step = bytes(&notice, 1).ok_or_else(invalid)?;
                let pid = integer(&notice, 2).and_then(|pid| u32::try_from(pid).ok());
                Ok(Self::Reached { step: String::from_utf8_lossy(step).into_owned(), pid })
            }
            Some(RESTORE) if integer(&fields, 2) == Some(1) => Ok(Self::Restored),
            Some(_) => Ok(Self::Failed),
            None => Err(invalid()),
        }
    }
}

fn integer(fields: &Fields, number: u64) -> Option<u64> {
    fields.iter().find_map(|field| match field {
        (found, Value::Integer(value)) if *found == number => Some(*value),
        _ => None,
    })
}

fn bytes(fields: &Fields, number: u64) -> Option<&[u8]> {
    fields.iter().find_map(|field| match field {
        (found, Value::Bytes(value)) if *found == number => Some(value.as_slice()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_restore_are_told_apart() {
        let notice = encode(&[(1, Value::Bytes(b"setup-namespaces".to_vec())), (2, Value::Integer(77))]);
        let reached =
            encode(&[(1, Value::Integer(NOTIFY)), (2, Value::Integer(1)), (5, Value::Bytes(notice))]);
        let wanted = Message::Reached { step: "setup-namespaces".into(), pid: Some(77) };
        assert_eq!(Message::parse(&reached).unwrap(), wanted);
        for (success, wanted) in [(1, Message::Restored), (0, Message::Failed)] {
            let answer = encode(&[(1, Value::Integer(RESTORE)), (2, Value::Integer(success))]);
            assert_eq!(Message::parse(&answer).unwrap(), wanted);
        }
        assert!(Message::parse(b"").is_err());
    }

    #[test]
    fn a_request_names_mounts_and_files() {
        let options = RestoreOptions {
            mounts: BTreeMap::from([("/dev".into(), "/given/dev".into())]),
            files: BTreeMap::from([("/memfd:log".into(), 6)]),
            ..RestoreOptions::default()
        };
        let request = decode(&restore_request(&options)).unwrap();
        let options = decode(bytes(&request, 2).unwrap()).unwrap();
        assert_eq!(bytes(&options, 37), Some(b"mnt[/dev]:/given/dev".as_slice()));
        let file = decode(bytes(&options, 27).unwrap()).unwrap();
        assert_eq!((bytes(&file, 1), integer(&file, 2)), (Some(b"/memfd:log".as_slice()), Some(6)));
    }
}

//! Keys that detach this terminal from a process, as in Docker: Ctrl-P Ctrl-Q. The process goes on.

use std::str::FromStr;

/// The keys to type one after the other; none if there is no way to detach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

impl FromStr for DetachKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').filter(|_| !text.is_empty());
        names.map(key).collect::<Result<_, _>>().map(Self)
    }
}

/// The byte that a terminal sends for a key: a character, or `ctrl-` with a letter or one of `@[\]^_`.
fn key(name: &str) -> Result<u8, String> {
    let lowercase = name.to_ascii_lowercase();
    match (name.as_bytes(), lowercase.strip_prefix("ctrl-").map(str::as_bytes)) {
        (&[one], _) if one.is_ascii_graphic() => Ok(one),
        (_, Some(&[one @ (b'a'..=b'z' | b'@' | b'['..=b'_')])) => Ok(one & 0x1f),
        _ => Err(format!(
            "unknown key `{name}`; use a character, or ctrl- and a letter, separated by commas, such as ctrl-p,ctrl-q"
        )),
    }
}

/// The part of the keys that has been typed. It is held back from the process until it is clear that the others do not follow.
#[derive(Debug)]
pub struct Watch {
    keys: Vec<u8>,
    held: usize,
}

impl Watch {
    /// A watch for these keys, of which none has been typed.
    pub fn new(keys: &DetachKeys) -> Self {
        Self { keys: keys.0.clone(), held: 0 }
    }

    /// Takes what was typed. Returns the bytes for the process, and whether the keys are complete; what comes behind them is dropped.
    pub fn take(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for &byte in typed {
            let mut open = self.keys[..self.held].to_vec();
            open.push(byte);
            // The longest end of what is open that the keys begin with.
            let held = (0..=open.len().min(self.keys.len())).rev();
            let held = held.into_iter().find(|length| open.ends_with(&self.keys[..*length])).unwrap_or(0);
            passed.extend_from_slice(&open[..open.len() - held]);
            self.held = held;
            if held > 0 && held == self.keys.len() {
                return (passed, true);
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(keys: &str) -> Watch {
        Watch::new(&keys.parse().unwrap())
    }

    #[test]
    fn keys_are_characters_and_control_characters() {
        assert_eq!("ctrl-p,ctrl-q".parse(), Ok(DetachKeys(vec![0x10, 0x11])));
        assert_eq!("CTRL-\\,x".parse(), Ok(DetachKeys(vec![0x1c, b'x'])));
        assert_eq!("".parse(), Ok(DetachKeys(Vec::new())));
        for text in ["ctrl-", "ctrl-1", "pq", "a,,b", "ü"] {
            assert!(text.parse::<DetachKeys>().unwrap_err().contains("ctrl-p,ctrl-q"), "{text}");
        }
    }

    #[test]
    fn other_keys_reach_the_process_unchanged() {
        let mut watch = watch("ctrl-p,ctrl-q");
        assert_eq!(watch.take(b"ls\x11\n"), (b"ls\x11\n".to_vec(), false));
        assert_eq!(watch.take(b"\x10"), (Vec::new(), false));
        assert_eq!(watch.take(b"\x10x"), (b"\x10\x10x".to_vec(), false));
    }

    #[test]
    fn the_keys_are_found_wherever_they_are_cut() {
        let mut whole = watch("ctrl-p,ctrl-q");
        assert_eq!(whole.take(b"a\x10\x11b"), (b"a".to_vec(), true));
        let mut pieces = watch("ctrl-p,ctrl-q");
        assert_eq!(pieces.take(b"a\x10"), (b"a".to_vec(), false));
        assert_eq!(pieces.take(b"\x11"), (Vec::new(), true));
        assert_eq!(watch("a,a,b").take(b"aaab"), (b"a".to_vec(), true));
    }

    #[test]
    fn without_keys_nothing_is_held_back() {
        assert_eq!(watch("").take(b"\x10\x11"), (b"\x10\x11".to_vec(), false));
    }
}

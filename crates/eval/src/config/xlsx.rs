//! Tests from spreadsheets: the cells of one sheet, as text.

use std::collections::HashMap;
use std::io::Read;

use roxmltree::{Document, Node};

use super::csv::Record;
use crate::model::number;

/// The most bytes that a part of a spreadsheet may unpack to.
const MAX_PART: u64 = 256 * 1024 * 1024;
/// The most columns that are read: those that spreadsheets can have.
const MAX_COLUMNS: usize = 16_384;
/// The most rows that are read.
const MAX_ROWS: usize = 1_048_576;

/// Reason why a spreadsheet gave no rows.
#[derive(Debug, thiserror::Error)]
pub enum XlsxError {
    /// The file is no archive, or a part of it cannot be unpacked.
    #[error("it is not an .xlsx file")]
    NotAnArchive,
    /// A part of the archive is missing.
    #[error("it has no part `{0}`")]
    NoPart(String),
    /// A part of the archive is no XML.
    #[error("its part `{part}` is malformed: {error}")]
    Malformed {
        /// The part.
        part: String,
        /// The reason.
        error: roxmltree::Error,
    },
    /// The sheet after `#` does not exist.
    #[error("it has no sheet `{name}`; its sheets are {}", known.join(", "))]
    NoSheet {
        /// The name or number after `#`.
        name: String,
        /// The names of all sheets.
        known: Vec<String>,
    },
    /// The first row has no names of columns, or there are no others.
    #[error("the sheet `{0}` has no rows below names of columns")]
    Empty(String),
}

/// Splits the path of a spreadsheet from the sheet after it: `tests.xlsx#Sheet2`.
pub fn split_sheet(path: &str) -> (&str, Option<&str>) {
    match path.rsplit_once('#') {
        Some((file, sheet)) if file.to_lowercase().ends_with(".xlsx") => (file, Some(sheet)),
        _ => (path, None),
    }
}

/// Reads the rows of a sheet, which is given by its name or its number from 1; the first sheet by default.
///
/// # Errors
/// [`XlsxError`] for bytes that are no spreadsheet, and for a sheet without rows.
pub fn rows(bytes: &[u8], sheet: Option<&str>) -> Result<Vec<Record>, XlsxError> {
    let archive = Archive::open(bytes)?;
    let book = archive.text("xl/workbook.xml")?;
    let book = parse("xl/workbook.xml", &book)?;
    let sheets: Vec<Node<'_, '_>> = elements(book.root_element(), "sheet").collect();
    let names: Vec<String> =
        sheets.iter().map(|sheet| sheet.attribute("name").unwrap_or_default().to_owned()).collect();
    let at = match sheet.map(str::trim) {
        None => 0,
        Some(wanted) => match wanted.parse::<usize>() {
            Ok(number) => number.wrapping_sub(1),
            Err(_) => names.iter().position(|name| name == wanted).unwrap_or(usize::MAX),
        },
    };
    let Some(found) = sheets.get(at) else {
        return Err(XlsxError::NoSheet { name: sheet.unwrap_or("1").to_owned(), known: names });
    };
    let part = archive.part_of_sheet(*found)?;
    let cells = archive.cells(&part)?;
    let records = records(cells);
    if records.is_empty() { Err(XlsxError::Empty(names[at].clone())) } else { Ok(records) }
}

/// The rows below the first, whose cells are the names of the columns.
fn records(cells: Vec<Vec<String>>) -> Vec<Record> {
    let mut rows = cells.into_iter();
    let names = rows.next().unwrap_or_default();
    if names.iter().all(String::is_empty) {
        return Vec::new();
    }
    let record = |row: Vec<String>| {
        let mut row = row.into_iter();
        names.iter().map(|name| (name.clone(), row.next().unwrap_or_default())).collect()
    };
    let mut records: Vec<Record> = rows.map(record).collect();
    while records.last().is_some_and(|record: &Record| record.values().all(|cell| cell.trim().is_empty())) {
        records.pop();
    }
    records
}

fn parse<'t>(part: &str, text: &'t str) -> Result<Document<'t>, XlsxError> {
    Document::parse(text).map_err(|error| XlsxError::Malformed { part: part.to_owned(), error })
}

/// All elements of a name below a node.
fn elements<'a, 'i>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.descendants().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

/// The texts of an item, apart from how it is spoken.
fn text_of(item: Node<'_, '_>) -> String {
    let spoken = |node: &Node<'_, '_>| node.ancestors().any(|outer| outer.tag_name().name() == "rPh");
    elements(item, "t").filter(|text| !spoken(text)).filter_map(|text| text.text()).collect()
}

/// The parts of a spreadsheet, still packed, by their names.
struct Archive<'b> {
    parts: HashMap<String, Packed<'b>>,
}

struct Packed<'b> {
    method: u16,
    bytes: &'b [u8],
}

impl<'b> Archive<'b> {
    /// Reads the directory at the end of a ZIP file.
    fn open(bytes: &'b [u8]) -> Result<Self, XlsxError> {
        Self::read(bytes).ok_or(XlsxError::NotAnArchive)
    }

    fn read(bytes: &'b [u8]) -> Option<Self> {
        let end = bytes.windows(4).rposition(|mark| mark == b"PK\x05\x06")?;
        let count = u16_at(bytes, end + 10)?;
        let mut at = u32_at(bytes, end + 16)?;
        let mut parts = HashMap::new();
        for _ in 0..count {
            if bytes.get(at..at + 4)? != b"PK\x01\x02" {
                return None;
            }
            let (method, length) = (u16_at(bytes, at + 10)?, u32_at(bytes, at + 20)?);
            let (name, extra, comment) =
                (u16_at(bytes, at + 28)?, u16_at(bytes, at + 30)?, u16_at(bytes, at + 32)?);
            let local = u32_at(bytes, at + 42)?;
            let own = bytes.get(at + 46..at + 46 + usize::from(name))?;
            let skipped = usize::from(u16_at(bytes, local + 26)?) + usize::from(u16_at(bytes, local + 28)?);
            let start = local + 30 + skipped;
            let packed = Packed { method, bytes: bytes.get(start..start.checked_add(length)?)? };
            parts.insert(String::from_utf8_lossy(own).into_owned(), packed);
            at += 46 + usize::from(name) + usize::from(extra) + usize::from(comment);
        }
        Some(Self { parts })
    }

    fn text(&self, name: &str) -> Result<String, XlsxError> {
        let Some(packed) = self.parts.get(name) else { return Err(XlsxError::NoPart(name.to_owned())) };
        let mut bytes = Vec::new();
        let read = match packed.method {
            0 => packed.bytes.take(MAX_PART).read_to_end(&mut bytes),
            8 => flate2::read::DeflateDecoder::new(packed.bytes).take(MAX_PART).read_to_end(&mut bytes),
            _ => return Err(XlsxError::NotAnArchive),
        };
        read.map_err(|_| XlsxError::NotAnArchive)?;
        String::from_utf8(bytes).map_err(|_| XlsxError::NotAnArchive)
    }

    /// Returns the name of the part that holds a sheet.
    fn part_of_sheet(&self, sheet: Node<'_, '_>) -> Result<String, XlsxError> {
        const RELATIONS: &str = "xl/_rels/workbook.xml.rels";
        let id = sheet.attributes().find(|attribute| attribute.name() == "id");
        let id = id.map(|attribute| attribute.value()).unwrap_or_default();
        let text = self.text(RELATIONS)?;
        let relations = parse(RELATIONS, &text)?;
        let target = elements(relations.root_element(), "Relationship")
            .find(|relation| relation.attribute("Id") == Some(id))
            .and_then(|relation| relation.attribute("Target"))
            .ok_or_else(|| XlsxError::NoPart(id.to_owned()))?;
        Ok(target.strip_prefix('/').map_or_else(|| format!("xl/{target}"), str::to_owned))
    }

    /// The cells of a sheet by row and column, as text.
    fn cells(&self, part: &str) -> Result<Vec<Vec<String>>, XlsxError> {
        let shared = self.shared_texts()?;
        let dates = self.date_styles()?;
        let text = self.text(part)?;
        let sheet = parse(part, &text)?;
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in elements(sheet.root_element(), "row") {
            // Rows without cells are left out of the file.
            let number = row.attribute("r").and_then(|number| number.parse::<usize>().ok());
            let number = number.unwrap_or(rows.len() + 1).clamp(1, MAX_ROWS);
            rows.resize(rows.len().max(number), Vec::new());
            for cell in row.children().filter(|node| node.tag_name().name() == "c") {
                let cells = &mut rows[number - 1];
                let column = cell.attribute("r").and_then(column_of).unwrap_or(cells.len());
                if column < MAX_COLUMNS {
                    cells.resize(cells.len().max(column + 1), String::new());
                    cells[column] = cell_text(cell, &shared, &dates);
                }
            }
        }
        Ok(rows)
    }

    /// Returns the texts that cells share.
    fn shared_texts(&self) -> Result<Vec<String>, XlsxError> {
        const TEXTS: &str = "xl/sharedStrings.xml";
        let text = match self.text(TEXTS) {
            Ok(text) => text,
            Err(XlsxError::NoPart(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let texts = parse(TEXTS, &text)?;
        Ok(elements(texts.root_element(), "si").map(text_of).collect())
    }

    /// Returns for each style whether its numbers are dates.
    fn date_styles(&self) -> Result<Vec<bool>, XlsxError> {
        const STYLES: &str = "xl/styles.xml";
        let text = match self.text(STYLES) {
            Ok(text) => text,
            Err(XlsxError::NoPart(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let styles = parse(STYLES, &text)?;
        let formats: HashMap<&str, &str> = elements(styles.root_element(), "numFmt")
            .filter_map(|format| Some((format.attribute("numFmtId")?, format.attribute("formatCode")?)))
            .collect();
        let is_date = |style: Node<'_, '_>| {
            let id = style.attribute("numFmtId").unwrap_or("0");
            match formats.get(id) {
                Some(code) => shows_a_date(code),
                None => matches!(id.parse::<u32>(), Ok(14..=17 | 22)),
            }
        };
        let styles = elements(styles.root_element(), "cellXfs").flat_map(|list| list.children());
        Ok(styles.filter(|style| style.tag_name().name() == "xf").map(is_date).collect())
    }
}

fn cell_text(cell: Node<'_, '_>, shared: &[String], dates: &[bool]) -> String {
    let value = cell.children().find(|node| node.tag_name().name() == "v").and_then(|value| value.text());
    let value = value.unwrap_or_default();
    match cell.attribute("t").unwrap_or("n") {
        "s" => value.trim().parse::<usize>().ok().and_then(|at| shared.get(at).cloned()).unwrap_or_default(),
        "inlineStr" => text_of(cell),
        "b" => (value.trim() == "1").to_string(),
        "n" => {
            let style = cell.attribute("s").and_then(|style| style.parse::<usize>().ok()).unwrap_or(0);
            match value.trim().parse::<f64>() {
                Ok(days) if dates.get(style) == Some(&true) => {
                    date(days).unwrap_or_else(|| number::text(days))
                }
                Ok(n) => number::text(n),
                Err(_) => String::new(),
            }
        }
        _ => value.to_owned(),
    }
}

/// Whether numbers in a format are shown as dates: outside quotes and brackets it has a year or a day.
fn shows_a_date(code: &str) -> bool {
    let (mut quoted, mut bracket) = (false, false);
    code.chars().any(|c| {
        match c {
            '"' => quoted = !quoted,
            '[' => bracket = true,
            ']' => bracket = false,
            _ => {}
        }
        !quoted && !bracket && matches!(c.to_ascii_lowercase(), 'y' | 'd')
    })
}

/// A date, and its time if it has one, from the days since the end of 1899.
fn date(days: f64) -> Option<String> {
    let whole = days.floor();
    if !(0.0..3_000_000.0).contains(&whole) {
        return None;
    }
    let seconds = ((days - whole) * 86_400.0).round() as i64;
    let start = jiff::civil::date(1899, 12, 30).at(0, 0, 0, 0);
    let span = jiff::Span::new().try_days(whole as i64).ok()?.try_seconds(seconds).ok()?;
    let at = start.checked_add(span).ok()?;
    Some(match seconds {
        0 => at.date().to_string(),
        _ => at.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
    })
}

/// The column of a cell like `AB12`, counted from 0.
fn column_of(name: &str) -> Option<usize> {
    let letters: String = name.chars().take_while(char::is_ascii_alphabetic).take(4).collect();
    let digits = letters.bytes().map(|letter| usize::from(letter.to_ascii_uppercase() - b'A') + 1);
    digits.fold(0, |sum, digit| sum * 26 + digit).checked_sub(1)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_columns_and_dates() {
        assert_eq!(column_of("A1"), Some(0));
        assert_eq!(column_of("AB12"), Some(27));
        assert_eq!(column_of("12"), None);
        assert_eq!(date(45_323.0).as_deref(), Some("2024-02-01"));
        assert_eq!(date(45_323.5).as_deref(), Some("2024-02-01T12:00:00"));
        assert_eq!(date(-1.0), None);
        assert!(shows_a_date("yyyy\\-mm\\-dd") && !shows_a_date("0.00\"days\"") && !shows_a_date("[Red]0"));
    }

    #[test]
    fn what_is_no_spreadsheet_is_refused() {
        for bytes in [&b""[..], b"PK\x05\x06", b"text", &[b"PK\x05\x06".as_slice(), &[255; 18]].concat()] {
            assert!(matches!(rows(bytes, None), Err(XlsxError::NotAnArchive)), "{bytes:?}");
        }
        let empty = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
        assert!(matches!(rows(&empty, None), Err(XlsxError::NoPart(_))));
    }

    #[test]
    fn sheets_are_named_after_the_path() {
        assert_eq!(split_sheet("a/b.xlsx#Two"), ("a/b.xlsx", Some("Two")));
        assert_eq!(split_sheet("a/b#c.csv"), ("a/b#c.csv", None));
    }
}

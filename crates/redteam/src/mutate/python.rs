//! Mutators of Python.

use std::io::Write;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use regex::{Captures, Regex};

use super::Mutator;
use super::lexer::rewrite;

/// The mutators by name.
pub(super) const MUTATORS: &[(&str, Mutator)] = &[
    ("exec-base64", exec_base64),
    ("exec-zlib", exec_zlib),
    ("exec-hex", exec_hex),
    ("exec-characters", exec_characters),
    ("exec-reversed", exec_reversed),
    ("exec-by-name", exec_by_name),
    ("compile-nested", compile_nested),
    ("pickle", pickle),
    ("c-api", c_api),
    ("import-function", import_function),
    ("import-library", import_library),
    ("import-continued", import_continued),
    ("string-split", string_split),
    ("string-escapes", string_escapes),
    ("identifiers", identifiers),
    ("spacing", spacing),
    ("padding", padding),
];

fn base64(code: &str) -> String {
    STANDARD.encode(code)
}

fn exec_base64(code: &str) -> String {
    format!("import base64\nexec(base64.b64decode(\"{}\").decode())\n", base64(code))
}

fn exec_zlib(code: &str) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let packed = encoder.write_all(code.as_bytes()).and_then(|()| encoder.finish()).unwrap_or_default();
    format!(
        "import base64, zlib\nexec(zlib.decompress(base64.b64decode(\"{}\")).decode())\n",
        STANDARD.encode(packed)
    )
}

fn exec_hex(code: &str) -> String {
    let hex: String = code.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("exec(bytes.fromhex(\"{hex}\").decode())\n")
}

fn exec_characters(code: &str) -> String {
    let numbers: Vec<String> = code.chars().map(|c| (c as u32).to_string()).collect();
    format!("exec(\"\".join(map(chr, [{}])))\n", numbers.join(", "))
}

fn exec_reversed(code: &str) -> String {
    let reversed: String = base64(code).chars().rev().collect();
    format!("import base64\nexec(base64.b64decode(\"{reversed}\"[::-1]).decode())\n")
}

/// The function that runs text is taken by a name that is put together.
fn exec_by_name(code: &str) -> String {
    format!(
        "import base64, builtins\nrun = getattr(builtins, \"ex\" + \"ec\")\nrun(base64.b64decode(\"{}\").decode(), globals())\n",
        base64(code)
    )
}

fn compile_nested(code: &str) -> String {
    exec_base64(&format!(
        "eval(compile(__import__('base64').b64decode('{}').decode(), 'm', 'exec'))",
        base64(code)
    ))
}

/// A pickle that calls `exec`.
fn pickle(code: &str) -> String {
    let escaped: String = code
        .chars()
        .map(|c| match c {
            '\n' | '\\' | '\r' => format!("\\u{:04x}", c as u32),
            c if c.is_ascii() => c.to_string(),
            c if (c as u32) < 0x10000 => format!("\\u{:04x}", c as u32),
            c => format!("\\U{:08x}", c as u32),
        })
        .collect();
    let stream = format!("cbuiltins\nexec\n(V{escaped}\ntR.");
    format!("import base64, pickle\npickle.loads(base64.b64decode(\"{}\"))\n", base64(&stream))
}

fn c_api(code: &str) -> String {
    format!(
        "import base64, ctypes\nctypes.pythonapi.PyRun_SimpleString(base64.b64decode(\"{}\"))\n",
        base64(code)
    )
}

static IMPORT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?m)^([ \t]*)import[ ]+([A-Za-z_][\w]*(?:[ ]*,[ ]*[A-Za-z_]\w*)*)[ ]*$").ok()
});

/// Replaces `import a, b` by what `with` makes of a name.
fn replace_imports(code: &str, with: impl Fn(&str) -> String) -> Option<String> {
    let pattern = IMPORT.as_ref()?;
    if !pattern.is_match(code) {
        return None;
    }
    let replaced = pattern.replace_all(code, |found: &Captures<'_>| {
        let statements: Vec<String> = found[2].split(',').map(|name| with(name.trim())).collect();
        format!("{}{}", &found[1], statements.join("; "))
    });
    Some(replaced.into_owned())
}

fn import_function(code: &str) -> String {
    let replaced = replace_imports(code, |name| format!("{name} = __import__(\"{name}\")"));
    replaced.unwrap_or_else(|| padding(code))
}

fn import_library(code: &str) -> String {
    let halves = |name: &str| {
        let (left, right) = name.split_at(name.len() / 2);
        format!("{name} = _load(\"{left}\" + \"{right}\")")
    };
    let replaced = replace_imports(code, halves);
    replaced
        .map_or_else(|| padding(code), |code| format!("from importlib import import_module as _load\n{code}"))
}

fn import_continued(code: &str) -> String {
    let Some(pattern) = IMPORT.as_ref().filter(|pattern| pattern.is_match(code)) else {
        return spacing(code);
    };
    pattern.replace_all(code, "${1}import \\\n        ${2}").into_owned()
}

/// Literals in two halves, which Python joins.
fn string_split(code: &str) -> String {
    let strings = |text: &str| {
        let quote = &text[..1];
        let is_plain = matches!(quote, "\"" | "'")
            && !text.starts_with(&quote.repeat(3))
            && text.is_ascii()
            && text.len() > 3
            && !text.contains('\\');
        if !is_plain {
            return text.to_owned();
        }
        let middle = text.len() / 2;
        format!("{}{quote} {quote}{}", &text[..middle], &text[middle..])
    };
    let split = rewrite(code, str::to_owned, strings);
    if split == code { padding(code) } else { split }
}

/// Literals whose letters are written as numbers.
fn string_escapes(code: &str) -> String {
    let strings = |text: &str| {
        let quote = &text[..1];
        let is_plain = matches!(quote, "\"" | "'")
            && !text.starts_with(&quote.repeat(3))
            && text.is_ascii()
            && !text.contains('\\');
        if !is_plain {
            return text.to_owned();
        }
        let inner: String = text[1..text.len() - 1].bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("{quote}{inner}{quote}")
    };
    let escaped = rewrite(code, str::to_owned, strings);
    if escaped == code { padding(code) } else { escaped }
}

static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z_]\w*").ok());

/// Words that are not names, or names that must be plain.
const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "match",
    "case", "type",
];

/// Names in letters that Python folds to the plain ones.
fn identifiers(code: &str) -> String {
    let Some(pattern) = NAME.as_ref() else { return code.to_owned() };
    let fold = |found: &Captures<'_>| {
        let name = &found[0];
        // Names between underscores and those with a digit before them (`0x1f`, `1e5`) stay as they are.
        if KEYWORDS.contains(&name) || name.starts_with('_') {
            return name.to_owned();
        }
        let mut letters = name.chars();
        let first = letters.next().map(mathematical).unwrap_or_default();
        first + letters.as_str()
    };
    let names = |text: &str| {
        let mut out = String::new();
        let mut last = 0;
        for found in pattern.captures_iter(text) {
            let Some(whole) = found.get(0) else { continue };
            out.push_str(&text[last..whole.start()]);
            let follows_digit = text[..whole.start()].ends_with(|c: char| c.is_ascii_digit());
            out.push_str(&if follows_digit { found[0].to_owned() } else { fold(&found) });
            last = whole.end();
        }
        out + &text[last..]
    };
    rewrite(code, names, str::to_owned)
}

/// A letter of the mathematical alphabet, which the compatibility normalisation of identifiers folds.
fn mathematical(c: char) -> String {
    let letter = match c {
        'a'..='z' => char::from_u32(0x1D41A + c as u32 - 'a' as u32),
        'A'..='Z' => char::from_u32(0x1D400 + c as u32 - 'A' as u32),
        _ => None,
    };
    letter.unwrap_or(c).to_string()
}

static MEMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"([A-Za-z_]\w*|\))\.([A-Za-z_])").ok());
static CALLED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"([A-Za-z_]\w*)\(").ok());

/// Spaces where patterns expect none.
fn spacing(code: &str) -> String {
    let names = |text: &str| {
        let (Some(member), Some(called)) = (MEMBER.as_ref(), CALLED.as_ref()) else { return text.to_owned() };
        let spaced = member.replace_all(text, "$1 . $2");
        // Members of members are met one after the other.
        let spaced = member.replace_all(&spaced, "$1 . $2");
        called.replace_all(&spaced, "$1 (").into_owned()
    };
    let spaced = rewrite(code, names, str::to_owned);
    if spaced == code { padding(code) } else { spaced }
}

/// Harmless code around it.
fn padding(code: &str) -> String {
    let dead = "def mean(values):\n    \"\"\"Returns the mean of the values.\"\"\"\n    values = list(values)\n    \
                return sum(values) / len(values) if values else 0.0\n\n\ntotal = mean(range(10))\n";
    format!("{dead}\n{code}\n\nassert mean([1, 3]) == 2\n")
}

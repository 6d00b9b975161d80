//! Code for `run`: where it comes from, its language, and how a script in that language gets its arguments.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;

/// Languages by file extension.
const EXTENSIONS: [(&str, &str); 15] = [
    ("py", "python"),
    ("js", "javascript"),
    ("mjs", "javascript"),
    ("cjs", "javascript"),
    ("ts", "typescript"),
    ("mts", "typescript"),
    ("sh", "bash"),
    ("bash", "bash"),
    ("r", "r"),
    ("R", "r"),
    ("java", "java"),
    ("rb", "ruby"),
    ("cpp", "cpp"),
    ("cc", "cpp"),
    ("cxx", "cpp"),
];

/// Languages by the program of a `#!` line.
const PROGRAMS: [(&str, &str); 6] = [
    ("python", "python"),
    ("node", "javascript"),
    ("bash", "bash"),
    ("sh", "bash"),
    ("Rscript", "r"),
    ("ruby", "ruby"),
];

/// Code to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The code.
    pub code: String,
    /// The language of the code.
    pub language: String,
    /// Name of the file; `None` for code of the command line.
    pub file: Option<String>,
}

impl Source {
    /// Reads the code from a file, from standard input (`-`) or from the command line.
    pub fn read(file: Option<&str>, code: Option<&String>, language: Option<&String>) -> Result<Self> {
        let (code, path) = match (code, file) {
            (Some(code), _) => (code.clone(), None),
            (None, Some("-")) => {
                let mut code = String::new();
                std::io::stdin().read_to_string(&mut code).context("failed to read standard input")?;
                (code, None)
            }
            (None, Some(file)) => {
                let path = Path::new(file);
                let code = std::fs::read_to_string(path)
                    .with_context(|| format!("failed to read `{}`", path.display()))?;
                (code, Some(path))
            }
            (None, None) => bail!("nothing to run; give a file, `-` for standard input, or code with -c"),
        };
        let language = match (language, path) {
            (Some(language), _) => language.clone(),
            (None, Some(path)) => language_of(path, &code)?,
            (None, None) => shebang(&code).unwrap_or("python").to_owned(),
        };
        let file = path.and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        Ok(Self { code, language, file })
    }

    /// Name of the code in tracebacks.
    pub fn name(&self) -> &str {
        self.file.as_deref().unwrap_or("<string>")
    }

    /// Whether values of expressions are printed: for code of the command line, and for scripts in R, which print values.
    pub fn shows_values(&self) -> bool {
        self.file.is_none() || self.language == "r"
    }

    /// Code that sets the name and arguments of a script, and makes exits end the execution.
    pub fn prelude(&self, arguments: &[String]) -> Result<Option<String>> {
        let name = self.file.as_deref().unwrap_or(if self.language == "python" { "-c" } else { "" });
        let path = self.file.as_ref().map(|file| format!("/home/user/{file}"));
        // The text of a JSON string is a literal in these languages as well.
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Ok(match self.language.as_str() {
            "python" => {
                let argv: Vec<&str> = std::iter::once(path.as_deref().unwrap_or(name)).chain(words).collect();
                let file =
                    path.as_ref().map(|path| format!("__file__ = {}\n", json!(path))).unwrap_or_default();
                Some(format!(
                    "import sys as _sys\n_sys.argv = {}\nexit = quit = _sys.exit\n{file}del _sys\n",
                    json!(argv)
                ))
            }
            "javascript" | "typescript" => {
                let path = path.as_deref().unwrap_or("[eval]");
                let argv: Vec<&str> = std::iter::once(path).chain(words).collect();
                Some(format!(
                    "process.argv.splice(1, Infinity, ...{});\nprocess.exit = (status) => {{ const end = new \
                     Error(String(status ?? process.exitCode ?? 0)); end.name = 'ProcessExit'; throw end }};\nundefined",
                    json!(argv)
                ))
            }
            "r" => {
                let list = words.iter().map(|word| json!(word).to_string()).collect::<Vec<_>>().join(", ");
                Some(format!(
                    "commandArgs <- function(trailingOnly = FALSE) c(if (!trailingOnly) \"R\", {})",
                    if list.is_empty() { "character()".to_owned() } else { list }
                ))
            }
            // Runs as a program, which takes arguments as usual.
            "bash" => None,
            _ if arguments.is_empty() => None,
            language => bail!(
                "arguments are not supported for {language}; they are for python, javascript, typescript, bash and r"
            ),
        })
    }
}

fn language_of(path: &Path, code: &str) -> Result<String> {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else {
        return shebang(code)
            .map(str::to_owned)
            .with_context(|| format!("unknown language of `{}`; pass --language", path.display()));
    };
    match EXTENSIONS.iter().find(|(known, _)| *known == extension) {
        Some((_, language)) => Ok((*language).to_owned()),
        None => {
            let known: Vec<String> = EXTENSIONS.iter().map(|(known, _)| format!(".{known}")).collect();
            bail!("unknown file extension `.{extension}`; use {}, or pass --language", known.join(", "))
        }
    }
}

/// The language of a `#!` line.
fn shebang(code: &str) -> Option<&'static str> {
    let line = code.strip_prefix("#!")?.lines().next()?;
    let mut words = line.split_whitespace();
    let mut program = words.next()?.rsplit('/').next()?;
    if program == "env" {
        program = words.find(|word| !word.starts_with('-'))?;
    }
    let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PROGRAMS.iter().find(|(known, _)| *known == program).map(|(_, language)| *language)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language(path: &str, code: &str) -> Result<String> {
        language_of(Path::new(path), code)
    }

    fn source(language: &str, file: Option<&str>) -> Source {
        Source { code: String::new(), language: language.into(), file: file.map(Into::into) }
    }

    #[test]
    fn the_extension_decides_the_language() {
        assert_eq!(language("a/b.ts", "").unwrap(), "typescript");
        assert_eq!(language("b.py", "").unwrap(), "python");
        let error = language("b.pyc", "").unwrap_err().to_string();
        assert!(error.starts_with("unknown file extension `.pyc`; use .py, .js, "), "{error}");
    }

    #[test]
    fn without_an_extension_the_first_line_does() {
        assert_eq!(language("tool", "#!/usr/bin/env python3\n").unwrap(), "python");
        assert_eq!(language("tool", "#!/bin/sh -e\n").unwrap(), "bash");
        assert_eq!(language("tool", "#!/usr/bin/env -S node --x\n").unwrap(), "javascript");
        assert!(language("tool", "print(1)").unwrap_err().to_string().contains("--language"));
    }

    #[test]
    fn arguments_reach_the_script() {
        let words = ["x y".to_owned(), "\"".to_owned()];
        let python = source("python", Some("a.py")).prelude(&words).unwrap().unwrap();
        assert!(python.contains(r#"_sys.argv = ["/home/user/a.py","x y","\""]"#), "{python}");
        let script = source("javascript", None).prelude(&words).unwrap().unwrap();
        assert!(script.contains(r#"...["[eval]","x y","\""])"#), "{script}");
        assert_eq!(source("bash", None).prelude(&words).unwrap(), None);
        assert!(source("java", None).prelude(&words).is_err());
        assert_eq!(source("java", None).prelude(&[]).unwrap(), None);
    }

    #[test]
    fn only_code_of_a_command_line_shows_values() {
        assert!(source("python", None).shows_values());
        assert!(!source("python", Some("a.py")).shows_values());
        assert!(source("r", Some("a.r")).shows_values());
    }
}

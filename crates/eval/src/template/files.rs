//! The files that templates include and import.

use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::TemplateError;
use super::syntax::Part;

/// The most files that may be open in each other, after which they are taken for a circle.
const MAX_DEPTH: usize = 32;

/// The files below a directory, and those that are open.
#[derive(Debug, Clone)]
pub struct Files<'b> {
    base: Option<&'b Path>,
    /// The directories of the open files, the innermost last.
    open: Vec<PathBuf>,
}

impl<'b> Files<'b> {
    /// The files below `base`, or none.
    pub fn new(base: Option<&'b Path>) -> Self {
        Self { base, open: Vec::new() }
    }

    /// Opens a file until [`close`](Self::close) and returns its parts; nothing if there is no such file. A name that begins with a
    /// dot is relative to the file that is open, others to the base, else to the working directory. Files outside are not found.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, or includes itself.
    pub fn open(&mut self, name: &str) -> Result<Option<Rc<Vec<Part>>>, TemplateError> {
        let failed = |message: String| TemplateError { message, line: 0 };
        if self.open.len() >= MAX_DEPTH {
            return Err(failed(format!("`{name}` is part of a circle of templates")));
        }
        let Some(path) = self.find(name) else { return Ok(None) };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| failed(format!("failed to read `{}`: {error}", path.display())))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let parts = super::parse(text).map_err(|error| failed(format!("{name}: {error}")))?;
        self.open.push(path.parent().map(Path::to_owned).unwrap_or_default());
        Ok(Some(parts))
    }

    /// Closes the file that was opened last.
    pub fn close(&mut self) {
        self.open.pop();
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        let base = self.base?;
        let relative = name.starts_with("./") || name.starts_with("../");
        let working = std::env::current_dir().ok();
        [Some(base), working.as_deref()].into_iter().flatten().find_map(|root| {
            let start = self.open.last().filter(|_| relative).map_or(root, PathBuf::as_path);
            let path = below(root, &start.join(name))?;
            path.is_file().then_some(path)
        })
    }
}

/// Returns a path without its dots, if it is below `root`.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut whole = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                if !whole.pop() {
                    return None;
                }
            }
            other => whole.push(other),
        }
    }
    whole.starts_with(root).then_some(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Templates;
    use super::*;
    use crate::model::Object;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("greeting.txt", "\u{feff}Hello {{ name }}{% set name = 'changed' %}");
        write("parts/outer.txt", "[{% include './inner.txt' %}]");
        write("parts/inner.txt", "inner {{ name }}");
        write(
            "macros.txt",
            "{% macro bold(x) %}<b>{{ small(x) }}</b>{% endmacro %}{% macro small(x) %}{{ x | lower }}{% endmacro %}\
             {% set who = name or 'nobody' %}{% set _own = 1 %}",
        );
        write("circle.txt", "{% include 'circle.txt' %}");
        directory
    }

    fn render(base: &Path, template: &str) -> Result<String, String> {
        let vars = json!({"name": "Ann", "file": "greeting.txt"});
        let templates = Templates::new(Object::new()).with_base(base);
        templates.render(template, vars.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn files_are_included() {
        let directory = directory();
        let rendered = |template: &str| render(directory.path(), template).unwrap();
        assert_eq!(rendered("{% include 'greeting.txt' %}! {{ name }}"), "Hello Ann! Ann");
        assert_eq!(rendered("{% set name = 'Bo' %}{% include file %}"), "Hello Bo");
        assert_eq!(rendered("{% include 'parts/outer.txt' %}"), "[inner Ann]");
        assert_eq!(rendered("a{% include 'none.txt' ignore missing %}b"), "ab");
        let failed = |template: &str| render(directory.path(), template).unwrap_err();
        assert!(failed("{% include 'none.txt' %}").contains("template not found: none.txt"));
        assert!(failed("{% include 'circle.txt' %}").contains("circle"));
    }

    #[test]
    fn files_outside_are_not_found() {
        let directory = directory();
        let inside = directory.path().join("parts");
        for name in ["../greeting.txt", "/etc/hostname", "../parts/../greeting.txt"] {
            assert!(render(&inside, &format!("{{% include '{name}' %}}")).is_err(), "{name}");
        }
        assert!(Templates::new(Object::new()).render("{% include 'x' %}", &Object::new()).is_err());
    }

    #[test]
    fn macros_are_imported() {
        let directory = directory();
        let rendered = |template: &str| render(directory.path(), template).unwrap();
        assert_eq!(rendered("{% import 'macros.txt' as m %}{{ m.bold('X') }}{{ m.who }}"), "<b>x</b>nobody");
        assert_eq!(rendered("{% import 'macros.txt' as m with context %}{{ m.who }}{{ m._own }}"), "Ann");
        assert_eq!(
            rendered("{% from 'macros.txt' import bold as b, small %}{{ b('X') }}{{ small('Y') }}"),
            "<b>x</b>y"
        );
        let failed = render(directory.path(), "{% from 'macros.txt' import none %}").unwrap_err();
        assert!(failed.contains("cannot import `none`"));
    }
}

//! Statements by which kernels set and remove variables (contract: interpreter, section 6). The protocol has no message for
//! this.

use serde_json::Value;

use crate::kernel::request::Change;

/// A language in which the interpreter can set variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Variables are in `os.environ`.
    Python,
    /// Variables are in `Sys.getenv`.
    R,
    /// Variables are in `System.getProperty`, as the environment of a virtual machine cannot be changed.
    Java,
    /// Variables are in `ENV`.
    Ruby,
    /// Variables are in `ENV`.
    Julia,
    /// Variables are in `process.env`.
    JavaScript,
}

impl Dialect {
    /// The dialect of the language that a kernel declares.
    pub fn of(language: &str) -> Option<Self> {
        Some(match language.to_lowercase().as_str() {
            "python" | "python3" | "ipython" => Self::Python,
            "r" => Self::R,
            "java" => Self::Java,
            "ruby" => Self::Ruby,
            "julia" => Self::Julia,
            "javascript" | "typescript" => Self::JavaScript,
            _ => return None,
        })
    }

    /// Code that makes these changes and defines no name.
    pub fn code(self, changes: &[Change]) -> String {
        let statements: Vec<String> = changes
            .iter()
            .map(|(name, value)| {
                self.statement(&self.literal(name), value.as_deref().map(|value| self.literal(value)))
            })
            .collect();
        statements.join("\n")
    }

    fn statement(self, name: &str, value: Option<String>) -> String {
        match (self, value) {
            (Self::Python, Some(value)) => format!("__import__('os').environ[{name}] = {value}"),
            (Self::Python, None) => format!("__import__('os').environ.pop({name}, None)"),
            (Self::R, Some(value)) => format!("invisible(base::Sys.setenv({name} = {value}))"),
            (Self::R, None) => format!("invisible(base::Sys.unsetenv({name}))"),
            // In a block, or the value would get a name.
            (Self::Java, Some(value)) => format!("{{ System.setProperty({name}, {value}); }}"),
            (Self::Java, None) => format!("{{ System.clearProperty({name}); }}"),
            (Self::Ruby | Self::Julia, Some(value)) => format!("ENV[{name}] = {value};"),
            (Self::Ruby, None) => format!("ENV.delete({name});"),
            (Self::Julia, None) => format!("delete!(ENV, {name});"),
            (Self::JavaScript, Some(value)) => format!("process.env[{name}] = {value};"),
            (Self::JavaScript, None) => format!("delete process.env[{name}];"),
        }
    }

    /// A string literal in double quotes. All these languages read JSON's escapes, and some read more.
    fn literal(self, text: &str) -> String {
        let quoted = Value::from(text).to_string();
        match self {
            Self::Ruby => quoted.replace('#', "\\#"),
            Self::Julia => quoted.replace('$', "\\$"),
            Self::Python | Self::R | Self::Java | Self::JavaScript => quoted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_and_removed_in_each_language() {
        let changes = [("A".to_owned(), Some("x\"\\\n#{1}$HOME".to_owned())), ("B".to_owned(), None)];
        for (language, code) in [
            (
                "Python",
                "__import__('os').environ[\"A\"] = \"x\\\"\\\\\\n#{1}$HOME\"\n__import__('os').environ.pop(\"B\", None)",
            ),
            (
                "R",
                "invisible(base::Sys.setenv(\"A\" = \"x\\\"\\\\\\n#{1}$HOME\"))\ninvisible(base::Sys.unsetenv(\"B\"))",
            ),
            (
                "Java",
                "{ System.setProperty(\"A\", \"x\\\"\\\\\\n#{1}$HOME\"); }\n{ System.clearProperty(\"B\"); }",
            ),
            ("ruby", "ENV[\"A\"] = \"x\\\"\\\\\\n\\#{1}$HOME\";\nENV.delete(\"B\");"),
            ("julia", "ENV[\"A\"] = \"x\\\"\\\\\\n#{1}\\$HOME\";\ndelete!(ENV, \"B\");"),
            ("javascript", "process.env[\"A\"] = \"x\\\"\\\\\\n#{1}$HOME\";\ndelete process.env[\"B\"];"),
        ] {
            assert_eq!(Dialect::of(language).unwrap().code(&changes), code, "{language}");
        }
        assert_eq!(Dialect::of("cobol"), None);
    }
}

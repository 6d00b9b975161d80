//! Whether an answer is SQL, of which dialect, and keeps to tables and columns it may touch.

use sandcove_formats::sql::{Database, MAX_SQL, Names};
use serde_json::Value;

use super::error::CheckError;
use crate::grading::{Grader, GradingContext};
use crate::model::GradingResult;

/// The types about SQL.
pub const GRADERS: &[(&str, Grader)] =
    &[("is-sql", Grader::Pure(is_sql)), ("contains-sql", Grader::Pure(contains_sql))];

/// The database that an assertion names, and the tables and columns that it allows.
struct SqlRules {
    database: &'static Database,
    /// The name of the database as written.
    written: String,
    tables: Option<Vec<String>>,
    columns: Option<Vec<String>>,
}

impl SqlRules {
    fn read(cx: &GradingContext<'_>) -> Result<Self, CheckError> {
        let kind = &cx.assertion.kind;
        let map = match cx.value {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.is_empty() => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                return Err(CheckError::SqlValue { kind: kind.clone(), value: other.clone() });
            }
        };
        let given = |key: &str| map.and_then(|map| map.get(key)).filter(|value| !value.is_null());
        let written = given("databaseType").and_then(Value::as_str).unwrap_or("MySQL").to_owned();
        let database = Database::find(&written).ok_or_else(|| CheckError::UnknownDatabase {
            kind: kind.clone(),
            database: written.clone(),
            known: Database::names().collect(),
        })?;
        let list = |key: &str| given(key).map(|value| super::text::list(Some(value)));
        Ok(Self { database, written, tables: list("allowedTables"), columns: list("allowedColumns") })
    }

    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.database.name())
    }

    /// Returns what is wrong with a text.
    fn problem(&self, sql: &str) -> Option<String> {
        let wrong =
            || format!("SQL statement does not conform to the provided {} database syntax.", self.written);
        let sql = sql.trim();
        if sql.len() > MAX_SQL {
            return Some(format!("SQL of more than {} KiB is not read.", MAX_SQL / 1024));
        }
        let mysql = self.is(&["mysql"]);
        let odd = sql.is_empty()
            || !sql.matches('`').count().is_multiple_of(2)
            || comma_is_missing(&self.code_of(sql), self.is(&["mysql", "mariadb"]))
            || (mysql && calls(sql, "generate_series"));
        if odd {
            return Some(wrong());
        }
        let Some(found) = self.database.read(sql) else { return Some(wrong()) };
        let denied = |what: &str,
                      found: &Names,
                      of: fn(&Names) -> &std::collections::BTreeSet<String>,
                      allowed: &[String]| {
            let all: Vec<&str> = of(found).iter().map(String::as_str).collect();
            all.iter().any(|name| !allowed.iter().any(|entry| fits(entry, name))).then(|| {
                format!(
                    "SQL references unauthorized {what}. Found: [{}]. Allowed: [{}].",
                    all.join(", "),
                    allowed.join(", ")
                )
            })
        };
        let tables = self.tables.as_ref().filter(|list| !list.is_empty());
        let columns = self.columns.as_ref().filter(|list| !list.is_empty());
        tables.and_then(|allowed| denied("table(s)", &found, |names| &names.tables, allowed)).or_else(|| {
            columns.and_then(|allowed| denied("column(s)", &found, |names| &names.columns, allowed))
        })
    }

    /// The text without comments; quoted text becomes a `?`.
    fn code_of(&self, sql: &str) -> String {
        let brackets = self.is(&["transactsql", "sqlite"]);
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(c) = rest.chars().next() {
            let (length, quoted) = match c {
                '\'' | '"' | '`' => (quote_end(rest, c), true),
                '[' if brackets => (quote_end(rest, ']'), true),
                '#' => (rest.find(['\r', '\n']).unwrap_or(rest.len()), false),
                '-' if rest.starts_with("--") => (rest.find(['\r', '\n']).unwrap_or(rest.len()), false),
                '/' if rest.starts_with("/*") => {
                    (rest[2..].find("*/").map_or(rest.len(), |at| at + 4), false)
                }
                '$' if dollar_quote(rest).is_some() => (dollar_quote(rest).unwrap_or(1), true),
                _ => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
            };
            out.push_str(if quoted { " ? " } else { " " });
            rest = &rest[length..];
        }
        out
    }
}

/// Returns where a text that begins like `$$` or `$name$` ends, behind the next of these.
fn dollar_quote(text: &str) -> Option<usize> {
    let name = text[1..].split('$').next().filter(|name| name.len() + 1 < text.len())?;
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mark = &text[..name.len() + 2];
    let end = text[mark.len()..].find(mark).map_or(text.len(), |at| at + 2 * mark.len());
    (plain && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(end)
}

/// Returns where a text that begins with a quote ends, behind the closing one.
fn quote_end(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && quote != ']' {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return at + c.len_utf8();
            }
        }
    }
    text.len()
}

/// Whether it says `select a b from`, which is an alias by the letter and a forgotten comma by experience.
fn comma_is_missing(code: &str, mysql: bool) -> bool {
    let modifier = |word: &str| {
        let word = word.to_lowercase();
        matches!(word.as_str(), "all" | "distinct")
            || (mysql
                && (matches!(word.as_str(), "distinctrow" | "high_priority" | "straight_join")
                    || (word.starts_with("sql_") && word.len() > 4)))
    };
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let identifier = |word: &str| word.chars().all(part) && !word.starts_with(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = code.split_whitespace().collect();
    (0..words.len()).any(|at| {
        let lower = words[at].to_lowercase();
        let opens = lower.strip_suffix("select").is_some_and(|before| !before.ends_with(part));
        let mut rest = words[at + 1..].iter().skip_while(|word| modifier(word));
        let three = (rest.next(), rest.next(), rest.next());
        let (Some(first), Some(second), Some(third)) = three else { return false };
        let from = third.to_lowercase();
        opens
            && identifier(first)
            && identifier(second)
            && from.strip_prefix("from").is_some_and(|after| !after.starts_with(part))
    })
}

/// Whether a function of this name is called.
fn calls(sql: &str, name: &str) -> bool {
    let lower = sql.to_lowercase();
    lower.match_indices(name).any(|(at, _)| {
        let before = lower[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
            && lower[at + name.len()..].trim_start().starts_with('(')
    })
}

/// Whether an entry of a list, a regular expression, is a name. A column of a named table may also be used without it.
fn fits(entry: &str, name: &str) -> bool {
    let matches = |entry: &str| {
        entry.eq_ignore_ascii_case(name)
            || (entry.contains(['*', '+', '?', '|', '[', '\\', '.'])
                && crate::javascript::call(
                    "(p, t) => new RegExp(`^${p}$`, 'i').test(t)",
                    &[entry.into(), name.into()],
                )
                .is_ok_and(|found| found == Value::Bool(true)))
    };
    let parts: Vec<&str> = entry.split("::").collect();
    matches(entry)
        || matches!(parts[..], [verb, table, column] if table != "null" && matches(&format!("{verb}::null::{column}")))
}

fn is_sql(cx: &GradingContext<'_>) -> GradingResult {
    let rules = match SqlRules::read(cx) {
        Ok(rules) => rules,
        Err(error) => return GradingResult::broken(error),
    };
    let problem = rules.problem(cx.output_text);
    GradingResult::of(cx.assertion, problem.is_none(), || {
        problem.unwrap_or_else(|| "The output SQL statement is valid".to_owned())
    })
}

fn contains_sql(cx: &GradingContext<'_>) -> GradingResult {
    let rules = match SqlRules::read(cx) {
        Ok(rules) => rules,
        Err(error) => return GradingResult::broken(error),
    };
    let mut blocks = fenced(cx.output_text);
    if blocks.is_empty() {
        blocks.push(cx.output_text.to_owned());
    }
    let mut problem = Some("Output does not contain valid SQL".to_owned());
    for block in blocks.iter().filter(|block| !block.trim().is_empty()) {
        problem = rules.problem(block);
        if problem.is_none() {
            break;
        }
    }
    GradingResult::of(cx.assertion, problem.is_none(), || {
        problem.unwrap_or_else(|| "The output SQL statement is valid".to_owned())
    })
}

/// The fenced blocks that are SQL, or do not say what they are.
fn fenced(text: &str) -> Vec<String> {
    let fence = |line: &str| {
        let inner = line.trim_start_matches([' ', '\t']);
        let mark = inner.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = inner.chars().take_while(|c| *c == mark).count();
        (length >= 3 && line.len() - inner.len() <= 3)
            .then(|| (mark, length, inner[length..].trim().to_lowercase()))
    };
    let mut found = Vec::new();
    let mut open: Option<(char, usize, bool, Vec<&str>)> = None;
    for line in text.lines() {
        match (&mut open, fence(line)) {
            (None, Some((mark, length, label))) => {
                open = Some((mark, length, matches!(label.as_str(), "" | "sql"), Vec::new()));
            }
            (Some((mark, length, sql, lines)), Some((closing, many, label)))
                if closing == *mark && many >= *length && label.is_empty() =>
            {
                if *sql {
                    found.push(lines.join("\n").trim().to_owned());
                }
                open = None;
            }
            (Some((.., lines)), _) => lines.push(line),
            (None, None) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(database: &str) -> SqlRules {
        let database = Database::find(database).unwrap();
        SqlRules { database, written: database.name().to_owned(), tables: None, columns: None }
    }

    #[test]
    fn nonsense_is_no_sql() {
        for database in ["mysql", "postgresql", "sqlite"] {
            for text in [
                "",
                "hello there",
                "SELECT FROM WHERE",
                "SELECT a b FROM t",
                "SELECT `a FROM t",
                "SELECT a FROM t WHERE",
            ] {
                assert!(rules(database).problem(text).is_some(), "{database}: {text}");
            }
            assert_eq!(rules(database).problem("SELECT a, 'x y from' FROM t -- select a b from"), None);
        }
        assert!(rules("mysql").problem("SELECT * FROM generate_series(1, 3)").is_some());
        assert_eq!(rules("postgresql").problem("SELECT * FROM generate_series(1, 3)"), None);
    }

    #[test]
    fn deep_sql_is_read() {
        let chain = format!("SELECT 1{}", " + 1".repeat(16_000));
        assert_eq!(rules("mysql").problem(&chain), None);
        let nested = format!("SELECT {}1{}", "(".repeat(30_000), ")".repeat(30_000));
        assert!(rules("mysql").problem(&nested).is_some());
    }

    #[test]
    fn lists_are_kept_to() {
        let allowed = SqlRules { columns: Some(vec!["select::users::name".to_owned()]), ..rules("mysql") };
        assert_eq!(allowed.problem("SELECT name FROM users"), None);
        assert_eq!(allowed.problem("SELECT u.name FROM users u"), None);
        assert!(allowed.problem("SELECT password FROM users").is_some());
        let tables = SqlRules { tables: Some(vec!["select::.*::users".to_owned()]), ..rules("mysql") };
        assert_eq!(tables.problem("SELECT name FROM db.users"), None);
        assert!(tables.problem("DELETE FROM users").is_some());
    }

    #[test]
    fn blocks_are_found() {
        let text = "a\n```sql\nSELECT 1\n```\n~~~\nSELECT 2\n~~~\n```python\nx\n```\n";
        assert_eq!(fenced(text), ["SELECT 1", "SELECT 2"]);
    }
}

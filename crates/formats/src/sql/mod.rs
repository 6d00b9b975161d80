//! SQL of several databases: whether a text is a statement of theirs, and what it touches.

mod foreign;
mod names;

use std::thread;

use sqlparser::dialect::{self, Dialect};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Tokenizer;

pub use names::Names;

/// The longest text that is read as SQL, in bytes: the depth of what is read grows with it.
pub const MAX_SQL: usize = 64 * 1024;

/// Stack for reading [`MAX_SQL`] bytes of the deepest SQL, in bytes.
const STACK: usize = 512 * 1024 * 1024;

/// Databases by their names, with what reads their SQL.
static DATABASES: [Database; 14] = [
    Database { name: "athena", dialect: &dialect::AnsiDialect {} },
    Database { name: "bigquery", dialect: &dialect::BigQueryDialect {} },
    Database { name: "db2", dialect: &dialect::AnsiDialect {} },
    Database { name: "flinksql", dialect: &dialect::GenericDialect {} },
    Database { name: "hive", dialect: &dialect::HiveDialect {} },
    Database { name: "mariadb", dialect: &dialect::MySqlDialect {} },
    Database { name: "mysql", dialect: &dialect::MySqlDialect {} },
    Database { name: "noql", dialect: &dialect::PostgreSqlDialect {} },
    Database { name: "postgresql", dialect: &dialect::PostgreSqlDialect {} },
    Database { name: "redshift", dialect: &dialect::RedshiftSqlDialect {} },
    Database { name: "snowflake", dialect: &dialect::SnowflakeDialect },
    Database { name: "sqlite", dialect: &dialect::SQLiteDialect {} },
    Database { name: "transactsql", dialect: &dialect::MsSqlDialect {} },
    Database { name: "trino", dialect: &dialect::AnsiDialect {} },
];

/// A database whose SQL is known.
pub struct Database {
    name: &'static str,
    dialect: &'static (dyn Dialect + Sync),
}

impl Database {
    /// Returns the database of a name, in any case.
    pub fn find(name: &str) -> Option<&'static Self> {
        DATABASES.iter().find(|database| database.name.eq_ignore_ascii_case(name))
    }

    /// Returns the names of all databases, in lower case.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DATABASES.iter().map(Self::name)
    }

    /// Returns the name of the database, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what the statements of a text touch; none when they are not the database's, or longer than [`MAX_SQL`]. Long chains of
    /// operators nest as deep as they are long, so this has a stack of its own.
    pub fn read(&'static self, sql: &str) -> Option<Names> {
        if sql.len() > MAX_SQL {
            return None;
        }
        let sql = sql.to_owned();
        thread::Builder::new().stack_size(STACK).spawn(move || self.read_here(&sql)).ok()?.join().ok()?
    }

    fn read_here(&self, sql: &str) -> Option<Names> {
        let tokens = Tokenizer::new(self.dialect, sql).tokenize().ok()?;
        let statements = Parser::new(self.dialect).with_tokens(tokens.clone()).parse_statements().ok()?;
        let good = !statements.is_empty() && !foreign::is_foreign(&tokens, &statements, self.name);
        good.then(|| names::names(&statements, self.name == "postgresql"))
    }
}

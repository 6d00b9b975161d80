//! What the parser lets pass although the database would not: other databases' clauses, and reserved words as names.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Ident, Insert, ObjectName, OnInsert, Select, Statement, Visit, Visitor};
use sqlparser::tokenizer::Token;

/// Words that name nothing without quotes, in any of the databases.
const RESERVED: &[&str] = &[
    "and", "as", "between", "by", "case", "create", "delete", "distinct", "drop", "else", "exists", "from",
    "group", "having", "in", "insert", "into", "is", "join", "like", "not", "on", "or", "order", "select",
    "set", "table", "then", "union", "update", "when", "where",
];

/// Databases that know a clause, by the names of the configuration in lower case.
const TOP: &[&str] = &["transactsql", "snowflake", "redshift"];
const ILIKE: &[&str] = &["postgresql", "redshift", "snowflake", "noql", "flinksql"];
const ON_DUPLICATE_KEY: &[&str] = &["mysql", "mariadb"];
const ON_CONFLICT: &[&str] = &["postgresql", "sqlite", "redshift", "noql"];
const DOUBLE_EQUALS: &[&str] = &["sqlite", "hive", "flinksql"];
const MERGE_IS_UNKNOWN: &[&str] = &["mysql", "mariadb", "sqlite"];

/// Whether statements, or the words they are made of, have what a database, named in lower case, does not know.
pub(super) fn is_foreign(tokens: &[Token], statements: &[Statement], database: &str) -> bool {
    (tokens.contains(&Token::DoubleEq) && !DOUBLE_EQUALS.contains(&database))
        || statements.to_vec().visit(&mut Foreign { database }).is_break()
}

struct Foreign<'d> {
    database: &'d str,
}

impl Foreign<'_> {
    fn only(&self, known_by: &[&str]) -> ControlFlow<()> {
        if known_by.contains(&self.database) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn named(ident: &Ident) -> ControlFlow<()> {
    let reserved = ident.quote_style.is_none() && RESERVED.contains(&ident.value.to_lowercase().as_str());
    if reserved { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

impl Visitor for Foreign<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        match statement {
            Statement::Insert(Insert { on: Some(OnInsert::DuplicateKeyUpdate(_)), .. }) => {
                self.only(ON_DUPLICATE_KEY)
            }
            Statement::Insert(Insert { on: Some(OnInsert::OnConflict(_)), .. }) => self.only(ON_CONFLICT),
            Statement::Merge(_) if MERGE_IS_UNKNOWN.contains(&self.database) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.top.is_some() { self.only(TOP) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        name.0.iter().filter_map(|part| part.as_ident()).try_for_each(named)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::ILike { .. } => self.only(ILIKE),
            Expr::Identifier(ident) => named(ident),
            _ => ControlFlow::Continue(()),
        }
    }
}

//! The tables and columns that SQL touches, written as `verb::database::table` and `verb::table::column`.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use sqlparser::ast::{
    AssignmentTarget, Expr, FromTable, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableObject, TableWithJoins, Visit,
    Visitor,
};

/// The tables and columns that statements touch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Tables, as in `select::null::users`; `null` is a database that is not named.
    pub tables: BTreeSet<String>,
    /// Columns, as in `update::users::name`; `null` is a table that is not named, `(.*)` all columns.
    pub columns: BTreeSet<String>,
}

/// Returns what statements touch. With `reads_assigned`, columns an update sets count as read, too.
pub(super) fn names(statements: &[Statement], reads_assigned: bool) -> Names {
    let mut collector = Collector { reads_assigned, ..Collector::default() };
    // Nothing in it breaks off.
    let _: ControlFlow<()> = statements.to_vec().visit(&mut collector);
    collector.names
}

/// The name that stands for all columns of a table.
const ALL: &str = "(.*)";

#[derive(Default)]
struct Collector {
    names: Names,
    reads_assigned: bool,
    /// Tables by alias, the innermost query last.
    scopes: Vec<HashMap<String, String>>,
    /// Tables that a statement writes to; they will be met once more, and are not read thereby.
    written: Vec<ObjectName>,
}

fn parts(name: &ObjectName) -> Vec<String> {
    name.0
        .iter()
        .map(|part| part.as_ident().map_or_else(|| part.to_string(), |ident| ident.value.clone()))
        .collect()
}

/// The last part, and what is before it.
fn split(mut parts: Vec<String>) -> (String, String) {
    let last = parts.pop().unwrap_or_default();
    let before = if parts.is_empty() { "null".to_owned() } else { parts.join(".") };
    (last, before)
}

fn aliases<'t>(tables: impl IntoIterator<Item = &'t TableWithJoins>) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for table in tables {
        let joined = table.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&table.relation).chain(joined) {
            if let TableFactor::Table { name, alias: Some(alias), .. } = factor {
                found.insert(alias.name.value.clone(), split(parts(name)).0);
            }
        }
    }
    found
}

fn table_name(factor: &TableFactor) -> Option<&ObjectName> {
    match factor {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

impl Collector {
    fn table(&mut self, verb: &str, name: &ObjectName) {
        let (table, database) = split(parts(name));
        self.names.tables.insert(format!("{verb}::{database}::{table}"));
    }

    fn writes(&mut self, verb: &str, name: &ObjectName) {
        self.table(verb, name);
        self.written.push(name.clone());
    }

    fn column(&mut self, verb: &str, table: &str, column: &str) {
        let known = self.scopes.iter().rev().find_map(|scope| scope.get(table));
        let table = known.map_or(table, String::as_str);
        self.names.columns.insert(format!("{verb}::{table}::{column}"));
    }

    fn qualified(&mut self, verb: &str, parts: Vec<String>) {
        let (column, table) = split(parts);
        self.column(verb, &table, &column);
    }

    fn assigned(&mut self, target: &AssignmentTarget) {
        let columns = match target {
            AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
            AssignmentTarget::Tuple(names) => names,
        };
        for column in columns {
            self.qualified("update", parts(column));
            if self.reads_assigned {
                self.qualified("select", parts(column));
            }
        }
    }

    fn statement(&mut self, statement: &Statement) {
        let mut scope = HashMap::new();
        match statement {
            Statement::Update(update) => scope = aliases([&update.table]),
            Statement::Delete(delete) => scope = aliases(deleted_from(&delete.from)),
            _ => {}
        }
        self.scopes.push(scope);
        match statement {
            Statement::Insert(insert) => {
                let TableObject::TableName(name) = &insert.table else { return };
                self.writes("insert", name);
                let (table, _) = split(parts(name));
                if insert.columns.is_empty() {
                    self.column("insert", &table, ALL);
                }
                for column in &insert.columns {
                    self.column("insert", &table, &split(parts(column)).0);
                }
            }
            Statement::Update(update) => {
                if let Some(name) = table_name(&update.table.relation) {
                    self.writes("update", name);
                }
                update.assignments.iter().for_each(|assignment| self.assigned(&assignment.target));
            }
            Statement::Delete(delete) => {
                let listed = delete.tables.iter().map(|name| split(parts(name)).0);
                let listed: Vec<String> = listed.collect();
                for table in deleted_from(&delete.from) {
                    let Some(name) = table_name(&table.relation) else { continue };
                    self.writes("delete", name);
                    self.column("delete", &split(parts(name)).0, ALL);
                }
                // `DELETE t FROM t …` names its tables twice.
                self.written.extend(delete.tables.iter().filter(|_| !listed.is_empty()).cloned());
            }
            Statement::CreateTable(create) => {
                self.writes("create", &create.name);
                for column in &create.columns {
                    self.column("create", "null", &column.name.value);
                    self.column("select", "null", &column.name.value);
                }
            }
            Statement::AlterTable(alter) => self.writes("alter", &alter.name),
            Statement::Drop { names, .. } => names.iter().for_each(|name| self.writes("drop", name)),
            Statement::Truncate(truncate) => {
                truncate.table_names.iter().for_each(|table| self.writes("truncate", &table.name));
            }
            _ => {}
        }
    }
}

fn deleted_from(from: &FromTable) -> &[TableWithJoins] {
    match from {
        FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
    }
}

impl Visitor for Collector {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        self.statement(statement);
        ControlFlow::Continue(())
    }

    fn post_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
        self.scopes.pop();
        self.written.clear();
        ControlFlow::Continue(())
    }

    // The order of a query may use the aliases of what it orders.
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.scopes.push(match &*query.body {
            SetExpr::Select(select) => aliases(&select.from),
            _ => HashMap::new(),
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.scopes.push(aliases(&select.from));
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => self.column("select", "null", ALL),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    self.column("select", &parts(name).join("."), ALL);
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &Select) -> ControlFlow<()> {
        self.scopes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        match self.written.iter().position(|written| written == name) {
            Some(at) => drop(self.written.swap_remove(at)),
            None => self.table("select", name),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(column) => self.column("select", "null", &column.value),
            Expr::CompoundIdentifier(idents) => {
                self.qualified("select", idents.iter().map(|ident| ident.value.clone()).collect());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::MySqlDialect;
    use sqlparser::parser::Parser;

    use super::*;

    fn found(sql: &str) -> (Vec<String>, Vec<String>) {
        let names = names(&Parser::parse_sql(&MySqlDialect {}, sql).unwrap(), false);
        (names.tables.into_iter().collect(), names.columns.into_iter().collect())
    }

    fn expect(sql: &str, tables: &[&str], columns: &[&str]) {
        let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found(sql), (owned(tables), owned(columns)), "{sql}");
    }

    #[test]
    fn reading_names_what_is_read() {
        expect("SELECT u.* FROM users u", &["select::null::users"], &["select::users::(.*)"]);
        expect(
            "SELECT u.id FROM users u JOIN orders o ON u.id = o.user_id ORDER BY o.made",
            &["select::null::orders", "select::null::users"],
            &["select::orders::made", "select::orders::user_id", "select::users::id"],
        );
        expect(
            "SELECT t1.a FROM t t1 UNION SELECT t1.b FROM s t1",
            &["select::null::s", "select::null::t"],
            &["select::s::b", "select::t::a"],
        );
        expect(
            "SELECT COUNT(*), MAX(a) FROM db1.t WHERE b = 'x' AND c IN (SELECT d FROM s)",
            &["select::db1::t", "select::null::s"],
            &["select::null::a", "select::null::b", "select::null::c", "select::null::d"],
        );
    }

    #[test]
    fn writing_names_what_is_written_and_read() {
        expect("INSERT INTO t VALUES (1)", &["insert::null::t"], &["insert::t::(.*)"]);
        expect(
            "INSERT INTO t (a) SELECT x FROM t",
            &["insert::null::t", "select::null::t"],
            &["insert::t::a", "select::null::x"],
        );
        expect(
            "UPDATE t x SET x.a = b WHERE c = 1",
            &["update::null::t"],
            &["select::null::b", "select::null::c", "update::t::a"],
        );
        expect("DELETE FROM t WHERE a = 1", &["delete::null::t"], &["delete::t::(.*)", "select::null::a"]);
        expect(
            "DELETE t FROM t JOIN s ON t.a = s.b",
            &["delete::null::t", "select::null::s"],
            &["delete::t::(.*)", "select::s::b", "select::t::a"],
        );
        expect("DROP TABLE a, b", &["drop::null::a", "drop::null::b"], &[]);
    }
}

//! Python, read as its syntax tree: names are followed through imports, assignments, `getattr` and the like, so that another
//! spelling of a forbidden call is still found. What is decided only when the code runs is not.

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, Operator, Stmt};
use ruff_text_size::{Ranged, TextSize};

use super::policy::{Finding, Policy};

/// Everything in `code` that `policy` forbids, or why it is not Python.
pub(super) fn check(code: &str, policy: &Policy) -> Result<Vec<Finding>, Finding> {
    let parsed = ruff_python_parser::parse_module(code).map_err(|error| Finding {
        line: line_of(code, error.location.start()),
        what: format!("is not valid Python: {}", error.error),
    })?;
    let mut checker = Checker { code, policy, names: HashMap::new(), findings: Vec::new(), in_class: false };
    checker.visit_body(&parsed.syntax().body);
    checker.findings.dedup();
    Ok(checker.findings)
}

struct Checker<'a> {
    code: &'a str,
    policy: &'a Policy,
    /// The dotted names that names of the code stand for.
    names: HashMap<String, String>,
    findings: Vec<Finding>,
    /// Whether the statements visited are those of a class: its methods hide no built-in functions.
    in_class: bool,
}

impl Checker<'_> {
    fn found(&mut self, at: TextSize, what: String) {
        self.findings.push(Finding { line: line_of(self.code, at), what });
    }

    fn import(&mut self, at: TextSize, module: &str) {
        if self.policy.denies_import(module) {
            self.found(at, format!("imports {module}"));
        }
    }

    /// The dotted name that an expression stands for.
    fn resolve(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Name(name) => {
                let name = name.id.as_str();
                let known = self.names.get(name).map_or(name, String::as_str);
                Some(known.strip_prefix("builtins.").unwrap_or(known).to_owned())
            }
            Expr::Attribute(attribute) => {
                let base = self.resolve(&attribute.value)?;
                Some(member(&base, attribute.attr.as_str()))
            }
            // `vars(os)["system"]`, `os.__dict__["system"]`, `__builtins__["eval"]`, `sys.modules["os"]`
            Expr::Subscript(subscript) => {
                let key = text(&subscript.slice)?;
                let base = self.resolve(&subscript.value)?;
                if base == "sys.modules" {
                    return Some(key);
                }
                Some(member(base.trim_end_matches(".__dict__"), &key))
            }
            Expr::Call(call) => self.resolve_call(call),
            Expr::Named(named) => self.resolve(&named.value),
            _ => None,
        }
    }

    /// Calls that give a module or a member of one.
    fn resolve_call(&self, call: &ExprCall) -> Option<String> {
        let function = self.resolve(&call.func)?;
        let first = call.arguments.args.first();
        match function.as_str() {
            "__import__" | "importlib.import_module" => text(first?),
            "getattr" => Some(member(&self.resolve(first?)?, &text(call.arguments.args.get(1)?)?)),
            "vars" => self.resolve(first?),
            "globals" | "locals" => Some("builtins".to_owned()),
            _ => None,
        }
    }

    fn check_call(&mut self, call: &ExprCall) {
        let at = call.func.range().start();
        if let Some(module) = self.resolve_call(call)
            && matches!(self.resolve(&call.func).as_deref(), Some("__import__" | "importlib.import_module"))
        {
            self.import(at, &module);
        }
        let name = self.resolve(&call.func).unwrap_or_default();
        let last = name.rsplit('.').next().unwrap_or_default();
        if matches!(
            last,
            "open" | "Path" | "read_text" | "read_csv" | "listdir" | "scandir" | "walk" | "fopen"
        ) {
            for argument in &call.arguments.args {
                if let Some(path) = text(argument)
                    && self.policy.denies_path(&path)
                {
                    self.found(at, format!("opens {path}"));
                }
            }
        }
    }

    fn bind(&mut self, target: &Expr, value: &Expr) {
        if let Expr::Name(name) = target {
            match self.resolve(value) {
                Some(known) if known != name.id.as_str() => self.names.insert(name.id.to_string(), known),
                _ => self.names.remove(name.id.as_str()),
            };
        }
    }
}

impl<'a> Visitor<'a> for Checker<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let module = alias.name.as_str();
                    self.import(alias.range().start(), module);
                    match &alias.asname {
                        Some(name) => self.names.insert(name.to_string(), module.to_owned()),
                        None => {
                            let top = module.split('.').next().unwrap_or(module).to_owned();
                            self.names.insert(top.clone(), top)
                        }
                    };
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map(ToString::to_string).unwrap_or_default();
                for alias in &import.names {
                    let whole = member(&module, alias.name.as_str());
                    let at = alias.range().start();
                    if self.policy.denies_import(&module) {
                        self.import(at, &module);
                    } else if self.policy.denies_import(&whole) && alias.name.as_str() != "*" {
                        self.found(at, format!("imports {whole}"));
                    }
                    let name = alias.asname.as_ref().unwrap_or(&alias.name);
                    self.names.insert(name.to_string(), whole);
                }
            }
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    self.bind(target, &assign.value);
                }
            }
            // A function of the code's own is not the built-in one.
            Stmt::FunctionDef(function) if !self.in_class => {
                self.names.insert(function.name.to_string(), format!("<own>.{}", function.name));
            }
            _ => {}
        }
        let outside = self.in_class;
        self.in_class = matches!(stmt, Stmt::ClassDef(_));
        walk_stmt(self, stmt);
        self.in_class = outside;
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        // Naming a forbidden function is as good as calling it: it may be handed on.
        let names_something = match expr {
            Expr::Name(name) => name.ctx.is_load(),
            Expr::Attribute(_) | Expr::Subscript(_) | Expr::Call(_) => true,
            _ => false,
        };
        if names_something
            && let Some(name) = self.resolve(expr)
            && self.policy.denies_call(&name)
        {
            self.found(expr.range().start(), format!("calls {name}"));
            return;
        }
        if let Expr::Call(call) = expr {
            self.check_call(call);
        }
        walk_expr(self, expr);
    }
}

fn member(base: &str, name: &str) -> String {
    match base {
        "builtins" | "__builtins__" => name.to_owned(),
        _ => format!("{base}.{name}"),
    }
}

/// The text of an expression that is certain before the code runs.
fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::StringLiteral(literal) => Some(literal.value.to_str().to_owned()),
        Expr::BinOp(sum) if sum.op == Operator::Add => Some(text(&sum.left)? + &text(&sum.right)?),
        // "".join(["sys", "tem"])
        Expr::Call(call) => {
            let Expr::Attribute(method) = &*call.func else { return None };
            let separator = text(&method.value)?;
            let parts = match call.arguments.args.first()? {
                Expr::List(list) => &list.elts,
                Expr::Tuple(tuple) => &tuple.elts,
                _ => return None,
            };
            let parts: Option<Vec<String>> = parts.iter().map(text).collect();
            (method.attr.as_str() == "join").then_some(())?;
            Some(parts?.join(&separator))
        }
        // "metsys"[::-1]
        Expr::Subscript(subscript) => {
            let Expr::Slice(slice) = &*subscript.slice else { return None };
            let backwards = matches!(slice.step.as_deref(), Some(Expr::UnaryOp(_)));
            (backwards && slice.lower.is_none() && slice.upper.is_none()).then_some(())?;
            Some(text(&subscript.value)?.chars().rev().collect())
        }
        _ => None,
    }
}

fn line_of(code: &str, at: TextSize) -> usize {
    1 + code.as_bytes().iter().take(at.to_usize()).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::policy::PolicySettings;

    fn findings(code: &str) -> Vec<String> {
        let policy = PolicySettings::default().for_language("python");
        match check(code, &policy) {
            Ok(found) => {
                found.into_iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
            }
            Err(finding) => vec![format!("{}: {}", finding.line, finding.what)],
        }
    }

    #[test]
    fn other_spellings_are_found() {
        for (code, found) in [
            ("import os\n\nos.system('ls')", "3: calls os.system"),
            ("import os as o\no.system('ls')", "2: calls os.system"),
            ("from os import system as s\ns('ls')", "2: calls os.system"),
            ("import os\nf = os.system\nf('ls')", "2: calls os.system"),
            ("import os\ngetattr(os, 'sys' + 'tem')('ls')", "2: calls os.system"),
            ("import os\ngetattr(os, ''.join(['sys', 'tem']))('ls')", "2: calls os.system"),
            ("import os\ngetattr(os, 'metsys'[::-1])('ls')", "2: calls os.system"),
            ("import os\nvars(os)['system']('ls')", "2: calls os.system"),
            ("import os\nlist(map(os.system, ['ls']))", "2: calls os.system"),
            ("import sys\nsys.modules['os'].system('ls')", "2: calls os.system"),
            ("import os\n@os.system\ndef f(): pass", "2: calls os.system"),
            ("import builtins\nbuiltins.eval('1')", "2: calls eval"),
            ("__builtins__['exec']('1')", "1: calls exec"),
            ("import urllib.request", "1: imports urllib.request"),
            ("from urllib import request", "1: imports urllib"),
            ("import importlib\nimportlib.import_module('socket')", "2: imports socket"),
            ("__import__('socket')", "1: calls __import__"),
            ("def f():\n    return open('/etc/passwd').read()", "2: opens /etc/passwd"),
            (
                "from pathlib import Path\nPath('/proc/self/environ').read_text()",
                "2: opens /proc/self/environ",
            ),
            ("def f(:\n  pass", "1: is not valid Python"),
        ] {
            let all = findings(code);
            assert!(all.iter().any(|one| one.starts_with(found)), "{code:?}: {all:?}");
        }
    }

    #[test]
    fn words_in_texts_and_own_functions_are_fine() {
        for code in [
            "print('import socket; os.system(1)')  # eval(",
            "def eval(x):\n    return x\neval(1)",
            "import math\nmath.sqrt(2)",
            "class A:\n    def exec(self): pass\nA().exec()",
            "open('notes.txt').read()",
        ] {
            assert_eq!(findings(code), Vec::<String>::new(), "{code:?}");
        }
    }
}

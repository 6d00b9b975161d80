//! Templates in the nunjucks language, with the values and rules of JavaScript.
//!
//! [`Templates`] renders; what is rendered when, and what is left alone, is in [`prompt`].

mod files;
mod filters;
mod globals;
mod interpret;
pub mod json;
mod lexer;
mod methods;
mod parser;
pub mod prompt;
mod regex;
mod syntax;
#[cfg(test)]
mod tests;
pub mod value;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use crate::model::Object;
use syntax::{Expr, ImportedNames, Part};

/// Reason why a template could not be rendered.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{message}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct TemplateError {
    /// The message.
    pub message: String,
    /// The line in the template, from 1; 0 if it is not known.
    pub line: usize,
}

/// Renders templates with the same globals.
#[derive(Debug, Clone)]
pub struct Templates {
    env: Arc<Value>,
    filters: Arc<HashMap<String, String>>,
    /// The directory of files that templates include.
    base: Option<Arc<Path>>,
}

thread_local! {
    /// Templates that were parsed on this thread; a run has few, and each is rendered for many rows.
    static PARSED: RefCell<HashMap<String, Rc<Vec<Part>>>> = RefCell::default();
}

const MAX_PARSED: usize = 512;

impl Templates {
    /// A renderer whose templates see `env`.
    pub fn new(env: Object) -> Self {
        Self { env: Arc::new(Value::Object(env)), filters: Arc::default(), base: None }
    }

    /// Lets templates include files below a directory.
    #[must_use]
    pub fn with_base(self, base: &Path) -> Self {
        Self { base: Some(base.into()), ..self }
    }

    /// Adds filters of the configuration: name, and the text of the JavaScript module that exports the function.
    pub fn with_filters(self, filters: HashMap<String, String>) -> Self {
        Self { filters: Arc::new(filters), ..self }
    }

    /// Returns the filters of the configuration.
    pub fn filters(&self) -> &HashMap<String, String> {
        &self.filters
    }

    /// Renders a template.
    ///
    /// # Errors
    /// When it is malformed, or asks for a filter or function that does not exist.
    pub fn render(&self, source: &str, vars: &Object) -> Result<String, TemplateError> {
        if !is_template(source) {
            return Ok(source.to_owned());
        }
        let parts = parse(source)?;
        let mut out = String::with_capacity(source.len() * 2);
        let base = self.base.as_deref();
        interpret::Interpreter::new(vars, &self.env, &self.filters, base).run(&parts, &mut out)?;
        Ok(out)
    }

    /// Renders every text in a value, keys excepted.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_value(&self, value: &Value, vars: &Object) -> Result<Value, TemplateError> {
        Ok(match value {
            Value::String(text) => Value::String(self.render(text, vars)?),
            Value::Array(items) => Value::Array(
                items.iter().map(|item| self.render_value(item, vars)).collect::<Result<_, _>>()?,
            ),
            Value::Object(map) => {
                let mut out = Object::new();
                for (key, value) in map {
                    out.insert(key.clone(), self.render_value(value, vars)?);
                }
                Value::Object(out)
            }
            other => other.clone(),
        })
    }

    /// Returns the process's and the configuration's variables.
    pub fn env(&self) -> &Value {
        &self.env
    }
}

/// Whether a text has anything to render.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

fn parse(source: &str) -> Result<Rc<Vec<Part>>, TemplateError> {
    if let Some(found) = PARSED.with_borrow(|parsed| parsed.get(source).cloned()) {
        return Ok(found);
    }
    let parts = Rc::new(parser::Parser::new(lexer::tokens(source)?).template()?);
    PARSED.with_borrow_mut(|parsed| {
        if parsed.len() >= MAX_PARSED {
            parsed.clear();
        }
        parsed.insert(source.to_owned(), Rc::clone(&parts));
    });
    Ok(parts)
}

/// The names a template takes from outside. Nothing if it cannot be read.
pub fn names(source: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    parts_names(&parse(source).ok()?, &mut names);
    Some(names)
}

/// The names that a template takes from outside, without those that it sets itself. Nothing if it cannot be read.
pub fn inputs(source: &str) -> Option<Vec<String>> {
    let mut bound: Vec<String> = ["env", "loop", "caller"].map(str::to_owned).to_vec();
    bound.extend(globals::NAMES.map(str::to_owned));
    parts_bind(&parse(source).ok()?, &mut bound);
    Some(names(source)?.into_iter().filter(|name| !bound.contains(name)).collect())
}

fn parts_bind(parts: &[Part], bound: &mut Vec<String>) {
    for part in parts {
        match part {
            Part::Set(targets, _) => bound.extend(targets.iter().cloned()),
            Part::For { targets, body, otherwise, .. } => {
                bound.extend(targets.iter().cloned());
                parts_bind(body, bound);
                parts_bind(otherwise, bound);
            }
            Part::If(branches, otherwise) => {
                branches.iter().for_each(|(_, body)| parts_bind(body, bound));
                parts_bind(otherwise, bound);
            }
            Part::SetBlock(targets, body) => {
                bound.extend(targets.iter().cloned());
                parts_bind(body, bound);
            }
            Part::Macro(found) => {
                bound.push(found.name.clone());
                bound.extend(found.parameters.iter().map(|(name, _)| name.clone()));
                parts_bind(&found.body, bound);
            }
            Part::Import { names: ImportedNames::All(name), .. } => bound.push(name.clone()),
            Part::Import { names: ImportedNames::Some(all), .. } => {
                bound.extend(all.iter().map(|(_, name)| name.clone()));
            }
            Part::Call(_, body) => parts_bind(&body.body, bound),
            Part::Filter(_, _, body) => parts_bind(body, bound),
            Part::Switch(_, cases, otherwise) => {
                cases.iter().for_each(|(_, body)| parts_bind(body, bound));
                parts_bind(otherwise, bound);
            }
            Part::Text(_) | Part::Print(_) | Part::Include(..) => {}
        }
    }
}

fn parts_names(parts: &[Part], names: &mut Vec<String>) {
    for part in parts {
        match part {
            Part::Text(_) => {}
            Part::Print(expr) | Part::Set(_, expr) => expr_names(expr, names),
            Part::If(branches, otherwise) => {
                for (condition, body) in branches {
                    expr_names(condition, names);
                    parts_names(body, names);
                }
                parts_names(otherwise, names);
            }
            Part::For { over, body, otherwise, .. } => {
                expr_names(over, names);
                parts_names(body, names);
                parts_names(otherwise, names);
            }
            Part::Include(file, _) | Part::Import { file, .. } => expr_names(file, names),
            Part::SetBlock(_, body) => parts_names(body, names),
            Part::Macro(found) => parts_names(&found.body, names),
            Part::Call(call, body) => {
                expr_names(call, names);
                parts_names(&body.body, names);
            }
            Part::Filter(_, arguments, body) => {
                arguments.iter().for_each(|argument| expr_names(argument, names));
                parts_names(body, names);
            }
            Part::Switch(subject, cases, otherwise) => {
                expr_names(subject, names);
                for (value, body) in cases {
                    expr_names(value, names);
                    parts_names(body, names);
                }
                parts_names(otherwise, names);
            }
        }
    }
}

fn expr_names(expr: &Expr, names: &mut Vec<String>) {
    match expr {
        Expr::Literal(_) | Expr::Regex(..) => {}
        Expr::Name(name) => {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        Expr::Member(of, key) => {
            expr_names(of, names);
            expr_names(key, names);
        }
        Expr::Call(of, arguments, named) | Expr::Filter(of, _, arguments, named) => {
            expr_names(of, names);
            arguments.iter().chain(named.iter().map(|(_, expr)| expr)).for_each(|one| expr_names(one, names));
        }
        Expr::Test(of, _, arguments, _) => {
            expr_names(of, names);
            arguments.iter().for_each(|one| expr_names(one, names));
        }
        Expr::List(items) => items.iter().for_each(|one| expr_names(one, names)),
        Expr::Dict(entries) => entries.iter().for_each(|(_, value)| expr_names(value, names)),
        Expr::Unary(_, of) => expr_names(of, names),
        Expr::Binary(_, left, right) => {
            expr_names(left, names);
            expr_names(right, names);
        }
        Expr::Inline { then, condition, otherwise } => {
            expr_names(then, names);
            expr_names(condition, names);
            if let Some(otherwise) = otherwise {
                expr_names(otherwise, names);
            }
        }
    }
}

//! The tree of a template.

use serde_json::Value;

/// A piece of a template.
#[derive(Debug, Clone)]
pub enum Part {
    Text(String),
    Print(Expr),
    If(Vec<(Expr, Vec<Part>)>, Vec<Part>),
    For {
        targets: Vec<String>,
        over: Expr,
        body: Vec<Part>,
        otherwise: Vec<Part>,
    },
    Set(Vec<String>, Expr),
    SetBlock(Vec<String>, Vec<Part>),
    Macro(std::rc::Rc<Macro>),
    /// `{% call f(...) %}body{% endcall %}`: the body is the macro `caller`.
    Call(Expr, std::rc::Rc<Macro>),
    Filter(String, Vec<Expr>, Vec<Part>),
    Switch(Expr, Vec<(Expr, Vec<Part>)>, Vec<Part>),
    /// `{% include "file" %}`, and whether a file that does not exist is left out.
    Include(Expr, bool),
    /// `{% import "file" as name %}` and `{% from "file" import a, b as c %}`.
    Import {
        file: Expr,
        names: ImportedNames,
        /// Whether the file sees the variables of the template that imports it.
        with_context: bool,
    },
}

/// Names that are imported from a file: all of it under one name, or some of its names under others.
#[derive(Debug, Clone)]
pub enum ImportedNames {
    All(String),
    Some(Vec<(String, String)>),
}

/// A macro, or the body of a call.
#[derive(Debug)]
pub struct Macro {
    pub name: String,
    pub parameters: Vec<(String, Option<Expr>)>,
    pub body: Vec<Part>,
}

#[derive(Debug, Clone)]
pub enum Expr {
    Literal(Value),
    Regex(String, String),
    Name(String),
    Member(Box<Expr>, Box<Expr>),
    Call(Box<Expr>, Vec<Expr>, Vec<(String, Expr)>),
    Filter(Box<Expr>, String, Vec<Expr>, Vec<(String, Expr)>),
    Test(Box<Expr>, String, Vec<Expr>, bool),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Inline { then: Box<Expr>, condition: Box<Expr>, otherwise: Option<Box<Expr>> },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    Not,
    Minus,
    Plus,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Binary {
    Or,
    And,
    In,
    NotIn,
    Equal,
    Identical,
    NotEqual,
    NotIdentical,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Concat,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

//! Values with the rules of JavaScript, which templates are written against.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;

use super::globals::Changing;
use super::syntax::Macro;
use crate::model::{Object, number, number_value};

/// A value in a template.
#[derive(Debug, Clone)]
pub enum Val {
    /// A value that does not exist.
    Undefined,
    /// Anything JSON has.
    Json(Value),
    /// A macro of the template.
    Macro(Rc<Macro>),
    /// A macro of another file, with everything that the file defines.
    Imported(Rc<Macro>, Rc<HashMap<String, Val>>),
    /// All names that another file defines.
    Module(Rc<HashMap<String, Val>>),
    /// A built-in function.
    Global(&'static str),
    /// A cycler or joiner, which its uses change.
    Changing(Rc<RefCell<Changing>>),
    /// A method taken from a value but not called yet.
    Method(Box<Val>, String),
    /// A regular expression and its flags.
    Regex(String, String),
}

impl From<Value> for Val {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

impl From<String> for Val {
    fn from(text: String) -> Self {
        Self::Json(Value::String(text))
    }
}

impl From<bool> for Val {
    fn from(truth: bool) -> Self {
        Self::Json(Value::Bool(truth))
    }
}

impl From<f64> for Val {
    fn from(n: f64) -> Self {
        Self::Json(number_value(n))
    }
}

impl Val {
    /// Whether a condition holds.
    pub fn truthy(&self) -> bool {
        match self {
            Self::Undefined => false,
            Self::Json(value) => truthy(value),
            _ => true,
        }
    }

    /// Whether there is nothing: undefined or null.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Undefined | Self::Json(Value::Null))
    }

    /// Returns the JSON value; what JSON cannot hold becomes null.
    pub fn into_json(self) -> Value {
        match self {
            Self::Json(value) => value,
            _ => Value::Null,
        }
    }

    /// Returns the number that the value stands for; NaN if it stands for none.
    pub fn to_number(&self) -> f64 {
        match self {
            Self::Json(value) => to_number(value),
            _ => f64::NAN,
        }
    }

    /// The text that is printed: nothing for what does not exist, JSON for objects.
    pub fn print(&self, out: &mut String) {
        match self {
            Self::Json(Value::Null) | Self::Undefined => {}
            Self::Json(value) => out.push_str(&to_text(value)),
            Self::Regex(body, flags) => out.push_str(&format!("/{body}/{flags}")),
            Self::Module(_) | Self::Changing(_) => out.push_str("[object Object]"),
            Self::Macro(_) | Self::Imported(..) | Self::Global(_) | Self::Method(..) => {
                out.push_str("[function]");
            }
        }
    }

    /// The text of a string operation, where `null` and `undefined` show.
    pub fn to_text(&self) -> String {
        match self {
            Self::Undefined => "undefined".to_owned(),
            Self::Json(Value::Null) => "null".to_owned(),
            other => {
                let mut text = String::new();
                other.print(&mut text);
                text
            }
        }
    }

    /// Returns what a file defines under a name.
    pub fn exported(module: &Rc<HashMap<String, Val>>, name: &str) -> Val {
        match module.get(name) {
            Some(Self::Macro(found)) => Self::Imported(Rc::clone(found), Rc::clone(module)),
            Some(other) => other.clone(),
            None => Self::Undefined,
        }
    }

    /// `a.b` and `a[b]`.
    pub fn member(&self, key: &Value) -> Val {
        if let (Self::Module(module), Value::String(name)) = (self, key) {
            return Self::exported(module, name);
        }
        if let Self::Changing(of) = self {
            return Changing::member(of, key);
        }
        let Self::Json(value) = self else { return Val::Undefined };
        match (value, key) {
            (Value::Object(map), key) => match map.get(&*to_text(key)) {
                Some(found) => Val::Json(found.clone()),
                None => method_of(self, key),
            },
            (Value::Array(items), key) => {
                if let Some(index) = index_of(key) {
                    return items.get(index).cloned().map_or(Val::Undefined, Val::Json);
                }
                if key == "length" {
                    return Val::from(items.len() as f64);
                }
                method_of(self, key)
            }
            (Value::String(text), key) => {
                if key == "length" {
                    return Val::from(text.encode_utf16().count() as f64);
                }
                if let Some(index) = index_of(key) {
                    return text.chars().nth(index).map_or(Val::Undefined, |c| Val::from(c.to_string()));
                }
                method_of(self, key)
            }
            (Value::Number(_) | Value::Bool(_), key) => method_of(self, key),
            (Value::Null, _) => Val::Undefined,
        }
    }
}

fn method_of(of: &Val, key: &Value) -> Val {
    match key {
        Value::String(name) if super::methods::exists(of, name) => {
            Val::Method(Box::new(of.clone()), name.clone())
        }
        _ => Val::Undefined,
    }
}

fn index_of(key: &Value) -> Option<usize> {
    match key {
        Value::Number(n) => n.as_u64().map(|n| n as usize),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Whether a condition holds.
pub fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(n) => n.as_f64().is_some_and(|n| n != 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// The text of a value. Lists of scalars are joined by commas; objects, and lists of them, are JSON.
pub fn to_text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(n) => crate::model::number::text(n.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        Value::Array(items) if !items.iter().any(holds_a_map) => join(items, ","),
        other => other.to_string(),
    }
}

/// Returns a value as tables show it: lists and maps as JSON, so that `["a", "b"]` is not taken for the text `a,b`.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => value.to_string(),
        scalar => to_text(scalar),
    }
}

fn holds_a_map(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(holds_a_map),
        other => other.is_object(),
    }
}

/// Items as text with something between; nothing for null.
pub fn join(items: &[Value], separator: &str) -> String {
    let texts = items.iter().map(|item| if item.is_null() { String::new() } else { to_text(item) });
    texts.collect::<Vec<_>>().join(separator)
}

/// The number a value stands for; NaN for none.
pub fn to_number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Number(n) => n.as_f64().unwrap_or(f64::NAN),
        Value::String(text) => text_to_number(text),
        Value::Array(items) => match items.as_slice() {
            [] => 0.0,
            [one] => to_number(one),
            _ => f64::NAN,
        },
        Value::Object(_) => f64::NAN,
    }
}

fn text_to_number(text: &str) -> f64 {
    let text = text.trim();
    if text.is_empty() {
        return 0.0;
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).map_or(f64::NAN, |n| n as f64);
    }
    if text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')) {
        return text.parse().unwrap_or(f64::NAN);
    }
    f64::NAN
}

/// `a == b`.
pub fn loosely_equal(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (a, b) if a.is_nothing() || b.is_nothing() => a.is_nothing() && b.is_nothing(),
        (Val::Json(a), Val::Json(b)) => match (a, b) {
            (Value::Object(_) | Value::Array(_), Value::Object(_) | Value::Array(_)) => false,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::String(a), b @ (Value::Array(_) | Value::Object(_))) => *a == to_text(b),
            (a @ (Value::Array(_) | Value::Object(_)), Value::String(b)) => to_text(a) == *b,
            (a, b) => to_number(a) == to_number(b),
        },
        _ => false,
    }
}

/// `a === b`.
pub fn identical(a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Undefined, Val::Undefined) => true,
        (Val::Json(Value::Number(a)), Val::Json(Value::Number(b))) => a.as_f64() == b.as_f64(),
        (Val::Json(Value::Object(_) | Value::Array(_)), _) => false,
        (Val::Json(a), Val::Json(b)) => a == b,
        _ => false,
    }
}

/// `a < b` and its like; nothing if they cannot be compared.
pub fn compare(a: &Val, b: &Val) -> Option<std::cmp::Ordering> {
    if let (Val::Json(Value::String(a)), Val::Json(Value::String(b))) = (a, b) {
        return Some(a.encode_utf16().cmp(b.encode_utf16()));
    }
    a.to_number().partial_cmp(&b.to_number())
}

/// `a + b`.
pub fn add(a: &Val, b: &Val) -> Val {
    let plain = |val: &Val| match val {
        Val::Undefined => true,
        Val::Json(value) => !matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_)),
        _ => false,
    };
    if plain(a) && plain(b) {
        let sum = a.to_number() + b.to_number();
        return if sum.is_finite() { Val::from(sum) } else { Val::from(crate::model::number::text(sum)) };
    }
    Val::from(a.to_text() + &b.to_text())
}

/// The result of arithmetic: what is no number prints as JavaScript prints it.
pub fn arithmetic(n: f64) -> Val {
    if n.is_finite() { Val::Json(Value::Number(number(n))) } else { Val::from(crate::model::number::text(n)) }
}

/// Returns the items that a loop goes over.
pub fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        Value::String(text) => text.chars().map(|c| Value::String(c.to_string())).collect(),
        _ => Vec::new(),
    }
}

/// `{key, value}` pairs.
pub fn pairs(map: &Object) -> Vec<Value> {
    let pair = |(key, value): (&String, &Value)| serde_json::json!({"key": key, "value": value});
    map.iter().map(pair).collect()
}

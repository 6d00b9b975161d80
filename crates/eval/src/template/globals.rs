//! The functions that every template has: `range`, `cycler` and `joiner`.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value;

use super::value::Val;
use crate::model::number_value;

/// The names of the functions.
pub const NAMES: [&str; 3] = ["range", "cycler", "joiner"];

/// The most numbers that `range` counts.
const MAX_NUMBERS: usize = 1_000_000;

/// A value that changes as it is used.
#[derive(Debug)]
pub enum Changing {
    /// The items of a `cycler`, and the index of the current one.
    Cycler(Vec<Val>, Option<usize>),
    /// The separator of a `joiner`, and whether it was called before.
    Joiner(String, bool),
}

impl Changing {
    /// `cycler.current`, and the methods of a cycler.
    pub fn member(of: &Rc<RefCell<Self>>, key: &Value) -> Val {
        let Self::Cycler(items, at) = &*of.borrow() else { return Val::Undefined };
        match key.as_str() {
            Some("current") => at.and_then(|at| items.get(at)).cloned().unwrap_or(Val::Json(Value::Null)),
            Some(name @ ("next" | "reset")) => {
                Val::Method(Box::new(Val::Changing(Rc::clone(of))), name.to_owned())
            }
            _ => Val::Undefined,
        }
    }

    /// Calls a method of a cycler.
    pub fn call_method(&mut self, name: &str) -> Val {
        let Self::Cycler(items, at) = self else { return Val::Undefined };
        if name == "reset" || items.is_empty() {
            *at = None;
            return Val::Undefined;
        }
        let next = at.map_or(0, |at| (at + 1) % items.len());
        *at = Some(next);
        items[next].clone()
    }

    /// Calls a joiner: nothing the first time, and then the separator.
    pub fn call(&mut self) -> Option<Val> {
        let Self::Joiner(separator, called) = self else { return None };
        Some(Val::from(if std::mem::replace(called, true) { separator.clone() } else { String::new() }))
    }
}

/// Calls one of the functions of [`NAMES`].
pub fn call(name: &str, arguments: Vec<Val>) -> Val {
    let changing = match name {
        "range" => return range(&arguments),
        "cycler" => Changing::Cycler(arguments, None),
        _ => {
            let separator = arguments.first().filter(|separator| separator.truthy());
            Changing::Joiner(separator.map_or_else(|| ",".to_owned(), Val::to_text), false)
        }
    };
    Val::Changing(Rc::new(RefCell::new(changing)))
}

fn range(arguments: &[Val]) -> Val {
    let number = |at: usize| arguments.get(at).map(Val::to_number);
    let (start, stop) = match (number(0), number(1)) {
        (Some(stop), None) => (0.0, stop),
        (Some(start), Some(stop)) => (start, stop),
        _ => (0.0, 0.0),
    };
    let step = number(2).filter(|step| *step != 0.0).unwrap_or(1.0);
    let mut items = Vec::new();
    let mut at = start;
    while (if step > 0.0 { at < stop } else { at > stop }) && items.len() < MAX_NUMBERS {
        items.push(number_value(at));
        at += step;
    }
    Val::Json(Value::Array(items))
}

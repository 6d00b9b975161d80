//! The methods of JavaScript values that templates call.

use serde_json::Value;

use super::value::{Val, join, to_text};

const TEXT: &[&str] = &[
    "charAt",
    "concat",
    "endsWith",
    "includes",
    "indexOf",
    "lastIndexOf",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "slice",
    "split",
    "startsWith",
    "substring",
    "toLowerCase",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
];
const LIST: &[&str] = &["concat", "includes", "indexOf", "join", "reverse", "slice", "toString"];
const NUMBER: &[&str] = &["toFixed", "toString"];
const OBJECT: &[&str] = &["hasOwnProperty", "toString"];

/// Whether a value has a method of this name.
pub fn exists(of: &Val, name: &str) -> bool {
    let Val::Json(value) = of else { return false };
    match value {
        Value::String(_) => TEXT,
        Value::Array(_) => LIST,
        Value::Number(_) => NUMBER,
        Value::Object(_) => OBJECT,
        _ => &[],
    }
    .contains(&name)
}

/// Calls a method that [`exists`].
pub fn call(of: &Val, name: &str, arguments: &[Val]) -> Val {
    let Val::Json(value) = of else { return Val::Undefined };
    match value {
        Value::String(text) => of_text(text, name, arguments),
        Value::Array(items) => of_list(items, name, arguments),
        Value::Number(n) => match name {
            "toFixed" => {
                let digits = arguments.first().map_or(0.0, Val::to_number).clamp(0.0, 100.0) as usize;
                Val::from(format!("{:.digits$}", n.as_f64().unwrap_or(f64::NAN)))
            }
            _ => Val::from(to_text(value)),
        },
        Value::Object(map) => match name {
            "hasOwnProperty" => {
                Val::from(arguments.first().is_some_and(|key| map.contains_key(&key.to_text())))
            }
            _ => Val::from(to_text(value)),
        },
        _ => Val::Undefined,
    }
}

fn of_text(text: &str, name: &str, arguments: &[Val]) -> Val {
    let argument = |at: usize| arguments.get(at).map(Val::to_text).unwrap_or_default();
    let number = |at: usize, default: f64| match arguments.get(at) {
        None | Some(Val::Undefined) => default,
        Some(val) => val.to_number(),
    };
    let chars = || text.chars().collect::<Vec<_>>();
    match name {
        "charAt" => Val::from(chars().get(number(0, 0.0) as usize).map(char::to_string).unwrap_or_default()),
        "concat" => Val::from(arguments.iter().fold(text.to_owned(), |all, next| all + &next.to_text())),
        "endsWith" => Val::from(text.ends_with(&argument(0))),
        "includes" => Val::from(text.contains(&argument(0))),
        "indexOf" => Val::from(position(text, text.find(&argument(0)))),
        "lastIndexOf" => Val::from(position(text, text.rfind(&argument(0)))),
        "padEnd" | "padStart" => {
            let missing = (number(0, 0.0).clamp(0.0, 1e6) as usize).saturating_sub(text.chars().count());
            let filler = if arguments.len() > 1 { argument(1) } else { " ".to_owned() };
            let padding: String =
                filler.chars().cycle().take(if filler.is_empty() { 0 } else { missing }).collect();
            Val::from(if name == "padEnd" { format!("{text}{padding}") } else { format!("{padding}{text}") })
        }
        "repeat" => {
            Val::from(text.repeat((number(0, 0.0).max(0.0) as usize).min(10_000_000 / text.len().max(1))))
        }
        "replace" | "replaceAll" => match arguments.first() {
            Some(Val::Regex(body, flags)) => super::regex::replace(text, body, flags, &argument(1)),
            _ if name == "replaceAll" => Val::from(text.replace(&argument(0), &argument(1))),
            _ => Val::from(text.replacen(&argument(0), &argument(1), 1)),
        },
        "slice" => {
            Val::from(span(&chars(), number(0, 0.0), number(1, f64::INFINITY)).iter().collect::<String>())
        }
        "substring" => {
            let (a, b) = (number(0, 0.0).max(0.0), number(1, f64::INFINITY).max(0.0));
            Val::from(span(&chars(), a.min(b), a.max(b)).iter().collect::<String>())
        }
        "split" => {
            let parts: Vec<Value> = match arguments.first() {
                None => vec![text.into()],
                Some(_) if argument(0).is_empty() => text.chars().map(|c| c.to_string().into()).collect(),
                Some(_) => text.split(&argument(0)).map(Value::from).collect(),
            };
            Val::Json(Value::Array(parts))
        }
        "startsWith" => Val::from(text.starts_with(&argument(0))),
        "toLowerCase" => Val::from(text.to_lowercase()),
        "toUpperCase" => Val::from(text.to_uppercase()),
        "trim" => Val::from(text.trim().to_owned()),
        "trimEnd" => Val::from(text.trim_end().to_owned()),
        "trimStart" => Val::from(text.trim_start().to_owned()),
        _ => Val::from(text.to_owned()),
    }
}

fn of_list(items: &[Value], name: &str, arguments: &[Val]) -> Val {
    let find = || {
        let wanted = arguments.first().cloned().unwrap_or(Val::Undefined);
        items.iter().position(|item| super::value::identical(&Val::Json(item.clone()), &wanted))
    };
    match name {
        "concat" => {
            let mut all = items.to_vec();
            for argument in arguments.iter().cloned().map(Val::into_json) {
                match argument {
                    Value::Array(more) => all.extend(more),
                    one => all.push(one),
                }
            }
            Val::Json(Value::Array(all))
        }
        "includes" => Val::from(find().is_some()),
        "indexOf" => Val::from(find().map_or(-1.0, |at| at as f64)),
        "join" => Val::from(join(items, &arguments.first().map_or(",".to_owned(), Val::to_text))),
        "reverse" => Val::Json(Value::Array(items.iter().rev().cloned().collect())),
        "slice" => {
            let number = |at: usize, default: f64| arguments.get(at).map_or(default, Val::to_number);
            Val::Json(Value::Array(span(items, number(0, 0.0), number(1, f64::INFINITY)).to_vec()))
        }
        _ => Val::from(join(items, ",")),
    }
}

/// The part of a sequence from `start` to `end`, both counted from the end when negative.
fn span<T>(items: &[T], start: f64, end: f64) -> &[T] {
    let length = items.len() as f64;
    let place = |n: f64| if n < 0.0 { (length + n).max(0.0) } else { n.min(length) };
    let (start, end) = (place(start) as usize, place(end) as usize);
    items.get(start..end.max(start)).unwrap_or_default()
}

fn position(text: &str, at: Option<usize>) -> f64 {
    at.map_or(-1.0, |at| text[..at].encode_utf16().count() as f64)
}

/// `needle in hay`.
pub fn contains(hay: &Val, needle: &Val) -> Option<bool> {
    match hay {
        Val::Json(Value::Array(items)) => {
            Some(items.iter().any(|item| super::value::identical(&Val::Json(item.clone()), needle)))
        }
        Val::Json(Value::String(text)) => Some(text.contains(&needle.to_text())),
        Val::Json(Value::Object(map)) => Some(map.contains_key(&needle.to_text())),
        _ => None,
    }
}

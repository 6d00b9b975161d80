//! The filters and tests of the template language.

use serde_json::{Value, json};

use self::text::{capitalize, dump, encode, escape, striptags, truncate, urlize};
use super::value::{self, Val, identical, loosely_equal, to_text, truthy};
use super::{TemplateError, methods};
use crate::model::{Object, number_value};

mod text;

/// Applies a filter.
pub fn apply(name: &str, of: Val, arguments: &[Val], named: &Object) -> Result<Val, TemplateError> {
    let argument = |at: usize, key: &str| -> Val {
        match arguments.get(at) {
            Some(Val::Undefined) | None => named.get(key).cloned().map_or(Val::Undefined, Val::Json),
            Some(value) => value.clone(),
        }
    };
    let number = |at: usize, key: &str, default: f64| match argument(at, key) {
        val if val.is_nothing() => default,
        val => val.to_number(),
    };
    let text = || if of.is_nothing() { String::new() } else { of.to_text() };
    let list = || match &of {
        Val::Json(Value::Array(items)) => items.clone(),
        Val::Json(other) => value::items(other),
        _ => Vec::new(),
    };
    let array = |items: Vec<Value>| Val::Json(Value::Array(items));
    Ok(match name {
        "abs" => value::arithmetic(of.to_number().abs()),
        "batch" => {
            let size = number(0, "linecount", 1.0).max(1.0) as usize;
            let filler = argument(1, "fill_with");
            let fill = |chunk: &[Value]| {
                let mut row = chunk.to_vec();
                if filler.truthy() {
                    row.resize(size, filler.clone().into_json());
                }
                Value::Array(row)
            };
            array(list().chunks(size).map(fill).collect())
        }
        "capitalize" => Val::from(capitalize(&text())),
        "center" => {
            let text = text();
            let space = (number(0, "width", 80.0) as usize).saturating_sub(text.chars().count());
            let (before, after) = ((space / 2).saturating_sub(space % 2), space / 2);
            if space == 0 {
                Val::from(text)
            } else {
                Val::from(format!("{}{text}{}", " ".repeat(before), " ".repeat(after)))
            }
        }
        "default" | "d" => {
            let loose = argument(1, "bool").truthy();
            let missing = if loose { !of.truthy() } else { matches!(of, Val::Undefined) };
            if missing { argument(0, "def") } else { of }
        }
        "dictsort" => dictsort(&of, argument(0, "case_sensitive").truthy(), &argument(1, "by"))?,
        "dump" => Val::from(dump(&of, &argument(0, "spaces"))),
        "load" => match serde_json::from_str(&text()) {
            Ok(value) => Val::Json(value),
            Err(error) => return Err(wrong(format!("load filter: not JSON: {error}"))),
        },
        "e" | "escape" | "forceescape" => Val::from(escape(&text())),
        "first" => member(&of, 0),
        "last" => list().last().cloned().map_or(Val::Undefined, Val::Json),
        "float" => parsed(leading_number(&text()), argument(0, "default")),
        "int" => {
            let base = number(1, "base", 10.0) as u32;
            let parsed_number = if base == 10 {
                leading_number(&text()).map(f64::trunc)
            } else {
                i64::from_str_radix(text().trim(), base.clamp(2, 36)).ok().map(|n| n as f64)
            };
            parsed(parsed_number, argument(0, "default"))
        }
        "groupby" => {
            let key = argument(0, "attr").to_text();
            let mut groups = Object::new();
            for item in list() {
                let group = attribute(&item, &key).map_or("undefined".to_owned(), |value| to_text(&value));
                if let Value::Array(members) = groups.entry(group).or_insert_with(|| json!([])) {
                    members.push(item);
                }
            }
            Val::Json(Value::Object(groups))
        }
        "indent" => {
            let pad = " ".repeat(number(0, "width", 4.0).clamp(0.0, 1000.0) as usize);
            let first = argument(1, "indentfirst").truthy();
            let text = text();
            let lines = text.split('\n').enumerate();
            let indented = lines
                .map(|(at, line)| if at == 0 && !first { line.to_owned() } else { format!("{pad}{line}") });
            if text.is_empty() { Val::from(text) } else { Val::from(indented.collect::<Vec<_>>().join("\n")) }
        }
        "join" => {
            if !matches!(of, Val::Json(Value::Array(_))) {
                return Err(TemplateError {
                    message: format!("`join` takes a list, not `{}`", of.to_text()),
                    line: 0,
                });
            }
            let separator = argument(0, "del");
            let separator = if separator.truthy() { separator.to_text() } else { String::new() };
            Val::from(value::join(&attributes(list(), &argument(1, "attr")), &separator))
        }
        "length" => match &of {
            Val::Json(Value::Object(map)) => Val::from(map.len() as f64),
            Val::Json(Value::Array(items)) => Val::from(items.len() as f64),
            Val::Json(Value::String(text)) => Val::from(text.encode_utf16().count() as f64),
            _ => Val::from(0.0),
        },
        "list" => match &of {
            Val::Json(Value::Object(map)) => array(value::pairs(map)),
            Val::Json(Value::Array(_) | Value::String(_)) => array(list()),
            _ => return Err(wrong("list filter: type not iterable")),
        },
        "lower" => Val::from(text().to_lowercase()),
        "upper" => Val::from(text().to_uppercase()),
        "nl2br" => Val::from(text().replace("\r\n", "\n").replace('\n', "<br />\n")),
        "random" => {
            let items = list();
            let at = rand::random_range(0..items.len().max(1));
            items.get(at).cloned().map_or(Val::Undefined, Val::Json)
        }
        "select" | "reject" => {
            let test_name = argument(0, "test");
            let test_name = if test_name.is_nothing() { "truthy".to_owned() } else { test_name.to_text() };
            let rest = arguments.get(1..).unwrap_or_default();
            let mut kept = Vec::new();
            for item in list() {
                if test(&test_name, &Val::Json(item.clone()), rest)? == (name == "select") {
                    kept.push(item);
                }
            }
            array(kept)
        }
        "selectattr" | "rejectattr" => {
            let key = argument(0, "attr").to_text();
            let holds = |item: &Value| attribute(item, &key).is_some_and(|value| truthy(&value));
            array(list().into_iter().filter(|item| holds(item) == (name == "selectattr")).collect())
        }
        "replace" => replace(of, &argument(0, "old"), &argument(1, "new"), number(2, "count", -1.0)),
        "reverse" => match &of {
            Val::Json(Value::String(text)) => Val::from(text.chars().rev().collect::<String>()),
            _ => array(list().into_iter().rev().collect()),
        },
        "round" => {
            let factor = 10f64.powf(number(0, "precision", 0.0));
            let scaled = of.to_number() * factor;
            let rounded = match argument(1, "method").to_text().as_str() {
                "ceil" => scaled.ceil(),
                "floor" => scaled.floor(),
                // JavaScript rounds halves up, also below zero.
                _ => (scaled + 0.5).floor(),
            };
            value::arithmetic(rounded / factor)
        }
        "safe" | "string" => Val::from(text()),
        "slice" => slice(&list(), number(0, "slices", 1.0).max(1.0) as usize, &argument(1, "fill_with")),
        "sort" => {
            let (reversed, exact) = (argument(0, "reverse").truthy(), argument(1, "case_sensitive").truthy());
            let key = argument(2, "attribute");
            let mut items = list();
            items.sort_by(|a, b| {
                let order = value::compare(&sort_key(a, &key, exact), &sort_key(b, &key, exact));
                let order = order.unwrap_or(std::cmp::Ordering::Equal);
                if reversed { order.reverse() } else { order }
            });
            array(items)
        }
        "striptags" => Val::from(striptags(&text(), argument(0, "preserve_linebreaks").truthy())),
        "sum" => {
            let start = number(1, "start", 0.0);
            let items = attributes(list(), &argument(0, "attr"));
            let sum = items.into_iter().fold(Val::from(0.0), |sum, item| value::add(&sum, &Val::Json(item)));
            value::add(&Val::from(start), &sum)
        }
        "title" => Val::from(text().split(' ').map(capitalize).collect::<Vec<_>>().join(" ")),
        "trim" => Val::from(text().trim().to_owned()),
        "truncate" => {
            let end = argument(2, "end");
            let end = if end.is_nothing() { "...".to_owned() } else { end.to_text() };
            let length = number(0, "length", 255.0);
            let length = if length > 0.0 { length as usize } else { 255 };
            Val::from(truncate(&text(), length, argument(1, "killwords").truthy(), &end))
        }
        "urlencode" => Val::from(match &of {
            Val::Json(Value::Object(map)) => {
                let pairs =
                    map.iter().map(|(key, value)| format!("{}={}", encode(key), encode(&to_text(value))));
                pairs.collect::<Vec<_>>().join("&")
            }
            _ => encode(&text()),
        }),
        "urlize" => Val::from(urlize(&text())),
        "wordcount" => {
            let text = text();
            let words = text
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| !word.is_empty());
            match words.count() {
                0 => Val::Json(Value::Null),
                count => Val::from(count as f64),
            }
        }
        other => return Err(wrong(format!("filter not found: {other}"))),
    })
}

/// Decides an `is` test.
pub fn test(name: &str, of: &Val, arguments: &[Val]) -> Result<bool, TemplateError> {
    let other = || arguments.first().cloned().unwrap_or(Val::Undefined);
    let ordered = |wanted: fn(std::cmp::Ordering) -> bool| value::compare(of, &other()).is_some_and(wanted);
    Ok(match name {
        "defined" => !matches!(of, Val::Undefined),
        "undefined" => matches!(of, Val::Undefined),
        "none" | "null" => matches!(of, Val::Json(Value::Null)),
        "callable" => matches!(of, Val::Macro(_) | Val::Global(_) | Val::Method(..)),
        "divisibleby" => of.to_number() % other().to_number() == 0.0,
        "equalto" | "eq" | "sameas" => identical(of, &other()),
        "ne" => !identical(of, &other()),
        "even" => of.to_number() % 2.0 == 0.0,
        "odd" => of.to_number() % 2.0 == 1.0,
        "truthy" => of.truthy(),
        "falsy" => !of.truthy(),
        "ge" => ordered(std::cmp::Ordering::is_ge),
        "greaterthan" | "gt" => ordered(std::cmp::Ordering::is_gt),
        "le" => ordered(std::cmp::Ordering::is_le),
        "lessthan" | "lt" => ordered(std::cmp::Ordering::is_lt),
        "lower" => of.to_text().to_lowercase() == of.to_text(),
        "upper" => of.to_text().to_uppercase() == of.to_text(),
        "number" => matches!(of, Val::Json(Value::Number(_))),
        "string" => matches!(of, Val::Json(Value::String(_))),
        "iterable" => matches!(of, Val::Json(Value::Array(_) | Value::String(_))),
        "mapping" => matches!(of, Val::Json(Value::Object(_))),
        "in" => methods::contains(&other(), of).unwrap_or(false),
        "escaped" => false,
        _ => return Err(wrong(format!("test not found: {name}"))),
    })
}

fn wrong(message: impl Into<String>) -> TemplateError {
    TemplateError { message: message.into(), line: 0 }
}

fn parsed(number: Option<f64>, default: Val) -> Val {
    number.map_or(default, value::arithmetic)
}

/// The number a text begins with.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let shaped = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    let end = text.find(|c| !shaped(c)).unwrap_or(text.len());
    (1..=end).rev().find_map(|end| text[..end].parse::<f64>().ok())
}

fn member(of: &Val, at: usize) -> Val {
    of.member(&number_value(at as f64))
}

fn attribute(item: &Value, path: &str) -> Option<Value> {
    path.split('.').try_fold(item.clone(), |value, key| match value {
        Value::Object(map) => map.get(key).cloned(),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        _ => None,
    })
}

fn attributes(items: Vec<Value>, key: &Val) -> Vec<Value> {
    if !key.truthy() {
        return items;
    }
    let key = key.to_text();
    items.iter().map(|item| attribute(item, &key).unwrap_or(Value::Null)).collect()
}

fn sort_key(item: &Value, key: &Val, exact: bool) -> Val {
    let value = if key.truthy() { attribute(item, &key.to_text()) } else { Some(item.clone()) };
    match value {
        Some(Value::String(text)) if !exact => Val::from(text.to_lowercase()),
        Some(value) => Val::Json(value),
        None => Val::Undefined,
    }
}

fn dictsort(of: &Val, exact: bool, by: &Val) -> Result<Val, TemplateError> {
    let Val::Json(Value::Object(map)) = of else {
        return Err(wrong("dictsort filter: val must be an object"));
    };
    let side = match by {
        Val::Undefined => 0,
        by if loosely_equal(by, &Val::from("key".to_owned())) => 0,
        by if loosely_equal(by, &Val::from("value".to_owned())) => 1,
        _ => return Err(wrong("dictsort filter: You can only sort by either key or value")),
    };
    let mut pairs: Vec<[Value; 2]> =
        map.iter().map(|(key, value)| [key.clone().into(), value.clone()]).collect();
    pairs.sort_by(|a, b| {
        let (a, b) = (sort_key(&a[side], &Val::Undefined, exact), sort_key(&b[side], &Val::Undefined, exact));
        value::compare(&a, &b).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(Val::Json(Value::Array(pairs.into_iter().map(|pair| Value::Array(pair.to_vec())).collect())))
}

fn replace(of: Val, old: &Val, new: &Val, count: f64) -> Val {
    if let Val::Regex(body, flags) = old {
        return super::regex::replace(&of.to_text(), body, flags, &new.to_text());
    }
    let (Val::Json(Value::String(_) | Value::Number(_)), Val::Json(Value::String(_) | Value::Number(_))) =
        (&of, old)
    else {
        return of;
    };
    let (text, old, new) = (of.to_text(), old.to_text(), new.to_text());
    if old.is_empty() {
        let middle: Vec<String> = text.chars().map(|c| c.to_string()).collect();
        return Val::from(format!("{new}{}{new}", middle.join(&new)));
    }
    if count < 0.0 {
        Val::from(text.replace(&old, &new))
    } else {
        Val::from(text.replacen(&old, &new, count as usize))
    }
}

fn slice(items: &[Value], slices: usize, filler: &Val) -> Val {
    let (size, extra) = (items.len() / slices, items.len() % slices);
    let mut rest = items;
    let mut out = Vec::new();
    for at in 0..slices {
        let (taken, left) = rest.split_at(size + usize::from(at < extra));
        let mut part = taken.to_vec();
        if filler.truthy() && at >= extra {
            part.push(filler.clone().into_json());
        }
        out.push(Value::Array(part));
        rest = left;
    }
    Val::Json(Value::Array(out))
}

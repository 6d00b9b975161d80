//! Comparison with the recorded results of another port of BuildKit's parser (`tests/record.py`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ignore::Ignore;
use crate::lex::{Lex, Lookup, Variables};
use crate::source::parse;

fn recorded(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../tests/recorded.json")).unwrap();
    all[name].as_array().unwrap().clone()
}

fn report(differences: &[String], all: usize) {
    let shown = differences.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} of {all} differ:\n{shown}", differences.len());
}

#[test]
fn dockerfiles_are_read_as_recorded() {
    let cases = recorded("dockerfiles");
    let mut differences = Vec::new();
    for case in &cases {
        let text = case[0].as_str().unwrap();
        let found = parse(text).ok().map(|file| {
            let instructions = file.instructions.iter().map(|one| {
                let heredocs: Vec<Value> = one
                    .heredocs
                    .iter()
                    .map(|doc| json!([doc.name, doc.content, doc.chomp, doc.expand]))
                    .collect();
                json!({
                    "name": one.name, "flags": one.flags, "args": one.args, "json": one.is_json, "line": one.line, "end": one.end,
                    "heredocs": heredocs,
                })
            });
            json!({ "escape": file.escape, "instructions": instructions.collect::<Vec<_>>() })
        });
        if json!(found) != case[1] {
            differences.push(format!("{text:?}\n  found    {}\n  recorded {}", json!(found), case[1]));
        }
    }
    report(&differences, cases.len());
}

struct Recorded(BTreeMap<String, String>);

impl Variables for Recorded {
    fn lookup(&self, name: &str) -> Lookup<'_> {
        self.0.get(name).map_or(Lookup::Unknown, |value| Lookup::Set(value))
    }
}

#[test]
fn words_expand_as_recorded() {
    let all: Value = serde_json::from_str(include_str!("../tests/recorded.json")).unwrap();
    let variables = Recorded(serde_json::from_value(all["variables"].clone()).unwrap());
    let cases = recorded("words");
    let mut differences = Vec::new();
    for case in &cases {
        let (text, keep_unknown) = (case[0].as_str().unwrap(), case[1].as_bool().unwrap());
        let lex = Lex { keep_unknown, variables: &variables, ..Lex::plain('\\') };
        let found = lex.expand(text).ok().map(|expanded| json!([expanded.text, expanded.words]));
        if json!(found) != case[2] {
            differences.push(format!(
                "{text:?} {keep_unknown}\n  found    {}\n  recorded {}",
                json!(found),
                case[2]
            ));
        }
    }
    report(&differences, cases.len());
}

#[test]
fn files_are_ignored_as_recorded() {
    let paths = recorded("paths");
    let cases = recorded("ignored");
    let mut differences = Vec::new();
    for case in &cases {
        let patterns: Vec<&str> = case[0].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let found = Ignore::new(patterns.iter().copied()).ok().map(|ignore| {
            let ignored = paths.iter().filter(|path| ignore.matches(path.as_str().unwrap()));
            ignored.cloned().collect::<Vec<_>>()
        });
        if json!(found) != case[1] {
            differences.push(format!("{patterns:?}\n  found    {}\n  recorded {}", json!(found), case[1]));
        }
    }
    report(&differences, cases.len());
}

//! `api.md`: every call of the server, from the description that it serves at `/openapi.json`.

use serde_json::Value;

use super::{cell, check, read, table};

const INTRODUCTION: &str = "\
# API

Every call that the server answers. Paths, bodies and status codes are E2B's, so that E2B's clients work unchanged;
[Wire compatibility](../internals/wire-compat.md) lists the differences. `GET /openapi.json` has the full description, with every
parameter and body. This page is generated from it.

Errors have a JSON body; [Errors](errors.md) lists them.

## Credentials

| name | header |
| --- | --- |
";

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn credentials(schemes: &Value) -> String {
    let line = |(name, scheme): (&String, &Value)| {
        let header = match text(scheme, "type") {
            "http" => format!("`Authorization: {} …`", sentence(text(scheme, "scheme"))),
            _ => format!("`{}`", text(scheme, "name")),
        };
        format!("| {name} | {header} |\n")
    };
    let mut lines: Vec<String> = schemes.as_object().into_iter().flatten().map(line).collect();
    lines.sort();
    lines.concat()
}

fn sentence(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

fn page() -> String {
    let document: Value = serde_json::from_str(&read("crates/server/openapi.json")).unwrap();
    let mut page = INTRODUCTION.to_owned() + &credentials(&document["components"]["securitySchemes"]);
    for tag in document["tags"].as_array().unwrap() {
        let name = text(tag, "name");
        page += &format!("\n## {name}\n\n");
        let about = text(tag, "description");
        if !about.is_empty() {
            page += &format!("{about}\n\n");
        }
        let mut rows = Vec::new();
        for (path, calls) in document["paths"].as_object().unwrap() {
            for (method, call) in
                calls.as_object().unwrap().iter().filter(|(_, call)| call["tags"][0] == name)
            {
                let names = call["security"].as_array().into_iter().flatten().filter_map(Value::as_object);
                let names: Vec<&str> = names.flat_map(|scheme| scheme.keys()).map(String::as_str).collect();
                rows.push([
                    format!("`{} {path}`", method.to_uppercase()),
                    cell(text(call, "summary")),
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") },
                ]);
            }
        }
        // Versions of one call stand together, whatever order the parser of the description keeps.
        rows.sort_by_key(|[call, ..]| {
            let path = call
                .trim_matches('`')
                .split_once(' ')
                .map(|(_, path)| path.replace("/v2/", "/").replace("/v3/", "/"));
            (path, call.clone())
        });
        page += &table(["call", "does", "credentials"], &rows);
    }
    page
}

#[test]
fn the_page_is_what_the_server_describes() {
    check("api.md", &page());
}

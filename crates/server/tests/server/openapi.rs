use std::collections::BTreeSet;

use sandcove_server::routes;
use serde_json::Value;

use crate::support::Server;

#[tokio::test]
async fn the_description_names_every_call_and_no_other() {
    let server = Server::start().await;
    let reply = server.send("GET", "/openapi.json", &[], "").await;
    assert_eq!(reply.code(), 200);
    assert_eq!(reply.headers["content-type"], "application/json; charset=utf-8");
    let document = reply.json();
    let described: BTreeSet<_> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, calls)| {
            calls.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase()))
        })
        .collect();
    let answered: BTreeSet<_> =
        routes().iter().map(|route| (route.path.to_owned(), route.method.to_string())).collect();
    let missing: Vec<_> = answered.difference(&described).collect();
    let invented: Vec<_> = described.difference(&answered).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not described: {missing:?}; not answered: {invented:?}"
    );
    check_references(&document, &document);
}

/// Every reference leads somewhere, and every path parameter is declared.
fn check_references(document: &Value, at: &Value) {
    match at {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            members.values().for_each(|value| check_references(document, value));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(document, value)),
        _ => {}
    }
}

#[test]
fn path_parameters_are_declared() {
    let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    for (path, calls) in document["paths"].as_object().unwrap() {
        let wanted: BTreeSet<&str> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')))
            .collect();
        for (method, call) in calls.as_object().unwrap() {
            let parameters = call["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            let declared: BTreeSet<&str> = parameters
                .iter()
                .filter(|p| p["in"] == "path")
                .map(|p| p["name"].as_str().unwrap())
                .collect();
            assert_eq!(declared, wanted, "{method} {path}");
            assert!(call["security"].is_array() && call["responses"].is_object(), "{method} {path}");
        }
    }
}

#[test]
fn every_call_has_a_tag_a_description_and_words_for_each_status() {
    let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    assert!(document["servers"][0]["url"].is_string());
    let names = |list: &Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap().to_owned()).collect()
    };
    let (known, mut used) = (names(&document["tags"]), BTreeSet::new());
    for (path, calls) in document["paths"].as_object().unwrap() {
        for (method, call) in calls.as_object().unwrap() {
            let tag = call["tags"][0].as_str().unwrap_or_default();
            assert!(known.contains(tag), "{method} {path} has the tag `{tag}`");
            used.insert(tag.to_owned());
            assert!(call["description"].as_str().is_some_and(|text| text.ends_with('.')), "{method} {path}");
            for (status, answer) in call["responses"].as_object().unwrap() {
                let text = answer["description"].as_str().unwrap();
                assert!(
                    !matches!(text, "" | "Error" | "Done" | "Made"),
                    "{method} {path}: {status} is {text}"
                );
            }
        }
    }
    assert_eq!(used, known);
}

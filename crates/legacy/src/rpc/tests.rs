use serde_json::{Value, json};

use super::*;

fn request(method: &str, params: &Value) -> Request {
    let text = json!({ "jsonrpc": "2.0", "id": "abc", "method": method, "params": params }).to_string();
    let call = read(&text).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
    assert_eq!(call.id, Some(Id("\"abc\"".into())));
    call.request
}

/// The id and the code of the answer to a message that is refused.
fn refused(text: &str) -> (Value, i64) {
    let refusal = read(text).map(|call| panic!("{text}: {call:?}")).unwrap_err();
    let answer: Value = serde_json::from_str(&refusal.answer.unwrap()).unwrap();
    assert!(answer["error"]["message"].is_string() && answer.get("result").is_none());
    (answer["id"].clone(), answer["error"]["code"].as_i64().unwrap())
}

#[test]
fn what_clients_send_is_read() {
    let process = |name: &str| ProgramId::Process(name.to_owned());
    let terminal = |name: &str| ProgramId::Terminal(name.to_owned());
    let subscribed = request("process_subscribe", &json!(["onStdout", "p"]));
    assert_eq!(subscribed, Request::Subscribe(Topic::Program(process("p"), Channel::Stdout)));
    let subscribed = request("terminal_subscribe", &json!(["onData", "t"]));
    assert_eq!(subscribed, Request::Subscribe(Topic::Program(terminal("t"), Channel::Data)));
    let subscribed = request("filesystem_subscribe", &json!(["watchDir", "/tmp"]));
    assert_eq!(subscribed, Request::Subscribe(Topic::Directory("/tmp".into())));
    let subscribed = request("codeSnippet_subscribe", &json!(["scanOpenedPorts"]));
    assert_eq!(subscribed, Request::Subscribe(Topic::OpenedPorts));
    assert_eq!(request("process_unsubscribe", &json!(["0x1"])), Request::Unsubscribe("0x1".into()));
    let Request::Start(start) = request("process_start", &json!(["p", "true", { "A": "1" }, "/tmp"])) else {
        panic!()
    };
    assert_eq!((start.line.as_deref(), start.cwd.as_str(), start.size), (Some("true"), "/tmp", None));
    assert_eq!(start.envs["A"], "1");
    let Request::Start(start) = request("terminal_start", &json!(["t", 80, 24])) else { panic!() };
    assert_eq!((start.line, start.size), (None, Some((80, 24))));
    let Request::Start(start) = request("terminal_start", &json!(["t", 80, 24, {}, null, ""])) else {
        panic!()
    };
    assert_eq!((start.line, start.cwd.as_str()), (None, ""));
    let resized = Request::Resize { program: terminal("t"), size: (u16::MAX, 1) };
    assert_eq!(request("terminal_resize", &json!(["t", 1e9, -1])), resized);
    let input = Request::Input { program: process("p"), text: "x\n".into() };
    assert_eq!(request("process_stdin", &json!(["p", "x\n"])), input);
    assert_eq!(request("terminal_destroy", &json!(["t"])), Request::Kill(terminal("t")));
    let written = Files::Write("/home/user/a".into(), "x".into(), Encoding::Base64);
    assert_eq!(request("filesystem_writeBase64", &json!(["a", "x"])), Request::Files(written));
    let made = Files::MakeDirectory("/home/user/./x".into());
    assert_eq!(request("filesystem_makeDir", &json!(["/home/user/./x"])), Request::Files(made));
}

#[test]
fn ids_come_back_as_they_were() {
    for id in ["\"a\\u0041\"", "1", "-2.5", "12345678901234567890123"] {
        let call = read(&format!(r#"{{"id":{id},"method":"process_kill","params":["p"]}}"#)).unwrap();
        let answer = success(&call.id.clone().unwrap(), &());
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#));
        let answer = failure(&call.id.unwrap(), "a \"b\"");
        let error = r#"{"code":-32000,"message":"a \"b\""}"#;
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    }
}

#[test]
fn a_message_that_is_no_request_is_answered_without_an_id() {
    for text in ["", "{", "\u{0}", "{\"id\":1,}", "nul", &"[".repeat(100_000)] {
        let expected = if text.starts_with('[') { INVALID_REQUEST } else { UNREADABLE };
        let (id, code) = refused(text);
        assert!(id.is_null() && [i64::from(expected), i64::from(UNREADABLE)].contains(&code), "{text:.20}");
    }
    let long = format!(r#"{{"id":"{}","method":"process_kill"}}"#, "x".repeat(256));
    for text in [
        "null",
        "1",
        "\"x\"",
        "true",
        r#"{"id":1,"id":2,"method":"process_kill"}"#,
        r#"{"id":{},"method":"process_kill"}"#,
        r#"{"id":[1],"method":"x"}"#,
        r#"{"id":true,"method":"x"}"#,
        r#"{"id":1,"method":5}"#,
        &long,
    ] {
        assert_eq!(refused(text), (Value::Null, INVALID_REQUEST.into()), "{text}");
    }
}

#[test]
fn a_request_that_cannot_be_carried_out_is_answered_with_its_id() {
    let with =
        |method: &str, params: &str| refused(&format!(r#"{{"id":7,"method":"{method}","params":{params}}}"#));
    assert_eq!(refused(r#"{"id":7,"params":[]}"#), (json!(7), INVALID_REQUEST.into()));
    for method in [
        "",
        "process",
        "process_",
        "_start",
        "process_jump",
        "codeSnippet_read",
        "files_read",
        "filesystem_stat",
    ] {
        assert_eq!(with(method, "[]"), (json!(7), UNKNOWN_METHOD.into()), "{method}");
    }
    let topic = with("process_subscribe", r#"["onData","p"]"#);
    assert_eq!(topic, (json!(7), UNKNOWN_METHOD.into()));
    let large = format!("[\"{}\"]", "x".repeat(SMALL_MESSAGE));
    let long = format!("[\"{}\"]", "x".repeat(MAX_NAME + 1));
    let path = format!("[\"{}\"]", "x".repeat(MAX_PATH + 1));
    for (method, params) in [
        ("process_start", "[]"),
        ("process_start", "null"),
        ("process_start", "{}"),
        ("process_start", "\"p\""),
        ("process_start", r#"["p"]"#),
        ("process_start", r#"["p",1]"#),
        ("process_start", r#"["p","x",{"A":1}]"#),
        ("process_start", r#"["p","x",{},7]"#),
        ("process_start", "[1,2,3,4,5,6,7,8,9]"),
        ("process_kill", &long),
        ("process_unsubscribe", "[null]"),
        ("terminal_start", r#"["t"]"#),
        ("terminal_start", r#"["t","80","24"]"#),
        ("filesystem_read", r#"["\ud800"]"#),
        ("filesystem_read", &large),
        ("filesystem_read", &path),
        ("process_stdin", &large),
        ("filesystem_write", r#"["/a"]"#),
        ("filesystem_subscribe", r#"["watchDir"]"#),
    ] {
        assert_eq!(with(method, params), (json!(7), INVALID_PARAMS.into()), "{method} {params:.60}");
    }
}

#[test]
fn a_message_without_an_id_is_never_answered() {
    let call = read(r#"{"method":"process_kill","params":["p"]}"#).unwrap();
    assert_eq!(call.id, None);
    assert_eq!(read(r#"{"id":null,"method":"process_kill","params":["p"]}"#).unwrap().id, None);
    for text in [r#"{"method":"x"}"#, r#"{"method":"process_kill"}"#, r#"{"id":null}"#, "{}"] {
        assert_eq!(read(text), Err(Refusal { answer: None }), "{text}");
    }
}

#[test]
fn an_event_names_its_service_and_subscription() {
    let event = event("process", "0xa", &json!(3)).unwrap();
    let expected = json!({ "jsonrpc": "2.0", "method": "process_subscription", "params": { "subscription": "0xa", "result": 3 } });
    assert_eq!(serde_json::from_str::<Value>(&event).unwrap(), expected);
}

#[test]
fn a_result_that_is_too_large_is_an_error() {
    let answer = success(&Id("1".into()), &"\0".repeat(MAX_MESSAGE / 6));
    assert!(answer.len() < 300 && answer.contains("too large"));
}

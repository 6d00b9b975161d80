//! Replies in the OpenAI dialect.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Endpoint, message};
use crate::model::{Guardrails, Object, ProviderResponse, TokenUsage, number_value};
use crate::provider::service;
use crate::provider::tools::{ToolCall, ToolOutcome, shape};
use crate::template::value::to_text;

/// The categories that were flagged, with the strongest score of each.
fn flags(value: &Value) -> Option<Value> {
    let mut found = Object::new();
    for result in value.get("results")?.as_array()? {
        let categories = result.get("categories").and_then(Value::as_object).into_iter().flatten();
        for (category, _) in categories.filter(|(_, flagged)| **flagged == json!(true)) {
            let score = result.pointer(&format!("/category_scores/{}", category.replace('/', "~1")));
            let score = score.and_then(Value::as_f64).unwrap_or(0.0);
            let before = found.get(category).and_then(Value::as_f64).unwrap_or(0.0);
            found.insert(category.clone(), json!(score.max(before)));
        }
    }
    let flag = |(code, score)| json!({"code": code, "description": code, "confidence": score});
    Some(found.into_iter().map(flag).collect())
}

/// Returns the answer in a reply of an endpoint of a service.
pub fn read(value: &Value, endpoint: Endpoint, service: &str, config: &Object) -> ProviderResponse {
    let usage = usage(value);
    let (output, finish, refusal) = match endpoint {
        Endpoint::Chat => {
            let finish = value.pointer("/choices/0/finish_reason");
            let filtered = service::finish_reason(finish).as_deref() == Some(service::FILTERED);
            let message = value.pointer("/choices/0/message").unwrap_or(&Value::Null);
            let said = message::read(message, filtered, service, config);
            (said.output, finish, said.refused)
        }
        Endpoint::Completion => {
            (value.pointer("/choices/0/text").cloned(), value.pointer("/choices/0/finish_reason"), false)
        }
        Endpoint::Responses => {
            let (output, refused) = responses_output(value, |_| None);
            (output, value.get("status"), refused)
        }
        Endpoint::Embedding => (value.pointer("/data/0/embedding").cloned(), None, false),
        Endpoint::Moderation => (flags(value), None, false),
    };
    let Some(output) = output else {
        return ProviderResponse { token_usage: Some(usage), ..service::no_output(value) };
    };
    let output = match &output {
        Value::String(text) if message::wants_schema(config) => serde_json::from_str(text).unwrap_or(output),
        _ => output,
    };
    ProviderResponse {
        output: Some(output),
        finish_reason: service::finish_reason(finish),
        is_refusal: refusal.then_some(true),
        guardrails: (endpoint == Endpoint::Chat)
            .then(|| Guardrails { flagged: Some(refusal), ..Guardrails::default() }),
        cached: Some(false),
        token_usage: Some(usage),
        log_probs: log_probs(value),
        // Documents of promptfoo have the replies of this endpoint only.
        raw: (endpoint == Endpoint::Responses).then(|| value.clone()),
        metadata: match endpoint {
            Endpoint::Responses => Some(about(value)),
            Endpoint::Chat => beside(value),
            _ => None,
        },
        ..ProviderResponse::default()
    }
}

/// Returns the answer of a service that does not let a prompt reach the model.
pub fn refused(status: u16, value: &Value, endpoint: Endpoint) -> ProviderResponse {
    let phrase = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let text = format!("API error: {status} {}\n{value}", phrase.unwrap_or_default());
    ProviderResponse {
        is_refusal: Some(true),
        guardrails: (endpoint == Endpoint::Chat).then(|| Guardrails {
            flagged: Some(true),
            flagged_input: Some(true),
            ..Guardrails::default()
        }),
        token_usage: value.get("usage").map(|_| usage(value)),
        ..ProviderResponse::text(text)
    }
}

/// The id of a reply, the model that it is of, and the sources of its texts.
fn about(reply: &Value) -> Object {
    let named = [("responseId", "id"), ("model", "model")];
    let given = named.iter().filter_map(|(name, key)| Some(((*name).to_owned(), reply.get(*key)?.clone())));
    let mut about: Object = given.collect();
    let items = reply.get("output").and_then(Value::as_array).into_iter().flatten();
    let parts = items.filter_map(|item| item.get("content")?.as_array()).flatten();
    let sources: Vec<Value> =
        parts.filter_map(|part| part.get("annotations")?.as_array()).flatten().cloned().collect();
    if !sources.is_empty() {
        about.insert("annotations".to_owned(), Value::Array(sources));
    }
    about
}

/// All answers, if a chat has several, and the sources of the first.
fn beside(reply: &Value) -> Option<Object> {
    let several = |list: &&Value, least: usize| list.as_array().is_some_and(|list| list.len() >= least);
    let choices = reply.get("choices").filter(|list| several(list, 2));
    let sources = reply.pointer("/choices/0/message/annotations").filter(|list| several(list, 1));
    let named = [("choices", choices), ("annotations", sources)];
    let found = named.into_iter().filter_map(|(name, list)| Some((name.to_owned(), list?.clone())));
    Some(found.collect()).filter(|found: &Object| !found.is_empty())
}

/// Returns what searches of the service cost beside the tokens of a reply of the endpoint `responses`, in dollars.
pub fn searches(reply: &Value, thinks: bool, config: &Object) -> f64 {
    let tools = config.get("tools").and_then(Value::as_array).into_iter().flatten();
    let has_new_search = tools.filter_map(|tool| tool.get("type")).any(|kind| kind == "web_search");
    let search = if has_new_search || thinks { 0.01 } else { 0.025 };
    let items = reply.get("output").and_then(Value::as_array).into_iter().flatten();
    let prices = items.map(|item| match item.get("type").and_then(Value::as_str) {
        Some("web_search_call") if item.pointer("/action/type") == Some(&json!("search")) => search,
        Some("file_search_call") => 0.0025,
        _ => 0.0,
    });
    prices.sum()
}

fn log_probs(value: &Value) -> Option<Vec<f64>> {
    let list = value.pointer("/choices/0/logprobs/content")?.as_array()?;
    Some(list.iter().filter_map(|token| token.get("logprob")?.as_f64()).collect())
}

/// Returns a tool of a server as an endpoint has it.
pub fn tool(tool: &Value, endpoint: Endpoint) -> Option<Value> {
    match endpoint {
        Endpoint::Chat => Some(shape::openai(tool)),
        Endpoint::Responses => Some(shape::responses(tool)),
        _ => None,
    }
}

/// Returns the calls of tools in a reply of an endpoint.
pub fn calls(value: &Value, endpoint: Endpoint) -> Vec<ToolCall> {
    let found: Vec<&Value> = match endpoint {
        Endpoint::Chat => {
            let message = value.pointer("/choices/0/message");
            let field =
                |key: &str| message.and_then(|message| message.get(key)).filter(|value| !value.is_null());
            match (field("function_call"), field("tool_calls")) {
                (Some(one), _) => vec![one],
                (None, Some(many)) => many.as_array().into_iter().flatten().collect(),
                (None, None) => Vec::new(),
            }
        }
        Endpoint::Responses => function_calls(value).collect(),
        _ => Vec::new(),
    };
    let calls = found.into_iter().filter_map(|call| {
        let described = call.get("function").unwrap_or(call);
        let arguments = described.get("arguments").cloned().unwrap_or_default();
        Some(ToolCall { name: described.get("name")?.as_str()?.to_owned(), arguments, raw: call.clone() })
    });
    calls.collect()
}

fn function_calls(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.get("output").and_then(Value::as_array).into_iter().flatten();
    items.filter(|item| item.get("type").and_then(Value::as_str) == Some("function_call"))
}

/// Returns the answer of the endpoint `responses` with what calls returned in place of them.
pub fn resolved(
    value: &Value,
    response: ProviderResponse,
    calls: &[(ToolCall, ToolOutcome)],
) -> ProviderResponse {
    let shown = |item: &Value| {
        let done = calls.iter().find(|(call, _)| call.raw == *item);
        done.and_then(|(call, outcome)| outcome.shown(&call.name))
    };
    ProviderResponse { output: responses_output(value, shown).0.or(response.output), ..response }
}

/// Returns the texts of a reply of the endpoint `responses`, and whether it refuses. `shown` returns the text in place of a call.
fn responses_output(value: &Value, shown: impl Fn(&Value) -> Option<String>) -> (Option<Value>, bool) {
    let items = value.get("output").and_then(Value::as_array).filter(|items| !items.is_empty());
    let Some(items) = items else { return (None, false) };
    let (mut texts, mut refusal) = (Vec::new(), None);
    for item in items {
        let text = |key: &str| item.get(key).map(to_text).unwrap_or_default();
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                let parts = item.get("content").and_then(Value::as_array).into_iter().flatten();
                let mut whole = String::new();
                for part in parts {
                    match part.get("refusal").and_then(Value::as_str) {
                        Some(refused) => refusal = Some(refused.to_owned()),
                        None => whole.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default()),
                    }
                }
                texts.push(whole);
            }
            Some("function_call") => texts.push(shown(item).unwrap_or_else(|| item.to_string())),
            Some("tool_result") => texts.push(item.to_string()),
            Some("reasoning") => {
                let parts = item.get("summary").and_then(Value::as_array).into_iter().flatten();
                let parts: Vec<&str> = parts.filter_map(|part| part.get("text")?.as_str()).collect();
                if !parts.is_empty() {
                    texts.push(format!("Reasoning: {}", parts.join("\n")));
                }
            }
            Some("web_search_call") => texts.push(searched(item) + &failure(item)),
            Some("code_interpreter_call") => {
                let code = Some(text("code")).filter(|code| !matches!(code.as_str(), "" | "null"));
                let code = code.unwrap_or_else(|| "Running code...".to_owned());
                texts.push(format!("Code Interpreter: {code}{}", failure(item)));
            }
            Some("mcp_list_tools") => {
                let tools = item.get("tools").map(|tools| format!("{tools:#}")).unwrap_or_default();
                texts.push(format!("MCP Tools from {}: {tools}", text("server_label")));
            }
            Some("mcp_call") => {
                let name = text("name");
                texts.push(match item.get("error").filter(|error| !error.is_null()) {
                    Some(error) => format!("MCP Tool Error ({name}): {}", to_text(error)),
                    None => format!("MCP Tool Result ({name}): {}", text("output")),
                });
            }
            Some("mcp_approval_request") => {
                let (server, name, arguments) = (text("server_label"), text("name"), text("arguments"));
                texts.push(format!("MCP Approval Required for {server}.{name}: {arguments}"));
            }
            _ => {}
        }
    }
    if let Some(refusal) = refusal {
        return (Some(Value::String(refusal)), true);
    }
    texts.retain(|text| !text.is_empty());
    (Some(Value::String(texts.join("\n"))), false)
}

/// The reason why a tool of the service failed, if it did.
fn failure(item: &Value) -> String {
    let error = item.get("error").filter(|error| item["status"] == "failed" && !error.is_null());
    error.map(|error| format!(" (Error: {})", to_text(error))).unwrap_or_default()
}

/// The text that stands for a search.
fn searched(item: &Value) -> String {
    let of = |key: &str| item.pointer(&format!("/action/{key}")).map(to_text).unwrap_or_default();
    match of("type").as_str() {
        "search" => format!("Web Search: \"{}\"", of("query")),
        "open_page" => format!("Opening page: {}", of("url")),
        "find_in_page" => format!("Finding in page: \"{}\"", of("query")),
        "" => {
            let status = item.get("status").map(to_text).unwrap_or_else(|| "unknown".to_owned());
            format!("Web Search Call (status: {status})")
        }
        other => format!("Web action: {other}"),
    }
}

fn usage(value: &Value) -> TokenUsage {
    let usage = value.get("usage");
    let number = |paths: &[&str]| {
        paths.iter().find_map(|path| usage?.pointer(&format!("/{path}"))?.as_f64()).map(number_value)
    };
    let detail = |kind: &str| {
        let [chat, responses] = ["completion_tokens_details", "output_tokens_details"];
        number(&[&format!("{chat}/{kind}"), &format!("{responses}/{kind}")])
    };
    let read = number(&[
        "prompt_tokens_details/cached_tokens",
        "input_tokens_details/cached_tokens",
        "cached_tokens",
    ]);
    let details = [
        ("reasoning", detail("reasoning_tokens")),
        ("acceptedPrediction", detail("accepted_prediction_tokens")),
        ("rejectedPrediction", detail("rejected_prediction_tokens")),
        ("cacheReadInputTokens", read.filter(|read| read.as_f64() > Some(0.0))),
    ];
    let details = details.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?)));
    let count = |paths: &[&str]| number(paths).and_then(|count| count.as_f64());
    TokenUsage {
        completion_details: Some(details.collect()).filter(|details: &Object| !details.is_empty()),
        ..service::usage(
            count(&["total_tokens"]),
            count(&["prompt_tokens", "input_tokens"]),
            count(&["completion_tokens", "output_tokens"]),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let value = json!({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {"total_tokens": 3, "prompt_tokens": 1, "completion_tokens": 2}});
        let response = read(&value, Endpoint::Chat, "openai", &Object::new());
        assert_eq!((response.output, response.finish_reason), (Some(json!("yes")), Some("stop".to_owned())));
        let calls = json!({"choices": [{"message": {"content": null, "tool_calls": [{"id": 1}]}}]});
        assert_eq!(read(&calls, Endpoint::Chat, "openai", &Object::new()).output, Some(json!([{"id": 1}])));
        let withheld =
            json!({"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]});
        let response = read(&withheld, Endpoint::Chat, "openai", &Object::new());
        assert_eq!(response.output, Some(json!("Content filtered by provider")));
        assert_eq!((response.is_refusal, response.guardrails.unwrap().flagged), (Some(true), Some(true)));
        let responses =
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]});
        assert_eq!(read(&responses, Endpoint::Responses, "openai", &Object::new()).output, Some(json!("ok")));
        let failed = json!({"type": "web_search_call", "status": "failed", "error": "late", "action": {"type": "search", "query": "q"}});
        let ran = json!({"type": "code_interpreter_call", "code": null});
        let tools = read(&json!({"output": [failed, ran]}), Endpoint::Responses, "openai", &Object::new());
        let shown = "Web Search: \"q\" (Error: late)\nCode Interpreter: Running code...";
        assert_eq!(tools.output, Some(json!(shown)));
        let cut = json!({"output": [], "status": "incomplete"});
        assert!(read(&cut, Endpoint::Responses, "openai", &Object::new()).error.is_some());
        let moderated = json!({"results": [{
            "flagged": true, "categories": {"hate": false, "self-harm/intent": true}, "category_scores": {"hate": 0.1, "self-harm/intent": 0.9},
        }]});
        let flag =
            json!([{"code": "self-harm/intent", "description": "self-harm/intent", "confidence": 0.9}]);
        assert_eq!(read(&moderated, Endpoint::Moderation, "openai", &Object::new()).output, Some(flag));
    }

    #[test]
    fn sources_and_other_answers_are_kept() {
        let of = |value: Value, endpoint| read(&value, endpoint, "openai", &Object::new()).metadata;
        let source = json!({"type": "url_citation", "url": "http://a"});
        let message = json!({"content": "ok", "annotations": [source]});
        let choices = json!([{"message": message}, {"message": {"content": "other"}}]);
        let kept = of(json!({"choices": choices}), Endpoint::Chat).unwrap();
        assert_eq!(json!(kept), json!({"choices": choices, "annotations": [source]}));
        assert_eq!(of(json!({"choices": [{"message": {"content": "ok"}}]}), Endpoint::Chat), None);
        let part = json!({"type": "output_text", "text": "ok", "annotations": [source]});
        let reply = json!({"id": "r", "output": [{"type": "message", "content": [part]}]});
        let kept = of(reply, Endpoint::Responses).unwrap();
        assert_eq!(json!(kept), json!({"responseId": "r", "annotations": [source]}));
    }

    #[test]
    fn prompts_that_are_refused_have_an_answer() {
        let said = json!({"error": {"code": "invalid_prompt", "message": "no"}});
        let response = refused(400, &said, Endpoint::Chat);
        assert_eq!(response.output, Some(json!(format!("API error: 400 Bad Request\n{said}"))));
        assert_eq!(
            (response.is_refusal, response.guardrails.unwrap().flagged_input),
            (Some(true), Some(true))
        );
        assert_eq!(refused(400, &said, Endpoint::Responses).guardrails, None);
    }

    #[test]
    fn searches_have_a_price() {
        let search = json!({"type": "web_search_call", "action": {"type": "search"}});
        let open = json!({"type": "web_search_call", "action": {"type": "open_page"}});
        let reply = json!({"output": [search, open, {"type": "file_search_call"}]});
        let new = json!({"tools": [{"type": "web_search"}]});
        assert_eq!(searches(&reply, false, &Object::new()), 0.025 + 0.0025);
        assert_eq!(searches(&reply, true, &Object::new()), 0.01 + 0.0025);
        assert_eq!(searches(&reply, false, new.as_object().unwrap()), 0.01 + 0.0025);
    }

    #[test]
    fn details_of_tokens_are_kept() {
        let counts = json!({
            "input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 3},
        });
        let usage = usage(&json!({"usage": counts}));
        assert_eq!(usage.total, Some(15.0));
        let details = json!({"reasoning": 3, "cacheReadInputTokens": 4});
        assert_eq!(usage.completion_details.as_ref(), details.as_object());
    }
}

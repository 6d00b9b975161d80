//! Replies in the OpenAI dialect.

use serde_json::{Value, json};

use super::Endpoint;
use crate::model::{Guardrails, Object, ProviderResponse, TokenUsage};
use crate::provider::service;

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

/// Returns the answer in a reply of an endpoint.
pub fn read(value: &Value, endpoint: Endpoint, config: &Object) -> ProviderResponse {
    let usage = usage(value);
    let (output, finish, refusal) = match endpoint {
        Endpoint::Chat => chat_output(value),
        Endpoint::Completion => {
            (value.pointer("/choices/0/text").cloned(), value.pointer("/choices/0/finish_reason"), false)
        }
        Endpoint::Responses => (responses_output(value), value.get("status"), false),
        Endpoint::Embedding => (value.pointer("/data/0/embedding").cloned(), None, false),
        Endpoint::Moderation => (flags(value), None, false),
    };
    let Some(output) = output else {
        return ProviderResponse { token_usage: Some(usage), ..service::no_output(value) };
    };
    let structured =
        config.get("response_format").and_then(|format| format.get("type")) == Some(&json!("json_schema"));
    let output = match &output {
        Value::String(text) if structured => serde_json::from_str(text).unwrap_or(output),
        _ => output,
    };
    ProviderResponse {
        output: Some(output),
        finish_reason: finish.and_then(Value::as_str).map(str::to_lowercase),
        is_refusal: refusal.then_some(true),
        guardrails: (endpoint == Endpoint::Chat).then(|| Guardrails {
            flagged: Some(refusal || finish.and_then(Value::as_str) == Some("content_filter")),
            ..Guardrails::default()
        }),
        cached: Some(false),
        token_usage: Some(usage),
        log_probs: log_probs(value),
        // Documents of promptfoo have the replies of this endpoint only.
        raw: (endpoint == Endpoint::Responses).then(|| value.clone()),
        ..ProviderResponse::default()
    }
}

fn log_probs(value: &Value) -> Option<Vec<f64>> {
    let list = value.pointer("/choices/0/logprobs/content")?.as_array()?;
    Some(list.iter().filter_map(|token| token.get("logprob")?.as_f64()).collect())
}

fn chat_output(value: &Value) -> (Option<Value>, Option<&Value>, bool) {
    let message = value.pointer("/choices/0/message");
    let finish = value.pointer("/choices/0/finish_reason");
    let field = |key: &str| message.and_then(|message| message.get(key)).filter(|value| !value.is_null());
    if let Some(refusal) = field("refusal") {
        return (Some(refusal.clone()), finish, true);
    }
    let calls = field("tool_calls").or_else(|| field("function_call"));
    let content = field("content").filter(|content| *content != "" || calls.is_none());
    let output = match (content, calls) {
        (Some(_), Some(_)) => message.cloned(),
        (Some(content), None) => Some(content.clone()),
        (None, calls) => calls.cloned(),
    };
    (output, finish, false)
}

fn responses_output(value: &Value) -> Option<Value> {
    let items = value.get("output")?.as_array()?;
    let mut texts = Vec::new();
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                let parts = item.get("content").and_then(Value::as_array).into_iter().flatten();
                texts.extend(
                    parts
                        .filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str())
                        .map(str::to_owned),
                );
            }
            Some("function_call") => texts.push(item.to_string()),
            _ => {}
        }
    }
    Some(Value::String(texts.join("\n")))
}

fn usage(value: &Value) -> TokenUsage {
    let usage = value.get("usage");
    let number = |keys: [&str; 2]| keys.iter().find_map(|key| usage?.get(*key)?.as_f64());
    TokenUsage {
        total: number(["total_tokens", "total_tokens"]),
        prompt: number(["prompt_tokens", "input_tokens"]),
        completion: number(["completion_tokens", "output_tokens"]),
        num_requests: Some(1.0),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let value = json!({"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {"total_tokens": 3, "prompt_tokens": 1, "completion_tokens": 2}});
        let response = read(&value, Endpoint::Chat, &Object::new());
        assert_eq!((response.output, response.finish_reason), (Some(json!("yes")), Some("stop".to_owned())));
        let calls = json!({"choices": [{"message": {"content": null, "tool_calls": [{"id": 1}]}}]});
        assert_eq!(read(&calls, Endpoint::Chat, &Object::new()).output, Some(json!([{"id": 1}])));
        let responses =
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]});
        assert_eq!(read(&responses, Endpoint::Responses, &Object::new()).output, Some(json!("ok")));
        let moderated = json!({"results": [{
            "flagged": true, "categories": {"hate": false, "self-harm/intent": true}, "category_scores": {"hate": 0.1, "self-harm/intent": 0.9},
        }]});
        let flag =
            json!([{"code": "self-harm/intent", "description": "self-harm/intent", "confidence": 0.9}]);
        assert_eq!(read(&moderated, Endpoint::Moderation, &Object::new()).output, Some(flag));
    }
}

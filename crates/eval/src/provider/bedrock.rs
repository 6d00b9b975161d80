//! Models of Amazon Bedrock, all by its Converse API.

use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::chat;
use super::service::{self, Dialect};
use super::tools::{ToolCall, ToolOutcome, shape};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse, TokenUsage};
use crate::provider::prices::Prices;
use crate::reading::Env;

/// Names after `bedrock:` that are other endpoints, and not families of models.
const UNSUPPORTED: &[&str] =
    &["agents", "kb", "knowledge-base", "embedding", "embeddings", "video", "luma", "nova-sonic"];

/// A model of Bedrock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bedrock {
    id: String,
    model: String,
    /// Whether the id has no `converse:`; promptfoo then limits answers.
    limited: bool,
}

impl Bedrock {
    /// Reads an id like `bedrock:converse:anthropic.claude-…` or `bedrock:amazon.nova-lite-v1:0`.
    ///
    /// # Errors
    /// [`CallError`] for an endpoint that is not supported, and for an id without a model.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let rest = id.strip_prefix("bedrock:")?;
        let (kind, model) = rest.split_once(':').unwrap_or((rest, ""));
        if UNSUPPORTED.contains(&kind) {
            let endpoint = kind.to_owned();
            return Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }));
        }
        let (limited, model) = match kind {
            "converse" => (false, model),
            "completion" => (true, model),
            // The colon is that of a version, as in `amazon.nova-lite-v1:0`.
            _ => (true, rest),
        };
        if model.is_empty() {
            return Some(Err(CallError::NoModel(id.to_owned())));
        }
        Some(Ok(Self { id: id.to_owned(), model: model.to_owned(), limited }))
    }

    fn body(&self, prompt: &str, config: &Object, env: &Env) -> Result<Value, CallError> {
        let (mut system, mut messages) = (Vec::new(), Vec::new());
        for message in chat::messages(prompt)? {
            let content: Vec<Value> = match message.get("content") {
                Some(Value::Array(parts)) => parts
                    .iter()
                    .map(|part| match (part.as_str(), part.get("type")) {
                        (Some(text), _) => json!({"text": text}),
                        (None, Some(kind)) if kind == "text" => json!({"text": part["text"]}),
                        _ => part.clone(),
                    })
                    .collect(),
                Some(Value::String(text)) => vec![json!({"text": text})],
                _ => Vec::new(),
            };
            match message.get("role").and_then(Value::as_str) {
                Some("system") => system.extend(content),
                role => messages.push(json!({"role": role.unwrap_or("user"), "content": content})),
            }
        }
        let first = |keys: &[&str]| {
            keys.iter().find_map(|key| config.get(*key).filter(|value| !value.is_null()).cloned())
        };
        let number = |name: &str| {
            env.get(name).and_then(|text| text.parse::<f64>().ok()).map(crate::model::number_value)
        };
        let mut inference = Object::new();
        let limit = |value: i64| self.limited.then(|| json!(value));
        let settings = [
            (
                "maxTokens",
                first(&["maxTokens", "max_tokens", "max_new_tokens", "max_gen_len"]),
                "AWS_BEDROCK_MAX_TOKENS",
                limit(1024),
            ),
            ("temperature", first(&["temperature"]), "AWS_BEDROCK_TEMPERATURE", limit(0)),
            ("topP", first(&["topP", "top_p"]), "AWS_BEDROCK_TOP_P", None),
            ("stopSequences", first(&["stopSequences", "stop_sequences", "stop"]), "", None),
        ];
        for (name, set, variable, default) in settings {
            if let Some(value) = set.or_else(|| number(variable)).or(default) {
                inference.insert(name.to_owned(), value);
            }
        }
        let mut body = Object::new();
        body.insert("messages".to_owned(), Value::Array(messages));
        if !system.is_empty() {
            body.insert("system".to_owned(), Value::Array(system));
        }
        if !inference.is_empty() {
            body.insert("inferenceConfig".to_owned(), Value::Object(inference));
        }
        let mut more = config
            .get("additionalModelRequestFields")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        service::take(&mut more, config, &["thinking", "reasoningConfig"]);
        if !more.is_empty() {
            body.insert("additionalModelRequestFields".to_owned(), Value::Object(more));
        }
        if let Some(tools) = config.get("tools").and_then(Value::as_array).filter(|tools| !tools.is_empty()) {
            body.insert(
                "toolConfig".to_owned(),
                json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()}),
            );
        }
        if let Some(id) = config.get("guardrailIdentifier") {
            let version = service::text(config, "guardrailVersion").unwrap_or_else(|| "DRAFT".to_owned());
            body.insert(
                "guardrailConfig".to_owned(),
                json!({"guardrailIdentifier": id, "guardrailVersion": version}),
            );
        }
        Ok(Value::Object(body))
    }
}

/// A call of a tool as answers show it.
fn shown(call: &Value) -> Value {
    json!({"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]})
}

/// The text that stands for what a model thought.
fn thinking(thoughts: &Value) -> Option<String> {
    let Some(said) = thoughts.get("reasoningText") else {
        return thoughts.get("redactedContent").map(|_| "<thinking>[Redacted]</thinking>".to_owned());
    };
    let text = |key: &str| said.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let signature = text("signature").map_or_else(String::new, |text| format!("\n\nSignature: {text}"));
    text("text").map(|text| format!("<thinking>\n{text}\n</thinking>{signature}"))
}

/// Returns a tool as Converse takes it, from its own shape, OpenAI's or Anthropic's.
fn tool(tool: &Value) -> Value {
    if tool.get("toolSpec").is_some() {
        return tool.clone();
    }
    let described = tool.get("function").unwrap_or(tool);
    let schema = described.get("parameters").or_else(|| described.get("input_schema"));
    json!({"toolSpec": {
        "name": described["name"],
        "description": described.get("description").cloned().unwrap_or_else(|| json!("")),
        "inputSchema": {"json": schema.cloned().unwrap_or_else(|| json!({"type": "object"}))},
    }})
}

impl Dialect for Bedrock {
    fn id(&self) -> &str {
        &self.id
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let set = |key: &str, names: &[&str]| {
            service::text(config, key)
                .or_else(|| names.iter().find_map(|name| env.get(name).filter(|value| !value.is_empty())))
        };
        let region = set("region", &["AWS_BEDROCK_REGION", "AWS_REGION", "AWS_DEFAULT_REGION"])
            .unwrap_or_else(|| "us-east-1".to_owned());
        let base = service::text(config, "endpoint")
            .unwrap_or_else(|| format!("https://bedrock-runtime.{region}.amazonaws.com"));
        let url = format!("{}/model/{}/converse", base.trim_end_matches('/'), encoded(&self.model));
        let request = Request::json(url, &self.body(prompt, config, env)?);
        if let Some(key) = service::key(config, env, &["AWS_BEARER_TOKEN_BEDROCK"]) {
            return Ok(request.header("authorization", format!("Bearer {key}")));
        }
        let keys = set("accessKeyId", &["AWS_ACCESS_KEY_ID"])
            .zip(set("secretAccessKey", &["AWS_SECRET_ACCESS_KEY"]));
        let Some((id, secret)) = keys else { return Err(CallError::NoAwsKey(self.id.clone())) };
        let session = set("sessionToken", &["AWS_SESSION_TOKEN"]);
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        Ok(sign(request, &Credentials { id, secret, session }, &region, &now))
    }

    fn read(&self, reply: &Value, config: &Object) -> ProviderResponse {
        let Some(parts) = reply.pointer("/output/message/content").and_then(Value::as_array) else {
            return service::no_output(reply);
        };
        let shows_thinking = config.get("showThinking") != Some(&json!(false));
        let text = |part: &Value| match part.get("text").and_then(Value::as_str) {
            Some(text) => Some(text.to_owned()),
            None => match part.get("reasoningContent") {
                Some(thoughts) if shows_thinking => thinking(thoughts),
                _ => part.get("toolUse").map(|call| shown(call).to_string()),
            },
        };
        let count = |key: &str| reply.pointer(&format!("/usage/{key}")).and_then(Value::as_f64);
        ProviderResponse {
            output: Some(Value::String(parts.iter().filter_map(text).collect::<Vec<_>>().join("\n\n"))),
            finish_reason: service::finish_reason(reply.get("stopReason")),
            token_usage: Some(service::usage(
                count("totalTokens"),
                count("inputTokens"),
                count("outputTokens"),
            )),
            ..ProviderResponse::default()
        }
    }

    fn tool(&self, tool: &Value) -> Option<Value> {
        Some(shape::converse(tool))
    }

    fn calls(&self, reply: &Value) -> Vec<ToolCall> {
        let parts = reply.pointer("/output/message/content").and_then(Value::as_array).into_iter().flatten();
        let calls = parts.filter_map(|part| {
            let call = part.get("toolUse")?;
            let arguments = call.get("input").cloned().unwrap_or_default();
            Some(ToolCall { name: call.get("name")?.as_str()?.to_owned(), arguments, raw: shown(call) })
        });
        calls.collect()
    }

    /// Calls that nothing here runs stay beside the others. A tool of a server that fails makes an error of the answer.
    fn resolved(
        &self,
        _reply: &Value,
        response: ProviderResponse,
        calls: &[(ToolCall, ToolOutcome)],
    ) -> ProviderResponse {
        let texts: Vec<Option<String>> =
            calls.iter().map(|(call, outcome)| outcome.shown(&call.name)).collect();
        if texts.iter().all(Option::is_none) {
            return response;
        }
        let errors = calls.iter().filter(|(_, outcome)| matches!(outcome, ToolOutcome::Error(_)));
        let errors: Vec<String> = errors.filter_map(|(call, outcome)| outcome.shown(&call.name)).collect();
        let (done, left): (Vec<_>, Vec<_>) = calls.iter().zip(texts).partition(|(_, text)| text.is_some());
        let mut texts: Vec<String> = done.into_iter().filter_map(|(_, text)| text).collect();
        let left: Vec<String> = left.iter().map(|((call, _), _)| call.raw.to_string()).collect();
        texts.extend((!left.is_empty()).then(|| left.join("\n\n")));
        let error = (!errors.is_empty()).then(|| errors.join("; "));
        ProviderResponse { output: Some(Value::String(texts.join("\n"))), error, ..response }
    }

    fn cost(&self, prices: &Prices, config: &Object, usage: &TokenUsage) -> Option<f64> {
        prices.cost("bedrock", &self.model, config, usage)
    }
}

/// The keys of an account.
struct Credentials {
    id: String,
    secret: String,
    session: Option<String>,
}

/// Returns a segment of a path with everything but letters, digits and `-._~` encoded.
fn encoded(segment: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    segment
        .bytes()
        .map(|byte| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Signs a request, Signature Version 4: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.
fn sign(request: Request, keys: &Credentials, region: &str, now: &str) -> Request {
    let rest = request.url.split_once("://").map_or(request.url.as_str(), |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Signed paths are encoded once more.
    let path: Vec<String> = path.split('/').map(encoded).collect();
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("host", host.to_owned()),
        ("x-amz-date", now.to_owned()),
    ];
    headers.extend(keys.session.clone().map(|session| ("x-amz-security-token", session)));
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let listed: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let body = hex(&Sha256::digest(request.body.as_deref().unwrap_or_default()));
    let canonical = format!("{}\n/{}\n\n{listed}\n{names}\n{body}", request.method, path.join("/"));
    let day = &now[..8.min(now.len())];
    let scope = format!("{day}/{region}/bedrock/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let start = format!("AWS4{}", keys.secret).into_bytes();
    let key = [day, region, "bedrock", "aws4_request"].iter().fold(start, |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.id
    );
    let mut request = request.header("x-amz-date", now).header("authorization", authorization);
    if let Some(session) = &keys.session {
        request = request.header("x-amz-security-token", session.clone());
    }
    request
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of any length.
    Hmac::<Sha256>::new_from_slice(key).map_or_else(
        |_| Vec::new(),
        |mut mac| {
            mac.update(text.as_bytes());
            mac.finalize().into_bytes().to_vec()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str) -> Bedrock {
        Bedrock::parse(id).unwrap().unwrap()
    }

    #[test]
    fn requests_are_those_of_converse() {
        let prompt = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]"#;
        let config = json!({"max_tokens": 5, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]});
        let body = model("bedrock:amazon.nova-lite-v1:0")
            .body(prompt, config.as_object().unwrap(), &Env::default())
            .unwrap();
        let expected = json!({
            "messages": [{"role": "user", "content": [{"text": "hi"}]}], "system": [{"text": "be kind"}],
            "inferenceConfig": {"maxTokens": 5, "temperature": 0},
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "description": "", "inputSchema": {"json": {}}}}]},
        });
        assert_eq!(body, expected);
        let plain = model("bedrock:converse:m").body("hi", &Object::new(), &Env::default()).unwrap();
        assert_eq!(plain, json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}));
    }

    #[test]
    fn keys_sign_and_tokens_open() {
        let env = |pairs: Value| Env::new(pairs.as_object().unwrap().clone());
        let header = |request: &Request, wanted: &str| {
            request.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let token = env(json!({"AWS_BEARER_TOKEN_BEDROCK": "t", "AWS_REGION": "eu-west-1"}));
        let request = model("bedrock:amazon.nova-lite-v1:0").request("hi", &Object::new(), &token).unwrap();
        assert_eq!(
            request.url,
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/amazon.nova-lite-v1%3A0/converse"
        );
        assert_eq!(header(&request, "authorization").unwrap(), "Bearer t");
        let keys = Credentials { id: "AKID".into(), secret: "secret".into(), session: Some("s".into()) };
        let request = Request::json(
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/m%3A0/converse".into(),
            &json!({}),
        );
        let signed = sign(request, &keys, "us-east-1", "20260101T000000Z");
        let authorization = header(&signed, "authorization").unwrap();
        assert!(authorization.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/bedrock/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
        ));
        assert_eq!(header(&signed, "x-amz-security-token").unwrap(), "s");
        assert!(matches!(
            model("bedrock:m").request("hi", &Object::new(), &Env::default()),
            Err(CallError::NoAwsKey(_))
        ));
    }

    #[test]
    fn keys_are_derived_as_amazon_derives_them() {
        // The example of Amazon's documentation of derived keys.
        let start = b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec();
        let key =
            ["20150830", "us-east-1", "iam", "aws4_request"].iter().fold(start, |key, part| mac(&key, part));
        assert_eq!(hex(&key), "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
    }

    #[test]
    fn answers_are_read() {
        let reply = json!({
            "output": {"message": {"content": [{"text": "a"}, {"toolUse": {"toolUseId": "1", "name": "f", "input": {}}}]}},
            "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
        });
        let response = model("bedrock:m").read(&reply, &Object::new());
        assert_eq!(
            response.output.unwrap(),
            "a\n\n{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{}}"
        );
        assert_eq!(
            (response.token_usage.unwrap().total, response.finish_reason.as_deref()),
            (Some(7.0), Some("stop"))
        );
        assert!(matches!(
            Bedrock::parse("bedrock:agents:x"),
            Some(Err(CallError::UnsupportedEndpoint { .. }))
        ));
    }

    #[test]
    fn thoughts_are_shown_unless_they_are_hidden() {
        let thoughts = json!({"reasoningText": {"text": "2+2", "signature": "s"}});
        let hidden = json!({"redactedContent": "b64"});
        let parts = json!([{"reasoningContent": thoughts}, {"reasoningContent": hidden}, {"text": "4"}]);
        let reply = json!({"output": {"message": {"content": parts}}});
        let said =
            |config: Value| model("bedrock:m").read(&reply, config.as_object().unwrap()).output.unwrap();
        assert_eq!(
            said(json!({})),
            "<thinking>\n2+2\n</thinking>\n\nSignature: s\n\n<thinking>[Redacted]</thinking>\n\n4"
        );
        assert_eq!(said(json!({"showThinking": false})), "4");
    }
}

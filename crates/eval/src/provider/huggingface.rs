//! Models that Hugging Face serves by task.

use serde_json::{Value, json};

use super::service::{self, Dialect};
use crate::calling::CallError;
use crate::calling::transport::Request;
use crate::model::{Object, ProviderResponse};
use crate::reading::Env;

/// The task of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Generation,
    Classification,
    Tokens,
    Features,
}

/// A model of Hugging Face's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HuggingFace {
    id: String,
    task: Task,
    model: String,
}

impl HuggingFace {
    /// Reads an id like `huggingface:text-generation:mistralai/Mistral-7B-v0.1`.
    ///
    /// # Errors
    /// [`CallError`] for a task that is not supported, and for an id without a model.
    pub fn parse(id: &str) -> Option<Result<Self, CallError>> {
        let rest = id.strip_prefix("huggingface:").or_else(|| id.strip_prefix("hf:"))?;
        let (task, model) = rest.split_once(':').unwrap_or((rest, ""));
        let task = match task {
            "text-generation" => Task::Generation,
            "text-classification" => Task::Classification,
            "token-classification" => Task::Tokens,
            "feature-extraction" => Task::Features,
            other => {
                let endpoint = other.to_owned();
                return Some(Err(CallError::UnsupportedEndpoint { id: id.to_owned(), endpoint }));
            }
        };
        if model.is_empty() {
            return Some(Err(CallError::NoModel(id.to_owned())));
        }
        Some(Ok(Self { id: id.to_owned(), task, model: model.to_owned() }))
    }
}

/// Settings that say how to ask, and are no parameters of the model.
const OWN: &[&str] =
    &["apiEndpoint", "apiKey", "apiKeyEnvar", "headers", "basePath", "use_cache", "wait_for_model"];

impl Dialect for HuggingFace {
    fn id(&self) -> &str {
        &self.id
    }

    fn classifies(&self) -> bool {
        matches!(self.task, Task::Classification | Task::Tokens)
    }

    fn request(&self, prompt: &str, config: &Object, env: &Env) -> Result<Request, CallError> {
        let url = service::text(config, "apiEndpoint")
            .unwrap_or_else(|| format!("https://router.huggingface.co/hf-inference/models/{}", self.model));
        let mut body = Object::new();
        body.insert("inputs".to_owned(), json!(prompt));
        if self.task != Task::Features {
            let parameters = config.iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
            let parameters: Object = parameters.map(|(key, value)| (key.clone(), value.clone())).collect();
            let parameters: Object = match self.task {
                Task::Generation => chained("return_full_text", json!(false), parameters),
                Task::Tokens => chained("aggregation_strategy", json!("simple"), parameters),
                Task::Classification | Task::Features => parameters,
            };
            body.insert("parameters".to_owned(), Value::Object(parameters));
        }
        if self.task == Task::Tokens {
            let wait = config.get("wait_for_model").cloned().unwrap_or_else(|| json!(false));
            let cache = config.get("use_cache").cloned().unwrap_or_else(|| json!(true));
            body.insert("options".to_owned(), json!({"use_cache": cache, "wait_for_model": wait}));
        }
        let request = Request::json(url, &Value::Object(body));
        Ok(match service::key(config, env, &["HF_TOKEN", "HF_API_TOKEN"]) {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        })
    }

    fn read(&self, reply: &Value, _config: &Object) -> ProviderResponse {
        let output = match self.task {
            Task::Generation => {
                reply.pointer("/0/generated_text").or_else(|| reply.get("generated_text")).cloned()
            }
            Task::Classification => {
                scores(reply.get(0).filter(|first| first.is_array()).unwrap_or(reply), "label")
            }
            Task::Tokens => scores(reply, "entity_group"),
            Task::Features => vector(reply),
        };
        match output {
            Some(output) => ProviderResponse { output: Some(output), ..ProviderResponse::default() },
            None => service::no_output(reply),
        }
    }
}

/// Parameters with a default before them.
fn chained(name: &str, default: Value, parameters: Object) -> Object {
    [(name.to_owned(), default)].into_iter().chain(parameters).collect()
}

/// The score of each class: the best of those that a name has.
fn scores(list: &Value, name: &str) -> Option<Value> {
    let mut found = Object::new();
    for item in list.as_array()? {
        let (class, score) = (item.get(name)?.as_str()?, item.get("score")?.as_f64()?);
        let before = found.get(class).and_then(Value::as_f64).unwrap_or(f64::MIN);
        found.insert(class.to_owned(), json!(score.max(before)));
    }
    Some(Value::Object(found))
}

/// A list of numbers; of several lists, the first.
fn vector(value: &Value) -> Option<Value> {
    match value.as_array()?.first()? {
        Value::Number(_) => Some(value.clone()),
        inner => vector(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_have_answers_of_their_own() {
        let of = |id: &str, reply: Value| {
            HuggingFace::parse(id).unwrap().unwrap().read(&reply, &Object::new()).output
        };
        assert_eq!(of("huggingface:text-generation:m", json!([{"generated_text": "a"}])), Some(json!("a")));
        let classes = json!([[{"label": "POSITIVE", "score": 0.9}, {"label": "NEGATIVE", "score": 0.1}]]);
        assert_eq!(of("hf:text-classification:m", classes), Some(json!({"POSITIVE": 0.9, "NEGATIVE": 0.1})));
        let tokens = json!([{"entity_group": "PER", "score": 0.4}, {"entity_group": "PER", "score": 0.8}]);
        assert_eq!(of("hf:token-classification:m", tokens), Some(json!({"PER": 0.8})));
        assert_eq!(of("hf:feature-extraction:m", json!([[1.0, 2.0]])), Some(json!([1.0, 2.0])));
        assert_eq!(of("hf:feature-extraction:m", json!({"error": "no"})), None);
        assert!(matches!(HuggingFace::parse("hf:chat:m"), Some(Err(CallError::UnsupportedEndpoint { .. }))));
    }

    #[test]
    fn settings_are_parameters() {
        let model = HuggingFace::parse("huggingface:text-generation:o/m").unwrap().unwrap();
        let config = json!({"temperature": 0.5, "apiKey": "k"});
        let request = model.request("hi", config.as_object().unwrap(), &Env::default()).unwrap();
        assert_eq!(request.url, "https://router.huggingface.co/hf-inference/models/o/m");
        let body: Value = serde_json::from_str(&request.body.unwrap()).unwrap();
        assert_eq!(
            body,
            json!({"inputs": "hi", "parameters": {"return_full_text": false, "temperature": 0.5}})
        );
    }
}

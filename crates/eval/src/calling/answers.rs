//! Answers of services: cached on disk, and asked for once when several rows ask the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::{Call, Provider, Role};
use crate::home;
use crate::model::{ProviderResponse, TokenUsage};
use crate::reading::Env;

/// Seconds that an answer is cached: 14 days.
const TIME_TO_LIVE: u64 = 14 * 86_400;

type Pending = Arc<OnceCell<ProviderResponse>>;

/// The directory of cached answers: `given` by `PROMPTFOO_CACHE_PATH`, else below the home directory.
fn cache_directory(given: Option<String>) -> PathBuf {
    given.map_or_else(|| home::directory().join("cache"), |given| home::below_start(Path::new(&given)))
}

/// Removes all cached answers and returns how many there were.
///
/// # Errors
/// When a file cannot be removed.
pub fn clear_cache() -> std::io::Result<usize> {
    let directory = cache_directory(std::env::var("PROMPTFOO_CACHE_PATH").ok());
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut answers = 0;
    for entry in entries {
        let path = entry?.path();
        // The directory may be the user's, with other files in it.
        let kind = path.extension().and_then(|ending| ending.to_str());
        if matches!(kind, Some("json" | "part")) && path.file_stem().is_some_and(|name| name.len() >= 36) {
            std::fs::remove_file(&path)?;
            answers += usize::from(kind == Some("json"));
        }
    }
    Ok(answers)
}

/// The cache of answers for all rows of a run.
#[derive(Debug, Default)]
pub struct Answers {
    /// The directory of cached answers; none without the cache.
    directory: Option<PathBuf>,
    time_to_live: Duration,
    /// Answers of this run, and those being waited for.
    asked: Mutex<HashMap<String, Pending>>,
}

impl Answers {
    /// Answers with or without the cache on disk. By default there is none.
    pub fn new(cache: bool, env: &Env) -> Self {
        let seconds =
            env.get("PROMPTFOO_CACHE_TTL").and_then(|text| text.parse().ok()).unwrap_or(TIME_TO_LIVE);
        Self {
            directory: cache.then(|| cache_directory(env.get("PROMPTFOO_CACHE_PATH"))),
            time_to_live: Duration::from_secs(seconds),
            asked: Mutex::default(),
        }
    }

    /// Calls a provider, or returns the answer it gave before. Every repetition of a test has answers of its own.
    pub async fn call(
        &self,
        provider: &dyn Provider,
        role: Role<'_>,
        call: &Call<'_>,
        repeat: usize,
    ) -> ProviderResponse {
        // What tools return is not known before, and they may change something.
        let has_tools = ["mcp", "functionToolCallbacks"].iter().any(|key| {
            call.config.get(*key).is_some_and(|value| value.get("enabled") != Some(&json!(false)))
        });
        let is_kept = provider.is_service() && !has_tools;
        let Some(directory) = self.directory.as_ref().filter(|_| is_kept) else {
            return role.ask(provider, call).await;
        };
        // A row's own id is no part of the question.
        let visible = call.vars.iter().filter(|(name, _)| !name.starts_with("__"));
        let own_vars: Option<crate::model::Object> = provider
            .renders_config()
            .then(|| visible.map(|(name, value)| (name.clone(), value.clone())).collect());
        let judged = if let Role::Moderation(answer) = role { Some(answer) } else { None };
        let question = json!([provider.id(), role.key(), call.config, call.prompt, judged, own_vars, repeat])
            .to_string();
        let key: String =
            Sha256::digest(question.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = directory.join(format!("{key}.json"));
        if let Some(answer) = self.kept(&path) {
            return from_cache(answer);
        }
        let cell = self.asked.lock().map(|mut asked| Arc::clone(asked.entry(key.clone()).or_default()));
        let cell = cell.unwrap_or_default();
        let mut own = false;
        let answer = cell
            .get_or_init(|| async {
                own = true;
                role.ask(provider, call).await
            })
            .await
            .clone();
        if answer.error.is_some() {
            // The next row asks again.
            if let Ok(mut asked) = self.asked.lock() {
                asked.remove(&key);
            }
            return answer;
        }
        if !own {
            return from_cache(answer);
        }
        keep(&path, &answer);
        answer
    }

    fn kept(&self, path: &std::path::Path) -> Option<ProviderResponse> {
        let written = std::fs::metadata(path).and_then(|about| about.modified()).ok()?;
        let age = SystemTime::now().duration_since(written).unwrap_or_default();
        if age > self.time_to_live {
            return None;
        }
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// Written beside and moved into place, so that no other run reads half of it. What cannot be kept is asked again.
fn keep(path: &std::path::Path, answer: &ProviderResponse) {
    let Some(directory) = path.parent() else { return };
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let beside = directory.join(format!("{}.part", uuid::Uuid::new_v4()));
        std::fs::write(&beside, serde_json::to_vec(answer)?)?;
        std::fs::rename(&beside, path)
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "an answer was not kept");
    }
}

/// Tokens of a kept answer were spent before.
fn from_cache(mut answer: ProviderResponse) -> ProviderResponse {
    answer.cached = Some(true);
    if let Some(usage) = &answer.token_usage {
        let total = usage.total.unwrap_or(0.0);
        answer.token_usage =
            Some(TokenUsage { total: Some(total), cached: Some(total), ..TokenUsage::default() });
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::model::Object;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Provider for Counting {
        fn id(&self) -> &str {
            "counting"
        }

        fn is_service(&self) -> bool {
            true
        }

        fn call<'a>(&'a self, _: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
            let count = self.0.fetch_add(1, Ordering::SeqCst);
            std::future::ready(ProviderResponse::text(count.to_string())).boxed()
        }
    }

    #[tokio::test]
    async fn a_question_is_asked_once() {
        let directory = tempfile::tempdir().unwrap();
        let caller = || Answers {
            directory: Some(directory.path().to_owned()),
            time_to_live: Duration::from_secs(60),
            asked: Mutex::default(),
        };
        let provider = Counting::default();
        let empty = Object::new();
        let ask = |prompt| Call { prompt, vars: &empty, config: &empty, context: &serde_json::Value::Null };
        let (first, again) = (caller(), caller());
        assert_eq!(first.call(&provider, Role::Text, &ask("x"), 0).await.cached, None);
        assert_eq!(first.call(&provider, Role::Text, &ask("x"), 0).await.cached, Some(true));
        assert_eq!(again.call(&provider, Role::Text, &ask("x"), 0).await.output, Some(json!("0")));
        assert_eq!(again.call(&provider, Role::Text, &ask("x"), 1).await.output, Some(json!("1")));
        let vector = again.call(&provider, Role::Embedding, &ask("x"), 0).await;
        assert_eq!((vector.output, vector.cached), (Some(json!("2")), None));
        assert_eq!(provider.0.load(Ordering::SeqCst), 3);
    }
}

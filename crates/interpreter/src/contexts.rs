//! The contexts of a sandbox, and which of them a request means (contract: interpreter, section 2).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sandcove_wire::interpreter::{self as wire, Event};
use sandcove_wire::secret::Secret;
use tokio::sync::mpsc;

use crate::config::{Config, DEFAULT_DIRECTORY};
use crate::context::{Closed, Context};
use crate::kernel::StartError;
use crate::language::Language;
use crate::launch::Launcher;

/// Alias of the default Python context.
const DEFAULT_ID: &str = "default";

/// An error of a request about contexts.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// No context has this id.
    #[error("context `{0}` does not exist")]
    Unknown(String),
    /// The request names both a context and a language.
    #[error("only one of context_id or language can be provided")]
    ContextAndLanguage,
    /// The kernel of the context did not start.
    #[error("failed to start a context")]
    Start(#[from] StartError),
}

/// All contexts of this sandbox.
#[derive(Debug)]
pub struct Contexts {
    config: Config,
    launcher: Arc<Launcher>,
    known: Mutex<Known>,
    /// A lock for each language, held while its default context is created, so that no language gets two.
    making_default: Mutex<HashMap<Language, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct Known {
    /// All contexts in the order of their creation.
    all: Vec<Arc<Context>>,
    defaults: HashMap<Language, Arc<Context>>,
}

impl Contexts {
    /// Makes an empty set of contexts.
    pub fn new(config: Config) -> Self {
        Self {
            launcher: Arc::new(Launcher::new(&config)),
            config,
            known: Mutex::default(),
            making_default: Mutex::default(),
        }
    }

    /// Creates the contexts that exist from the start. The Python context gets its kernel now, the JavaScript context on its
    /// first use.
    pub async fn create_defaults(&self) -> Result<(), ContextError> {
        self.default_of(&Language::python()).await?;
        let javascript = Language::javascript();
        if self.launcher.offers(&javascript) {
            let context = self.make(javascript.clone(), None);
            self.add(&context, Some(javascript));
        }
        Ok(())
    }

    /// Creates a context with a kernel of its own.
    pub async fn create(&self, request: wire::CreateContext) -> Result<wire::Context, ContextError> {
        let language = Language::from_request(request.language.as_deref()).unwrap_or_else(Language::python);
        let directory = request.cwd.filter(|cwd| !cwd.is_empty()).map(PathBuf::from);
        let context = self.started(language, directory).await?;
        self.add(&context, None);
        Ok(context.view())
    }

    /// All contexts, oldest first.
    pub fn list(&self) -> Vec<wire::Context> {
        self.known().all.iter().map(|context| context.view()).collect()
    }

    /// Gives a context a new kernel.
    pub async fn restart(&self, id: &str) -> Result<(), ContextError> {
        let context = self.find(id).await?;
        context.restart().await.map_err(|Closed| ContextError::Unknown(id.to_owned()))??;
        Ok(())
    }

    /// Removes a context and ends what runs in it.
    pub async fn remove(&self, id: &str) -> Result<(), ContextError> {
        let context = self.find(id).await?;
        {
            let mut known = self.known();
            known.all.retain(|other| other.id() != context.id());
            known.defaults.retain(|_, other| other.id() != context.id());
        }
        // An error means that the context is closed already.
        let _ = context.close().await;
        Ok(())
    }

    /// Queues code in the context that the request means, once there is room.
    pub async fn execute(
        &self,
        request: wire::ExecutionRequest,
        token: Option<Secret>,
    ) -> Result<mpsc::Receiver<Event>, ContextError> {
        let named = request.context_id.filter(|id| !id.is_empty());
        let language = Language::from_request(request.language.as_deref());
        let context = match (named, language) {
            (Some(_), Some(_)) => return Err(ContextError::ContextAndLanguage),
            (Some(id), None) => self.find(&id).await?,
            (None, language) => self.default_of(&language.unwrap_or_else(Language::python)).await?,
        };
        let variables: BTreeMap<_, _> = request.env_vars.unwrap_or_default();
        context
            .execute(request.code, variables, token)
            .await
            .map_err(|Closed| ContextError::Unknown(context.id().to_owned()))
    }

    /// The default context of a language, created on its first use and again after it was removed.
    async fn default_of(&self, language: &Language) -> Result<Arc<Context>, ContextError> {
        let existing = || self.known().defaults.get(language).cloned();
        if let Some(context) = existing() {
            return Ok(context);
        }
        let making = self.lock_of(language);
        let _making = making.lock().await;
        if let Some(context) = existing() {
            return Ok(context);
        }
        let context = self.started(language.clone(), None).await?;
        self.add(&context, Some(language.clone()));
        Ok(context)
    }

    /// The lock of a language. Languages that nobody waits for have none, because clients may make up any number of them.
    fn lock_of(&self, language: &Language) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.making_default.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(language.clone()).or_default())
    }

    async fn find(&self, id: &str) -> Result<Arc<Context>, ContextError> {
        if id == DEFAULT_ID {
            return self.default_of(&Language::python()).await;
        }
        let known = self.known();
        let found = known.all.iter().find(|context| context.id() == id);
        found.cloned().ok_or_else(|| ContextError::Unknown(id.to_owned()))
    }

    async fn started(
        &self,
        language: Language,
        directory: Option<PathBuf>,
    ) -> Result<Arc<Context>, ContextError> {
        let context = self.make(language, directory);
        context.start().await.map_err(|Closed| ContextError::Unknown(context.id().to_owned()))??;
        Ok(context)
    }

    fn make(&self, language: Language, directory: Option<PathBuf>) -> Arc<Context> {
        let directory = directory.unwrap_or_else(|| PathBuf::from(DEFAULT_DIRECTORY));
        Arc::new(Context::new(language, directory, Arc::clone(&self.launcher), &self.config))
    }

    fn add(&self, context: &Arc<Context>, default_of: Option<Language>) {
        let mut known = self.known();
        known.all.push(Arc::clone(context));
        if let Some(language) = default_of {
            known.defaults.insert(language, Arc::clone(context));
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing under this lock can panic halfway through a change.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_language_that_starts_slowly_holds_up_no_other() {
        let programs = tempfile::tempdir().unwrap();
        let bash = programs.path().join("bash");
        std::fs::write(&bash, "#!/bin/sh\nexec /bin/sleep 600\n").unwrap();
        std::fs::set_permissions(&bash, std::fs::Permissions::from_mode(0o755)).unwrap();
        let environment = [("PATH".into(), programs.path().into())].into();
        let contexts = Contexts::new(Config { environment, ..Config::from_env().unwrap() });
        let execute =
            |language: &str| contexts.execute(wire::ExecutionRequest::new("1").language(language), None);
        tokio::select! {
            biased;
            _ = execute("bash") => panic!("the kernel never says that it is ready"),
            other = execute("fortran") => {
                assert!(matches!(other, Err(ContextError::Start(StartError::NoSuchKernel { .. }))));
            }
        }
    }
}

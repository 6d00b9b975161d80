//! Providers that are files of Go: built once, and run for each call.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::script;
use crate::calling::{self, Call, Provider};
use crate::model::ProviderResponse;
use crate::reading::Env;
use crate::script::{ScriptError, command};

/// The time limit of a build, and of a call.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// The name of the file that calls the provider's function, which is there for the compiler only.
const WRAPPER: &str = "sandcove_wrapper.go";

/// `file://provider.go`, a program whose function `CallApi` answers.
pub struct Golang {
    id: String,
    path: PathBuf,
    env: Env,
    options: Value,
    program: OnceCell<Result<Program, GoError>>,
}

/// Reason why a program was not built, or gave no answer.
#[derive(Debug, thiserror::Error)]
enum GoError {
    #[error("no go.mod in `{}` or above; run `go mod init` there", .0.display())]
    NoModule(PathBuf),
    #[error("failed to build the provider: {0}")]
    Build(ScriptError),
    /// The program ended with an error.
    #[error(transparent)]
    Run(ScriptError),
    /// A file for the compiler or for the program could not be written, or its answer not be read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The answer of the program is not JSON.
    #[error(transparent)]
    Answer(#[from] serde_json::Error),
}

/// A program that was built, in a directory that is removed with it.
struct Program {
    directory: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::debug!(directory = %self.directory.display(), %error, "a built provider was not removed");
        }
    }
}

impl Golang {
    /// A provider from a file, with `{id, config, env}`.
    pub fn new(id: &str, path: PathBuf, env: Env, options: Value) -> Self {
        Self { id: id.to_owned(), path, env, options, program: OnceCell::new() }
    }

    async fn build(&self) -> Result<Program, GoError> {
        let directory = std::env::temp_dir().join(format!("sandcove-go-{}", uuid::Uuid::new_v4()));
        let own = self.path.parent().unwrap_or(Path::new("."));
        if !own.ancestors().any(|parent| parent.join("go.mod").is_file()) {
            return Err(GoError::NoModule(own.to_owned()));
        }
        fs::create_dir(&directory)?;
        let program = Program { directory };
        let file = |name: &str| program.directory.join(name);
        fs::write(file(WRAPPER), include_str!("golang.go"))?;
        let overlay = json!({"Replace": {(own.join(WRAPPER).to_string_lossy().into_owned()): file(WRAPPER)}});
        fs::write(file("overlay.json"), overlay.to_string())?;
        let go = self.options.pointer("/config/goExecutable").and_then(Value::as_str).unwrap_or("go");
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let command = [
            go.to_owned(),
            "build".to_owned(),
            format!("-overlay={}", file("overlay.json").display()),
            "-o".to_owned(),
            file("provider").to_string_lossy().into_owned(),
            WRAPPER.to_owned(),
            name,
        ];
        quiet(command::run(&command, &[], own, &self.env, TIME_LIMIT).await).map_err(GoError::Build)?;
        Ok(program)
    }

    async fn ask(&self, program: &Program, call: &Call<'_>) -> Result<ProviderResponse, GoError> {
        let own = uuid::Uuid::new_v4();
        let [given, answer] =
            ["call", "answer"].map(|name| program.directory.join(format!("{name}-{own}.json")));
        let mut options = self.options.clone();
        options["config"] = json!(call.config);
        let arguments =
            json!({"prompt": call.prompt, "options": options, "context": calling::plain(call.context)});
        fs::write(&given, arguments.to_string())?;
        let command = [&program.directory.join("provider"), &given, &answer]
            .map(|path| path.to_string_lossy().into_owned());
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let ran = quiet(command::run(&command, &[], directory, &self.env, TIME_LIMIT).await);
        let text = fs::read_to_string(&answer);
        for path in [&given, &answer] {
            // The directory goes as a whole later.
            let _ = fs::remove_file(path);
        }
        ran.map_err(GoError::Run)?;
        Ok(script::read_object(serde_json::from_str(&text?)?))
    }
}

/// A program that prints only to standard error has done its work all the same.
fn quiet(ran: Result<String, ScriptError>) -> Result<(), ScriptError> {
    match ran {
        Ok(_) | Err(ScriptError::OnlyStderr(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Provider for Golang {
    fn id(&self) -> &str {
        &self.id
    }

    fn shown_as(&self) -> BoxFuture<'_, Option<String>> {
        let bare =
            self.id.strip_prefix("file://").or_else(|| self.id.strip_prefix("golang:")).unwrap_or(&self.id);
        let path = bare.split(':').next().unwrap_or(bare);
        std::future::ready(Some(format!("golang:{path}:default"))).boxed()
    }

    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, ProviderResponse> {
        async move {
            match self.program.get_or_init(|| self.build()).await {
                Ok(program) => self.ask(program, call).await.unwrap_or_else(ProviderResponse::failed),
                Err(error) => ProviderResponse::failed(error),
            }
        }
        .boxed()
    }
}

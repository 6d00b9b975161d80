//! `sandcove run`: one piece of code in a sandbox of its own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sandcove_client::{Client, NewSandbox};
use sandcove_wire::interpreter::{Event, ExecutionRequest, ResultData};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::data_dir::ServerFile;
use crate::host::Host;
use crate::settings::Settings;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// file to run; `-` reads standard input
    #[arg(required_unless_present = "code", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// code to run
    #[arg(short, long)]
    code: Option<String>,
    /// its language; follows from the file's ending when not given
    #[arg(short, long)]
    language: Option<String>,
    /// template of the sandbox
    #[arg(short, long, default_value = "code-interpreter-v1")]
    template: String,
    /// variable of the code, NAME=VALUE; may be given more than once
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    envs: Vec<(String, String)>,
    /// seconds after which the sandbox ends, finished or not
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    timeout: u32,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

/// Uses the running server of the data directory, or becomes one for the time being.
pub async fn run(settings: &Settings, args: &RunArgs) -> Result<ExitCode> {
    let code = source(args)?;
    let language = args.language.clone().or_else(|| args.file.as_deref().and_then(language_of));
    let request = ExecutionRequest { code, context_id: None, language, env_vars: None };
    let new = NewSandbox {
        template: args.template.clone(),
        timeout: args.timeout,
        envs: args.envs.iter().cloned().collect::<BTreeMap<_, _>>(),
        ..NewSandbox::default()
    };
    if let Some((_, client)) = ServerFile::reachable(&settings.data_dir).await? {
        return execute(&client, &new, &request).await;
    }
    let mut settings = settings.clone();
    settings.listen = ([127, 0, 0, 1], 0).into();
    // There will be no second sandbox to make ahead.
    settings.spares = 0;
    let host = Host::prepare(&settings).await?;
    let client = host.file().client()?;
    let stop = CancellationToken::new();
    let server = tokio::spawn(host.serve(stop.clone()));
    let outcome = execute(&client, &new, &request).await;
    stop.cancel();
    server.await.context("the server of this run failed")??;
    outcome
}

async fn execute(client: &Client, new: &NewSandbox, request: &ExecutionRequest) -> Result<ExitCode> {
    let sandbox = client.create(new).await?;
    let mut failed = false;
    let running = sandbox.run_code(request, |event| failed |= matches!(show(event), Shown::Failure));
    let outcome = tokio::select! {
        outcome = running => outcome.map_err(anyhow::Error::from),
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    client.kill(sandbox.id()).await?;
    match outcome {
        Err(error) if is_closed_port(&error) => bail!(
            "template `{}` has no code interpreter: use `--template code-interpreter-v1`, or `sandcove sandbox exec` \
             to run programs in a sandbox of it",
            new.template
        ),
        other => other?,
    };
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether nobody listened where the interpreter should be.
pub fn is_closed_port(error: &anyhow::Error) -> bool {
    error.downcast_ref::<sandcove_client::Error>().and_then(sandcove_client::Error::status) == Some(502)
}

enum Shown {
    Output,
    Failure,
}

fn show(event: Event) -> Shown {
    // A reader that went away ends the output, not the run.
    match event {
        Event::Stdout(output) => {
            let _ =
                std::io::stdout().write_all(output.text.as_bytes()).and_then(|()| std::io::stdout().flush());
        }
        Event::Stderr(output) => {
            let _ = std::io::stderr().write_all(output.text.as_bytes());
        }
        Event::Result(result) => println!("{}", in_words(&result)),
        Event::Error(error) => {
            if error.traceback.is_empty() {
                eprintln!("{}: {}", error.name, error.value);
            } else {
                eprintln!("{}", error.traceback);
            }
            return Shown::Failure;
        }
        Event::NumberOfExecutions { .. } | Event::Keepalive | Event::EndOfExecution => {}
    }
    Shown::Output
}

/// A result as text; a picture is named, not shown.
fn in_words(result: &ResultData) -> String {
    if let Some(Value::String(text)) = &result.text {
        return text.clone();
    }
    let formats = [
        ("html", &result.html),
        ("markdown", &result.markdown),
        ("svg", &result.svg),
        ("png", &result.png),
        ("jpeg", &result.jpeg),
        ("pdf", &result.pdf),
        ("latex", &result.latex),
        ("json", &result.json),
    ];
    let present: Vec<&str> =
        formats.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| *name).collect();
    format!("<{}>", present.join(", "))
}

fn source(args: &RunArgs) -> Result<String> {
    match (&args.code, &args.file) {
        (Some(code), _) => Ok(code.clone()),
        (None, Some(path)) if path == Path::new("-") => {
            let mut code = String::new();
            std::io::stdin().read_to_string(&mut code).context("failed to read standard input")?;
            Ok(code)
        }
        (None, Some(path)) => {
            std::fs::read_to_string(path).with_context(|| format!("failed to read `{}`", path.display()))
        }
        (None, None) => bail!("nothing to run: give a file or --code"),
    }
}

fn language_of(path: &Path) -> Option<String> {
    let language = match path.extension()?.to_str()? {
        "js" | "mjs" | "cjs" => "javascript",
        "ts" | "mts" => "typescript",
        "sh" | "bash" => "bash",
        "r" | "R" => "r",
        "java" => "java",
        _ => return None,
    };
    Some(language.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_the_language() {
        assert_eq!(language_of(Path::new("a/b.ts")).as_deref(), Some("typescript"));
        assert_eq!(language_of(Path::new("b.py")), None, "python is the interpreter's own default");
    }

    #[test]
    fn variables_are_split_at_the_first_equals_sign() {
        assert_eq!(variable("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert!(variable("=x").is_err());
        assert!(variable("x").is_err());
    }

    #[test]
    fn pictures_are_named() {
        let result = ResultData { png: Some(Value::String("…".into())), ..ResultData::default() };
        assert_eq!(in_words(&result), "<png>");
    }
}

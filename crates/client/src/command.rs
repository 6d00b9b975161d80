//! Commands in a sandbox (contract: envd, section 2).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use sandcove_wire::boot::AGENT_PORT;
use sandcove_wire::envd::process::process_event::Event;
use sandcove_wire::envd::process::process_event::data_event::Output;
use sandcove_wire::envd::process::{ProcessConfig, StartRequest, StartResponse};

use crate::body::Pieces;
use crate::{Error, Result, Sandbox, connect};

/// A command line for `bash -l -c`.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// The command line.
    pub line: String,
    /// Variables on top of the sandbox's.
    pub envs: BTreeMap<String, String>,
    /// Where it runs; the default directory when unset.
    pub cwd: Option<String>,
    /// Under which account; the default one when unset.
    pub user: Option<String>,
}

/// What a running command tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEvent {
    /// Bytes on standard output.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    /// Its exit status; -1 when a signal ended it.
    pub code: i32,
    /// In words, e.g. `exit status 1` or `signal: killed`.
    pub status: String,
}

impl Sandbox {
    /// Runs a command to its end and hands over its output as it comes.
    ///
    /// # Errors
    /// When it cannot be started or the connection breaks; a status other than 0 is no error.
    pub async fn run(
        &self,
        command: &Command,
        mut on_event: impl FnMut(CommandEvent),
    ) -> Result<CommandExit> {
        const PATH: &str = "/process.Process/Start";
        let request = StartRequest {
            process: Some(ProcessConfig {
                cmd: "/bin/bash".to_owned(),
                args: vec!["-l".to_owned(), "-c".to_owned(), command.line.clone()],
                envs: command.envs.clone(),
                cwd: command.cwd.clone(),
            }),
            stdin: Some(false),
            ..StartRequest::default()
        };
        let malformed = |reason: String| Error::Malformed { url: self.url(PATH), reason };
        let body = connect::envelope(&request).map_err(|error| malformed(error.to_string()))?;
        let mut headers = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/connect+json")),
            (HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1")),
        ];
        if let Some(user) = &command.user {
            let value = format!("Basic {}", STANDARD.encode(format!("{user}:")));
            headers.push((
                AUTHORIZATION,
                HeaderValue::from_str(&value).map_err(|error| malformed(error.to_string()))?,
            ));
        }
        let response = self.send(AGENT_PORT, Method::POST, PATH, headers, body).await?;
        let mut pieces = Pieces::new(response.into_body(), self.url(PATH));
        let mut exit = None;
        while let Some(message) = connect::next::<StartResponse>(&mut pieces).await? {
            match message.event.and_then(|event| event.event) {
                Some(Event::Data(data)) => match data.output {
                    Some(Output::Stdout(bytes) | Output::Pty(bytes)) => on_event(CommandEvent::Stdout(bytes)),
                    Some(Output::Stderr(bytes)) => on_event(CommandEvent::Stderr(bytes)),
                    None => {}
                },
                Some(Event::End(end)) => exit = Some(CommandExit { code: end.exit_code, status: end.status }),
                Some(Event::Start(_) | Event::Keepalive(_)) | None => {}
            }
        }
        exit.ok_or_else(|| pieces.malformed("the command's end was not reported"))
    }
}

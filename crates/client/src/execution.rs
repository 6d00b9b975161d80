//! Runs code in the interpreter of a sandbox (contract: interpreter, section 3).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use sandcove_wire::boot::INTERPRETER_PORT;
use sandcove_wire::interpreter::{Event, ExecutionRequest};

use crate::body::Pieces;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

impl Sandbox {
    /// Runs code to its end and passes every event but keepalives to the callback.
    ///
    /// # Errors
    /// If the code cannot be started or the connection breaks. An exception in the code is an event, not an error.
    pub async fn run_code(&self, request: &ExecutionRequest, mut on_event: impl FnMut(Event)) -> Result<()> {
        const PATH: &str = "/execute";
        let body: Bytes = serde_json::to_vec(request)
            .map_err(|error| Error::Malformed { url: self.url(PATH), reason: error.to_string() })?
            .into();
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let response = self.send(INTERPRETER_PORT, Method::POST, PATH, headers, body).await?;
        let mut pieces = Pieces::new(response.into_body(), self.url(PATH));
        while let Some(line) = pieces.line().await? {
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice(&line).map_err(|error| pieces.malformed(error))? {
                Event::EndOfExecution => return Ok(()),
                Event::Keepalive => {}
                event => on_event(event),
            }
        }
        Err(pieces.malformed("the end of the execution was not reported"))
    }
}

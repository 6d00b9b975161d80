//! Runs code in the interpreter of a sandbox (contract: interpreter, section 3).

use bytes::Bytes;
use futures_util::Stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use sandcove_wire::boot::INTERPRETER_PORT;
use sandcove_wire::interpreter::{Event, ExecutionRequest};

use crate::body::Pieces;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

/// Code that runs. Dropping it interrupts the code.
pub struct Execution {
    pieces: Pieces,
}

impl Sandbox {
    /// Starts code, and returns once the interpreter has taken it.
    ///
    /// # Errors
    /// If the code cannot be started.
    pub async fn start_code(&self, request: &ExecutionRequest) -> Result<Execution> {
        const PATH: &str = "/execute";
        let body: Bytes = serde_json::to_vec(request)
            .map_err(|error| Error::Malformed {
                url: self.url(INTERPRETER_PORT, PATH),
                reason: error.to_string(),
            })?
            .into();
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let response = self.send(INTERPRETER_PORT, Method::POST, PATH, headers, body).await?;
        Ok(Execution { pieces: Pieces::new(response.into_body(), self.url(INTERPRETER_PORT, PATH)) })
    }

    /// Runs code to its end and passes every event but keepalives to the callback.
    ///
    /// # Errors
    /// If the code cannot be started or the connection breaks. An exception in the code is an event, not an error.
    pub async fn run_code(&self, request: &ExecutionRequest, mut on_event: impl FnMut(Event)) -> Result<()> {
        let mut execution = self.start_code(request).await?;
        while let Some(event) = execution.next().await? {
            on_event(event);
        }
        Ok(())
    }
}

impl Execution {
    /// The events that [`next`](Self::next) returns, as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event>> + Send {
        futures_util::stream::try_unfold(self, |mut running| async move {
            Ok(running.next().await?.map(|event| (event, running)))
        })
    }

    /// Waits for the next line of the answer as it was sent, an event as JSON or nothing; `None` at the end of the body. A line that is longer than `max` bytes is
    /// `Some(None)`, and takes no more memory than that.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn line(&mut self, max: usize) -> Result<Option<Option<Bytes>>> {
        self.pieces.line_within(max).await
    }

    /// Waits for the next event that is no keepalive; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks before the end.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while let Some(line) = self.pieces.line().await? {
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice(&line).map_err(|error| self.pieces.malformed(error))? {
                Event::EndOfExecution => {
                    // To the end of the body, so that the next request finds the connections open, here and in the server.
                    while let Ok(Some(_)) = self.pieces.line().await {}
                    return Ok(None);
                }
                Event::Keepalive => {}
                event => return Ok(Some(event)),
            }
        }
        Err(self.pieces.malformed("the end of the execution was not reported"))
    }
}

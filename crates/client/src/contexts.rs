//! The contexts of the code interpreter (contract: interpreter, section 2).

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use sandcove_wire::boot::INTERPRETER_PORT;
use sandcove_wire::interpreter::{Context, CreateContext};

use crate::body::whole;
use crate::error::{Error, Result};
use crate::sandbox::Sandbox;

impl Sandbox {
    /// The contexts, oldest first.
    ///
    /// # Errors
    /// If the interpreter does not answer.
    pub async fn contexts(&self) -> Result<Vec<Context>> {
        let body = self.interpreter(Method::GET, "/contexts", Bytes::new()).await?;
        serde_json::from_slice(&body).map_err(|error| self.malformed("/contexts", &error))
    }

    /// Creates a context with a kernel of its own.
    ///
    /// # Errors
    /// If the kernel cannot be started.
    pub async fn create_context(&self, request: &CreateContext) -> Result<Context> {
        let body = serde_json::to_vec(request).map_err(|error| self.malformed("/contexts", &error))?;
        let body = self.interpreter(Method::POST, "/contexts", body.into()).await?;
        serde_json::from_slice(&body).map_err(|error| self.malformed("/contexts", &error))
    }

    /// Gives a context a new kernel.
    ///
    /// # Errors
    /// If there is no such context, or its kernel cannot be started.
    pub async fn restart_context(&self, id: &str) -> Result<()> {
        let path = format!("/contexts/{}/restart", crate::files::percent_encoded(id));
        self.interpreter(Method::POST, &path, Bytes::new()).await.map(drop)
    }

    /// Removes a context, and ends what runs in it.
    ///
    /// # Errors
    /// If there is no such context.
    pub async fn remove_context(&self, id: &str) -> Result<()> {
        let path = format!("/contexts/{}", crate::files::percent_encoded(id));
        self.interpreter(Method::DELETE, &path, Bytes::new()).await.map(drop)
    }

    async fn interpreter(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let response = self.send(INTERPRETER_PORT, method, path, headers, body).await?;
        whole(response.into_body(), self.url(INTERPRETER_PORT, path)).await
    }

    fn malformed(&self, path: &str, error: &serde_json::Error) -> Error {
        Error::Malformed { url: self.url(INTERPRETER_PORT, path), reason: error.to_string() }
    }
}

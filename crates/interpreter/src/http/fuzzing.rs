//! Properties of request bodies that hold for any bytes a client sends.

use super::validation::{create_context, execution_request};

/// Checks the bodies of `POST /execute` and `POST /contexts`: one that is accepted says the same when it is written again.
pub fn execute_request(input: &[u8]) {
    if let Ok(request) = execution_request(input) {
        let again = serde_json::to_vec(&request).ok().and_then(|body| execution_request(&body).ok());
        assert_eq!(again, Some(request));
    }
    if let Ok(request) = create_context(input) {
        let again = serde_json::to_vec(&request).ok().and_then(|body| create_context(&body).ok());
        assert_eq!(again, Some(request));
    }
}

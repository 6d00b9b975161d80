//! The body of every error answer (contract: control-plane, section 3).

use serde::{Deserialize, Serialize};

/// An error body. `code` must equal the HTTP status, as the JS SDK only reads the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// HTTP status.
    pub code: u16,
    /// Description of the error, for the caller.
    pub message: String,
    /// Stable name of the error; some errors have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

//! The body of every error answer (contract: control-plane, section 3).

use serde::{Deserialize, Serialize};

/// `code` must equal the HTTP status: the JS SDK decides by the body alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The HTTP status.
    pub code: u16,
    /// What went wrong, for the caller.
    pub message: String,
    /// A stable name for some errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

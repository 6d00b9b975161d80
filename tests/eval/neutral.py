"""The variables that both programs run with."""

import sys

# Nothing but the suite may decide: no stored answers, no calls home, no configuration of whoever runs this.
ENVIRONMENT = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_DEBUG_LOG": "1",
    "PROMPTFOO_PYTHON": sys.executable,
    "NO_COLOR": "1",
}

//! The log: what is written (`SANDCOVE_LOG`), and in which form (`SANDCOVE_LOG_FORMAT`).

use std::ffi::OsStr;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Environment variable with the filter.
const VARIABLE: &str = "SANDCOVE_LOG";

/// Environment variable with the form, of servers and of the processes that they start.
pub const FORMAT: &str = "SANDCOVE_LOG_FORMAT";

/// The form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// lines for people
    #[default]
    Text,
    /// a JSON object on each line
    Json,
}

impl LogFormat {
    /// The form that the environment asks for.
    pub fn from_env() -> Self {
        let value = std::env::var(FORMAT).unwrap_or_default();
        <Self as ValueEnum>::from_str(&value, true).unwrap_or_default()
    }

    /// The value of the environment variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The filter of the environment; warnings and errors if the variable is not set.
pub fn from_env() -> Result<EnvFilter> {
    parse(std::env::var_os(VARIABLE).as_deref().unwrap_or_default())
}

fn parse(text: &OsStr) -> Result<EnvFilter> {
    let Some(text) = text.to_str() else { bail!("{VARIABLE} is not UTF-8") };
    if text.trim().is_empty() {
        return Ok(EnvFilter::new("warn"));
    }
    // A misspelt level would be read as a target, and would switch everything else off.
    let unknown = |word: &&str| {
        let is_target = word.contains(['=', '[', ':']) || word.starts_with("sandcove");
        !is_target && word.parse::<LevelFilter>().is_err()
    };
    if let Some(word) = text.split(',').map(str::trim).find(unknown) {
        bail!(
            "unknown level \"{word}\" in {VARIABLE}; use off, error, warn, info, debug, trace or target=level"
        );
    }
    match EnvFilter::try_new(text) {
        Ok(filter) => Ok(filter),
        Err(error) => {
            bail!("invalid {VARIABLE} \"{text}\": {error}; use a level such as info, or target=level")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_taken() {
        for text in [
            "",
            " ",
            "info",
            "WARN",
            "off",
            "sandcove_server",
            "info,hyper=debug",
            "sandcove_server::proxy=trace",
        ] {
            assert!(parse(OsStr::new(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_would_silence_the_log_is_refused() {
        for text in ["nonsense", "wran", "info,nonsense", "hyper=loud", "=,="] {
            let error = parse(OsStr::new(text)).unwrap_err().to_string();
            assert!(error.contains("SANDCOVE_LOG"), "{error}");
        }
    }
}

//! Values of settings that are words or times.

use std::time::Duration;

use serde::Deserialize;

/// The languages of the code interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LanguageChoice {
    /// all languages; R, Java and Ruby as soon as their layer is built
    All,
    /// Python, JavaScript, TypeScript, Bash and C++ only
    Lean,
    /// All languages if their layer is built already, otherwise the lean ones.
    #[value(skip)]
    #[serde(skip)]
    AsBuilt,
}

impl LanguageChoice {
    pub(super) fn from_all(all: bool) -> Self {
        if all { Self::All } else { Self::Lean }
    }
}

/// The sandboxes whose code interpreter runs code only for clients with the sandbox's token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InterpreterToken {
    /// all sandboxes; current official clients cannot manage contexts then
    Always,
    /// sandboxes created with `secure`, unless by a client before 2.0, which cannot send the token
    #[default]
    Secure,
    /// no sandbox
    Never,
}

impl From<InterpreterToken> for sandcove_server::InterpreterToken {
    fn from(setting: InterpreterToken) -> Self {
        match setting {
            InterpreterToken::Always => Self::Always,
            InterpreterToken::Secure => Self::Secure,
            InterpreterToken::Never => Self::Never,
        }
    }
}

/// Time after which the memory of a paused sandbox goes to disk; never when there is none. In text, seconds or `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParkAfter(pub(super) Option<Duration>);

impl Default for ParkAfter {
    fn default() -> Self {
        Self(Some(Duration::from_secs(900)))
    }
}

pub(super) fn park_after(text: &str) -> std::result::Result<ParkAfter, String> {
    match text {
        "never" => Ok(ParkAfter(None)),
        seconds => match seconds.parse() {
            Ok(seconds) => Ok(ParkAfter(Some(Duration::from_secs(seconds)))),
            Err(_) => Err(format!("`{seconds}` is neither a number of seconds nor `never`")),
        },
    }
}

impl<'de> Deserialize<'de> for ParkAfter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Seconds(u64),
            Text(String),
        }
        match Given::deserialize(deserializer)? {
            Given::Seconds(seconds) => Ok(Self(Some(Duration::from_secs(seconds)))),
            Given::Text(text) => park_after(&text).map_err(serde::de::Error::custom),
        }
    }
}

//! The choice between a table for people and JSON for programs.

use clap::{Args, ValueEnum};

/// How a command prints what it found.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// print JSON
    #[arg(long)]
    json: bool,
    /// `json` or `pretty`, as the E2B CLI takes it
    #[arg(short, long, value_enum, hide = true, conflicts_with = "json")]
    format: Option<Style>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Style {
    Pretty,
    Json,
}

impl Format {
    /// Whether JSON was asked for.
    pub fn is_json(self) -> bool {
        self.json || self.format == Some(Style::Json)
    }

    /// Whether a table was asked for, where JSON is the default.
    pub fn is_pretty(self) -> bool {
        self.format == Some(Style::Pretty)
    }
}

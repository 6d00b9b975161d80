//! The choice between a table for people and JSON for programs.

use std::io::IsTerminal;

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

    /// Whether the details of one thing are shown to people: on a terminal, unless JSON was asked for. Elsewhere JSON is the default.
    pub fn is_for_people(self) -> bool {
        match self.format {
            Some(style) => style == Style::Pretty,
            None => !self.json && std::io::stdout().is_terminal(),
        }
    }
}

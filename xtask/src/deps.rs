//! Directions between crates (docs/internals/architecture.md, "Directions"), checked on `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Crates, each with the packages that it must not list as direct dependencies.
const NEVER: &[(&str, &[&str])] = &[
    ("sandcove-wire", &["tokio", "axum", "hyper", "reqwest", "rustix", "libc"]),
    (
        "sandcove-agent",
        &["sandcove-server", "sandcove-isolate", "sandcove-image", "sandcove-client", "sqlx", "rustls"],
    ),
    (
        "sandcove-interpreter",
        &["sandcove-server", "sandcove-isolate", "sandcove-image", "sandcove-client", "sqlx", "rustls"],
    ),
    ("sandcove-egress", &["axum", "sqlx", "libc", "sandcove-server", "sandcove-isolate", "sandcove-host"]),
    ("sandcove-isolate", &["axum", "reqwest", "sqlx", "sandcove-server", "sandcove-image"]),
    ("sandcove-image", &["axum", "sqlx", "sandcove-server", "sandcove-isolate"]),
    ("sandcove-host", &["axum", "reqwest", "hyper", "sqlx", "sandcove-server", "sandcove-client"]),
    ("sandcove-backup", &["tokio", "sqlx", "libc", "sandcove-server", "sandcove-isolate", "sandcove-host"]),
    ("sandcove-dockerfile", &["tokio", "reqwest", "sandcove-server", "sandcove-client", "sandcove-image"]),
    ("sandcove-server", &["rustix", "nix", "libc"]),
    ("sandcove-client", &["sandcove-server", "sandcove-isolate", "sandcove-image", "axum"]),
    (
        "sandcove-legacy",
        &[
            "sandcove-server",
            "sandcove-isolate",
            "sandcove-host",
            "sandcove-image",
            "axum",
            "sqlx",
            "rustix",
            "libc",
        ],
    ),
    ("sandcove-mcp", &["sandcove-server", "sandcove-isolate", "sandcove-host", "axum", "reqwest", "rustix"]),
    ("sandcove-names", &["axum", "sqlx", "libc", "rustix", "sandcove-server", "sandcove-host"]),
    ("sandcove-viewer", &["sandcove-server", "sandcove-isolate", "sandcove-image", "sqlx", "libc"]),
    (
        "sandcove-redteam",
        &["tokio", "reqwest", "sandcove-client", "sandcove-eval", "ruff_python_parser", "tree-sitter"],
    ),
    (
        "sandcove-eval",
        &[
            "sandcove-server",
            "sandcove-isolate",
            "sandcove-image",
            "axum",
            "rustix",
            "libc",
            "jsonschema",
            "sqlparser",
        ],
    ),
    ("sandcove-formats", &["tokio", "reqwest", "sandcove-client", "sandcove-eval"]),
];

pub fn check(root: &Path) -> Result<()> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("failed to run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, never)) = NEVER.iter().find(|(n, _)| *n == name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let dep = dependency["name"].as_str().unwrap_or_default();
            if dependency["kind"].is_null() && never.contains(&dep) {
                broken.push(format!("{name} may not depend on {dep}"));
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

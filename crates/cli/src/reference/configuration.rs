//! `configuration.md`: settings of a server, from the definitions that parse them.

use std::collections::BTreeSet;

use clap::{Arg, CommandFactory};

use super::{cell, check, options, table};
use crate::command_line::Cli;
use crate::settings::keys_of_file;

const INTRODUCTION: &str = "\
# Configuration

Settings of a server. Flags win over variables, and variables over the configuration file. This page is generated from the program.

The file is `/etc/sandcove/sandcove.toml`, or the one that `--config` names. An unknown key in it is an error. Its keys are the flags
without the dashes in front:

```toml
listen = \"127.0.0.1:3000\"
max-sandboxes = 200
dns = [\"1.1.1.1\", \"9.9.9.9\"]
languages = \"lean\"
```

A server reads its settings once, at its start.

## Settings

";

const SECRETS: &str = "
## Secrets

Every account of a machine can read the flags of its processes, so secrets have none: they come from a variable or from the file.

";

const VARIABLES: &str = "
## Other variables

| variable | meaning |
| --- | --- |
| `SANDCOVE_LOG` | what is logged: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`) or `target=level`, separated by commas [default: warn] |
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, … | where traces, logs and metrics are sent, and which; see [OpenTelemetry](../internals/opentelemetry.md) |
| `NO_COLOR` | no colours in any output |

Commands that use a server:

| variable | meaning |
| --- | --- |
| `E2B_API_URL` | address of the server |
| `E2B_DOMAIN` | the same as `E2B_API_URL=https://api.<domain>`, which wins |
| `E2B_DEBUG` | `true` is the same as `E2B_API_URL=http://localhost:3000` |
| `E2B_API_KEY` | key for that server |
| `SANDCOVE_CONTEXT` | context to use instead of the selected one |

The official SDKs also read `E2B_SANDBOX_URL` and `E2B_VOLUME_API_URL`, and the official command line `E2B_DASHBOARD_BASE`, the start of the links that it
prints. `sandcove env` prints all five. The variables of `sandcove eval` are
promptfoo's, such as `PROMPTFOO_CONFIG_DIR` and the keys of model providers.
";

/// Keys of the file that no flag sets, each with its variable.
const SECRET_KEYS: [(&str, &str, &str); 3] = [
    ("api-key", "SANDCOVE_API_KEY", "API key of the default team [default: created at the first start]"),
    (
        "access-token",
        "SANDCOVE_ACCESS_TOKEN",
        "access token for the default team; allows managing its keys [default: none]",
    ),
    (
        "admin-token",
        "SANDCOVE_ADMIN_TOKEN",
        "opens `/admin`, `/nodes` and `/metrics` to operators [default: none, which closes them]",
    ),
];

fn row(arg: &Arg, keys: &BTreeSet<String>) -> [String; 5] {
    let long = arg.get_long().unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = match help.split_once("[default: ") {
        Some((meaning, default)) => (meaning, default.trim_end_matches(']')),
        None if arg.get_action().takes_values() => (help.as_str(), "none"),
        None => (help.as_str(), "off"),
    };
    let code = |text: String| if text.is_empty() { text } else { format!("`{text}`") };
    [
        code(keys.get(long).cloned().unwrap_or_default()),
        code(format!("--{long}")),
        code(arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()),
        cell(default),
        cell(meaning),
    ]
}

fn page() -> String {
    let keys = keys_of_file();
    let root = Cli::command();
    let serve = root.find_subcommand("serve").unwrap();
    let args = options(&root).chain(options(serve)).filter(|arg| !arg.is_hide_set());
    let rows: Vec<_> = args.map(|arg| row(arg, &keys)).collect();
    let secrets = SECRET_KEYS
        .map(|(key, variable, meaning)| [format!("`{key}`"), format!("`{variable}`"), meaning.to_owned()]);
    let settings = table(["key", "flag", "variable", "default", "meaning"], &rows);
    let secrets = table(["key", "variable", "meaning"], &secrets);
    format!("{INTRODUCTION}{settings}{SECRETS}{secrets}{VARIABLES}")
}

#[test]
fn the_page_is_what_the_program_parses() {
    check("configuration.md", &page());
}

#[test]
fn every_key_of_the_file_has_a_flag_or_is_a_secret() {
    let root = Cli::command();
    let serve = root.find_subcommand("serve").unwrap();
    let flags = options(&root).chain(options(serve)).filter_map(Arg::get_long);
    let known: BTreeSet<String> = flags
        .chain(SECRET_KEYS.map(|(key, ..)| key))
        .filter(|key| *key != "config")
        .map(str::to_owned)
        .collect();
    assert_eq!(keys_of_file(), known);
}

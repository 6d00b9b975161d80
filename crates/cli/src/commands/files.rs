//! `sandcove sandbox files`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use sandcove_client::Client;
use sandcove_wire::envd::filesystem::EntryInfo;
use sandcove_wire::id::SandboxId;
use serde_json::json;

use super::candidates;
use crate::output::{self, out};
use crate::table::table;

/// Arguments of `files`.
#[derive(Debug, Args)]
pub struct FilesArgs {
    /// id of the sandbox
    #[arg(add = candidates::sandboxes())]
    id: SandboxId,
    /// absolute path of a directory
    #[arg(default_value = "/home/user")]
    path: String,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Lists a directory of a sandbox.
pub async fn files(client: &Client, args: FilesArgs) -> Result<ExitCode> {
    let mut entries = client.attach(&args.id).await?.list_directory(&args.path, 1).await?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if args.json {
        out!("{}", json!(entries));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = entries.iter().map(row).collect();
    let _ = output::write(table(["mode", "owner", "group", "size", "name"], &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &EntryInfo) -> [String; 5] {
    let name = match &entry.symlink_target {
        Some(target) => format!("{} -> {target}", entry.name),
        None => entry.name.clone(),
    };
    [mode(&entry.permissions), entry.owner.clone(), entry.group.clone(), entry.size.to_string(), name]
}

/// The mode as `ls -l` shows it, from the notation of Go, which agents send: letters for the type and for set-user-id, set-group-id
/// and sticky, then nine for permissions. Other texts stay as they are.
fn mode(of_go: &str) -> String {
    let permissions: Option<[u8; 9]> = of_go.as_bytes().last_chunk().copied();
    let Some(mut permissions) = permissions.filter(|nine| nine.iter().all(|letter| b"-rwx".contains(letter)))
    else {
        return of_go.to_owned();
    };
    let letters = &of_go[..of_go.len() - permissions.len()];
    let kind = if letters.contains('d') {
        'd'
    } else if letters.contains('L') {
        'l'
    } else if letters.contains('c') {
        'c'
    } else if letters.contains('D') {
        'b'
    } else if letters.contains('S') {
        's'
    } else if letters.contains('p') {
        'p'
    } else {
        '-'
    };
    // Where the right to execute is, and the letters that stand there with it and without it.
    for (set, place, with, without) in [('u', 2, b's', b'S'), ('g', 5, b's', b'S'), ('t', 8, b't', b'T')] {
        if letters.contains(set) {
            permissions[place] = if permissions[place] == b'x' { with } else { without };
        }
    }
    std::iter::once(kind).chain(permissions.map(char::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_ls() {
        let cases = [
            ("-rw-r--r--", "-rw-r--r--"),
            ("drwxr-xr-x", "drwxr-xr-x"),
            ("dtrwxrwxrwx", "drwxrwxrwt"),
            ("dgrwxr-x---", "drwxr-s---"),
            ("ugrwxr-xr-x", "-rwsr-sr-x"),
            ("urw-r--r--", "-rwSr--r--"),
            ("dtrwxrwx---", "drwxrwx--T"),
            ("Lrwxrwxrwx", "lrwxrwxrwx"),
            ("prw-r--r--", "prw-r--r--"),
            ("Dcrw-rw-rw-", "crw-rw-rw-"),
            ("Drw-rw----", "brw-rw----"),
            ("Srwxr-xr-x", "srwxr-xr-x"),
            ("----------", "----------"),
        ];
        for (of_go, of_ls) in cases {
            assert_eq!(mode(of_go), of_ls, "{of_go}");
        }
    }

    #[test]
    fn texts_that_are_no_modes_stay() {
        for text in ["", "0644", "rwx", "unknown mode", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"] {
            assert_eq!(mode(text), text);
        }
    }
}

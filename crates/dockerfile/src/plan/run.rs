//! `RUN` and the command lines of `SHELL`, heredocs and JSON forms.

use crate::error::{Error, Result};
use crate::flags::{Flags, Kind};
use crate::heredoc;
use crate::quote::quoted;
use crate::source::Instruction;

pub(super) const FLAGS: &[(&str, Kind)] =
    &[("mount", Kind::Values), ("network", Kind::Value), ("security", Kind::Value), ("device", Kind::Values)];

/// The command line of a shell form, for the shell that `SHELL` has chosen.
pub(super) fn with_shell(shell: &[String], script: &str) -> String {
    if shell.is_empty() { script.to_owned() } else { format!("{} {}", joined(shell), quoted(script)) }
}

/// Arguments as a command line.
pub(super) fn joined(args: &[String]) -> String {
    args.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The command line of a `RUN`.
pub(super) fn command(at: &Instruction, shell: &[String]) -> Result<String> {
    let flags = Flags::read(at, FLAGS)?;
    let refused = |flag: &str, value: &str, hint: &str| {
        let message = format!("`RUN --{flag}={value}` is not available in template builds");
        Err(Error::at(at.line, message).hint(hint))
    };
    match flags.value("network") {
        None | Some("default") => {}
        Some(other) => return refused("network", other, "remove the flag; steps can reach the internet"),
    }
    match flags.value("security") {
        None | Some("sandbox") => {}
        Some(other) => return refused("security", other, "remove the flag; steps run as root in a sandbox"),
    }
    if let Some(device) = flags.value("device") {
        return refused("device", device, "sandboxes have no devices of the host");
    }
    if at.is_json {
        if at.args.is_empty() {
            return Err(super::missing(at, "a command"));
        }
        return Ok(joined(&at.args));
    }
    let Some(line) = at.args.first() else { return Err(super::missing(at, "a command")) };
    let script = match at.heredocs.as_slice() {
        [] => line.clone(),
        [doc] if heredoc::marker(line.trim()).is_some() => {
            let text = doc.text();
            if text.starts_with("#!") {
                return Ok(program(&doc.name, &text));
            }
            text
        }
        docs => docs.iter().fold(line.clone(), |all, doc| format!("{all}\n{}{}", doc.content, doc.name)),
    };
    Ok(with_shell(shell, &script))
}

/// A command line that runs a script with an interpreter line.
fn program(name: &str, text: &str) -> String {
    let mut end = "SANDCOVE_END".to_owned();
    while text.contains(&end) {
        end.push('_');
    }
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let line_end = if text.ends_with('\n') { "" } else { "\n" };
    format!(
        "script=$(mktemp -d)/{name}\ncat >\"$script\" <<'{end}'\n{text}{line_end}{end}\nchmod 755 \"${{script%/*}}\" \
         \"$script\" && \"$script\"\nstatus=$?; rm -rf \"${{script%/*}}\"; exit $status"
    )
}

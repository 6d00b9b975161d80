//! `RUN --mount`.

use super::copy::{Place, absolute, origin};
use super::scope::expand;
use super::{Mount, Origin};
use crate::error::{Error, Notice, Result};
use crate::source::Instruction;

/// Directory of secrets without a target.
const SECRETS: &str = "/run/secrets";

/// Reads a mount; `None` for one that has no effect, about which there is a notice.
pub(super) fn read(
    at: &Instruction,
    mount: &str,
    place: &Place<'_>,
    notices: &mut Vec<Notice>,
) -> Result<Option<Mount>> {
    let error = |message: String| Error::at(at.line, message);
    let mut options = Options { mount, at, found: Vec::new() };
    for option in mount.split(',') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        options.found.push((name.to_ascii_lowercase(), expand(place.scope, place.escape, at, value)?));
    }
    let target = options.get(&["target", "dst", "destination"]);
    match options.get(&["type"]).unwrap_or("bind") {
        kind @ ("cache" | "tmpfs") => {
            let target = target.unwrap_or("the directory");
            let message = format!("the {kind} mount is ignored: {target} becomes part of the template");
            notices.push(Notice { line: at.line, message });
            Ok(None)
        }
        "bind" => {
            options.check(&[
                "target",
                "dst",
                "destination",
                "source",
                "src",
                "from",
                "rw",
                "readwrite",
                "ro",
                "readonly",
            ])?;
            let target = target.ok_or_else(|| error(format!("`RUN --mount={mount}` has no target")))?;
            let target = absolute(place.workdir, target).trim_end_matches('/').to_owned();
            if target.is_empty() {
                return Err(error(format!("`RUN --mount={mount}` has the topmost directory as target"))
                    .hint("name a directory that does not exist"));
            }
            let from = match options.get(&["from"]) {
                Some(name) if !name.is_empty() => origin(at, name, place)?,
                _ => Origin::Context,
            };
            let source = options.get(&["source", "src"]).filter(|source| !source.is_empty());
            let source = source.unwrap_or(if from == Origin::Context { "." } else { "/" }).to_owned();
            Ok(Some(Mount::Bind { from, source, target }))
        }
        "secret" => {
            options.check(&[
                "id",
                "target",
                "dst",
                "destination",
                "env",
                "required",
                "mode",
                "uid",
                "gid",
            ])?;
            let env = options.get(&["env"]).filter(|name| !name.is_empty()).map(str::to_owned);
            let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
            let id = options.get(&["id"]).map(str::to_owned).or_else(|| target.map(base));
            let id = id.filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| error(format!("`RUN --mount={mount}` has no id")))?;
            let target = match (target, &env) {
                (Some(target), _) => Some(absolute(place.workdir, target)),
                (None, Some(_)) => None,
                (None, None) => Some(format!("{SECRETS}/{id}")),
            };
            let number = |name: &str| match options.get(&[name]) {
                None => Ok("0"),
                Some(id) if id.parse::<u16>().is_ok() => Ok(id),
                Some(id) => Err(error(format!("invalid {name} `{id}` in `RUN --mount={mount}`"))),
            };
            let mode = options.get(&["mode"]).map(str::to_owned);
            if let Some(mode) = mode.as_deref().filter(|mode| crate::octal_mode(mode).is_none()) {
                return Err(error(format!("invalid mode `{mode}` in `RUN --mount={mount}`")));
            }
            let required = match options.get(&["required"]) {
                None | Some("false") => false,
                Some("" | "true") => true,
                Some(other) => {
                    return Err(error(format!("`required` takes `true` or `false`, not `{other}`")));
                }
            };
            let owner = format!("{}:{}", number("uid")?, number("gid")?);
            Ok(Some(Mount::Secret { id, target, env, required, mode, owner }))
        }
        "ssh" => Err(error("`RUN --mount=type=ssh` is not available in template builds".to_owned())
            .hint("clone the repository into the build context, and copy it with COPY")),
        other => {
            Err(error(format!("unknown type `{other}` of a mount; use bind, cache, tmpfs, secret or ssh")))
        }
    }
}

struct Options<'m> {
    mount: &'m str,
    at: &'m Instruction,
    found: Vec<(String, String)>,
}

impl Options<'_> {
    fn get(&self, names: &[&str]) -> Option<&str> {
        let found = self.found.iter().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    }

    fn check(&self, known: &[&str]) -> Result<()> {
        match self.found.iter().find(|(name, _)| name != "type" && !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let message = format!("unknown option `{name}` in `RUN --mount={}`", self.mount);
                Err(Error::at(self.at.line, message).hint(format!("use {}", known.join(", "))))
            }
        }
    }
}

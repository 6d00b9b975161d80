//! `COPY` and `ADD`.

use super::scope::{Scope, expand, malformed};
use super::{Copy, Origin, Source, TEMPLATE, Unpack};
use crate::error::{Error, Result};
use crate::flags::{Flags, Kind};
use crate::heredoc;
use crate::lex::Lex;
use crate::source::Instruction;

const COPY_FLAGS: &[(&str, Kind)] = &[
    ("from", Kind::Value),
    ("chown", Kind::Value),
    ("chmod", Kind::Value),
    ("link", Kind::Switch),
    ("parents", Kind::Switch),
    ("exclude", Kind::Values),
];

const ADD_FLAGS: &[(&str, Kind)] = &[
    ("chown", Kind::Value),
    ("chmod", Kind::Value),
    ("link", Kind::Switch),
    ("exclude", Kind::Values),
    ("checksum", Kind::Value),
    ("keep-git-dir", Kind::Switch),
    ("unpack", Kind::Switch),
];

/// The state of the stage that `COPY` and `ADD` need.
pub(super) struct Place<'p> {
    pub scope: &'p Scope,
    pub escape: char,
    /// Working directory, absolute.
    pub workdir: &'p str,
    /// Whether the current user is root, who owns copied files.
    pub is_root: bool,
    /// Finds an earlier stage by name or number.
    pub stage: &'p dyn Fn(&str) -> Option<usize>,
}

/// Reads a `COPY` or `ADD`.
pub(super) fn read(at: &Instruction, place: &Place<'_>) -> Result<Copy> {
    let is_add = at.name == "ADD";
    let flags = Flags::read(at, if is_add { ADD_FLAGS } else { COPY_FLAGS })?;
    let expanded = |word: &str| expand(place.scope, place.escape, at, word);
    let Some((destination, sources)) = at.args.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return Err(super::missing(at, "at least one source and a destination"));
    };
    if heredoc::marker(destination).is_some() && !at.is_json {
        return Err(Error::at(at.line, format!("the destination of {} must not be a heredoc", at.name)));
    }
    let from = match flags.value("from") {
        None => Origin::Context,
        Some(name) => origin(at, name, place)?,
    };
    let mut found = Vec::with_capacity(sources.len());
    let mut heredocs = at.heredocs.iter();
    for word in sources {
        if !at.is_json && heredoc::marker(word).is_some() {
            let doc =
                heredocs.next().ok_or_else(|| Error::at(at.line, format!("`{word}` has no contents")))?;
            found.push(inline(at, doc, place)?);
            continue;
        }
        let source = expanded(word)?;
        if source.is_empty() {
            return Err(Error::at(at.line, format!("the source `{word}` of {} is empty", at.name)));
        }
        if is_add {
            found.push(remote_or_local(at, source)?);
        } else {
            found.push(Source::Path(source));
        }
    }
    let destination = absolute(place.workdir, &expanded(destination)?);
    if found.len() > 1 && !destination.ends_with('/') {
        let message = format!("{} has several sources and the destination `{destination}`", at.name);
        return Err(Error::at(at.line, message).hint(format!("write `{destination}/` if it is a directory")));
    }
    let owner = match flags.value("chown") {
        Some(owner) => Some(expanded(owner)?).filter(|owner| !owner.is_empty()),
        None => None,
    };
    let mode = match flags.value("chmod") {
        Some(mode) => Some(checked_mode(at, expanded(mode)?)?),
        None => None,
    };
    let unpack = match (is_add, flags.switch("unpack")) {
        (false, _) | (true, Some(false)) => Unpack::Never,
        (true, None) => Unpack::Local,
        (true, Some(true)) => Unpack::Always,
    };
    Ok(Copy {
        from,
        sources: found,
        destination,
        owner: owner.or_else(|| (!place.is_root).then(|| "root:root".to_owned())),
        mode,
        exclude: flags.values("exclude").map(expanded).collect::<Result<_>>()?,
        parents: flags.switch("parents") == Some(true),
        unpack,
        checksum: flags.value("checksum").map(expanded).transpose()?,
    })
}

pub(super) fn origin(at: &Instruction, name: &str, place: &Place<'_>) -> Result<Origin> {
    if name.contains('$') {
        let message = format!("variables are not expanded in `{} --from={name}`", at.name);
        return Err(Error::at(at.line, message).hint("add a stage `FROM … AS name`, and copy from that name"));
    }
    if let Some(stage) = (place.stage)(name) {
        return Ok(Origin::Stage(stage));
    }
    if name.parse::<usize>().is_ok() {
        let message = format!("`{} --from={name}` names no earlier stage", at.name);
        return Err(Error::at(at.line, message).hint("stages are numbered from 0"));
    }
    Ok(match name.strip_prefix(TEMPLATE) {
        Some(template) => Origin::Template(template.to_owned()),
        None => Origin::Image(name.to_owned()),
    })
}

fn inline(at: &Instruction, doc: &heredoc::Heredoc, place: &Place<'_>) -> Result<Source> {
    let mut contents = doc.text();
    if doc.expand {
        let lex =
            Lex { ignore_quotes: true, keep_unknown: false, variables: place.scope, ..Lex::plain('\\') };
        contents = lex.expand(&contents).map_err(|reason| malformed(at, &doc.name, &reason))?.text;
    }
    Ok(Source::Inline { name: doc.name.clone(), contents })
}

fn remote_or_local(at: &Instruction, source: String) -> Result<Source> {
    let is_git = source.starts_with("git@")
        || source.starts_with("git://")
        || source.starts_with("ssh://")
        || (source.contains("://") && source.split('#').next().is_some_and(|url| url.ends_with(".git")));
    if is_git {
        let message =
            format!("`ADD {source}` is not available: repositories are not cloned by template builds");
        return Err(Error::at(at.line, message).hint(format!("write `RUN git clone {source}`")));
    }
    match source.split_once("://") {
        Some(("http" | "https", _)) => Ok(Source::Url(source)),
        Some((scheme, _)) => {
            Err(Error::at(at.line, format!("unknown scheme `{scheme}` in `{source}`; use http or https")))
        }
        None => Ok(Source::Path(source)),
    }
}

fn checked_mode(at: &Instruction, mode: String) -> Result<String> {
    if crate::mode::is_mode(&mode) {
        return Ok(mode);
    }
    let message = format!("invalid mode `{mode}` in `--chmod`");
    Err(Error::at(at.line, message).hint("write an octal number like `0755`, or changes like `u+x,go-w`"))
}

/// A path below the working directory, without `.` and `..`; a `/` at the end stays, and a path that ends with `.` gets one.
pub(super) fn absolute(workdir: &str, path: &str) -> String {
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{workdir}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let is_directory =
        path.is_empty() || path.ends_with('/') || matches!(path.rsplit('/').next(), Some("." | ".."));
    let ending = if is_directory && !parts.is_empty() { "/" } else { "" };
    format!("/{}{ending}", parts.join("/"))
}

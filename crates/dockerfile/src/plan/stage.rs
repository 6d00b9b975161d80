//! The instructions of each stage, in order.

use super::copy::{self, absolute};
use super::mount;
use super::run;
use super::scope::{Globals, PREDEFINED, Scope, expand, malformed, platform};
use super::start::Start;
use super::state::{State, ignored, is_system};
use super::{Base, Mount, Options, Plan, Stage, Step, StepKind, TEMPLATE, missing};
use crate::error::{Error, Notice, Result};
use crate::flags::{Flags, Kind};
use crate::lex::{Lex, Lookup, Variables};
use crate::source::{Dockerfile, Instruction};

struct Evaluation<'f> {
    file: &'f Dockerfile,
    options: &'f Options,
    globals: Globals,
    /// Build arguments that an `ARG` has declared.
    used: Vec<String>,
    done: Vec<State>,
    notices: Vec<Notice>,
}

/// Evaluates all stages.
pub(super) fn evaluate(file: &Dockerfile, options: &Options) -> Result<Plan> {
    let mut evaluation = Evaluation {
        file,
        options,
        globals: Globals::new(options.target.as_deref()),
        used: Vec::new(),
        done: Vec::new(),
        notices: file.notices.clone(),
    };
    let mut current: Option<State> = None;
    for at in &file.instructions {
        match (&mut current, at.name.as_str()) {
            (_, "FROM") => {
                let finished = current.take();
                evaluation.done.extend(finished);
                current = Some(evaluation.begin(at)?);
            }
            (Some(state), _) => evaluation.instruction(state, at)?,
            (None, "ARG") => evaluation.global_argument(at)?,
            (None, name) => {
                return Err(Error::at(at.line, format!("{name} comes before the first FROM"))
                    .hint("begin with `FROM image`; only ARG may come before it"));
            }
        }
    }
    evaluation.done.extend(current);
    evaluation.finish()
}

impl Evaluation<'_> {
    fn notice(&mut self, at: &Instruction, message: impl Into<String>) {
        self.notices.push(Notice { line: at.line, message: message.into() });
    }

    /// Finds an earlier stage by name or number.
    fn stage(&self, name: &str) -> Option<usize> {
        let lowercase = name.to_ascii_lowercase();
        let named = |state: &State| state.stage.name.as_ref() == Some(&lowercase);
        self.done.iter().position(named).or_else(|| name.parse().ok().filter(|at| *at < self.done.len()))
    }

    fn global_argument(&mut self, at: &Instruction) -> Result<()> {
        Flags::read(at, &[])?;
        if at.args.is_empty() {
            return Err(missing(at, "a name"));
        }
        for word in &at.args {
            let (name, default) = self.argument(at, word, &self.globals)?;
            self.globals.declare(name, default);
        }
        Ok(())
    }

    /// Name and value of a word of `ARG`, with the value of the command line before its default.
    fn argument(
        &self,
        at: &Instruction,
        word: &str,
        variables: &dyn Variables,
    ) -> Result<(String, Option<String>)> {
        let (name, default) = match word.split_once('=') {
            Some((name, default)) => (name, Some(default)),
            None => (word, None),
        };
        let lex = Lex { keep_unknown: false, variables, ..Lex::plain(self.file.escape) };
        let text = |word: &str| Ok(lex.expand(word).map_err(|reason| malformed(at, word, &reason))?.text);
        let name = text(name)?;
        if name.is_empty() {
            return Err(Error::at(at.line, format!("`{word}` in ARG has no name")));
        }
        let value = match (self.options.args.get(&name), default) {
            (Some(given), _) => Some(given.clone()),
            (None, Some(default)) => Some(text(default)?),
            (None, None) => None,
        };
        Ok((name, value))
    }

    fn begin(&mut self, at: &Instruction) -> Result<State> {
        let flags = Flags::read(at, &[("platform", Kind::Value)])?;
        let (image, name) = match at.args.as_slice() {
            [image] => (image, None),
            [image, word, name] if word.eq_ignore_ascii_case("as") => {
                (image, Some(name.to_ascii_lowercase()))
            }
            _ => {
                return Err(
                    Error::at(at.line, "malformed FROM").hint("write `FROM image` or `FROM image AS name`")
                );
            }
        };
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(name) = &name {
            if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(valid) {
                let message = format!("invalid name `{name}` of a stage");
                return Err(Error::at(at.line, message)
                    .hint("begin with a letter; use letters, digits, `-`, `_` and `.`"));
            }
            if let Some(first) = self.done.iter().find(|state| state.stage.name.as_ref() == Some(name)) {
                let message =
                    format!("the stage `{name}` is duplicated; line {} has it too", first.stage.line);
                return Err(Error::at(at.line, message));
            }
        }
        let image = expand(&self.globals, self.file.escape, at, image)?;
        if image.is_empty() {
            return Err(Error::at(at.line, "the image of FROM is empty")
                .hint("give the variable a default (`ARG NAME=value` before FROM), or pass --build-arg"));
        }
        if let Some(wanted) = flags.value("platform") {
            self.check_platform(at, wanted)?;
        }
        if let Some(parent) = self.stage(&image).filter(|_| image.parse::<usize>().is_err()) {
            let parent = &self.done[parent];
            let mut state = parent.clone();
            state.start = parent.start.inherited();
            state.stage.name = name;
            state.stage.line = at.line;
            return Ok(state);
        }
        let base = match image.as_str() {
            "scratch" => Base::Scratch,
            image => match image.strip_prefix(TEMPLATE) {
                Some(template) => Base::Template(template.to_owned()),
                None => Base::Image(image.to_owned()),
            },
        };
        Ok(self.first_state(at, name, base))
    }

    /// A stage on an image: root in `/`, with the predefined arguments that are given.
    fn first_state(&mut self, at: &Instruction, name: Option<String>, base: Base) -> State {
        let step = |kind, text: &str| Step { line: 0, text: text.to_owned(), kind, mounts: Vec::new() };
        let mut steps = vec![
            step(StepKind::User("root".into()), "USER root"),
            step(StepKind::Workdir("/".into()), "WORKDIR /"),
        ];
        let mut scope = Scope::default();
        let given = PREDEFINED.iter().filter_map(|name| self.options.args.get_key_value(*name));
        let proxies: Vec<_> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !proxies.is_empty() {
            self.used.extend(proxies.iter().map(|(name, _)| name.clone()));
            scope.args.extend(proxies.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
            steps.push(step(StepKind::Arg(proxies), "ARG"));
        }
        State {
            stage: Stage { name, line: at.line, base, steps, start: None },
            scope,
            shell: Vec::new(),
            workdir: "/".to_owned(),
            directories: vec!["/".to_owned()],
            user: "root".to_owned(),
            has_user: false,
            has_workdir: false,
            start: Start::default(),
        }
    }

    fn check_platform(&mut self, at: &Instruction, wanted: &str) -> Result<()> {
        let wanted = expand(&self.globals, self.file.escape, at, wanted)?;
        let (own, _) = platform();
        if wanted.is_empty() || wanted == own || wanted.starts_with(&format!("{own}/")) || wanted == "linux" {
            return Ok(());
        }
        if !wanted.starts_with("linux/") {
            let message = format!("the platform `{wanted}` is not available");
            return Err(Error::at(at.line, message).hint("sandboxes run Linux"));
        }
        self.notice(
            at,
            format!("`--platform={wanted}` is ignored: images are pulled for the server's platform"),
        );
        Ok(())
    }

    fn instruction(&mut self, state: &mut State, at: &Instruction) -> Result<()> {
        if !matches!(at.name.as_str(), "RUN" | "COPY" | "ADD" | "HEALTHCHECK") {
            Flags::read(at, &[])?;
        }
        let mut mounts = Vec::new();
        let kind = match at.name.as_str() {
            "RUN" => {
                mounts = self.mounts(state, at)?;
                StepKind::Run(run::command(at, &state.shell)?)
            }
            "ENV" => self.environment(state, at)?,
            "ARG" => match self.stage_argument(state, at)? {
                Some(kind) => kind,
                None => return Ok(()),
            },
            "WORKDIR" => {
                let path = absolute(&state.workdir, &self.single(state, at)?);
                let path = if path == "/" { path } else { path.trim_end_matches('/').to_owned() };
                state.workdir.clone_from(&path);
                state.directories.push(path.clone());
                state.has_workdir = true;
                StepKind::Workdir(path)
            }
            "USER" => {
                let given = self.single(state, at)?;
                let (user, group) = given.split_once(':').unwrap_or((&given, ""));
                if user.is_empty() {
                    return Err(missing(at, "a user"));
                }
                if !group.is_empty() && group != user {
                    self.notice(at, format!("the group `{group}` is ignored: the user's own group is used"));
                }
                state.user = user.to_owned();
                state.has_user = true;
                StepKind::User(user.to_owned())
            }
            "COPY" | "ADD" => self.copy(state, at)?,
            "SHELL" => {
                if !at.is_json || at.args.is_empty() {
                    return Err(missing(at, "a JSON array such as [\"/bin/bash\", \"-c\"]"));
                }
                state.shell.clone_from(&at.args);
                return Ok(());
            }
            "CMD" => {
                state.start.cmd(at, &state.shell);
                return Ok(());
            }
            "ENTRYPOINT" => {
                state.start.entrypoint(at, &state.shell);
                return Ok(());
            }
            name => {
                self.notice(at, ignored(name));
                return Ok(());
            }
        };
        state.stage.steps.push(Step { line: at.line, text: at.text.clone(), kind, mounts });
        Ok(())
    }

    /// The only argument of an instruction.
    fn single(&self, state: &State, at: &Instruction) -> Result<String> {
        let word = at.args.first().ok_or_else(|| missing(at, "an argument"))?;
        let value = expand(&state.scope, self.file.escape, at, word)?;
        if value.is_empty() {
            return Err(Error::at(at.line, format!("the argument `{word}` of {} is empty", at.name)));
        }
        Ok(value)
    }

    fn mounts(&mut self, state: &State, at: &Instruction) -> Result<Vec<Mount>> {
        let mut notices = Vec::new();
        let flags = Flags::read(at, run::FLAGS)?;
        let stage = |name: &str| self.stage(name);
        let place = self.place(state, &stage);
        let read = |mount| mount::read(at, mount, &place, &mut notices).transpose();
        let mounts = flags.values("mount").filter_map(read).collect();
        self.notices.extend(notices);
        mounts
    }

    fn place<'p>(&self, state: &'p State, stage: &'p dyn Fn(&str) -> Option<usize>) -> copy::Place<'p> {
        copy::Place {
            scope: &state.scope,
            escape: self.file.escape,
            workdir: &state.workdir,
            is_root: state.user == "root" || state.user == "0",
            stage,
        }
    }

    fn copy(&self, state: &State, at: &Instruction) -> Result<StepKind> {
        let stage = |name: &str| self.stage(name);
        let mut copy = copy::read(at, &self.place(state, &stage))?;
        // Docker copies a file into a directory that exists.
        let exists = state.directories.contains(&copy.destination) || is_system(&copy.destination);
        if exists && !copy.destination.ends_with('/') {
            copy.destination.push('/');
        }
        Ok(StepKind::Copy(copy))
    }

    fn environment(&mut self, state: &mut State, at: &Instruction) -> Result<StepKind> {
        if at.args.is_empty() {
            return Err(missing(at, "a variable"));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut is_kept = Vec::new();
        for triple in at.args.chunks_exact(3) {
            let name = expand(&state.scope, self.file.escape, at, &triple[0])?;
            if name.is_empty() {
                return Err(Error::at(at.line, "a variable of ENV has no name"));
            }
            // The server knows the variables of the base image.
            let variables: &dyn Variables = &state.scope;
            let lex = Lex { keep_unknown: true, variables, ..Lex::plain(self.file.escape) };
            let read =
                |lex: &Lex<'_>| lex.expand(&triple[1]).map_err(|reason| malformed(at, &triple[1], &reason));
            let value = read(&lex)?;
            let keeps = read(&Lex { keep_unknown: false, ..lex })?.text != value.text;
            if value.literal_dollar && !keeps {
                self.notice(
                    at,
                    format!("the `$` in the value of `{name}` is expanded again when the template is built"),
                );
            }
            is_kept.push((name.clone(), (!keeps).then(|| value.text.clone())));
            pairs.push((name, value.text));
        }
        state.scope.env.extend(is_kept);
        Ok(StepKind::Env(pairs))
    }

    fn stage_argument(&mut self, state: &mut State, at: &Instruction) -> Result<Option<StepKind>> {
        if at.args.is_empty() {
            return Err(missing(at, "a name"));
        }
        let mut pairs = Vec::new();
        for word in &at.args {
            let (name, mut value) = self.argument(at, word, &state.scope)?;
            if value.is_none() {
                value = self.globals.get(&name).map(str::to_owned);
            }
            self.used.push(name.clone());
            if let Some(value) = value.clone().filter(|_| !state.scope.env.contains_key(&name)) {
                pairs.push((name.clone(), value));
            }
            state.scope.args.insert(name, value);
        }
        Ok((!pairs.is_empty()).then_some(StepKind::Arg(pairs)))
    }

    fn finish(mut self) -> Result<Plan> {
        let target = match &self.options.target {
            None => self.done.len().checked_sub(1),
            Some(name) => {
                let found = self.stage(name);
                if found.is_none() && !self.done.is_empty() {
                    return Err(Error::new(format!("the Dockerfile has no stage `{name}`")));
                }
                found
            }
        };
        let Some(target) = target else {
            return Err(Error::new("the Dockerfile has no FROM").hint("begin it with `FROM image`"));
        };
        for name in self.options.args.keys() {
            let is_global = matches!(self.globals.lookup(name), Lookup::Set(_) | Lookup::Unset);
            if !is_global && !self.used.contains(name) {
                self.notices.push(Notice {
                    line: 1,
                    message: format!("no ARG declares the build argument `{name}`"),
                });
            }
        }
        let last = &self.done[target];
        if last.stage.base == Base::Scratch {
            let message = "a template cannot begin with `FROM scratch`";
            return Err(Error::at(last.stage.line, message)
                .hint("begin this stage with a small image, for example `FROM alpine`"));
        }
        self.notices.sort_by_key(|notice| notice.line);
        let stages = self.done.into_iter().map(State::finish).collect();
        Ok(Plan { stages, target, notices: self.notices })
    }
}

//! What a build starts from: a template, or an image (contract: templates, sections 9.1 and 14).

use std::collections::BTreeMap;

use sandcove_host::ImageLease;
use sandcove_isolate::Files;
use sandcove_wire::boot::{INTERPRETER, START_COMMAND, Service};

use super::engine::{BASE, Engine, State};
use super::execute::{environment, line};
use super::failure::Failure;
use super::keys::Key;
use super::{image, interpreter, variables};
use crate::domain::build::{BuildBase, LogLevel};
use crate::domain::context::Context;
use crate::domain::reference::Reference;
use crate::domain::template::TemplateRecord;

/// The images that are templates of this server.
const OWN_IMAGES: [(&str, &str); 3] =
    [("base", "base"), ("e2bdev/base", "base"), ("e2bdev/code-interpreter", "code-interpreter-v1")];

/// The base that a build starts from.
pub(super) struct Base {
    pub key: Key,
    /// Layers, topmost first.
    pub layers: Vec<String>,
    files: Files,
    pub context: Context,
    /// Whether the base is an image, whose files are not prepared for a sandbox.
    pub is_image: bool,
    /// Services of the template, without its start command and the code interpreter.
    pub services: Vec<Service>,
    /// Start command and ready command of the template, which a build without its own takes over.
    pub start: Start,
    /// Variables that sandboxes of the template get.
    pub env: BTreeMap<String, String>,
    /// Keeps the layer of the image.
    _lease: Option<ImageLease>,
}

/// Start command and ready command of a template, as users wrote them and as sandboxes run them.
#[derive(Clone, Default)]
pub(super) struct Start {
    pub start_cmd: Option<String>,
    pub ready_cmd: Option<String>,
    /// Runs both with the user, the directory and the variables of the template that defined them.
    pub service: Option<Service>,
}

impl Start {
    /// The commands in the context of the template that defines them.
    pub(super) fn new(start_cmd: Option<String>, ready_cmd: Option<String>, context: &Context) -> Self {
        let in_context = |command: &Option<String>| Some(line(command.as_ref()?, &context.env));
        let service = Service::of_template(
            in_context(&start_cmd).as_deref(),
            in_context(&ready_cmd).as_deref(),
            &context.user,
            context.workdir.as_deref(),
            &environment(&context.env),
        );
        Self { start_cmd, ready_cmd, service }
    }
}

impl Base {
    /// The state before the first phase.
    pub(super) fn state(&self) -> State {
        State {
            layers: self.layers.clone(),
            files: self.files.clone(),
            context: self.context.clone(),
            name: self.key.to_string(),
        }
    }
}

impl Engine<'_> {
    /// Finds the base, and pulls it if necessary.
    pub(super) async fn base(&self) -> Result<Base, Failure> {
        let (log, team) = (self.job.log, &self.job.order.team);
        let (base, text, cached) = match &self.job.order.spec.from {
            BuildBase::Image(reference) => match own_template(reference) {
                Some(name) => {
                    let look = self.job.uses.look().await;
                    let template = self.shared.templates.builtin(name).await?;
                    look.keep(template.layers.iter().map(String::as_str));
                    (self.of_template(template), format!("FROM {reference}"), true)
                }
                None => {
                    log.write(LogLevel::Info, Some(BASE), format!("[base] Pulling image {reference}"));
                    let pulled = image::pull(self.shared, self.job, reference).await?;
                    let was_there = pulled.was_there;
                    (self.of_image(pulled), format!("FROM {reference}"), was_there)
                }
            },
            BuildBase::Archive { files_hash, image } => {
                log.write(LogLevel::Info, Some(BASE), "[base] Unpacking the uploaded archive");
                let unpacked = image::unpack(self.shared, self.job, files_hash, image.as_deref()).await?;
                let was_there = unpacked.was_there;
                (self.of_archive(unpacked), "FROM an archive".to_owned(), was_there)
            }
            BuildBase::Template(reference) => {
                let parsed: Reference = reference
                    .parse()
                    .map_err(|_| Failure::new(format!("template '{reference}' not found")))?;
                let look = self.job.uses.look().await;
                let template = self.shared.templates.resolve(team, &parsed).await?;
                look.keep(template.build.layers.iter().map(String::as_str));
                (self.of_template(template.build), format!("FROM TEMPLATE {reference}"), true)
            }
        };
        variables::check(&base.context.env)?;
        // Layers of images are leased until the end of the build's work.
        self.job.uses.keep(base.layers.iter().map(String::as_str));
        let cached = if cached { "CACHED " } else { "" };
        log.write(LogLevel::Info, Some(BASE), format!("{cached}[base] {text} [{}]", base.key));
        for layer in &base.layers {
            if !self.shared.host.has_layer(layer).await? {
                return Err(Failure::new("error getting base template, you may need to rebuild it first"));
            }
        }
        Ok(base)
    }

    /// A template in an archive is ready for sandboxes. Any other image is like one of a registry.
    fn of_archive(&self, mut unpacked: image::Pulled) -> Base {
        let archived = unpacked.archived.take();
        let base = self.of_image(unpacked);
        let Some(archived) = archived else { return base };
        let context = Context {
            workdir: archived.workdir,
            env: base.context.env.clone(),
            interpreter: archived.interpreter,
            ..Context::of_user(&archived.user)
        };
        Base {
            key: self.key(&base.layers, &Files::Empty, &context),
            start: Start::new(archived.start_cmd, archived.ready_cmd, &context),
            context,
            is_image: false,
            ..base
        }
    }

    fn of_image(&self, pulled: image::Pulled) -> Base {
        let image = pulled.image;
        let context = Context { env: image.env, ..Context::of_user("root") };
        Base {
            key: self.key(std::slice::from_ref(&image.layer), &Files::Empty, &context),
            layers: vec![image.layer],
            files: Files::Empty,
            context,
            is_image: true,
            services: Vec::new(),
            start: Start::default(),
            env: BTreeMap::new(),
            _lease: pulled.lease,
        }
    }

    fn of_template(&self, record: TemplateRecord) -> Base {
        let files = record.files();
        let context = Context {
            workdir: record.default_workdir,
            env: record.build_env,
            interpreter: interpreter::of_services(&record.services),
            ..Context::of_user(&record.default_user)
        };
        let (start, mut services): (Vec<_>, Vec<_>) =
            record.services.into_iter().partition(|service| service.name == START_COMMAND);
        services.retain(|service| service.name != INTERPRETER);
        Base {
            key: self.key(&record.layers, &files, &context),
            layers: record.layers,
            files,
            context,
            is_image: false,
            services,
            start: Start {
                start_cmd: record.start_cmd,
                ready_cmd: record.ready_cmd,
                service: start.into_iter().next(),
            },
            env: record.env,
            _lease: None,
        }
    }

    /// The key of a base: layers are named by their contents, and snapshots are never changed. Results in the cache are a team's
    /// own.
    fn key(&self, layers: &[String], files: &Files, context: &Context) -> Key {
        let files = match files {
            Files::Snapshot(name) => name,
            Files::Empty | Files::Own => "",
        };
        let env: Vec<String> = context.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let team = self.job.order.team.id.to_string();
        let workdir = context.workdir.as_deref().unwrap_or_default();
        let fixed = [team.as_str(), files, &context.user, workdir];
        let (layers, env) = (layers.iter().map(String::as_str), env.iter().map(String::as_str));
        let parts: Vec<&str> = fixed.into_iter().chain(layers).chain([""]).chain(env).collect();
        Key::of_base(&parts)
    }
}

/// The template of this server that is named as an image, whatever its registry and tag.
fn own_template(reference: &str) -> Option<&'static str> {
    let reference = reference.trim();
    let name = reference.strip_prefix("docker.io/").unwrap_or(reference);
    let name = name.split(['@', ':']).next().unwrap_or(name);
    OWN_IMAGES.iter().find(|(image, _)| *image == name).map(|(_, template)| *template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_the_vendor_are_templates_of_the_server() {
        for image in
            ["e2bdev/base", "e2bdev/base:latest", "docker.io/e2bdev/base:v1", "base", "e2bdev/base@sha256:0"]
        {
            assert_eq!(own_template(image), Some("base"), "{image}");
        }
        assert_eq!(own_template("e2bdev/code-interpreter:latest"), Some("code-interpreter-v1"));
        for image in ["debian", "other/base", "ghcr.io/e2bdev/base", "localhost:5000/base", ""] {
            assert_eq!(own_template(image), None, "{image}");
        }
    }
}

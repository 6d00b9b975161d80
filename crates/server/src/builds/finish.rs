//! The end of a build (contract: templates, section 9.4): the files become a layer, and a sandbox of the finished template shows
//! that its start command runs and its ready command succeeds.

use sandcove_host::Prepared;
use sandcove_image::LayerStore;
use sandcove_isolate::crash;
use sandcove_wire::boot::ENVD_VERSION;
use sandcove_wire::step::GuestStep;
use uuid::Uuid;

use super::base::{Base, Start};
use super::collect::delete_snapshots;
use super::engine::{Engine, FINALIZE, Finished, State};
use super::failure::Failure;
use super::interpreter;
use super::keys::Key;
use crate::domain::build::LogLevel;
use crate::domain::template::TemplateRecord;

/// Version of what the end of a build changes in the files.
const VERSION: &str = "1";

impl Engine<'_> {
    /// Makes the files a layer.
    pub(super) async fn finish(mut self, base: Base, state: State) -> Result<Finished, Failure> {
        let template = self.job.template.to_string();
        let mut key = Key::of_base(&["finalize", VERSION, &state.name, &template]);
        if let Some(service) = interpreter::service(&state.context) {
            // The host side knows warm interpreters by layers: one with other variables needs a layer of another name.
            let env = service.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
            key = key.then(["interpreter"].into_iter().chain(env));
        }
        let layer = format!("{}{}", LayerStore::WRITTEN_PREFIX, key.short());
        let look = self.job.uses.look().await;
        look.keep([layer.as_str()]);
        let is_there = self.shared.host.has_layer(&path(&layer)).await?;
        drop(look);
        self.note(if is_there { "CACHED " } else { "" }, &format!("Finalizing template build [{key}]"));
        if !is_there {
            self.publish(&layer, &state).await?;
        }
        self.end_guest().await;
        let mut record = self.record(&base, state, &layer);
        let has_start = record.services.iter().any(|service| service.once);
        let first = match has_start {
            true => self.prove(&mut record).await?,
            false => None,
        };
        Ok(Finished { record, first })
    }

    async fn publish(&mut self, layer: &str, state: &State) -> Result<(), Failure> {
        let configure = GuestStep::Configure {
            template_id: self.job.template.to_string(),
            build_id: self.job.order.build.to_string(),
        };
        self.guest(state)
            .await?
            .step(&configure)
            .await
            .map_err(|failure| failure.prefixed("configuration script failed: "))?;
        let snapshot = format!("f-{}", Uuid::new_v4().simple());
        self.snapshot(&snapshot).await?;
        let published = self.shared.host.publish_layer(&snapshot, layer).await;
        crash::point("build.published");
        delete_snapshots(self.shared, [snapshot]).await;
        Ok(published?)
    }

    fn record(&self, base: &Base, state: State, layer: &str) -> TemplateRecord {
        let spec = &self.job.order.spec;
        let given = |command: &Option<String>| command.clone().filter(|command| !command.trim().is_empty());
        let context = state.context;
        let Start { start_cmd, ready_cmd, service } = match (given(&spec.start_cmd), given(&spec.ready_cmd)) {
            (None, None) => base.start.clone(),
            (start_cmd, ready_cmd) => Start::new(start_cmd, ready_cmd, &context),
        };
        let interpreter = interpreter::service(&context);
        let limits = self.limits();
        TemplateRecord {
            template_id: self.job.template.clone(),
            build_id: self.job.order.build,
            name: self.job.name.clone(),
            layers: std::iter::once(path(layer)).chain(state.layers).collect(),
            services: base.services.iter().cloned().chain(interpreter).chain(service).collect(),
            env: base.env.clone(),
            default_user: context.user,
            default_workdir: context.workdir,
            build_env: context.env,
            cpu_count: limits.cpus,
            memory_mib: limits.memory_mib,
            disk_mib: limits.disk_mib,
            envd_version: ENVD_VERSION.to_owned(),
            start_cmd,
            ready_cmd,
            snapshot_of: None,
            memory_bytes: None,
            started: None,
        }
    }

    /// Shows that the start command gets ready, unless an earlier build has shown it, and keeps the state after it. Where that cannot be
    /// kept, the sandbox that has shown it is the first for the pool.
    async fn prove(&self, record: &mut TemplateRecord) -> Result<Option<Prepared>, Failure> {
        if let Some(earlier) = self.proof(record).await? {
            record.started = earlier.started;
            self.note("CACHED ", "Template is ready");
            return Ok(None);
        }
        if let Some(command) = &record.start_cmd {
            self.note("", &format!("Running start command: {command}"));
        }
        let ready = record.ready_cmd.as_deref().unwrap_or("sleep 20");
        self.note("", &format!("Waiting for template to be ready: {ready}"));
        if self.keeps_started(record).await? {
            record.started = self.started(record).await?;
            return Ok(None);
        }
        let blueprint = self.shared.templates.blueprint(&self.job.order.team, record);
        let first = self.follow(|log| self.shared.host.prepare(blueprint, log)).await?;
        self.note("", "Template is ready");
        Ok(Some(first))
    }

    /// An earlier build of the template in which the same start command got ready on the same files.
    async fn proof(&self, record: &TemplateRecord) -> Result<Option<TemplateRecord>, Failure> {
        if self.job.order.spec.force {
            return Ok(None);
        }
        let look = self.job.uses.look().await;
        let earlier = self.shared.store.ready_records(&self.job.template).await?;
        let proof = earlier.into_iter().find(|other| {
            (&other.layers, &other.services, other.limits())
                == (&record.layers, &record.services, record.limits())
        });
        let started = proof.iter().filter_map(|proof| proof.started.as_ref());
        look.keep(started.map(|started| started.snapshot.as_str()));
        Ok(proof)
    }

    pub(super) fn note(&self, cached: &str, text: &str) {
        self.job.log.write(LogLevel::Info, Some(FINALIZE), format!("{cached}[finalize] {text}"));
    }
}

/// The path of a layer that a sandbox has written, as records of templates name it.
fn path(layer: &str) -> String {
    format!("{layer}/upper")
}

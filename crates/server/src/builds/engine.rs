//! The phases of a build (contract: templates, sections 8-10). The deepest step with a result in the cache is looked for, a sandbox
//! begins with the files after it, and the steps behind it run in this sandbox. After each of them a snapshot of the files, which
//! costs the same whatever their size, goes into the cache.

use std::path::PathBuf;

use sandcove_host::{Handle, Prepared};
use sandcove_isolate::{Blueprint, Files, Limits, NetworkPolicy, SandboxSpec, crash};
use sandcove_wire::boot::Settings as AgentSettings;
use uuid::Uuid;

use super::base::Base;
use super::collect::delete_snapshots;
use super::failure::Failure;
use super::guest::Guest;
use super::job::Job;
use super::keys::Key;
use super::limits::{MAX_LAYERS, MAX_STEPS};
use super::steps::{self, Step};
use super::{Shared, interpreter, provision};
use crate::domain::build::LogLevel;
use crate::domain::context::Context;
use crate::domain::template::{self, TemplateRecord};
use crate::random;
use crate::store::CachedStep;

/// Attempts of a build whose cached files turn out to be gone.
const MAX_ATTEMPTS: usize = 3;
/// Step of failures before the first step.
pub(super) const BASE: &str = "base";
/// Step of failures after the last step.
pub(super) const FINALIZE: &str = "finalize";

/// A build at work. Dropping it removes its sandbox.
pub(super) struct Engine<'a> {
    pub shared: &'a Shared,
    pub job: &'a Job<'a>,
    /// The sandbox that steps run in, once one had to.
    guest: Option<Guest>,
}

/// A finished template.
pub(super) struct Finished {
    pub record: TemplateRecord,
    /// A sandbox in which the start command runs, if there is one: the first for the pool.
    pub first: Option<Prepared>,
}

/// A part of a build with a result in the cache.
pub(super) struct Phase {
    /// Name of the part in the log.
    pub prefix: String,
    /// The part as a step of failures.
    pub step: String,
    /// Text in the log.
    title: String,
    key: Key,
    pub work: Work,
    /// Whether the result may come from the cache.
    may_be_cached: bool,
}

/// Work of a phase.
pub(super) enum Work {
    /// Prepares the files of an image for a sandbox.
    Provision,
    /// A step of the client.
    Step(Step),
    /// Sets up the code interpreter.
    Interpreter,
}

/// A build between two phases.
pub(super) struct State {
    /// Layers below the files, topmost first.
    pub layers: Vec<String>,
    /// Files on top of the layers.
    pub files: Files,
    pub context: Context,
    /// Name that no other files have.
    pub name: String,
}

impl<'a> Engine<'a> {
    pub(super) fn new(shared: &'a Shared, job: &'a Job<'a>) -> Self {
        Self { shared, job, guest: None }
    }

    /// Builds the template.
    pub(super) async fn run(mut self) -> Result<Finished, Failure> {
        let steps = self.parse()?;
        let base = self.base().await.map_err(|failure| failure.at(BASE))?;
        if base.layers.len() >= MAX_LAYERS {
            let text = format!("the base has {MAX_LAYERS} layers, the maximum: build it from an image again");
            return Err(Failure::new(text).at(BASE));
        }
        let phases = self.phases(&base, steps);
        let mut attempts = 1;
        let state = loop {
            match self.work(&base, &phases).await {
                Ok(state) => break state,
                Err(failure) => match failure.stale_snapshot() {
                    Some(snapshot) if attempts < MAX_ATTEMPTS => {
                        tracing::warn!(
                            snapshot,
                            "the files of a cached build step are gone: the step runs again"
                        );
                        self.shared.store.forget_snapshot(snapshot).await?;
                        attempts += 1;
                    }
                    _ => return Err(failure),
                },
            }
        };
        self.finish(base, state).await.map_err(|failure| failure.at(FINALIZE))
    }

    fn parse(&self) -> Result<Vec<Step>, Failure> {
        let steps = &self.job.order.spec.steps;
        if steps.len() > MAX_STEPS {
            return Err(Failure::new(format!(
                "a build may have at most {MAX_STEPS} steps, and this has {}",
                steps.len()
            )));
        }
        let parsed = steps.iter().enumerate().map(|(index, step)| {
            Step::parse(step).map_err(|error| Failure::new(error.to_string()).at(&(index + 1).to_string()))
        });
        parsed.collect()
    }

    /// All phases, with their keys.
    fn phases(&self, base: &Base, steps: Vec<Step>) -> Vec<Phase> {
        let spec = &self.job.order.spec;
        let mut phases = Vec::with_capacity(steps.len() + 2);
        let (mut key, mut may_be_cached) = (base.key, !spec.force);
        if base.is_image {
            key = key.then(["provision", provision::VERSION, Context::DEFAULT_USER]);
            phases.push(Phase {
                prefix: BASE.to_owned(),
                step: BASE.to_owned(),
                title: format!("DEFAULT USER {}", Context::DEFAULT_USER),
                key,
                work: Work::Provision,
                may_be_cached,
            });
        }
        let has_interpreter = interpreter::is_asked_for(base, &steps);
        for (index, (step, parsed)) in spec.steps.iter().zip(steps).enumerate() {
            let kind = step.kind.to_ascii_uppercase();
            let files = step.files_hash.as_deref().filter(|_| matches!(parsed, Step::Copy { .. }));
            let args = step.args.iter().map(String::as_str);
            key = key.then([kind.as_str(), files.unwrap_or_default()].into_iter().chain(args));
            if let Step::Run { mounts, .. } = &parsed
                && !mounts.is_empty()
            {
                // Secrets by their ids: another secret is no reason to run a step again.
                key = key.then([serde_json::to_string(mounts).unwrap_or_default().as_str()]);
            }
            may_be_cached &= !step.force;
            phases.push(Phase {
                prefix: format!("builder {}/{}", index + 1, spec.steps.len()),
                step: (index + 1).to_string(),
                title: steps::title(step),
                key,
                work: Work::Step(parsed),
                may_be_cached,
            });
        }
        if has_interpreter {
            key = key.then(["interpreter", interpreter::VERSION]);
            phases.push(Phase {
                prefix: "interpreter".to_owned(),
                step: FINALIZE.to_owned(),
                title: "CODE INTERPRETER".to_owned(),
                key,
                work: Work::Interpreter,
                may_be_cached,
            });
        }
        phases
    }

    /// Goes through the phases, beginning behind the deepest one in the cache.
    async fn work(&mut self, base: &Base, phases: &[Phase]) -> Result<State, Failure> {
        let (mut state, done) = self.cached(base, phases).await?;
        for (index, phase) in phases.iter().enumerate() {
            let cached = if index < done { "CACHED " } else { "" };
            let header = format!("{cached}[{}] {} [{}]", phase.prefix, phase.title, phase.key);
            self.job.log.write(LogLevel::Info, Some(&phase.step), header);
            if index >= done {
                self.phase(phase, &mut state).await.map_err(|failure| failure.at(&phase.step))?;
            }
        }
        Ok(state)
    }

    /// The state after the deepest phase in the cache, and the number of phases up to it.
    async fn cached(&self, base: &Base, phases: &[Phase]) -> Result<(State, usize), Failure> {
        let team = self.job.order.team.id;
        let usable = phases.iter().take_while(|phase| phase.may_be_cached).count();
        let look = self.job.uses.look().await;
        for index in (0..usable).rev() {
            let Some(found) = self.shared.store.cached_step(team, &phases[index].key.to_string()).await?
            else {
                continue;
            };
            if found.layers != base.layers {
                continue;
            }
            let mut state = base.state();
            state.context = found.context;
            if let Some(snapshot) = found.snapshot {
                look.keep([snapshot.as_str()]);
                state.name.clone_from(&snapshot);
                state.files = Files::Snapshot(snapshot);
            }
            return Ok((state, index + 1));
        }
        Ok((base.state(), 0))
    }

    async fn phase(&mut self, phase: &Phase, state: &mut State) -> Result<(), Failure> {
        let wrote = self.execute(phase, state).await?;
        if wrote {
            let snapshot = format!("s-{}", Uuid::new_v4().simple());
            self.snapshot(&snapshot).await?;
            self.job.uses.keep([snapshot.as_str()]);
            state.name.clone_from(&snapshot);
            state.files = Files::Snapshot(snapshot);
            crash::point("build.snapshot");
        }
        let cached = CachedStep {
            key: phase.key.to_string(),
            snapshot: match &state.files {
                Files::Snapshot(name) if name.starts_with("s-") => Some(name.clone()),
                _ => None,
            },
            layers: state.layers.clone(),
            context: state.context.clone(),
        };
        let replaced = self.shared.store.insert_step(self.job.order.team.id, &cached).await?;
        crash::point("build.cached");
        delete_snapshots(self.shared, replaced).await;
        Ok(())
    }

    /// Takes a snapshot of the sandbox's files.
    pub(super) async fn snapshot(&self, name: &str) -> Result<(), Failure> {
        let team = &self.job.order.team;
        if self.shared.kept_bytes(team).await? >= team.max_kept_bytes() {
            return Err(Failure::no_disk(team));
        }
        let handle = self.handle().ok_or_else(|| Failure::internal("a snapshot without a sandbox"))?;
        handle.snapshot(name, team.account(), None).await?;
        Ok(())
    }

    fn handle(&self) -> Option<&Handle> {
        self.guest.as_ref().map(Guest::handle)
    }

    /// The sandbox of the build, which is started if there is none.
    pub(super) async fn guest(&mut self, state: &State) -> Result<&Guest, Failure> {
        let guest = match self.guest.take() {
            Some(guest) => guest,
            None => self.start(state).await?,
        };
        Ok(self.guest.insert(guest))
    }

    /// Ends the sandbox of the build.
    pub(super) async fn end_guest(&mut self) {
        if let Some(guest) = self.guest.take() {
            guest.end().await;
        }
    }

    async fn start(&self, state: &State) -> Result<Guest, Failure> {
        let spec = SandboxSpec {
            memory: false,
            id: random::sandbox_id(),
            blueprint: Blueprint {
                layers: state.layers.iter().map(PathBuf::from).collect(),
                limits: self.limits(),
                boot: template::boot(&self.job.template),
                started: None,
            },
            files: state.files.clone(),
            mounts: Vec::new(),
            network: NetworkPolicy::default(),
            settings: AgentSettings {
                token_required: Some(false),
                default_user: Some("root".to_owned()),
                ends_together: Some(true),
                ca_bundle: None,
                ..AgentSettings::default()
            },
        };
        let started = Guest::start(self.shared, spec, None).await;
        if let (Err(error), Files::Snapshot(name)) = (&started, &state.files)
            && !error.is_full()
            && !self.shared.host.has_snapshot(name).await?
        {
            return Err(Failure::stale(name.clone()));
        }
        Ok(started?)
    }

    /// Limits of the build's sandbox, and of those made from the template.
    pub(super) fn limits(&self) -> Limits {
        let Job { cpu_count, memory_mib, disk_mib, .. } = *self.job;
        let limits = Limits { cpus: cpu_count, memory_mib, disk_mib, pids: template::MAX_PIDS };
        self.job.order.team.caps.applied(limits)
    }
}

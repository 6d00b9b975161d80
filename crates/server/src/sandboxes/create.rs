//! From a plan to a running sandbox. A step that fails releases what the steps before it took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandcove_host::Handle;
use sandcove_isolate::{Error as IsolateError, Files, SandboxSpec, crash};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::id::SandboxId;
use tokio::time::Instant;
use tracing::field::{self, Empty};
use tracing::{Instrument, Span, info_span};

use super::admission::{Permit, StartPermit};
use super::driver::Driver;
use super::memory;
use super::shared::Shared;
use super::spec::spec;
use crate::domain::event::LifecycleEvent;
use crate::domain::identity::Tokens;
use crate::domain::lifecycle::{OnExpiry, Session};
use crate::domain::network::NetworkRules;
use crate::domain::sandbox::{Build, Details, Settings, Stored, StoredState, TokenPolicy, VolumeMount};
use crate::domain::team::Team;
use crate::domain::template::TemplateRecord;
use crate::events::{self, describe};
use crate::telemetry::StartResult;
use crate::{Error, Result, clock, otlp, random};

/// Pause before a start tries again whose sandbox found no slot on the host.
const RETRY: Duration = Duration::from_millis(100);

/// The plan of a new sandbox.
#[derive(Debug, Clone)]
pub struct CreatePlan {
    /// The owner.
    pub team: Team,
    /// The template build to create the sandbox from.
    pub build: TemplateRecord,
    /// The files that the sandbox begins with on top of the build's layers.
    pub files: Files,
    /// Whether these files are those of a snapshot with memory.
    pub memory: bool,
    /// Length of the first session.
    pub timeout: Duration,
    /// The transition at the end of a session.
    pub on_expiry: OnExpiry,
    /// Whether traffic resumes the sandbox.
    pub auto_resume: bool,
    /// Whether the agent refuses requests without the token.
    pub token_policy: TokenPolicy,
    /// Whether the code interpreter refuses to run code for requests without the token.
    pub interpreter_policy: TokenPolicy,
    /// Whether the client is of the first generation.
    pub legacy: bool,
    /// Rules for traffic from and to the sandbox.
    pub network: NetworkRules,
    /// Labels given by the client.
    pub metadata: BTreeMap<String, String>,
    /// Variables given by the client, for every process.
    pub env_vars: BTreeMap<String, String>,
    /// Opaque to the server; returned as given.
    pub mcp: Option<serde_json::Value>,
    /// Volumes to mount.
    pub mounts: Vec<VolumeMount>,
    /// Tokens of the sandbox's identity.
    pub tokens: Option<Tokens>,
}

/// A planned sandbox that counts against the team's limit.
struct Reserved {
    plan: CreatePlan,
    details: Details,
    permit: Permit,
}

/// A sandbox that runs and has no row yet.
struct Launched {
    reserved: Reserved,
    handle: Handle,
    /// Why the memory of its snapshot could not be restored.
    lost_memory: Option<String>,
}

/// Creates a sandbox, as the outcome of the request that has claimed `key`; its driver is registered and waits to be run.
pub(super) async fn create(shared: &Arc<Shared>, plan: CreatePlan, key: Option<&str>) -> Result<Driver> {
    let team = plan.team.id;
    let span = info_span!("create", team_id = %team, sandbox_id = Empty, otel.status_code = Empty);
    let made = try_create(shared, plan, key).instrument(span.clone()).await;
    if made.is_err() {
        otlp::failed(&span);
    }
    otlp::end(&span);
    made
}

async fn try_create(shared: &Arc<Shared>, plan: CreatePlan, key: Option<&str>) -> Result<Driver> {
    let queued = Instant::now();
    let (reserved, start) = match queue(shared, plan).instrument(info_span!("queue")).await {
        Ok(admitted) => admitted,
        Err(error) => {
            shared.telemetry.start_ended(StartResult::Refused);
            return Err(error);
        }
    };
    shared.telemetry.waited(queued.elapsed());
    let began = Instant::now();
    let id = reserved.details.id.clone();
    Span::current().record("sandbox_id", field::display(&id));
    let deadline = start.deadline;
    let started = start.during(async {
        let launched =
            reserved.launch(shared, deadline).instrument(info_span!("launch", sandbox_id = %id)).await?;
        launched.record(shared, key).instrument(info_span!("record", sandbox_id = %id)).await
    });
    let started = started.await;
    match &started {
        Ok(_) => {
            shared.telemetry.started_in(began.elapsed());
            shared.telemetry.start_ended(StartResult::Started);
        }
        Err(_) => shared.telemetry.start_ended(StartResult::Failed),
    }
    started
}

/// Counts the sandbox against the limit of its team, and waits until its start may begin.
async fn queue(shared: &Shared, plan: CreatePlan) -> Result<(Reserved, StartPermit<'_>)> {
    let mut reserved = reserve(shared, plan)?;
    let start = shared.admission.wait_to_start(&mut reserved.permit).await?;
    Ok((reserved, start))
}

fn reserve(shared: &Shared, plan: CreatePlan) -> Result<Reserved> {
    let team = &plan.team;
    // The pause at the end of a session is never refused, so a team that is at its limit of paused sandboxes gets no new one with it.
    let may_pause = plan.on_expiry != OnExpiry::Kill;
    if may_pause && shared.admission.paused(team.id) >= team.quota.paused {
        return Err(Error::TooManyPaused(team.quota.paused));
    }
    let permit = shared.admission.reserve(team.id, team.max_sandboxes, team.quota.paused)?;
    let details = details(random::sandbox_id(), &plan);
    Ok(Reserved { plan, details, permit })
}

impl Reserved {
    /// Has the host side start the sandbox, and again where something else may work: without memory that cannot be restored, or once
    /// there is a slot, until `deadline`.
    async fn launch(self, shared: &Shared, deadline: Instant) -> Result<Launched> {
        let Reserved { plan, details, .. } = &self;
        let network = shared.policy(details, &plan.network).await?;
        let mut spec =
            SandboxSpec { memory: plan.memory, ..spec(details, &plan.build, network, plan.files.clone()) };
        let mut lost_memory = None;
        loop {
            let source = match shared.host.create(spec.clone()).await {
                Ok(handle) => {
                    otlp::record_start(&handle);
                    return Ok(Launched { reserved: self, handle, lost_memory });
                }
                Err(source) => source,
            };
            match source {
                IsolateError::NotStored { reason } if spec.memory => {
                    tracing::warn!(sandbox_id = %self.details.id, %reason, "the memory of a snapshot was not restored; the sandbox starts from its files");
                    shared.telemetry.memory_lost();
                    spec.memory = false;
                    lost_memory = Some(reason);
                }
                // A paused sandbox has given up its slot.
                IsolateError::NoSlot(_) if memory::free_slot(shared).await => {}
                // The slot of a sandbox is free only some time after the sandbox is gone.
                IsolateError::NoSlot(_) if Instant::now() < deadline => {
                    tokio::time::sleep(RETRY).await;
                }
                IsolateError::NoSlot(_) => return Err(Error::NoCapacity(source)),
                source if source.is_full() => return Err(Error::NoCapacity(source)),
                IsolateError::AgentSlow { .. } => return Err(Error::StartTimeout(source)),
                source => return Err(Error::CreateFailed { id: self.details.id.clone(), source }),
            }
        }
    }
}

impl Launched {
    /// Stores the row of the sandbox with its first event, and makes the sandbox known.
    async fn record(self, shared: &Arc<Shared>, key: Option<&str>) -> Result<Driver> {
        let Reserved { plan, details, permit } = self.reserved;
        let stored = Stored {
            session: Session::begin(clock::now(), plan.timeout, plan.team.max_session),
            settings: Settings {
                on_expiry: plan.on_expiry,
                network: plan.network,
                demoted: false,
                parked: None,
                unresponsive: false,
            },
            state: StoredState::Running,
            details,
        };
        let Stored { details, settings, session, .. } = &stored;
        let created = describe(details, session, &settings.network, &LifecycleEvent::Created);
        crash::point("create.launched");
        if let Err(error) = shared.store.insert_sandbox(&stored, &created, key).await {
            if let Err(err) = self.handle.destroy().await {
                tracing::error!(sandbox_id = %stored.details.id, error = ?err, "sandbox was not removed completely");
            }
            return Err(error);
        }
        crash::point("create.recorded");
        if self.lost_memory.is_some() {
            let event = describe(details, session, &settings.network, &LifecycleEvent::StartedFromFiles);
            events::record(&shared.store, &event).await;
        }
        let driver = Driver::register(shared, stored, plan.team, Some(self.handle), Some(permit));
        driver.log.write(LogLevel::Info, "sandbox started");
        if let Some(reason) = self.lost_memory {
            let text = format!(
                "memory of the snapshot cannot be restored, the sandbox starts from its files: {reason}"
            );
            driver.log.write(LogLevel::Error, &text);
        }
        Ok(driver)
    }
}

fn details(id: SandboxId, plan: &CreatePlan) -> Details {
    let build = &plan.build;
    Details {
        id,
        team: plan.team.id,
        build: Build::Record(Box::new(build.clone())),
        limits: plan.team.caps.applied(build.limits()),
        metadata: plan.metadata.clone(),
        env_vars: plan.env_vars.clone(),
        access_token: random::token(),
        token_policy: plan.token_policy,
        interpreter_policy: plan.interpreter_policy,
        legacy: plan.legacy,
        traffic_token: plan.network.is_private().then(random::token),
        timeout: plan.timeout,
        auto_resume: plan.auto_resume,
        mcp: plan.mcp.clone(),
        mounts: plan.mounts.clone(),
        tokens: plan.tokens.clone(),
        rates: plan.team.caps.rates,
    }
}

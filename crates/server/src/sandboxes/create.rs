//! From a plan to a running sandbox. Each step that fails gives back what the steps before it took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandcove_isolate::{Blueprint, Error as IsolateError, Files, Handle, SandboxSpec, crash};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::boot::Settings as AgentSettings;
use sandcove_wire::id::SandboxId;
use tracing::field::{self, Empty};
use tracing::{Instrument, Span, info_span};

use super::admission::{Slot, Turn};
use super::driver::Driver;
use super::lifecycle::{OnExpiry, Session};
use super::network::NetworkRules;
use super::record::{Details, Settings, Source, Stored, StoredState, View, VolumeMount};
use super::registry::Shared;
use crate::events::{Happened, describe};
use crate::teams::Team;
use crate::telemetry::StartResult;
use crate::templates::TemplateRecord;
use crate::{Error, Result, clock, random, traces};

/// How often a start that found no slot tries again.
const RETRY: Duration = Duration::from_millis(100);

/// What a sandbox is to be.
#[derive(Debug, Clone)]
pub struct CreatePlan {
    /// Its owner.
    pub team: Team,
    /// What it is made from.
    pub build: TemplateRecord,
    /// The files it begins with on top of that.
    pub files: Files,
    /// How long its first session lasts.
    pub timeout: Duration,
    /// What happens then.
    pub on_expiry: OnExpiry,
    /// Whether traffic wakes it.
    pub auto_resume: bool,
    /// Whether its agent demands its token.
    pub token: Token,
    /// What it may reach and how it is reached.
    pub network: NetworkRules,
    /// The user's own labels.
    pub metadata: BTreeMap<String, String>,
    /// Variables of every process.
    pub env_vars: BTreeMap<String, String>,
    /// Opaque; kept as given.
    pub mcp: Option<serde_json::Value>,
    /// Volumes it sees.
    pub mounts: Vec<VolumeMount>,
}

/// Whether the agent demands its token. There always is one: some clients can be told apart by nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// Requests without it are refused.
    Required,
    /// Requests without it are let in; clients before 1.5 cannot send it.
    Optional,
}

/// A plan that counts against the team's limit.
struct Reserved {
    plan: CreatePlan,
    details: Details,
    slot: Slot,
}

/// A sandbox that runs and is known to nobody.
struct Launched {
    reserved: Reserved,
    handle: Handle,
}

/// Makes a sandbox; its driver is registered and waits to be run.
pub(super) async fn create(shared: &Arc<Shared>, plan: CreatePlan) -> Result<Driver> {
    let team = plan.team.id;
    let span = info_span!("create", team_id = %team, sandbox_id = Empty, otel.status_code = Empty);
    let made = try_create(shared, plan).instrument(span.clone()).await;
    if made.is_err() {
        traces::failed(&span);
    }
    traces::end(&span);
    made
}

async fn try_create(shared: &Arc<Shared>, plan: CreatePlan) -> Result<Driver> {
    let asked = Instant::now();
    let (reserved, turn) = match queue(shared, plan).instrument(info_span!("queue")).await {
        Ok(turn) => turn,
        Err(error) => {
            shared.telemetry.start_ended(StartResult::Refused);
            return Err(error);
        }
    };
    shared.telemetry.waited(asked.elapsed());
    let began = Instant::now();
    let id = reserved.details.id.clone();
    Span::current().record("sandbox_id", field::display(&id));
    let started = async {
        let launched =
            reserved.launch(shared, &turn).instrument(info_span!("launch", sandbox_id = %id)).await?;
        launched.record(shared).instrument(info_span!("record", sandbox_id = %id)).await
    }
    .await;
    match &started {
        Ok(_) => {
            shared.telemetry.started_in(began.elapsed());
            shared.telemetry.start_ended(StartResult::Started);
        }
        Err(_) => shared.telemetry.start_ended(StartResult::Failed),
    }
    started
}

async fn queue(shared: &Shared, plan: CreatePlan) -> Result<(Reserved, Turn)> {
    let mut reserved = reserve(shared, plan)?;
    let turn = shared.admission.wait_for_turn(&mut reserved.slot).await?;
    Ok((reserved, turn))
}

fn reserve(shared: &Shared, plan: CreatePlan) -> Result<Reserved> {
    let slot = shared.admission.reserve(plan.team.id, plan.team.max_sandboxes)?;
    let details = details(random::sandbox_id(), &plan);
    Ok(Reserved { plan, details, slot })
}

impl Reserved {
    async fn launch(self, shared: &Shared, turn: &Turn) -> Result<Launched> {
        let Reserved { plan, details, .. } = &self;
        let spec = spec(shared, details, &plan.build, &plan.network, plan.files.clone());
        loop {
            let source = match shared.backend.create(spec.clone()).await {
                Ok(handle) => return Ok(Launched { reserved: self, handle }),
                Err(source) => source,
            };
            match source {
                // What a sandbox held is free only some time after it is gone.
                IsolateError::NoSlot(_) if tokio::time::Instant::now() < turn.deadline => {
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

/// What the backend is told to start: a new sandbox, or one that comes back.
pub(super) fn spec(
    shared: &Shared,
    details: &Details,
    build: &TemplateRecord,
    network: &NetworkRules,
    files: Files,
) -> SandboxSpec {
    let mut env = build.env.clone();
    env.extend(details.env_vars.clone());
    SandboxSpec {
        id: details.id.clone(),
        blueprint: Blueprint { limits: details.limits, ..build.blueprint(&shared.backend.layer_dir()) },
        files,
        mounts: details.mounts.iter().map(|mount| mount.seen.clone()).collect(),
        network: network.policy(),
        settings: AgentSettings {
            env_vars: Some(env),
            access_token: Some(details.access_token.clone()),
            token_required: Some(details.token_required),
            default_user: Some(build.default_user.clone()),
            default_workdir: build.default_workdir.clone(),
        },
    }
}

impl Launched {
    async fn record(self, shared: &Arc<Shared>) -> Result<Driver> {
        let Reserved { plan, details, slot } = self.reserved;
        let stored = Stored {
            session: Session::begin(clock::now(), plan.timeout, plan.team.max_session),
            settings: Settings { on_expiry: plan.on_expiry, network: plan.network },
            state: StoredState::Running,
            details,
        };
        let created = describe(&View::of_stored(&stored), &Happened::Created);
        crash::point("create.launched");
        if let Err(error) = shared.store.insert_sandbox(&stored, &created).await {
            if let Err(err) = self.handle.destroy().await {
                tracing::error!(sandbox_id = %stored.details.id, error = ?err, "sandbox was not removed completely");
            }
            return Err(error);
        }
        crash::point("create.recorded");
        let driver = shared.register(stored, plan.team, Some(self.handle), Some(slot));
        driver.journal.write(LogLevel::Info, "sandbox started");
        Ok(driver)
    }
}

fn details(id: SandboxId, plan: &CreatePlan) -> Details {
    let build = &plan.build;
    Details {
        id,
        team: plan.team.id,
        source: Source {
            template_id: build.template_id.clone(),
            build_id: build.build_id,
            alias: build.name.clone(),
            envd_version: build.envd_version.clone(),
        },
        build: Some(build.clone()),
        limits: plan.team.caps.applied(build.limits()),
        metadata: plan.metadata.clone(),
        env_vars: plan.env_vars.clone(),
        access_token: random::token(),
        token_required: plan.token == Token::Required,
        traffic_token: plan.network.is_private().then(random::token),
        timeout: plan.timeout,
        auto_resume: plan.auto_resume,
        mcp: plan.mcp.clone(),
        mounts: plan.mounts.clone(),
    }
}

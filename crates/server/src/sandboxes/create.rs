//! From a plan to a running sandbox. Each step that fails gives back what the steps before it took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandcove_isolate::{Error as IsolateError, Files, Handle, Limits, SandboxSpec, crash};
use sandcove_wire::api::observe::LogLevel;
use sandcove_wire::boot::{Boot, Settings as BootSettings};
use sandcove_wire::id::SandboxId;

use super::driver::Driver;
use super::lifecycle::{OnExpiry, Session};
use super::network::NetworkRules;
use super::quota::Slot;
use super::record::{Details, Settings, Source, Stored, StoredState};
use super::registry::Shared;
use crate::teams::Team;
use crate::templates::TemplateRecord;
use crate::{Error, Result, clock, random};

/// Processes and threads a sandbox may have.
const MAX_PIDS: u32 = 4096;
/// The name every sandbox knows itself by.
const HOSTNAME: &str = "e2b";

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
    let reserved = reserve(shared, plan)?;
    let launched = reserved.launch(shared).await?;
    launched.record(shared).await
}

fn reserve(shared: &Shared, plan: CreatePlan) -> Result<Reserved> {
    let most = plan.team.max_sandboxes;
    let slot = shared.quota.take(plan.team.id, most).ok_or(Error::TooManySandboxes(most))?;
    let details = details(random::sandbox_id(), &plan);
    Ok(Reserved { plan, details, slot })
}

impl Reserved {
    async fn launch(self, shared: &Shared) -> Result<Launched> {
        let Reserved { plan, details, .. } = &self;
        let spec = spec(shared, details, &plan.build, &plan.network, plan.files.clone());
        let handle = shared.backend.create(spec).await.map_err(|source| match source {
            IsolateError::NoSlot(_) | IsolateError::PoolFull => Error::NoCapacity(source),
            source => Error::CreateFailed { id: self.details.id.clone(), source },
        })?;
        Ok(Launched { reserved: self, handle })
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
    let layer_dir = shared.backend.layer_dir();
    let mut env = build.env.clone();
    env.extend(details.env_vars.clone());
    SandboxSpec {
        id: details.id.clone(),
        layers: build.layers.iter().map(|layer| layer_dir.join(layer)).collect(),
        limits: details.limits,
        network: network.policy(),
        boot: Boot {
            sandbox_id: details.id.clone(),
            template_id: build.template_id.to_string(),
            hostname: HOSTNAME.to_owned(),
            // The backend knows which name servers its network reaches.
            nameservers: Vec::new(),
            services: build.services.clone(),
            // The backend says so itself when it has one.
            zygote: false,
            settings: BootSettings {
                env_vars: Some(env),
                access_token: Some(details.access_token.clone()),
                token_required: Some(details.token_required),
                default_user: Some(build.default_user.clone()),
                default_workdir: build.default_workdir.clone(),
            },
        },
        files,
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
        crash::point("create.launched");
        if let Err(error) = shared.store.insert_sandbox(&stored).await {
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
        limits: Limits {
            memory_mib: build.memory_mib,
            cpus: build.cpu_count,
            pids: MAX_PIDS,
            disk_mib: build.disk_mib,
        },
        metadata: plan.metadata.clone(),
        env_vars: plan.env_vars.clone(),
        access_token: random::token(),
        token_required: plan.token == Token::Required,
        traffic_token: plan.network.is_private().then(random::token),
        timeout: plan.timeout,
        auto_resume: plan.auto_resume,
        mcp: plan.mcp.clone(),
    }
}

//! A build from its turn to its end.

use std::time::Instant;

use sandcove_isolate::crash;
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use tokio::sync::RwLockReadGuard;
use uuid::Uuid;

use super::engine::{Engine, Finished};
use super::failure::Failure;
use super::in_use::Uses;
use super::log::BuildLog;
use super::{Active, Shared};
use crate::domain::build::{BuildSecrets, BuildSpec, LogLevel, RegistryCredentials};
use crate::domain::team::Team;
use crate::{Error, Result};

/// Reason of a build that was cancelled without one.
const CANCELLED: &str = "build was cancelled";
/// Reason of a build that took too long.
const TIMED_OUT: &str = "build timed out";

/// A build that is to be run.
pub(super) struct Order {
    pub team: Team,
    pub build: Uuid,
    pub spec: BuildSpec,
    pub credentials: Option<RegistryCredentials>,
    pub secrets: BuildSecrets,
    /// Whether an earlier server had begun the build.
    pub is_resumed: bool,
}

/// A build in progress.
pub(super) struct Job<'a> {
    pub order: &'a Order,
    pub template: TemplateId,
    /// Name of the template, without namespace.
    pub name: String,
    pub cpu_count: u32,
    pub memory_mib: u64,
    pub disk_mib: u64,
    pub log: &'a BuildLog,
    /// Layers and snapshots that the build has looked up, until a row names them.
    pub uses: Uses,
}

/// Runs a build to its end, or until the server stops.
pub(super) async fn run(shared: &Shared, order: Order, active: &Active) {
    let build = order.build;
    if let Err(error) = try_run(shared, &order, active).await {
        tracing::error!(build_id = %build, error = &error as &dyn std::error::Error, "the outcome of a build was not stored");
    }
}

async fn try_run(shared: &Shared, order: &Order, active: &Active) -> Result<()> {
    let began = Instant::now();
    let job = job(shared, order, active).await?;
    let finished = tokio::select! {
        biased;
        // The row stays as it is: the next start of the server runs the build again.
        () = shared.stopping.cancelled() => return shared.store.count_beginning(order.build, -1).await,
        () = active.cancelled.cancelled() => {
            let why = active.why().clone();
            Err(Failure::new(why.as_deref().unwrap_or(CANCELLED)))
        }
        finished = in_turn(shared, &job) => finished,
    };
    match finished {
        Ok((finished, _busy)) => finish(shared, &job, finished, began).await,
        Err(failure) => {
            let reason = failure.reason(order.build);
            let text = format!("Build failed: {}", reason.message);
            job.log.write(LogLevel::Error, reason.step.as_deref(), text);
            shared.store.fail_build(order.build, &reason).await?;
            Ok(())
        }
    }
}

async fn job<'a>(shared: &Shared, order: &'a Order, active: &'a Active) -> Result<Job<'a>> {
    let row = shared.store.build_row(order.build).await?;
    let row = row.filter(|row| row.status == BuildStatus::Building);
    let row = row.ok_or(Error::Internal("a build that is not in progress was started"))?;
    Ok(Job {
        order,
        template: row.template,
        name: row.name,
        cpu_count: row.cpu_count,
        memory_mib: row.memory_mib,
        disk_mib: row.disk_mib,
        log: &active.log,
        uses: shared.in_use.uses(),
    })
}

/// Waits for the turn of a build, and builds. The guard keeps off deletions by hand until a row names the layers.
async fn in_turn<'s>(
    shared: &'s Shared,
    job: &Job<'_>,
) -> Result<(Finished, RwLockReadGuard<'s, ()>), Failure> {
    if job.order.is_resumed {
        let text =
            "The server was restarted: the build begins again, with the cached results of finished steps";
        job.log.write(LogLevel::Warn, None, text);
    } else {
        job.log.write(
            LogLevel::Info,
            None,
            format!("Building template {}/{}", job.template, job.order.build),
        );
    }
    let (mut place, others) = shared.turns.enter(job.order.team.id);
    if others > 0 {
        let builds = if others == 1 { "build" } else { "builds" };
        job.log.write(LogLevel::Info, None, format!("Waiting for {others} other {builds} of this server"));
    }
    place.turn().await;
    let busy = shared.busy.read().await;
    shared.store.count_beginning(job.order.build, 1).await?;
    crash::point("build.begun");
    let built = tokio::time::timeout(shared.settings.timeout, Engine::new(shared, job).run()).await;
    built.unwrap_or_else(|_| Err(Failure::new(TIMED_OUT))).map(|finished| (finished, busy))
}

async fn finish(shared: &Shared, job: &Job<'_>, finished: Finished, began: Instant) -> Result<()> {
    // Before the status: clients read the log up to the first empty page after that.
    let text = format!("Build finished, took {}s", began.elapsed().as_secs());
    job.log.write(LogLevel::Info, None, text);
    crash::point("build.built");
    let Finished { record, first } = finished;
    if shared.store.finish_build(job.order.build, &record).await? {
        shared.templates.keep_ready(&job.order.team, &record, first).await;
    }
    crash::point("build.finished");
    Ok(())
}

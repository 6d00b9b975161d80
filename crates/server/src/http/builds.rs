//! Calls that build templates (contract: templates, sections 5, 7 and 8).

use axum::extract::{FromRequestParts, Path, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::request::Parts;
use sandcove_wire::api::admin::NodeStatus;
use sandcove_wire::api::build as wire;
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::id::TemplateId;
use tracing::Instrument;
use uuid::Uuid;

use super::auth::{Caller, Reader};
use super::body::{self, Required};
use super::logs::level;
use super::params::{Query, invalid};
use super::templates::{check_team, waiting};
use crate::builds::Builds;
use crate::domain::build::{
    BuildBase, BuildRow, BuildSecrets, BuildSpec, BuildStep, InsertedBuild, LogEntry, LogLevel, NewBuild,
    RegistryCredentials,
};
use crate::domain::limits::{BUILD_SPEC_BYTES, BUILD_STEPS, BUILD_WAIT};
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::state::App;
use crate::templates::{check_namespace, tags_to_set};
use crate::{Error, Result, clock};

/// Prefix of a base that is a template, not an image.
const TEMPLATE: &str = "template://";
/// Maximum length of a name with namespace and tag, characters.
const MAX_NAME: usize = 128;
/// Maximum number of CPUs of a sandbox.
const MAX_CPUS: i64 = 32;
/// Minimum memory of a sandbox, MiB.
const MIN_MEMORY_MIB: i64 = 128;
const DEFAULT_CPUS: u32 = 2;
const DEFAULT_MEMORY_MIB: u64 = 1024;
const DEFAULT_DISK_MIB: u64 = 10 << 10;
/// Maximum and default number of log entries in one answer.
const MAX_ENTRIES: i64 = 100;

/// Maximum number of secrets of a build, and size of one, bytes.
const MAX_SECRETS: usize = 100;
const MAX_SECRET_BYTES: usize = 500 << 10;

/// Reserves a template and a build, which waits for its start.
pub(super) async fn request(
    State(app): State<App>,
    Caller(team): Caller,
    Required(body): Required<wire::NewTemplate>,
) -> Result<Response> {
    let new = new_build(&team, &body)?;
    let inserted = insert(&app, &team, &new).await?;
    let answer = wire::RequestedBuild {
        template_id: inserted.template_id.to_string(),
        build_id: inserted.build_id.to_string(),
        public: inserted.public,
        names: inserted.names,
        tags: new.tags,
        aliases: vec![new.name],
    };
    Ok(body::json(StatusCode::ACCEPTED, &answer))
}

/// The call of releases 2.2 to 2.5, whose answer is the template.
pub(super) async fn request_v2(
    State(app): State<App>,
    Caller(team): Caller,
    Required(body): Required<wire::NewTemplate>,
) -> Result<Response> {
    let new = new_build(&team, &body)?;
    let inserted = insert(&app, &team, &new).await?;
    let template = app.templates().visible(&team, &inserted.template_id.to_string().parse()?).await?;
    Ok(body::json(StatusCode::ACCEPTED, &waiting(&template, inserted.build_id, &new)))
}

/// Starts a build that waits.
pub(super) async fn start(
    State(app): State<App>,
    Caller(team): Caller,
    build: OfPath,
    Required(body): Required<wire::StartBuild>,
) -> Result<StatusCode> {
    if app.is_draining() || app.node().status().0 == NodeStatus::Draining {
        return Err(Error::Draining);
    }
    let template = own_template(&app, &team, &build.template).await?;
    let secrets = secrets(&body)?;
    let (spec, credentials) = spec(body)?;
    // A build that has begun is run even if the client hangs up.
    let begun = tokio::spawn(
        async move {
            let begun = app.store().begin_build(&team, &template, build.id, &spec).await?;
            app.builds().cancel(&begun.superseded, "build was cancelled");
            app.builds().run(team, build.id, spec, credentials, secrets);
            Ok(StatusCode::ACCEPTED)
        }
        .in_current_span(),
    );
    begun.await.unwrap_or(Err(Error::Internal("the task that began a build ended early")))
}

/// The status of a build and a page of its log. Clients poll until the status is final, and then until a page is empty.
pub(super) async fn status(
    State(app): State<App>,
    Reader(team): Reader,
    build: OfPath,
    query: Query,
) -> Result<Response> {
    let offset = usize::try_from(query.integer_in("logsOffset", 0..=i64::MAX, 0)?).unwrap_or(usize::MAX);
    let limit = limit(&query)?;
    let level = level(&query)?;
    // The status first: the log of a build that has ended is complete.
    let row = find(&app, &team, &build).await?;
    let log_entries = match row.status {
        BuildStatus::Waiting => Vec::new(),
        BuildStatus::Building | BuildStatus::Ready | BuildStatus::Error => {
            app.builds().log(row.build, offset, limit, level).await?
        }
    };
    let info = wire::BuildInfo {
        template_id: row.template.to_string(),
        build_id: row.build.to_string(),
        status: row.status,
        logs: Vec::new(),
        log_entries: log_entries.into_iter().map(shown).collect(),
        reason: reason(app.builds(), &row).await?,
    };
    Ok(body::json(StatusCode::OK, &info))
}

/// Lists log entries of a build from `cursor` on, in either direction.
pub(super) async fn logs(
    State(app): State<App>,
    Reader(team): Reader,
    build: OfPath,
    query: Query,
) -> Result<Response> {
    let limit = limit(&query)?;
    let cursor = query.integer("cursor")?;
    let forward = match query.text("direction") {
        None | Some("forward") => true,
        Some("backward") => false,
        Some(_) => return Err(invalid("direction", "must be forward or backward")),
    };
    if !matches!(query.text("source"), None | Some("temporary" | "persistent")) {
        return Err(invalid("source", "must be temporary or persistent"));
    }
    let level = level(&query)?;
    let row = find(&app, &team, &build).await?;
    let mut entries = app.builds().log(row.build, 0, usize::MAX, level).await?;
    entries.retain(|entry| {
        let time = entry.timestamp.as_millisecond();
        cursor.is_none_or(|cursor| if forward { time >= cursor } else { time <= cursor })
    });
    if !forward {
        entries.reverse();
    }
    entries.truncate(limit);
    let logs = wire::BuildLogs { logs: entries.into_iter().map(shown).collect() };
    Ok(body::json(StatusCode::OK, &logs))
}

/// The template and build that a path names: `{id}` and `{build}`.
pub(super) struct OfPath {
    template: Reference,
    id: Uuid,
}

impl<S: Send + Sync> FromRequestParts<S> for OfPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path((template, build)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::InvalidTemplateReference("not UTF-8".into()))?;
        let id = Uuid::parse_str(&build).map_err(|_| Error::Refused("Invalid build id".into()))?;
        Ok(Self { template: template.parse()?, id })
    }
}

/// The build of a path; the template must be the team's own.
async fn find(app: &App, team: &Team, build: &OfPath) -> Result<BuildRow> {
    let template = own_template(app, team, &build.template).await?;
    // Clients have always been told so with this status.
    let missing = || Error::Refused(Error::BuildNotFound(build.id).to_string());
    let row = app.store().build_row(build.id).await?.filter(|row| row.template == template);
    let row = row.ok_or_else(missing)?;
    let waited = clock::now().as_microsecond() - row.created_at.as_microsecond();
    if row.status != BuildStatus::Waiting || waited <= BUILD_WAIT {
        return Ok(row);
    }
    app.store().expire_builds().await?;
    app.store().build_row(build.id).await?.ok_or_else(missing)
}

/// The id of the team's own template. For that of another team clients know a text that is only for builds.
async fn own_template(app: &App, team: &Team, reference: &Reference) -> Result<TemplateId> {
    match app.templates().owned(team, reference).await {
        Ok(template) => Ok(template.info.id),
        Err(Error::TemplateForbidden(_)) => Err(Error::BuildForbidden),
        Err(error) => Err(error),
    }
}

fn limit(query: &Query) -> Result<usize> {
    Ok(usize::try_from(query.integer_in("limit", 1..=MAX_ENTRIES, MAX_ENTRIES)?).unwrap_or(1))
}

/// The reason why a build failed, with the warnings and errors of the step that did.
async fn reason(builds: &Builds, row: &BuildRow) -> Result<Option<wire::BuildReason>> {
    let Some(reason) = &row.reason else { return Ok(None) };
    let mut log_entries = Vec::new();
    if reason.step.is_some() {
        log_entries = builds.log(row.build, 0, usize::MAX, Some(LogLevel::Warn)).await?;
        log_entries.retain(|entry| entry.step == reason.step);
        log_entries.drain(..log_entries.len().saturating_sub(MAX_ENTRIES as usize));
    }
    Ok(Some(wire::BuildReason {
        message: reason.message.clone(),
        step: reason.step.clone(),
        log_entries: log_entries.into_iter().map(shown).collect(),
    }))
}

fn shown(entry: LogEntry) -> wire::BuildLogEntry {
    let LogEntry { timestamp, level, message, step } = entry;
    wire::BuildLogEntry { timestamp, message, level, step }
}

async fn insert(app: &App, team: &Team, new: &NewBuild) -> Result<InsertedBuild> {
    let inserted = app.store().insert_build(team, new).await?;
    tracing::debug!(template = %inserted.template_id, build = %inserted.build_id, "build requested");
    Ok(inserted)
}

fn new_build(team: &Team, body: &wire::NewTemplate) -> Result<NewBuild> {
    check_team(team, body.team_id.as_deref())?;
    let given = [&body.name, &body.alias].into_iter().flatten().map(|name| name.trim());
    let name = given.into_iter().find(|name| !name.is_empty());
    let name = name.ok_or_else(|| Error::Refused("Name is required".into()))?;
    let invalid =
        || Error::Refused(format!("Invalid name: '{}'", name.chars().take(MAX_NAME).collect::<String>()));
    if name.chars().count() > MAX_NAME {
        return Err(invalid());
    }
    let reference: Reference = name.parse().map_err(|_| invalid())?;
    check_namespace(team, &reference)?;
    // `name:default` is the same as `name`.
    let own_tag = Some(reference.tag()).filter(|tag| *tag != Reference::DEFAULT_TAG).map(str::to_owned);
    let tags: Vec<String> = own_tag.into_iter().chain(body.tags.clone().unwrap_or_default()).collect();
    let mut tags = tags_to_set(&tags)?;
    if tags.is_empty() {
        tags.push(Reference::DEFAULT_TAG.to_owned());
    }
    Ok(NewBuild {
        name: reference.alias().to_owned(),
        tags,
        cpu_count: cpus(body.cpu_count, team)?,
        memory_mib: memory(body.memory_mb, team)?,
        disk_mib: disk(body.min_free_disk_mb, team)?,
    })
}

fn cpus(wanted: Option<i64>, team: &Team) -> Result<u32> {
    let refused = |text: String| Err(Error::Refused(text));
    let Some(wanted) = wanted else { return Ok(DEFAULT_CPUS.min(team.caps.cpus)) };
    let max = team.caps.cpus;
    match wanted {
        ..1 => refused("validation error: CPU count must be at least 1".into()),
        _ if wanted > MAX_CPUS => refused(format!("CPU count must be at most {MAX_CPUS}")),
        _ if wanted != 1 && wanted % 2 != 0 => refused("CPU count must be 1 or an even number".into()),
        _ => match u32::try_from(wanted) {
            Ok(wanted) if wanted <= max => Ok(wanted),
            _ => refused(format!("CPU count can't be higher than {max}, the maximum of your team")),
        },
    }
}

fn memory(wanted: Option<i64>, team: &Team) -> Result<u64> {
    let refused = |text: String| Err(Error::Refused(text));
    let Some(wanted) = wanted else { return Ok(DEFAULT_MEMORY_MIB.min(team.caps.memory_mib)) };
    let max = team.caps.memory_mib;
    match u64::try_from(wanted) {
        _ if wanted < MIN_MEMORY_MIB => {
            refused(format!("validation error: Memory must be at least {MIN_MEMORY_MIB} MiB"))
        }
        _ if wanted % 2 != 0 => refused("Memory must be divisible by 2".into()),
        Ok(wanted) if wanted <= max => Ok(wanted),
        _ => refused(format!("Memory can't be higher than {max} MiB, the maximum of your team")),
    }
}

/// The disk of sandboxes. Layers do not count, so all of it is free at first. What a client wants is granted as far as
/// possible, and less than the default changes nothing.
fn disk(min_free: Option<i64>, team: &Team) -> Result<u64> {
    let wanted = min_free.map(u64::try_from).transpose();
    let wanted = wanted.map_err(|_| invalid_member("minFreeDiskMb", "must not be negative"))?;
    Ok(wanted.unwrap_or_default().max(DEFAULT_DISK_MIB).min(team.caps.disk_mib))
}

fn spec(body: wire::StartBuild) -> Result<(BuildSpec, Option<RegistryCredentials>)> {
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let archive = match body.from_archive {
        Some(archive) => {
            check_hash(&archive.files_hash)?;
            Some(BuildBase::Archive { files_hash: archive.files_hash, image: given(archive.image) })
        }
        None => None,
    };
    let (from, credentials) = match (given(body.from_image), given(body.from_template), archive) {
        (None, None, Some(archive)) => (archive, None),
        // Official clients know no `FROM` for templates in a Dockerfile, and send what is there as an image.
        (Some(image), None, None) => match image.trim().strip_prefix(TEMPLATE) {
            Some(template) => (BuildBase::Template(template.to_owned()), None),
            None => (BuildBase::Image(image), body.from_image_registry.map(RegistryCredentials::from)),
        },
        // Clients send credentials that they were given for an image before.
        (None, Some(template), None) => (BuildBase::Template(template), None),
        (Some(_), Some(_), None) => {
            return Err(Error::Refused("cannot specify both fromImage and fromTemplate".into()));
        }
        (_, _, Some(_)) => {
            return Err(Error::Refused(
                "fromArchive cannot be combined with fromImage or fromTemplate".into(),
            ));
        }
        (None, None, None) => {
            return Err(Error::Refused("must specify either fromImage or fromTemplate".into()));
        }
    };
    if body.steps.len() > BUILD_STEPS {
        let given = body.steps.len();
        return Err(invalid_member(
            "steps",
            &format!("must have at most {BUILD_STEPS} entries, not {given}"),
        ));
    }
    let spec = BuildSpec {
        from,
        steps: body.steps.into_iter().map(step).collect::<Result<_>>()?,
        start_cmd: given(body.start_cmd),
        ready_cmd: given(body.ready_cmd),
        force: body.force.unwrap_or_default(),
    };
    let bytes = serde_json::to_vec(&spec).map_or(usize::MAX, |json| json.len());
    if bytes > BUILD_SPEC_BYTES {
        return Err(invalid_member(
            "steps",
            &format!("must have at most {BUILD_SPEC_BYTES} bytes, not {bytes}"),
        ));
    }
    Ok((spec, credentials))
}

fn step(step: wire::TemplateStep) -> Result<BuildStep> {
    let files_hash = step.files_hash.filter(|hash| !hash.is_empty());
    files_hash.as_deref().map_or(Ok(()), check_hash)?;
    for mount in &step.mounts {
        if let wire::StepMount::Bind { files_hash, .. } = mount {
            check_hash(files_hash)?;
        }
    }
    let wire::TemplateStep { kind, args, force, mounts, .. } = step;
    Ok(BuildStep { kind, args, files_hash, force: force.unwrap_or_default(), mounts })
}

fn secrets(body: &wire::StartBuild) -> Result<BuildSecrets> {
    let refused = |text: &str| invalid_member("secrets", text);
    if body.secrets.len() > MAX_SECRETS {
        return Err(refused(&format!("must have at most {MAX_SECRETS} entries")));
    }
    let decoded = body.secrets.iter().map(|(id, secret)| match STANDARD.decode(secret.expose()) {
        Ok(secret) if secret.len() <= MAX_SECRET_BYTES => Ok((id.clone(), secret)),
        Ok(_) => Err(refused(&format!("must have at most {MAX_SECRET_BYTES} bytes each"))),
        Err(_) => Err(refused("must be in base64")),
    });
    decoded.collect()
}

/// Checks the hash of uploaded files, which is part of a path on the server.
pub(super) fn check_hash(hash: &str) -> Result<()> {
    let is_hex = hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if hash.len() == 64 && is_hex { Ok(()) } else { Err(Error::Refused("Invalid files hash".into())) }
}

fn invalid_member(name: &str, why: &str) -> Error {
    Error::InvalidRequest(format!("property \"{name}\" {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_is_what_its_request_says() {
        let body = json!({
            "fromTemplate": "tools:v1",
            "fromImageRegistry": { "type": "registry", "username": "u", "password": "left over" },
            "steps": [
                { "type": "COPY", "args": ["a", "b"], "filesHash": "ab".repeat(32), "gzip": true, "resolveSymlinks": null },
                { "type": "run", "args": ["true"], "force": true },
            ],
            "startCmd": "sleep 1",
            "readyCmd": " ",
        });
        let (spec, credentials) = spec(serde_json::from_value(body).unwrap()).unwrap();
        assert_eq!((&spec.from, credentials.is_none()), (&BuildBase::Template("tools:v1".into()), true));
        assert_eq!((spec.start_cmd.as_deref(), spec.ready_cmd, spec.force), (Some("sleep 1"), None, false));
        let steps: Vec<_> = spec.steps.iter().map(|step| (step.kind.as_str(), step.force)).collect();
        assert_eq!(steps, [("COPY", false), ("run", true)]);
        assert_eq!(spec.steps[0].files_hash.as_deref(), Some("ab".repeat(32).as_str()));
    }
}

//! Calls for templates: read, publish, delete (contract: templates, sections 15 and 16; control-plane, section 9.3).

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use sandcove_isolate::WarmState;
use sandcove_wire::api::template as wire;
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::boot::{ENV_PYTHON, ENV_WARM_MODULES, ENVD_VERSION, INTERPRETER, PYTHON};
use uuid::Uuid;

use super::auth::{Caller, Reader};
use super::body::{self, Optional};
use super::paging::{PageRequest, Position};
use super::params::Query;
use crate::domain::build::NewBuild;
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::domain::template::{BuildEntry, ListedTemplate, TemplateRecord};
use crate::state::App;
use crate::{Error, Result};

/// The template a path names: `{id}`, or `{namespace}/{name}` of clients that do not encode the slash.
pub(super) struct Named(pub(super) Reference);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::InvalidTemplateReference("not UTF-8".into()))?;
        let pieces: Vec<String> = params
            .iter()
            .map(|(_, value)| percent_decode_str(value).decode_utf8_lossy().into_owned())
            .collect();
        let text = pieces.join("/");
        Ok(Self(text.parse()?))
    }
}

pub(super) async fn list(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    check_team(&team, query.text("teamID"))?;
    let mut templates = app.templates().list(&team).await?;
    // The order of this call has always been the other way round.
    templates.reverse();
    Ok(body::json(StatusCode::OK, &templates.iter().map(listed).collect::<Vec<_>>()))
}

pub(super) async fn list_paged(
    State(app): State<App>,
    Reader(team): Reader,
    query: Query,
) -> Result<Response> {
    check_team(&team, query.text("teamID"))?;
    let page = PageRequest::from_query(&query)?.cut(app.templates().list(&team).await?, |template| {
        Position { time: template.info.created_at, id: template.info.id.to_string() }
    });
    let mut answer = body::json(StatusCode::OK, &page.rows.iter().map(listed).collect::<Vec<_>>());
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

pub(super) async fn defaults(State(app): State<App>, Reader(team): Reader) -> Result<Response> {
    let mut templates = app.templates().list(&team).await?;
    templates.retain(|template| template.info.team.is_none());
    Ok(body::json(StatusCode::OK, &templates.iter().map(listed).collect::<Vec<_>>()))
}

pub(super) async fn detail(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
    query: Query,
) -> Result<Response> {
    let template = app.templates().visible(&team, &reference).await?;
    let builds = app.templates().builds(&template.info.id).await?;
    let page = PageRequest::from_query(&query)?
        .cut(builds, |entry| Position { time: entry.created_at, id: entry.record.build_id.to_string() });
    let interpreter = match &template.build {
        Some(record) => interpreter(&app, record).await,
        None => None,
    };
    let detail = wire::TemplateWithBuilds {
        template: listed(&template),
        builds: page.rows.iter().map(build).collect(),
        interpreter: interpreter.map(|interpreter| {
            // The reason has lines of the template's own log.
            let reason = interpreter.reason.filter(|_| template.info.is_owned_by(&team));
            wire::TemplateInterpreter { reason, ..interpreter }
        }),
    };
    let mut answer = body::json(StatusCode::OK, &detail);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

/// The code interpreter of a build, and how warm it is.
async fn interpreter(app: &App, record: &TemplateRecord) -> Option<wire::TemplateInterpreter> {
    let service = record.services.iter().find(|service| service.name == INTERPRETER)?;
    let modules = service.env.get(ENV_WARM_MODULES);
    let split = |modules: &String| {
        modules.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let (state, memory_mib, start_ms, reason) = match app.templates().warm_state(record).await {
        Some(WarmState::Starting) => (wire::WarmInterpreterState::Starting, None, None, None),
        Some(WarmState::Ready { memory_mib, start_ms }) => {
            (wire::WarmInterpreterState::Ready, Some(memory_mib), Some(start_ms), None)
        }
        Some(WarmState::Failed { reason }) => (wire::WarmInterpreterState::Failed, None, None, Some(reason)),
        None => (wire::WarmInterpreterState::Evicted, None, None, None),
    };
    Some(wire::TemplateInterpreter {
        python: service.env.get(ENV_PYTHON).map_or(PYTHON, String::as_str).to_owned(),
        modules: modules.map(split),
        state,
        memory_mib,
        start_ms,
        reason,
    })
}

/// Answers whether an alias exists: clients read 200 as "exists, mine", 403 as "exists, not mine", 404 as "does not exist".
pub(super) async fn alias(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<Response> {
    if reference.namespace().is_some_and(|namespace| namespace != team.slug) {
        return Err(Error::Refused("the namespace must be the name of your own team".into()));
    }
    let template = app.templates().visible(&team, &reference).await?;
    if !template.info.is_owned_by(&team) {
        return Err(Error::TemplateForbidden(reference.to_string()));
    }
    let template_id = template.info.id.to_string();
    Ok(body::json(StatusCode::OK, &wire::TemplateAlias { template_id, public: template.info.public }))
}

/// Makes a template public or private.
pub(super) async fn update(
    State(app): State<App>,
    Caller(team): Caller,
    Named(reference): Named,
    Optional(body): Optional<wire::TemplateUpdate>,
) -> Result<Response> {
    let names = match body.public {
        Some(public) => app.templates().set_public(&team, &reference, public).await?,
        None => app.templates().owned(&team, &reference).await?.info.names(),
    };
    Ok(body::json(StatusCode::OK, &wire::TemplateNames { names }))
}

/// The first version of the call: a template that is made public gets its name in every team.
pub(super) async fn update_v1(
    State(app): State<App>,
    Caller(team): Caller,
    Named(reference): Named,
    Optional(body): Optional<wire::TemplateUpdate>,
) -> Result<Response> {
    match body.public {
        Some(true) => app.templates().publish_everywhere(&team, &reference).await?,
        Some(false) => app.templates().set_public(&team, &reference, false).await?,
        None => app.templates().owned(&team, &reference).await?.info.names(),
    };
    Ok(body::json(StatusCode::OK, &()))
}

/// Deletes a template of the team, or a snapshot, or one tag of a snapshot. One of another team is not found, also if it is public; those
/// that come with the server are known to everybody, and forbidden.
pub(super) async fn delete(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<StatusCode> {
    let template = app.templates().look_up(&team, &reference).await?;
    let id = &template.info.id;
    if template.is_snapshot {
        app.sandboxes().delete_snapshot(&team, id, &reference).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    if template.info.team.is_none() {
        return Err(Error::TemplateForbidden(reference.to_string()));
    }
    if !template.info.is_owned_by(&team) {
        return Err(Error::TemplateNotFound(reference.to_string()));
    }
    if reference.tag() != Reference::DEFAULT_TAG {
        return Err(Error::Refused(format!(
            "'{reference}' names a tag: remove it with DELETE /templates/tags, or delete the template '{}'",
            reference.without_tag()
        )));
    }
    if let Some(state) = app.sandboxes().state_of_users(id) {
        return Err(Error::TemplateInUse { template: reference.to_string(), state });
    }
    let builds = app.store().delete_template(id).await?;
    app.builds().forget(builds, "the template was deleted").await;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a team id other than that of the credentials.
pub(super) fn check_team(team: &Team, id: Option<&str>) -> Result<()> {
    match id {
        Some(id) if Uuid::parse_str(id) != Ok(team.id) => {
            Err(Error::Refused("the team ID is not that of the credentials".into()))
        }
        _ => Ok(()),
    }
}

/// A template as the lists show it. Without a ready build of the tag `default`, it has the nil build and no resources.
fn listed(template: &ListedTemplate) -> wire::Template {
    let (info, build) = (&template.info, template.build.as_ref());
    wire::Template {
        template_id: info.id.to_string(),
        build_id: build.map(|build| build.build_id).unwrap_or_default().to_string(),
        cpu_count: build.map(|build| build.cpu_count).unwrap_or_default(),
        memory_mb: build.map(|build| build.memory_mib).unwrap_or_default(),
        disk_size_mb: build.map(|build| build.disk_mib).unwrap_or_default(),
        public: info.public,
        aliases: info.aliases(),
        names: info.names(),
        created_at: info.created_at,
        updated_at: info.updated_at,
        created_by: None,
        last_spawned_at: info.last_spawned_at,
        spawn_count: info.spawn_count,
        build_count: info.build_count,
        envd_version: build.map_or(ENVD_VERSION, |build| &build.envd_version).to_owned(),
        build_status: template.status,
        is_default: Some(info.team.is_none()),
    }
}

/// A template with a build that waits, as releases before 2.6 expect it.
pub(super) fn waiting(template: &ListedTemplate, build: Uuid, new: &NewBuild) -> wire::Template {
    wire::Template {
        build_id: build.to_string(),
        cpu_count: new.cpu_count,
        memory_mb: new.memory_mib,
        disk_size_mb: new.disk_mib,
        build_status: BuildStatus::Waiting,
        ..listed(template)
    }
}

fn build(entry: &BuildEntry) -> wire::TemplateBuild {
    wire::TemplateBuild {
        build_id: entry.record.build_id.to_string(),
        status: entry.status,
        created_at: entry.created_at,
        updated_at: entry.updated_at,
        finished_at: entry.finished_at,
        cpu_count: entry.record.cpu_count,
        memory_mb: entry.record.memory_mib,
        disk_size_mb: Some(entry.record.disk_mib),
        envd_version: Some(entry.record.envd_version.clone()).filter(|version| !version.is_empty()),
    }
}

//! Calls that read templates (contract: control-plane, section 9.3).

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use sandcove_wire::api::template as wire;

use super::auth::Reader;
use super::body;
use super::paging::{PageRequest, Position};
use super::params::Query;
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::domain::template::{BuildEntry, TagEntry, Template};
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
    check_team(&team, &query)?;
    let templates = app.templates().list(&team).await?;
    Ok(body::json(StatusCode::OK, &templates.iter().map(|t| listed(t, &team)).collect::<Vec<_>>()))
}

pub(super) async fn list_paged(
    State(app): State<App>,
    Reader(team): Reader,
    query: Query,
) -> Result<Response> {
    check_team(&team, &query)?;
    let page = PageRequest::from_query(&query)?.cut(app.templates().list(&team).await?, |template| {
        Position { time: template.created_at, id: template.build.template_id.to_string() }
    });
    let rows: Vec<_> = page.rows.iter().map(|t| listed(t, &team)).collect();
    let mut answer = body::json(StatusCode::OK, &rows);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
}

pub(super) async fn defaults(State(app): State<App>, Reader(team): Reader) -> Result<Response> {
    let templates = app.templates().list(&team).await?;
    let own = templates.iter().filter(|template| template.team.is_none());
    Ok(body::json(StatusCode::OK, &own.map(|t| listed(t, &team)).collect::<Vec<_>>()))
}

pub(super) async fn detail(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
    query: Query,
) -> Result<Response> {
    let template = app.templates().resolve_or_forbid(&team, &reference).await?;
    let builds = app.templates().builds(&template.build.template_id).await?;
    let page = PageRequest::from_query(&query)?
        .cut(builds, |entry| Position { time: entry.created_at, id: entry.record.build_id.to_string() });
    let detail = wire::TemplateWithBuilds {
        template_id: template.build.template_id.to_string(),
        public: template.public,
        aliases: aliases(&template),
        names: names(&template, &team),
        created_at: template.created_at,
        updated_at: template.updated_at,
        last_spawned_at: template.last_spawned_at,
        spawn_count: template.spawn_count,
        builds: page.rows.iter().map(build).collect(),
    };
    let mut answer = body::json(StatusCode::OK, &detail);
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    Ok(answer)
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
    let template = app.templates().resolve_or_forbid(&team, &reference).await?;
    if !template.is_owned_by(&team) {
        return Err(Error::TemplateForbidden(reference.to_string()));
    }
    let template_id = template.build.template_id.to_string();
    Ok(body::json(StatusCode::OK, &wire::TemplateAlias { template_id, public: template.public }))
}

pub(super) async fn tags(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<Response> {
    let template = app.templates().resolve_or_forbid(&team, &reference).await?;
    let tags = app.templates().tags(&template.build.template_id).await?;
    let tag = |entry: &TagEntry| wire::TemplateTag {
        tag: entry.tag.clone(),
        build_id: entry.build_id.to_string(),
        created_at: entry.created_at,
    };
    Ok(body::json(StatusCode::OK, &tags.iter().map(tag).collect::<Vec<_>>()))
}

fn check_team(team: &Team, query: &Query) -> Result<()> {
    match query.text("teamID") {
        Some(id) if id != team.id.to_string() => {
            Err(Error::Refused("the team ID is not that of the credentials".into()))
        }
        _ => Ok(()),
    }
}

fn listed(template: &Template, team: &Team) -> wire::Template {
    wire::Template {
        template_id: template.build.template_id.to_string(),
        build_id: template.build.build_id.to_string(),
        cpu_count: template.build.cpu_count,
        memory_mb: template.build.memory_mib,
        disk_size_mb: template.build.disk_mib,
        public: template.public,
        aliases: aliases(template),
        names: names(template, team),
        created_at: template.created_at,
        updated_at: template.updated_at,
        created_by: None,
        last_spawned_at: template.last_spawned_at,
        spawn_count: template.spawn_count,
        build_count: template.build_count,
        envd_version: template.build.envd_version.clone(),
        build_status: template.status,
    }
}

/// The names of a template without namespace; none for a snapshot without a name.
fn aliases(template: &Template) -> Vec<String> {
    Some(template.build.name.clone()).into_iter().filter(|name| !name.is_empty()).collect()
}

fn names(template: &Template, team: &Team) -> Vec<String> {
    let full = |name| if template.is_owned_by(team) { format!("{}/{name}", team.slug) } else { name };
    aliases(template).into_iter().map(full).collect()
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
        envd_version: Some(entry.record.envd_version.clone()),
    }
}

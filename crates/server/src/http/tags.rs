//! Calls for the tags of templates (contract: templates, sections 3 and 16).

use std::cmp::Reverse;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::StatusCode;
use jiff::Timestamp;
use sandcove_wire::api::tag as wire;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::auth::{Caller, Reader};
use super::body::{self, Required};
use super::params::{Path, Query, invalid};
use super::templates::Named;
use crate::domain::reference::{Reference, normalized_tag};
use crate::domain::team::Team;
use crate::domain::template::{TagAssignment, TagEntry};
use crate::state::App;
use crate::{Error, Result};

/// Maximum number of tags, and of assignments, in one answer.
const MAX_PAGE: i64 = 100;
/// Default number of tags in one answer.
const DEFAULT_TAGS: i64 = 25;
/// Default number of assignments of each tag in a list.
const DEFAULT_LATEST: i64 = 6;
/// Default number of assignments of one tag.
const DEFAULT_ASSIGNMENTS: i64 = 50;

pub(super) async fn list(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<Response> {
    let template = app.templates().visible(&team, &reference).await?;
    let tags = app.templates().tags(&template.info.id).await?;
    let tag = |entry: &TagEntry| wire::TemplateTag {
        tag: entry.tag.clone(),
        build_id: entry.build_id.to_string(),
        created_at: entry.created_at,
    };
    Ok(body::json(StatusCode::OK, &tags.iter().map(tag).collect::<Vec<_>>()))
}

pub(super) async fn assign(
    State(app): State<App>,
    Caller(team): Caller,
    Required(body): Required<wire::AssignTags>,
) -> Result<Response> {
    let target: Reference = body.target.parse()?;
    let (build, tags) = app.templates().assign_tags(&team, &target, &body.tags).await?;
    Ok(body::json(StatusCode::CREATED, &wire::AssignedTags { tags, build_id: build.to_string() }))
}

pub(super) async fn remove(
    State(app): State<App>,
    Reader(team): Reader,
    Required(body): Required<wire::RemoveTags>,
) -> Result<StatusCode> {
    let name: Reference = body.name.parse()?;
    app.templates().remove_tags(&team, &name, &body.tags).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn count(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
) -> Result<Response> {
    let template = app.templates().visible(&team, &reference).await?;
    let tags = app.templates().tags(&template.info.id).await?;
    let total = i64::try_from(tags.len()).unwrap_or(i64::MAX);
    Ok(body::json(StatusCode::OK, &wire::TagCount { total }))
}

pub(super) async fn exists(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
    query: Query,
) -> Result<Response> {
    let tag = query.text("tag").ok_or_else(|| invalid("tag", "is required"))?;
    let normalized_tag = normalized(tag)?;
    let template = app.templates().visible(&team, &reference).await?;
    let tags = app.templates().tags(&template.info.id).await?;
    let exists = tags.iter().any(|entry| entry.tag == normalized_tag);
    Ok(body::json(StatusCode::OK, &wire::TagExists { exists, normalized_tag }))
}

/// Lists the tags of a template, each with its latest assignments.
pub(super) async fn groups(
    State(app): State<App>,
    Reader(team): Reader,
    Named(reference): Named,
    query: Query,
) -> Result<Response> {
    let latest = count_of(query.integer_in("assignmentLimit", 1..=MAX_PAGE, DEFAULT_LATEST)?);
    let limit = count_of(query.integer_in("tagsLimit", 1..=MAX_PAGE, DEFAULT_TAGS)?);
    let sort = Sort::from_query(&query)?;
    let after = query.text("tagsCursor").map(parse_cursor).transpose()?;
    let search = query.text("search").unwrap_or_default().trim().to_lowercase();
    let mut groups: Vec<(Cursor, Vec<TagAssignment>)> = history(&app, &team, &reference)
        .await?
        .into_iter()
        .filter(|(tag, _)| tag.contains(&search))
        .map(|(tag, assignments)| {
            let time = assignments.first().map(|newest| newest.assigned_at).unwrap_or_default();
            (Cursor { time, text: tag }, assignments)
        })
        .collect();
    groups.sort_by(|(a, _), (b, _)| sort.compare(a, b));
    if let Some(after) = &after {
        groups.retain(|(place, _)| sort.compare(place, after).is_gt());
    }
    let is_last = groups.len() <= limit;
    groups.truncate(limit);
    let next_cursor = groups.last().filter(|_| !is_last).map(|(place, _)| cursor(place));
    let group = |(place, mut assignments): (Cursor, Vec<TagAssignment>)| {
        let has_more = assignments.len() > latest;
        assignments.truncate(latest);
        wire::TagGroup {
            assignments: assignments.iter().map(assignment).collect(),
            tag: place.text,
            has_more,
        }
    };
    let tags = groups.into_iter().map(group).collect();
    Ok(body::json(StatusCode::OK, &wire::TagGroups { tags, next_cursor }))
}

/// Lists the assignments of one tag, newest first.
pub(super) async fn assignments(
    State(app): State<App>,
    Reader(team): Reader,
    Path((template, tag)): Path<(String, String)>,
    query: Query,
) -> Result<Response> {
    let reference: Reference = template.parse()?;
    let tag = normalized(&tag)?;
    let limit = count_of(query.integer_in("limit", 1..=MAX_PAGE, DEFAULT_ASSIGNMENTS)?);
    let after = query.text("cursor").map(parse_cursor).transpose()?;
    let missing = || Error::TagNotFound { template: reference.without_tag(), tag: tag.clone() };
    let mut tags = history(&app, &team, &reference).await?;
    let mut assignments = tags.remove(&tag).ok_or_else(missing)?;
    if let Some(after) = after {
        assignments.retain(|one| one.assigned_at < after.time);
    }
    let is_last = assignments.len() <= limit;
    assignments.truncate(limit);
    let last = assignments.last().filter(|_| !is_last);
    let next_cursor = last.map(|one| cursor(&Cursor { time: one.assigned_at, text: one.tag.clone() }));
    let data = assignments.iter().map(assignment).collect();
    Ok(body::json(StatusCode::OK, &wire::TagAssignments { data, next_cursor }))
}

type History = std::collections::BTreeMap<String, Vec<TagAssignment>>;

async fn history(app: &App, team: &Team, reference: &Reference) -> Result<History> {
    let template = app.templates().visible(team, reference).await?;
    app.templates().tag_history(&template.info.id).await
}

fn normalized(tag: &str) -> Result<String> {
    normalized_tag(tag).ok_or_else(|| invalid("tag", "must be of a-z, 0-9, -, _ and ., and no UUID"))
}

fn count_of(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(1)
}

/// An assignment, with an id that stays the same.
fn assignment(assignment: &TagAssignment) -> wire::TagAssignment {
    let TagAssignment { tag, build_id, assigned_at, build_created_at, build_finished_at } = assignment;
    wire::TagAssignment {
        assignment_id: assignment_id(tag, *build_id, *assigned_at).to_string(),
        build_id: build_id.to_string(),
        assigned_at: *assigned_at,
        build_created_at: *build_created_at,
        build_finished_at: *build_finished_at,
    }
}

/// The id of an assignment, made of what identifies it: a build belongs to one template.
fn assignment_id(tag: &str, build: Uuid, time: Timestamp) -> Uuid {
    let digest = Sha256::new()
        .chain_update(build.as_bytes())
        .chain_update(time.as_microsecond().to_be_bytes())
        .chain_update(tag.as_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// The order of tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    NewestFirst,
    OldestFirst,
    Name,
    NameReversed,
}

impl Sort {
    fn from_query(query: &Query) -> Result<Self> {
        match query.text("sort") {
            None | Some("latest_desc") => Ok(Self::NewestFirst),
            Some("latest_asc") => Ok(Self::OldestFirst),
            Some("name_asc") => Ok(Self::Name),
            Some("name_desc") => Ok(Self::NameReversed),
            Some(_) => Err(invalid("sort", "must be latest_desc, latest_asc, name_asc or name_desc")),
        }
    }

    fn compare(self, a: &Cursor, b: &Cursor) -> std::cmp::Ordering {
        let key = |cursor: &Cursor| (cursor.time, cursor.text.clone());
        match self {
            Self::NewestFirst => Reverse(key(a)).cmp(&Reverse(key(b))),
            Self::OldestFirst => key(a).cmp(&key(b)),
            Self::Name => a.text.cmp(&b.text),
            Self::NameReversed => b.text.cmp(&a.text),
        }
    }
}

/// The row after which a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    time: Timestamp,
    text: String,
}

fn cursor(place: &Cursor) -> String {
    URL_SAFE.encode(format!("{}__{}", place.time, place.text))
}

fn parse_cursor(token: &str) -> Result<Cursor> {
    let text = URL_SAFE.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or(Error::InvalidPageToken)?;
    let (time, tag) = text.split_once("__").ok_or(Error::InvalidPageToken)?;
    Ok(Cursor { time: time.parse().map_err(|_| Error::InvalidPageToken)?, text: tag.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_others_are_refused() {
        let place =
            Cursor { time: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap(), text: "a__b".into() };
        assert_eq!(parse_cursor(&cursor(&place)).unwrap(), place);
        for bad in ["", "!", "YWJj", "bm90LWEtdGltZV9fYQ=="] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_id_of_an_assignment_depends_on_all_of_it() {
        let (build, time) = (Uuid::from_u128(1), Timestamp::from_second(1).unwrap());
        let id = assignment_id("a", build, time);
        assert_eq!(id, assignment_id("a", build, time));
        assert_eq!(id.get_version_num(), 4);
        assert_ne!(id, assignment_id("b", build, time));
        assert_ne!(id, assignment_id("a", Uuid::from_u128(2), time));
        assert_ne!(id, assignment_id("a", build, Timestamp::from_second(2).unwrap()));
    }
}

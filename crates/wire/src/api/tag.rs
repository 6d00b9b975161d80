//! Tags of templates (contract: templates, sections 3 and 16).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An entry of `GET /templates/{id}/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTag {
    /// Name of the tag.
    pub tag: String,
    /// Id of the build that has the tag.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Time at which the tag was set.
    pub created_at: Timestamp,
}

/// Body of `POST /templates/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignTags {
    /// The build that gets the tags: `name[:tag]`, or `name:<build id>`.
    pub target: String,
    /// Tags to assign.
    pub tags: Vec<String>,
}

/// Answer of `POST /templates/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedTags {
    /// Tags that the build got.
    pub tags: Vec<String>,
    /// Id of the build; UUID.
    #[serde(rename = "buildID")]
    pub build_id: String,
}

/// Body of `DELETE /templates/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveTags {
    /// Name of the template, without a tag.
    pub name: String,
    /// Tags to remove.
    pub tags: Vec<String>,
}

/// Answer of `GET /templates/{id}/tags/count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagCount {
    /// Number of tags.
    pub total: i64,
}

/// Answer of `GET /templates/{id}/tags/exists`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagExists {
    /// Whether a build has the tag.
    pub exists: bool,
    /// The tag in lowercase, without surrounding space.
    pub normalized_tag: String,
}

/// Answer of `GET /templates/{id}/tags/groups`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagGroups {
    /// Tags, in the requested order.
    pub tags: Vec<TagGroup>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// A tag with its latest assignments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagGroup {
    /// Name of the tag.
    pub tag: String,
    /// Assignments, the newest first.
    pub assignments: Vec<TagAssignment>,
    /// Whether there are older assignments.
    pub has_more: bool,
}

/// Answer of `GET /templates/{id}/tags/{tag}/assignments`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagAssignments {
    /// Assignments, the newest first.
    pub data: Vec<TagAssignment>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// An assignment of a tag to a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TagAssignment {
    /// Id of the assignment; UUID.
    pub assignment_id: String,
    /// Id of the build; UUID.
    pub build_id: String,
    /// Time of the assignment.
    pub assigned_at: Timestamp,
    /// Time at which the build was requested.
    pub build_created_at: Timestamp,
    /// Time at which the build ended.
    pub build_finished_at: Option<Timestamp>,
}

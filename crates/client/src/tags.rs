//! Tags of templates (contract: templates, sections 3 and 16).

use http::Method;
use sandcove_wire::api::tag::{
    AssignTags, AssignedTags, RemoveTags, TagAssignment, TagAssignments, TagCount, TagExists, TagGroup,
    TagGroups, TemplateTag,
};

use crate::error::Result;
use crate::query::pairs;
use crate::server::{Client, segment};

/// Number of tags, and of assignments of one tag, that are read at a time. The server has no longer pages.
const PAGE: u32 = 100;

/// A filter for the tags of a template, and their order; the default matches all, the last assigned first.
#[derive(Debug, Clone, Default)]
pub struct TagFilter {
    /// Text that the names of the tags contain; any when unset.
    pub search: Option<String>,
    /// Order of the tags.
    pub order: TagOrder,
    /// Maximum number of assignments of each tag, 1 to 100; 6 when unset.
    pub assignments: Option<u32>,
}

/// The order of the tags of a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TagOrder {
    /// By the time of the last assignment, newest first.
    #[default]
    NewestFirst,
    /// By the time of the last assignment, oldest first.
    OldestFirst,
    /// By name.
    Name,
    /// By name, in reverse.
    NameReversed,
}

impl TagOrder {
    /// The order as the value of a parameter.
    fn value(self) -> &'static str {
        match self {
            Self::NewestFirst => "latest_desc",
            Self::OldestFirst => "latest_asc",
            Self::Name => "name_asc",
            Self::NameReversed => "name_desc",
        }
    }
}

impl Client {
    /// The tags of a template, by id or name.
    ///
    /// # Errors
    /// If the server does not know the template.
    pub async fn tags(&self, template: &str) -> Result<Vec<TemplateTag>> {
        self.json(Method::GET, &format!("/templates/{}/tags", segment(template)), None::<&()>).await
    }

    /// Gives tags to the build that `target` names: `name[:tag]` or `name:<build id>`.
    ///
    /// # Errors
    /// If the server does not know the build or refuses a tag.
    pub async fn assign_tags(&self, target: &str, tags: &[String]) -> Result<AssignedTags> {
        let body = AssignTags { target: target.to_owned(), tags: tags.to_vec() };
        self.json(Method::POST, "/templates/tags", Some(&body)).await
    }

    /// Removes tags of a template.
    ///
    /// # Errors
    /// If the server does not know the template, or refuses to remove a tag.
    pub async fn remove_tags(&self, name: &str, tags: &[String]) -> Result<()> {
        let body = RemoveTags { name: name.to_owned(), tags: tags.to_vec() };
        self.call(Method::DELETE, "/templates/tags", Some(&body)).await.map(drop)
    }

    /// The number of tags of a template, by id or name.
    ///
    /// # Errors
    /// If the server does not know the template.
    pub async fn tag_count(&self, template: &str) -> Result<i64> {
        let path = format!("/templates/{}/tags/count", segment(template));
        Ok(self.json::<TagCount>(Method::GET, &path, None::<&()>).await?.total)
    }

    /// Whether a template, by id or name, has a tag. The answer has the tag as the server writes it: in lowercase, without surrounding space.
    ///
    /// # Errors
    /// If the server does not know the template, or refuses the tag.
    pub async fn tag_exists(&self, template: &str, tag: &str) -> Result<TagExists> {
        let path = format!("/templates/{}/tags/exists?tag={}", segment(template), segment(tag));
        self.json(Method::GET, &path, None::<&()>).await
    }

    /// The tags of a template, by id or name, that a filter matches, each with its last assignments; all pages.
    ///
    /// # Errors
    /// If the server does not know the template, or refuses the filter.
    pub async fn tag_groups(&self, template: &str, filter: &TagFilter) -> Result<Vec<TagGroup>> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let query = pairs(&[
                ("search", filter.search.clone()),
                ("sort", Some(filter.order.value().to_owned())),
                ("assignmentLimit", filter.assignments.map(|limit| limit.to_string())),
                ("tagsLimit", Some(PAGE.to_string())),
                ("tagsCursor", cursor),
            ]);
            let path = format!("/templates/{}/tags/groups?{query}", segment(template));
            let page: TagGroups = self.json(Method::GET, &path, None::<&()>).await?;
            all.extend(page.tags);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// The builds that have had a tag of a template, by id or name, newest assignment first; all pages.
    ///
    /// # Errors
    /// If the server does not know the template, or the template has never had the tag.
    pub async fn tag_history(&self, template: &str, tag: &str) -> Result<Vec<TagAssignment>> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let query = pairs(&[("limit", Some(PAGE.to_string())), ("cursor", cursor)]);
            let path = format!("/templates/{}/tags/{}/assignments?{query}", segment(template), segment(tag));
            let page: TagAssignments = self.json(Method::GET, &path, None::<&()>).await?;
            all.extend(page.data);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }
}

//! Lists of sandboxes (contract: control-plane, section 6.4).

use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use sandcove_wire::id::TemplateId;

use super::auth::Reader;
use super::body;
use super::paging::{PageRequest, Position};
use super::params::{Query, invalid};
use super::sandboxes::listed;
use crate::domain::limits::map_length;
use crate::domain::reference::Reference;
use crate::domain::team::Team;
use crate::sandboxes::View;
use crate::state::App;
use crate::{Error, Result};

/// Maximum number of sandboxes in the list without pages.
const MAX_UNPAGED: usize = 5000;
/// Maximum size of the labels in the list without pages, bytes.
const MAX_UNPAGED_LABELS: usize = 16 << 20;

/// Lists running sandboxes, newest first.
pub(super) async fn running(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let metadata = query.metadata()?;
    let mut views = app.sandboxes().views(&team);
    views.retain(|view| !view.is_paused() && has_metadata(view, &metadata));
    if views.len() > MAX_UNPAGED {
        return Err(Error::Refused(format!("more than {MAX_UNPAGED} sandboxes match, use the paged list")));
    }
    let labels = views.iter().map(|view| map_length(&view.details.metadata));
    if !fit(labels, MAX_UNPAGED_LABELS) {
        let mib = MAX_UNPAGED_LABELS >> 20;
        return Err(Error::Refused(format!("labels of more than {mib} MiB match, use the paged list")));
    }
    views.sort_by_key(|view| std::cmp::Reverse(position(view)));
    Ok(body::json(StatusCode::OK, &views.iter().map(listed).collect::<Vec<_>>()))
}

/// Lists running and paused sandboxes, filtered and in pages.
pub(super) async fn paged(State(app): State<App>, Reader(team): Reader, query: Query) -> Result<Response> {
    let page = PageRequest::from_query(&query)?;
    let states = States::from_query(&query)?;
    let metadata = query.metadata()?;
    let started_after = query.time("startedAfter")?;
    let mut views = app.sandboxes().views(&team);
    if let Some(text) = query.text("template") {
        match template(&app, &team, text).await? {
            Some(id) => views.retain(|view| *view.details.build.template_id() == id),
            None => views.clear(),
        }
    }
    views.retain(|view| {
        states.include(view)
            && has_metadata(view, &metadata)
            && started_after.is_none_or(|time| view.session.started_at >= time)
    });
    let running = views.iter().filter(|view| !view.is_paused()).count();
    let page = page.cut(views, position);
    let mut answer = body::json(StatusCode::OK, &page.rows.iter().map(listed).collect::<Vec<_>>());
    if let Some(next) = page.next {
        answer.headers_mut().insert("x-next-token", next);
    }
    if states.running {
        answer.headers_mut().insert("x-total-running", HeaderValue::from(running));
    }
    Ok(answer)
}

struct States {
    running: bool,
    paused: bool,
}

impl States {
    fn from_query(query: &Query) -> Result<Self> {
        let named = query.list("state");
        if let Some(other) = named.iter().find(|state| !["running", "paused"].contains(state)) {
            return Err(invalid("state", &format!("must be running or paused, not {other}")));
        }
        let all = named.is_empty();
        Ok(Self { running: all || named.contains(&"running"), paused: all || named.contains(&"paused") })
    }

    fn include(&self, view: &View) -> bool {
        if view.is_paused() { self.paused } else { self.running }
    }
}

async fn template(app: &App, team: &Team, text: &str) -> Result<Option<TemplateId>> {
    let reference: Reference = text.parse()?;
    if reference.has_tag() {
        return Err(Error::Refused("the template filter must not carry a tag".into()));
    }
    app.templates().find_id(team, &reference).await
}

/// Whether the sum of `sizes` is at most `max`; those beyond are not looked at.
fn fit(mut sizes: impl Iterator<Item = usize>, max: usize) -> bool {
    sizes.try_fold(max, usize::checked_sub).is_some()
}

fn has_metadata(view: &View, wanted: &[(String, String)]) -> bool {
    wanted.iter().all(|(key, value)| view.details.metadata.get(key) == Some(value))
}

fn position(view: &View) -> Position {
    Position { time: view.session.started_at, id: view.details.id.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_looked_at_as_far_as_they_fit() {
        assert!(fit([3, 0, 4].into_iter(), 7));
        assert!(!fit(std::iter::repeat(1), 7));
    }
}

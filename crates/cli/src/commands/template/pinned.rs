//! The builds that the templates of a Dockerfile stand for now. Files that are copied from a template are uploaded again when it is
//! built again, so that their hashes depend on its build and not only on its name.

use std::collections::{BTreeMap, BTreeSet};

use sandcove_client::Client;
use sandcove_dockerfile::plan::{Base, Origin, Plan};

/// Tag of a reference without one.
const DEFAULT_TAG: &str = "default";

/// Ids of builds by the references of their templates.
pub type Pinned = BTreeMap<String, String>;

/// Looks up the templates of a Dockerfile. One that the server does not find is left out: its build or sandbox fails with the reason.
pub async fn pinned(client: &Client, plan: &Plan) -> Pinned {
    let mut pinned = Pinned::new();
    for reference in references(plan) {
        let (name, tag) = reference.split_once(':').unwrap_or((reference, DEFAULT_TAG));
        let tags = client.tags(name).await.unwrap_or_default();
        if let Some(found) = tags.into_iter().find(|known| known.tag == tag) {
            pinned.insert(reference.to_owned(), found.build_id);
        }
    }
    pinned
}

/// The templates that stages begin with or copy from.
fn references(plan: &Plan) -> BTreeSet<&str> {
    let bases = plan.stages.iter().filter_map(|stage| match &stage.base {
        Base::Template(reference) => Some(reference.as_str()),
        Base::Image(_) | Base::Scratch => None,
    });
    let sources = (0..plan.stages.len()).flat_map(|stage| plan.sources_of(stage));
    let sources = sources.filter_map(|origin| match origin {
        Origin::Template(reference) => Some(reference.as_str()),
        Origin::Context | Origin::Stage(_) | Origin::Image(_) => None,
    });
    bases.chain(sources).collect()
}

#[cfg(test)]
mod tests {
    use sandcove_dockerfile::plan::Options;
    use sandcove_dockerfile::source;

    use super::*;

    #[test]
    fn templates_of_all_stages_are_looked_up_once() {
        let text = "FROM template://a AS one\nRUN --mount=from=template://b:v1,target=/m true\nFROM template://a\nFROM x\nCOPY --from=template://t/c / /c";
        let plan = Plan::new(&source::parse(text).unwrap(), &Options::default()).unwrap();
        assert_eq!(references(&plan).into_iter().collect::<Vec<_>>(), ["a", "b:v1", "t/c"]);
    }
}

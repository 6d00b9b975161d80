//! Templates: registration of the server's own, lookup by reference, what their teams may change, and pools of those in use.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandcove_host::{Host, Prepared};
use sandcove_isolate::{Blueprint, Few, Files, PoolState, WarmState};
use sandcove_wire::id::TemplateId;
use uuid::Uuid;

use crate::config::WarmMemory;
use crate::domain::reference::{Reference, normalized_tag};
use crate::domain::team::Team;
use crate::domain::template::{
    BuildEntry, ListedTemplate, TagAssignment, TagEntry, Template, TemplateInfo, TemplateRecord,
};
use crate::store::Store;
use crate::{Error, Result};

/// Templates of teams that have pooled sandboxes at once.
const MAX_POOLED: usize = 16;
/// Pooled sandboxes of a team's template.
const POOLED_SANDBOXES: usize = 2;
/// Time after which a template that nobody uses has no pooled sandboxes any more.
const POOLED_TIME: Duration = Duration::from_secs(600);

/// A template of a team that has pooled sandboxes, and a warm interpreter if its sandboxes have one.
#[derive(Debug, Clone)]
struct Pooled {
    blueprint: Blueprint,
    used: Instant,
    /// The team that used it first, which the warm interpreter is charged to.
    team: Uuid,
}

/// The templates of this server.
#[derive(Clone)]
pub struct Templates {
    store: Store,
    host: Host,
    warm_memory: WarmMemory,
    /// Templates of teams that have pooled sandboxes.
    pooled: Arc<Mutex<Vec<Pooled>>>,
}

impl Templates {
    pub(crate) fn new(store: Store, host: Host, warm_memory: WarmMemory) -> Self {
        Self { store, host, warm_memory, pooled: Arc::default() }
    }

    /// Registers one of the server's own templates, or a new build of it, under the tag `default`. Public, owned by no
    /// team. A second call with the same build changes nothing. From now on the host side keeps a pool of sandboxes of the
    /// template.
    pub async fn upsert_builtin(&self, record: TemplateRecord) -> Result<()> {
        self.store.upsert_builtin(&record).await?;
        self.host.keep_ready(record.blueprint());
        Ok(())
    }

    /// Keeps pooled sandboxes of a team's template, of which a sandbox was or may soon be created. They are given back some time
    /// after the last use, or when other templates are used more. Snapshots have none: pooled sandboxes have no files. `first` is one
    /// that is ready already.
    pub async fn keep_ready(&self, team: &Team, record: &TemplateRecord, first: Option<Prepared>) {
        if record.files() != Files::Empty {
            return;
        }
        self.note_use(team, self.blueprint(team, record), first);
        self.evict().await;
    }

    fn note_use(&self, team: &Team, blueprint: Blueprint, first: Option<Prepared>) {
        let mut pooled = self.pooled.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pooled.iter_mut().find(|known| known.blueprint == blueprint);
        let is_new = known.is_none();
        match known {
            Some(known) => known.used = Instant::now(),
            None => pooled.push(Pooled { blueprint: blueprint.clone(), used: Instant::now(), team: team.id }),
        }
        if is_new || first.is_some() {
            // A warm interpreter may take as much as one sandbox of the template.
            let WarmMemory { total_mib, team_mib } = self.warm_memory;
            let warm_mib = blueprint.limits.memory_mib.min(total_mib).min(team_mib);
            self.host.keep_few_ready(blueprint, Few { sandboxes: POOLED_SANDBOXES, warm_mib }, first);
        }
    }

    /// Gives back what is kept beyond the limits, the least recently used first. The server's own templates are not among it.
    async fn evict(&self) {
        let stacks: Vec<Vec<PathBuf>> = {
            let pooled = self.pooled.lock().unwrap_or_else(PoisonError::into_inner);
            pooled.iter().map(|known| known.blueprint.layers.clone()).collect()
        };
        let states = self.host.warm_states(stacks.clone()).await.unwrap_or_default();
        let charges: HashMap<Vec<PathBuf>, u64> =
            stacks.into_iter().zip(states).filter_map(|(layers, state)| Some((layers, state?.1))).collect();
        let mut pooled = self.pooled.lock().unwrap_or_else(PoisonError::into_inner);
        let charge = |layers: &[PathBuf]| charges.get(layers).copied();
        while let Some(surplus) = surplus(&pooled, self.warm_memory, charge) {
            self.stop_keeping(&mut pooled, &surplus);
        }
    }

    /// The blueprint of sandboxes that `team` creates from a build.
    pub(crate) fn blueprint(&self, team: &Team, record: &TemplateRecord) -> Blueprint {
        record.blueprint_with(team.caps.applied(record.limits()))
    }

    /// The pooled sandboxes of each template that has any.
    pub(crate) async fn pool_states(&self) -> sandcove_isolate::Result<Vec<PoolState>> {
        self.host.pool_states().await
    }

    /// The state of the warm interpreter of a build, if its sandboxes have one and it is kept.
    pub async fn warm_state(&self, record: &TemplateRecord) -> Option<WarmState> {
        let layers = record.blueprint().layers;
        let states = self.host.warm_states(vec![layers]).await.unwrap_or_default();
        states.into_iter().next().flatten().map(|(state, _)| state)
    }

    /// Gives back the pooled sandboxes of templates that nobody used for a while.
    pub(crate) async fn expire_pooled(&self) {
        self.expire_unused();
        // A process that was replaced may have got more memory again.
        self.evict().await;
    }

    fn expire_unused(&self) {
        let mut pooled = self.pooled.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(unused) = pooled.iter().find(|known| known.used.elapsed() >= POOLED_TIME).cloned() {
            self.stop_keeping(&mut pooled, &unused.blueprint);
        }
    }

    fn stop_keeping(&self, pooled: &mut Vec<Pooled>, blueprint: &Blueprint) {
        // The host side knows pooled sandboxes by their layers.
        pooled.retain(|other| other.blueprint.layers != blueprint.layers);
        self.host.stop_keeping(&blueprint.layers);
    }

    /// The present build of one of the server's own templates.
    ///
    /// # Errors
    /// [`Error::TemplateNotFound`] when this server has no template of its own with this name.
    pub(crate) async fn builtin(&self, name: &str) -> Result<TemplateRecord> {
        let missing = || Error::TemplateNotFound(name.to_owned());
        let id = self.store.builtin_id(name).await?.ok_or_else(missing)?;
        let template = self.store.template(&id, Reference::DEFAULT_TAG).await?;
        template.map(|template| template.build).ok_or_else(missing)
    }

    /// The template and build a reference names, for `team` (contract: control-plane, section 4.2). Private templates
    /// of others are not found.
    pub async fn resolve(&self, team: &Team, reference: &Reference) -> Result<Template> {
        let template = self.store.resolve_template(team, reference).await?;
        if template.info.is_usable_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateNotFound(reference.to_string()))
        }
    }

    /// The template a reference names, for `team`, with or without a build that is ready. The tag of the reference must
    /// exist, unless it is the default one. A private template of another team is reported as forbidden.
    pub async fn visible(&self, team: &Team, reference: &Reference) -> Result<ListedTemplate> {
        let template = self.look_up(team, reference).await?;
        if !template.info.is_usable_by(team) {
            return Err(Error::TemplateForbidden(reference.to_string()));
        }
        let tag = reference.tag();
        if tag != Reference::DEFAULT_TAG && self.store.template(&template.info.id, tag).await?.is_none() {
            return Err(Error::TagNotFound { template: reference.without_tag(), tag: tag.to_owned() });
        }
        Ok(template)
    }

    /// The team's own template that a reference names, whatever its tag.
    ///
    /// # Errors
    /// [`Error::TemplateForbidden`] for a template of the server or of another team.
    pub async fn owned(&self, team: &Team, reference: &Reference) -> Result<ListedTemplate> {
        let template = self.look_up(team, reference).await?;
        if template.info.is_owned_by(team) {
            Ok(template)
        } else {
            Err(Error::TemplateForbidden(reference.to_string()))
        }
    }

    /// The template of a reference, of any team.
    pub(crate) async fn look_up(&self, team: &Team, reference: &Reference) -> Result<ListedTemplate> {
        let missing = || Error::TemplateNotFound(reference.to_string());
        let id = self.store.template_id(team, reference).await?.ok_or_else(missing)?;
        self.store.template_info(&id).await?.ok_or_else(missing)
    }

    /// The template id of a reference, whatever its tag; `None` when the team may use no such template.
    pub async fn find_id(&self, team: &Team, reference: &Reference) -> Result<Option<TemplateId>> {
        self.store.template_id(team, reference).await
    }

    /// The team's own templates and the server's, newest first; no snapshots.
    pub async fn list(&self, team: &Team) -> Result<Vec<ListedTemplate>> {
        self.store.templates(team).await
    }

    /// Every build of a template, newest first.
    pub async fn builds(&self, id: &TemplateId) -> Result<Vec<BuildEntry>> {
        self.store.template_builds(id).await
    }

    /// Every tag of a template, newest first.
    pub async fn tags(&self, id: &TemplateId) -> Result<Vec<TagEntry>> {
        self.store.template_tags(id).await
    }

    /// Every build that a tag of a template names or has named, by tag, newest first.
    pub async fn tag_history(&self, id: &TemplateId) -> Result<BTreeMap<String, Vec<TagAssignment>>> {
        let mut tags: BTreeMap<String, Vec<TagAssignment>> = BTreeMap::new();
        for assignment in self.store.tag_assignments(id).await? {
            tags.entry(assignment.tag.clone()).or_default().push(assignment);
        }
        Ok(tags)
    }

    /// Makes the team's template public or private, and returns its names.
    pub async fn set_public(&self, team: &Team, reference: &Reference, public: bool) -> Result<Vec<String>> {
        let template = self.owned(team, reference).await?;
        self.store.set_public(&template.info.id, public).await?;
        self.names(&template.info).await
    }

    /// Makes the team's template public under its own name in every team.
    ///
    /// # Errors
    /// [`Error::GlobalNameTaken`] when another template has that name; this one is not made public then.
    pub async fn publish_everywhere(&self, team: &Team, reference: &Reference) -> Result<Vec<String>> {
        let TemplateInfo { id, name, .. } = self.owned(team, reference).await?.info;
        if !name.is_empty() && !self.store.claim_name(&id).await? {
            return Err(Error::GlobalNameTaken { full: format!("{}/{name}", team.slug), alias: name });
        }
        self.set_public(team, reference, true).await
    }

    async fn names(&self, template: &TemplateInfo) -> Result<Vec<String>> {
        let now = self.store.template_info(&template.id).await?;
        Ok(now.map(|template| template.info.names()).unwrap_or_default())
    }

    /// Gives the build that `target` names these tags, and returns the build and the tags.
    ///
    /// # Errors
    /// [`Error::Refused`] for tags outside the grammar, and for snapshots, which get their tags when they are taken.
    pub async fn assign_tags(
        &self,
        team: &Team,
        target: &Reference,
        tags: &[String],
    ) -> Result<(Uuid, Vec<String>)> {
        check_namespace(team, target)?;
        let tags = tags_to_set(tags)?;
        if tags.is_empty() {
            return Err(Error::Refused("At least one tag is required".into()));
        }
        let template = self.owned_build_template(team, target).await?;
        let build = self.store.template(&template.id, target.tag()).await?.ok_or_else(|| {
            let (template, tag) = (target.without_tag(), target.tag());
            Error::TemplateTagNotFound { template, tag: tag.to_owned() }
        })?;
        let id = build.build.build_id;
        self.store.assign_tags(&template.id, id, &tags).await?;
        Ok((id, tags))
    }

    /// Removes tags of the team's template; those that it does not have are ignored.
    ///
    /// # Errors
    /// [`Error::Refused`] for the tag `default`, which cannot be removed.
    pub async fn remove_tags(&self, team: &Team, name: &Reference, tags: &[String]) -> Result<()> {
        check_namespace(team, name)?;
        if name.has_tag() {
            return Err(Error::Refused("the name of the template must not carry a tag".into()));
        }
        let tags = tags_to_set(tags)?;
        if tags.is_empty() {
            return Err(Error::Refused("At least one tag is required".into()));
        }
        if tags.iter().any(|tag| tag == Reference::DEFAULT_TAG) {
            return Err(Error::Refused("Cannot delete the 'default' tag".into()));
        }
        let template = self.owned_build_template(team, name).await?;
        self.store.remove_tags(&template.id, &tags).await
    }

    async fn owned_build_template(&self, team: &Team, reference: &Reference) -> Result<TemplateInfo> {
        let template = self.owned(team, reference).await?;
        if template.is_snapshot {
            return Err(Error::Refused(format!(
                "'{}' is a snapshot: its tags are set when it is taken",
                reference.without_tag()
            )));
        }
        Ok(template.info)
    }
}

/// The template whose pooled sandboxes and warm interpreter are given back next: the least recently used one of all, of a team that
/// is charged with too much memory, or of all with a warm interpreter. `charge` is the memory of the warm interpreter of these layers, MiB.
fn surplus(
    pooled: &[Pooled],
    memory: WarmMemory,
    charge: impl Fn(&[PathBuf]) -> Option<u64>,
) -> Option<Blueprint> {
    let mut warm: HashMap<&[PathBuf], (u64, Uuid)> = HashMap::new();
    for known in pooled {
        let layers = known.blueprint.layers.as_slice();
        if let Some(mib) = charge(layers) {
            warm.entry(layers).or_insert((mib, known.team));
        }
    }
    let sum = |is_counted: &dyn Fn(Uuid) -> bool| {
        warm.values().filter(|(_, team)| is_counted(*team)).map(|(mib, _)| mib).sum::<u64>()
    };
    let oldest = |is_candidate: &dyn Fn(&Pooled) -> bool| {
        let candidates = pooled.iter().filter(|known| is_candidate(known));
        candidates.min_by_key(|known| known.used).map(|known| known.blueprint.clone())
    };
    let charged = |known: &Pooled| warm.get(known.blueprint.layers.as_slice()).map(|(_, team)| *team);
    if pooled.len() > MAX_POOLED {
        return oldest(&|_| true);
    }
    let greedy = warm.values().find(|(_, team)| sum(&|other| other == *team) > memory.team_mib);
    if let Some((_, team)) = greedy {
        return oldest(&|known| charged(known) == Some(*team));
    }
    if sum(&|_| true) > memory.total_mib {
        return oldest(&|known| charged(known).is_some());
    }
    None
}

/// Refuses a namespace other than the team's own, for something new or changed.
pub(crate) fn check_namespace(team: &Team, reference: &Reference) -> Result<()> {
    match reference.namespace() {
        Some(namespace) if namespace != team.slug => {
            Err(Error::Refused(format!("namespace '{namespace}' must match your team '{}'", team.slug)))
        }
        _ => Ok(()),
    }
}

/// Tags as they are stored, each one once, in the order given.
pub(crate) fn tags_to_set(tags: &[String]) -> Result<Vec<String>> {
    let mut normalized = Vec::new();
    for tag in tags {
        let shown = || tag.chars().take(128).collect::<String>();
        let tag = normalized_tag(tag).ok_or_else(|| {
            Error::Refused(format!("Invalid tag: '{}' must be of a-z, 0-9, -, _ and ., and no UUID", shown()))
        })?;
        if !normalized.contains(&tag) {
            normalized.push(tag);
        }
    }
    Ok(normalized)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use sandcove_isolate::Limits;

    use super::*;
    use crate::domain::template::boot;

    const MEMORY: WarmMemory = WarmMemory { total_mib: 1000, team_mib: 600 };

    /// Ages are counted back from one moment, so that their order does not depend on how fast the test is.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// A template that `team` used `age` seconds ago.
    fn used(layer: &str, team: u128, age: u64) -> Pooled {
        let limits = Limits { memory_mib: 512, cpus: 1, pids: 1, disk_mib: 1 };
        let boot = boot(&"rki5dems9wqfm4r03t7g".parse().unwrap());
        Pooled {
            blueprint: Blueprint { layers: vec![layer.into()], limits, boot, started: None },
            used: START.checked_sub(Duration::from_secs(age)).unwrap(),
            team: Uuid::from_u128(team),
        }
    }

    fn evicted(pooled: &[Pooled], charge: impl Fn(&str) -> Option<u64>) -> Option<String> {
        let found = surplus(pooled, MEMORY, |layers| charge(layers[0].to_str().unwrap()));
        found.map(|blueprint| blueprint.layers[0].display().to_string())
    }

    #[test]
    fn the_least_recently_used_warm_interpreter_of_a_greedy_team_ends() {
        let pooled = [used("a", 1, 5), used("b", 1, 9), used("c", 2, 60)];
        assert_eq!(evicted(&pooled, |_| Some(300)), None);
        assert_eq!(
            evicted(&pooled, |layer| Some(if layer == "c" { 100 } else { 301 })),
            Some("b".to_owned())
        );
    }

    #[test]
    fn all_teams_together_have_a_limit() {
        let pooled = [used("a", 1, 5), used("b", 2, 9), used("c", 3, 7), used("cold", 4, 60)];
        let charge = |layer: &str| (layer != "cold").then_some(400);
        assert_eq!(evicted(&pooled, charge), Some("b".to_owned()));
    }

    #[test]
    fn layers_are_charged_once_and_templates_without_a_warm_interpreter_are_not() {
        let pooled = [used("a", 1, 5), used("a", 2, 9)];
        assert_eq!(evicted(&pooled, |_| Some(600)), None);
        assert_eq!(evicted(&pooled, |_| None), None);
    }

    #[test]
    fn pooled_sandboxes_of_few_templates_are_kept() {
        let pooled: Vec<_> = (0..=MAX_POOLED as u64).map(|age| used(&age.to_string(), 1, age)).collect();
        assert_eq!(evicted(&pooled, |_| None), Some(MAX_POOLED.to_string()));
        assert_eq!(evicted(&pooled[..MAX_POOLED], |_| None), None);
    }
}

//! The specification that the host side starts a sandbox from, a new one or one that is resumed from its files.

use sandcove_isolate::{Files, NetworkPolicy, SandboxSpec};
use sandcove_wire::boot::Settings as AgentSettings;

use crate::domain::sandbox::Details;
use crate::domain::template::TemplateRecord;

/// The specification of a sandbox for the host side.
pub(super) fn spec(
    details: &Details,
    build: &TemplateRecord,
    network: NetworkPolicy,
    files: Files,
) -> SandboxSpec {
    let mut env = build.env.clone();
    env.extend(details.env_vars.clone());
    SandboxSpec {
        id: details.id.clone(),
        blueprint: build.blueprint_with(details.limits),
        files,
        memory: false,
        mounts: details.mounts.iter().map(|mount| mount.mount.clone()).collect(),
        network,
        settings: AgentSettings {
            env_vars: Some(env),
            access_token: Some(details.access_token.clone()),
            token_required: Some(details.token_policy.is_required()),
            default_user: Some(build.default_user.clone()),
            default_workdir: build.default_workdir.clone(),
            ends_together: None,
            ca_bundle: None,
        },
    }
}

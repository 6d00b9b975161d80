//! A server in this process: what `serve` runs for good and `run` for one piece of code.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sandcove_image::{Builder, HostCertificates, Languages, LayerStore, Sources, Template, templates};
use sandcove_isolate::Backend;
use sandcove_server::App;
use sandcove_server::templates::TemplateRecord;
use sandcove_wire::boot::ENVD_VERSION;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::chroot::ChrootRunner;
use crate::data_dir::{Lock, ServerFile};
use crate::guest;
use crate::progress::Progress;
use crate::settings::Settings;

/// A server that is ready to be run.
pub struct Host {
    app: App,
    listener: TcpListener,
    file: ServerFile,
    _lock: Lock,
}

impl Host {
    /// Takes the data directory, prepares the pool and the templates, finds sandboxes of an earlier run, and binds the
    /// address.
    pub async fn prepare(settings: &Settings) -> Result<Self> {
        if !is_root() {
            bail!("a server needs root: it makes namespaces, mounts and cgroups for sandboxes");
        }
        let lock = Lock::take(&settings.data_dir)?;
        // Bound early: a taken port should not be found out after minutes of building.
        let listener = TcpListener::bind(settings.listen)
            .await
            .with_context(|| format!("failed to listen on {}", settings.listen))?;
        let libexec = guest::unpack(&settings.data_dir.join("libexec"))?;
        let backend = Backend::start(sandcove_isolate::Config {
            data_dir: settings.data_dir.clone(),
            libexec,
            program: std::env::current_exe().context("failed to find this program's own file")?,
            network: settings.network.clone(),
            dns: settings.dns.clone(),
            max_sandboxes: settings.max_sandboxes,
            pool_size_gib: settings.pool_size_gib,
            spares: settings.spares,
        })
        .await
        .context("failed to prepare this host for sandboxes: `sandcove doctor` shows what is missing")?;
        let layers = backend.layer_dir();
        let templates = build_templates(settings, &layers).await?;

        let url = url(listener.local_addr()?);
        let kept = ServerFile::read(&settings.data_dir)?.map(|file| file.api_key);
        let mut config = sandcove_server::Config::new(&settings.data_dir);
        config.domain.clone_from(&settings.domain);
        config.api_key = settings.api_key.clone().or(kept);
        config.access_token.clone_from(&settings.access_token);
        config.admin_token.clone_from(&settings.admin_token);
        config.max_sandboxes = settings.max_sandboxes;
        config.capacity = settings.max_sandboxes;
        config.volume_mib = settings.volume_size_gib << 10;
        config.rate_limit = settings.rate_limit;
        config.private_webhooks = settings.private_webhooks;
        let wanted = config.api_key.clone();
        let app = App::start(config, backend).await?;
        for template in &templates {
            app.templates().upsert_builtin(record(template)?).await?;
        }
        remove_unused_layers(&app, &layers).await?;
        let Some(api_key) = wanted.or_else(|| app.new_key().cloned()) else {
            bail!("the key of this data directory is unknown: set SANDCOVE_API_KEY to a key of your choice");
        };
        Ok(Self { app, listener, file: ServerFile { url, api_key, pid: std::process::id() }, _lock: lock })
    }

    /// How to reach it.
    pub fn file(&self) -> &ServerFile {
        &self.file
    }

    /// Serves until `stop` is cancelled. Sandboxes stay.
    pub async fn serve(self, stop: CancellationToken) -> Result<()> {
        self.app.serve(self.listener, stop).await?;
        Ok(())
    }
}

async fn build_templates(settings: &Settings, layers: &Path) -> Result<[Template; 2]> {
    let certificates = HostCertificates::read(Path::new(HostCertificates::DIRECTORY))?;
    let store = LayerStore::open(layers)?;
    let languages = match settings.all_languages {
        Some(true) => Languages::All,
        Some(false) => Languages::Lean,
        None if store.has_any(Languages::LAYER)? => Languages::All,
        None => Languages::Lean,
    };
    let templates = templates(&certificates, languages);
    let sources = Sources { cache: settings.template_cache.clone(), mirror: settings.debian_mirror.clone() };
    let builder = Builder::new(store, ChrootRunner, sources);
    let progress = Progress::new();
    builder.ensure(&templates, &mut |event| progress.show(&event)).await?;
    Ok(templates)
}

/// Gives back the space of layers that no template and no sandbox is made from any more. A server without that space is
/// better than none, so that only what is wrong with the database ends the start.
async fn remove_unused_layers(app: &App, layers: &Path) -> Result<()> {
    let Some(used) = app.store().layers_in_use().await? else { return Ok(()) };
    let store = LayerStore::open(layers)?;
    match tokio::task::spawn_blocking(move || store.collect(&used)).await? {
        Ok(removed) => removed.iter().for_each(|layer| tracing::info!(%layer, "removed an unused layer")),
        Err(error) => tracing::warn!(%error, "unused layers could not be removed"),
    }
    Ok(())
}

fn record(template: &Template) -> Result<TemplateRecord> {
    Ok(TemplateRecord {
        template_id: template.template_id.parse()?,
        build_id: template.build_id().parse()?,
        name: template.name.to_owned(),
        layers: template.layers.iter().rev().map(|layer| layer.id.to_string()).collect(),
        services: template.services.clone(),
        env: BTreeMap::new(),
        default_user: template.default_user.to_owned(),
        default_workdir: Some(template.default_workdir.to_owned()),
        cpu_count: template.cpu_count,
        memory_mib: template.memory_mib,
        disk_mib: template.disk_mib,
        envd_version: ENVD_VERSION.to_owned(),
        start_cmd: None,
        ready_cmd: None,
        snapshot_of: None,
    })
}

/// The address as a client on this machine uses it.
fn url(bound: SocketAddr) -> String {
    let host = match bound.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
        ip if ip.is_unspecified() => "[::1]".to_owned(),
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("http://{host}:{}", bound.port())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_one_a_client_here_can_use() {
        assert_eq!(url("0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80");
        assert_eq!(url("[::]:80".parse().unwrap()), "http://[::1]:80");
        assert_eq!(url("10.0.0.1:80".parse().unwrap()), "http://10.0.0.1:80");
    }
}

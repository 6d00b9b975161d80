//! A server without sandboxes behind it, for trying clients of the API without root:
//! `cargo run -p sandcove-server --example fake -- 127.0.0.1:3000 e2b_00`.

use std::collections::BTreeMap;

use sandcove_host::Host;
use sandcove_isolate::Backend;
use sandcove_server::domain::template::TemplateRecord;
use sandcove_server::{App, Config};
use sandcove_wire::boot::ENVD_VERSION;
use sandcove_wire::secret::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let directory = tempfile::tempdir()?;
    let mut config = Config::new(directory.path());
    config.api_key = arguments.next().map(Secret::new);
    let app = App::start(config, Host::here(Backend::fake())).await?;
    app.templates()
        .upsert_builtin(TemplateRecord {
            template_id: "base0000000000000000".parse()?,
            build_id: uuid::Uuid::new_v4(),
            name: "base".into(),
            layers: vec![],
            services: vec![],
            env: BTreeMap::new(),
            default_user: "user".into(),
            default_workdir: None,
            build_env: BTreeMap::new(),
            cpu_count: 2,
            memory_mib: 1024,
            disk_mib: 10_240,
            envd_version: ENVD_VERSION.into(),
            start_cmd: None,
            ready_cmd: None,
            snapshot_of: None,
            memory_bytes: None,
            started: None,
        })
        .await?;
    if let Some(key) = app.new_key() {
        println!("export E2B_API_KEY={}", key.expose());
    }
    let listener = TcpListener::bind(&address).await?;
    println!("export E2B_API_URL=http://{0} E2B_SANDBOX_URL=http://{0}", listener.local_addr()?);
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    app.serve(listener, shutdown).await?;
    Ok(())
}

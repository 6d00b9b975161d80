//! Bytes per second through the proxy: `cargo run --release -p sandcove-server --example throughput`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sandcove_isolate::Backend;
use sandcove_isolate::fake::Fake;
use sandcove_server::templates::TemplateRecord;
use sandcove_server::{App, Config};
use sandcove_wire::boot::ENVD_VERSION;
use sandcove_wire::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const TOTAL: usize = 4 << 30;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut config = Config::new(directory.path());
    config.api_key = Some(Secret::new("e2b_00"));
    let fake = Fake::default();
    let app = App::start(config, Backend::Fake(fake.clone())).await?;
    app.templates().upsert_builtin(template()?).await?;
    let service = TcpListener::bind("127.0.0.1:0").await?;
    fake.listen(8080, service.local_addr()?);
    tokio::spawn(pour(service));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = app.clone();
    tokio::spawn(async move { serving.serve(listener, CancellationToken::new()).await });
    let create = "POST /sandboxes HTTP/1.1\r\nhost: localhost\r\nx-api-key: e2b_00\r\ncontent-length: 37\r\n\r\n{\"templateID\":\"base\",\"timeout\":36000}";
    let mut api = TcpStream::connect(address).await?;
    api.write_all(create.as_bytes()).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let id = fake.ids().first().map(ToString::to_string).ok_or_else(|| anyhow::anyhow!("no sandbox"))?;

    for round in 0..3 {
        let mut stream = TcpStream::connect(address).await?;
        let start = Instant::now();
        stream
            .write_all(
                format!("GET / HTTP/1.1\r\nhost: 8080-{id}.localhost\r\nconnection: close\r\n\r\n")
                    .as_bytes(),
            )
            .await?;
        let mut buffer = vec![0; 1 << 20];
        let mut total = 0;
        loop {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => total += read,
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("round {round}: {:.2} GiB/s", total as f64 / seconds / f64::from(1 << 30));
    }
    Ok(())
}

/// Answers every connection with `TOTAL` bytes.
async fn pour(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut head = [0; 4096];
            anyhow::ensure!(stream.read(&mut head).await? > 0, "no request came");
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {TOTAL}\r\n\r\n").as_bytes())
                .await?;
            let block = vec![7; 1 << 20];
            for _ in 0..TOTAL / block.len() {
                stream.write_all(&block).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
}

fn template() -> anyhow::Result<TemplateRecord> {
    Ok(TemplateRecord {
        template_id: "base0000000000000000".parse()?,
        build_id: uuid::Uuid::new_v4(),
        name: "base".into(),
        layers: vec![],
        services: vec![],
        env: BTreeMap::new(),
        default_user: "user".into(),
        default_workdir: None,
        cpu_count: 2,
        memory_mib: 1024,
        disk_mib: 10_240,
        envd_version: ENVD_VERSION.into(),
        start_cmd: None,
        ready_cmd: None,
        snapshot_of: None,
    })
}

//! Puts a file on a volume, and reads it in a sandbox that has the volume mounted.

use sandcove_client::{ClientBuilder, Command, NewSandbox};

#[tokio::main]
async fn main() -> sandcove_client::Result<()> {
    let client = ClientBuilder::from_env()?.build()?;
    let volume = client.create_volume("rust-example").await?;
    let files = client.volume_files(&volume)?;
    files.make_directory("/in").await?;
    files.upload("/in/words.txt", &b"one two three\n"[..], None).await?;

    let sandbox = client.create(&NewSandbox::of("base").timeout(60).volume("rust-example", "/data")).await?;
    let counted = sandbox.output(&Command::new("wc -w < /data/in/words.txt | tee /data/count.txt")).await?;
    print!("{}", String::from_utf8_lossy(&counted.stdout));
    client.kill(sandbox.id()).await?;

    let mut count = Vec::new();
    files.download("/count.txt", &mut count).await?;
    print!("{}", String::from_utf8_lossy(&count));
    client.delete_volume(&volume.volume_id).await?;
    Ok(())
}

//! Pauses a sandbox and resumes it, then starts others from a snapshot of it.

use sandcove_client::{ClientBuilder, Command, ExecutionRequest, NewSandbox};

#[tokio::main]
async fn main() -> sandcove_client::Result<()> {
    let client = ClientBuilder::from_env()?.build()?;
    let sandbox = client.create(&NewSandbox::default().timeout(120).pauses_at_timeout(true)).await?;
    let id = sandbox.id().clone();
    sandbox.code_output(&ExecutionRequest::new("counter = 41")).await?;

    // Memory and files are kept. The handle is as good after the pause as before.
    client.pause(&id, true).await?;
    println!("{:?}", client.detail(&id).await?.listed.state);
    client.resume(&id, 120, true).await?;
    let ran = sandbox.code_output(&ExecutionRequest::new("counter + 1")).await?;
    println!("{}", ran.text().unwrap_or_default());

    sandbox.write_file("/home/user/data.csv", "a,b\n1,2\n".into()).await?;
    let snapshot = client.snapshot(&id, None, true).await?;
    // With a key, a request whose answer was lost can be sent again: it returns the sandbox that was created.
    let (copy, key) = (NewSandbox::of(&snapshot.snapshot_id).timeout(60), format!("copy-of-{id}"));
    let other = client.create_once(&copy, &key).await?;
    println!("{}", client.create_once(&copy, &key).await?.id() == other.id());
    let seen = other.output(&Command::new("cat /home/user/data.csv")).await?;
    print!("{}", String::from_utf8_lossy(&seen.stdout));

    client.kill(other.id()).await?;
    client.kill(&id).await?;
    client.delete_snapshot(&snapshot.snapshot_id).await?;
    Ok(())
}

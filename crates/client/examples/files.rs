//! Uploads a file in pieces, joins them, and moves the file as the user that owns it.

use sandcove_client::{ClientBuilder, Command, NewSandbox};

#[tokio::main]
async fn main() -> sandcove_client::Result<()> {
    let client = ClientBuilder::from_env()?.build()?;
    let sandbox = client.create(&NewSandbox::of("base").timeout(60)).await?;
    let pieces = ["/tmp/words.0", "/tmp/words.1"];
    for (path, words) in pieces.iter().zip(["one two ", "three\n"]) {
        sandbox.upload(path, None, words.as_bytes(), None).await?;
    }
    sandbox.compose_files(&pieces, "/home/user/words.txt", None).await?;

    // Calls for directories act as root unless the handle names an account, whose home directory is where relative paths start.
    let own = sandbox.clone().with_directory_user("user");
    let moved = own.rename("words.txt", "texts/words.txt").await?;
    println!("{} of {}", moved.path, moved.owner);
    let content = sandbox.read_file(&moved.path, 1 << 20).await?;
    print!("{}", String::from_utf8_lossy(&content.bytes));
    println!("{}", own.list_directory("texts", 1).await?.len());
    // A new directory belongs to the account that the call acts as.
    own.make_directory("/home/user/own").await?;
    let owner = sandbox.stat("/home/user/own").await?.map(|entry| entry.owner);
    println!("{}", owner.unwrap_or_default());

    let sleeping = sandbox.start(&Command::new("sleep 60")).await?;
    let processes = sandbox.processes().await?;
    println!("{}", processes.iter().any(|process| process.pid == sleeping.controls().pid()));
    client.kill(sandbox.id()).await?;
    Ok(())
}

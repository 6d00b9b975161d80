//! Follows the output of a process, answers its question, and watches a directory meanwhile.

use futures_util::{StreamExt, TryStreamExt};
use sandcove_client::{ClientBuilder, Command, CommandEvent, Input, NewSandbox, ProcessEvent};

#[tokio::main]
async fn main() -> sandcove_client::Result<()> {
    let client = ClientBuilder::from_env()?.build()?;
    let sandbox = client.create(&NewSandbox::of("base").timeout(120)).await?;

    let watch = sandbox.watch_directory("/home/user").await?;
    let question = Command::new("echo 'name?'; read name; echo \"$name\" > answer.txt; echo \"hello $name\"");
    let process = sandbox.start(&question.input(Input::Pipe)).await?;
    let controls = process.controls();
    controls.write("Ada\n".into()).await?;

    let mut events = std::pin::pin!(process.into_stream());
    while let Some(event) = events.try_next().await? {
        match event {
            ProcessEvent::Output(CommandEvent::Stdout(text) | CommandEvent::Stderr(text)) => {
                print!("{}", String::from_utf8_lossy(&text));
            }
            ProcessEvent::Exit(exit) => println!("{}", exit.status),
        }
    }

    let mut changes = std::pin::pin!(watch.into_stream());
    if let Some(change) = changes.next().await {
        println!("changed: {}", change?.name);
    }
    client.kill(sandbox.id()).await?;
    Ok(())
}

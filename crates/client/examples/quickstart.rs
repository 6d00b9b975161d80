//! Runs code and a command in a sandbox, and reads a file that they wrote.

use sandcove_client::{ClientBuilder, Command, ExecutionRequest, NewSandbox};

#[tokio::main]
async fn main() -> sandcove_client::Result<()> {
    // E2B_API_KEY, and E2B_API_URL and E2B_SANDBOX_URL for a server of one's own.
    let client = ClientBuilder::from_env()?.build()?;
    let sandbox = client.create(&NewSandbox::default().timeout(120).label("made-by", "quickstart")).await?;

    let code = ExecutionRequest::new("import math\nprint('hello')\nmath.factorial(20)");
    let ran = sandbox.code_output(&code).await?;
    println!("{}{}", ran.stdout, ran.text().unwrap_or_default());

    let command = Command::new("echo \"$GREETING\" > note.txt && wc -c note.txt").env("GREETING", "good day");
    let output = sandbox.output(&command).await?;
    println!("status {}: {}", output.exit.code, String::from_utf8_lossy(&output.stdout));

    let note = sandbox.read_file("note.txt", 1 << 20).await?;
    print!("{}", String::from_utf8_lossy(&note.bytes));

    client.kill(sandbox.id()).await?;
    Ok(())
}

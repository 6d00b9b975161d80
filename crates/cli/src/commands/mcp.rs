//! `sandcove mcp`: sandboxes as tools of an agent that starts this command.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::copy::stream;
use super::reach::{Place, Reach};
use crate::signals::Signals;

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(
    after_help = "Agents start this command themselves: `claude mcp add sandcove -- sandcove mcp`. It ends when its standard input does. \
                  Sandboxes stay until their timeout."
)]
pub struct McpArgs {
    #[command(flatten)]
    reach: Reach,
}

/// Answers the agent until it closes standard input, or a signal ends the command.
pub async fn mcp(place: Place, args: McpArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    let (input, output) = (stream(std::io::stdin())?, stream(std::io::stdout())?);
    let mut signals = Signals::catch()?;
    tokio::select! {
        ended = sandcove_mcp::serve(&client, input, output) => {
            ended.context("failed to talk to the agent")?;
            Ok(ExitCode::SUCCESS)
        }
        signal = signals.next() => Ok(signal.status().into()),
    }
}

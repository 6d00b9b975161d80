//! `sandcove bench --hold N`: the memory that running sandboxes take, each with a kernel that was used.

use std::path::Path;

use anyhow::{Context, Result, bail};
use sandcove_client::{Client, NewSandbox, Sandbox};
use serde_json::json;
use tokio::task::JoinSet;

use super::{BenchArgs, PANDAS, code, machine, machine_line, memory};
use crate::output::out;

/// Creates `count` sandboxes, uses a kernel in each, measures their memory and kills them.
pub async fn hold(client: &Client, data_dir: &Path, args: &BenchArgs, count: usize) -> Result<()> {
    let before = memory::used_by_host();
    let mut sandboxes = Vec::new();
    let filled = tokio::select! {
        filled = fill(client, args, count, &mut sandboxes) => filled,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    let after = memory::used_by_host();
    let weights: Vec<u64> =
        sandboxes.iter().filter_map(|sandbox| memory::of_sandbox(data_dir, sandbox.id())).collect();
    // The first sandbox has waited while all others were created.
    let mut answered = Ok(());
    for sandbox in &sandboxes {
        if answered.is_ok() {
            answered = code(sandbox, "1+1").await.context("a sandbox no longer answers");
        }
    }
    let mut killed = Ok(());
    for sandbox in &sandboxes {
        if let Err(error) = client.kill(sandbox.id()).await {
            killed = Err(error).context("a sandbox was left behind");
        }
    }
    filled?;
    answered?;
    killed?;
    // Processes are visible on the server's host only, to root.
    let pss = (weights.len() == count && count > 0).then(|| weights.iter().sum::<u64>() / count as u64);
    let host =
        before.zip(after).filter(|_| pss.is_some()).map(|(before, after)| after.saturating_sub(before));
    report(args, count, pss, host);
    Ok(())
}

async fn fill(client: &Client, args: &BenchArgs, count: usize, sandboxes: &mut Vec<Sandbox>) -> Result<()> {
    let mut left = count;
    let mut running = JoinSet::new();
    let mut failure = None;
    loop {
        while left > 0 && failure.is_none() && running.len() < args.concurrency.max(1) {
            left -= 1;
            let (client, template) = (client.clone(), args.template.clone());
            running.spawn(async move {
                // The sandbox must outlive the creation of all others.
                let new = NewSandbox { template, timeout: 1800, ..NewSandbox::default() };
                let sandbox = client.create(&new).await?;
                let used = code(&sandbox, PANDAS).await;
                anyhow::Ok((sandbox, used))
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok((sandbox, used)))) => {
                sandboxes.push(sandbox);
                failure = failure.or(used.err());
            }
            Some(Ok(Err(error))) => failure = failure.or(Some(error)),
            Some(Err(error)) => bail!("a measurement was aborted: {error}"),
        }
    }
    match failure {
        Some(error) => {
            Err(error.context(format!("only {} of {count} sandboxes could be used", sandboxes.len())))
        }
        None => Ok(()),
    }
}

fn report(args: &BenchArgs, count: usize, pss: Option<u64>, host: Option<u64>) {
    let machine = machine();
    let each = host.map(|bytes| bytes / count.max(1) as u64);
    if args.json {
        out!(
            "{}",
            json!({
                "machine": machine, "template": args.template, "held": count,
                "pss_per_sandbox_bytes": pss, "host_used_bytes": host, "host_used_per_sandbox_bytes": each,
            })
        );
        return;
    }
    let mib = |bytes: Option<u64>| {
        bytes.map_or("unknown".to_owned(), |bytes| format!("{:.1} MiB", bytes as f64 / 1048576.0))
    };
    out!("{}", machine_line(&machine));
    out!(
        "{} of {}, each with a kernel that has used pandas",
        crate::commands::count(count, "sandbox"),
        args.template
    );
    out!("{:<40} {:>18}", "PSS of a sandbox's processes, mean", mib(pss));
    out!("{:<40} {:>18}", "additional memory of the host, total", mib(host));
    out!("{:<40} {:>18}", "additional memory of the host, each", mib(each));
}

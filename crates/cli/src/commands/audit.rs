//! `sandcove audit`: who did what with a server, by its admin token.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use sandcove_client::AuditFilter;
use sandcove_wire::api::audit::{AuditCredential, AuditOutcome, AuditRecord};
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::operate::Rights;
use super::reach::Place;
use crate::output::{self, out};
use crate::table::table;

/// Time between two requests of `--follow`.
const POLL: Duration = Duration::from_secs(1);

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Actions are named like `sandbox.kill` and `api-key.create`; `--action sandbox.` matches all of sandboxes."
)]
pub struct AuditArgs {
    #[command(flatten)]
    rights: Rights,
    /// records of a team only, by its id
    #[arg(long, value_name = "ID")]
    team: Option<String>,
    /// records of an API key only, by its id
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// records of an action only, or of those that begin so
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// records of an object only, by its id
    #[arg(long, value_name = "ID")]
    object: Option<String>,
    /// records since a time only, as 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// number of newest records to show
    #[arg(long, value_name = "NUMBER", default_value_t = 100, hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// go on, and show records as they come
    #[arg(short, long)]
    follow: bool,
    /// print a JSON object for each record, on a line
    #[arg(long)]
    json: bool,
}

/// Shows records, oldest first.
pub async fn audit(place: Place, args: AuditArgs, local: Option<Secret>) -> Result<ExitCode> {
    let operator = args.rights.operator(&place, local)?;
    let mut filter = AuditFilter {
        team: args.team,
        key: args.key,
        action: args.action,
        object: args.object,
        since: args.since,
        limit: Some(args.limit.into()),
        after: None,
    };
    let mut records = operator.audit(&filter).await?;
    records.reverse();
    show(&records, args.json, true);
    if !args.follow {
        return Ok(ExitCode::SUCCESS);
    }
    // Without a limit of the first page, and from the newest record on: of all actions, as a filter may have found none.
    let newest = AuditFilter { limit: Some(1), ..AuditFilter::default() };
    let last = match records.last() {
        Some(record) => Some(record.id),
        None => operator.audit(&newest).await?.first().map(|record| record.id),
    };
    filter.after = Some(last.unwrap_or_default());
    filter.limit = None;
    loop {
        tokio::time::sleep(POLL).await;
        let records = operator.audit(&filter).await?;
        show(&records, args.json, false);
        filter.after = records.last().map(|record| record.id).or(filter.after);
    }
}

fn show(records: &[AuditRecord], as_json: bool, has_header: bool) {
    if as_json {
        for record in records {
            out!("{}", json!(record));
        }
        return;
    }
    if records.is_empty() && !has_header {
        return;
    }
    let rows: Vec<_> = records.iter().map(row).collect();
    let text = table(["time", "action", "object", "outcome", "by", "from"], &rows);
    let text = if has_header { text.as_str() } else { text.split_once('\n').map_or("", |(_, rows)| rows) };
    let _ = output::write(text.as_bytes());
}

fn row(record: &AuditRecord) -> [String; 6] {
    let by = match (record.credential, &record.key_id) {
        (AuditCredential::ApiKey, Some(key)) => format!("key {key}"),
        (AuditCredential::ApiKey, None) => "key".to_owned(),
        (AuditCredential::AccessToken, _) => "access token".to_owned(),
        (AuditCredential::AdminToken, _) => "admin token".to_owned(),
    };
    let outcome = match record.outcome {
        AuditOutcome::Done => "done",
        AuditOutcome::Refused => "refused",
        AuditOutcome::Failed => "failed",
        AuditOutcome::Unknown => "unknown",
    };
    let from = match &record.via {
        Some(via) => format!("{} ({via})", record.remote),
        None => record.remote.clone(),
    };
    [
        // To the second.
        format!("{:.0}", record.time),
        record.action.clone(),
        record.object.clone().unwrap_or_default(),
        outcome.to_owned(),
        by,
        from,
    ]
}

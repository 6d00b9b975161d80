//! `sandcove webhook`, and `sandcove events`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use sandcove_client::{Client, Error as ClientError};
use sandcove_wire::api::event::{Attempt, NewWebhook, SandboxEvent, Webhook, WebhookStats, WebhookUpdate};
use sandcove_wire::api::template::Template;
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use serde_json::json;

use super::candidates;
use super::done::Done;
use super::reach::{Place, Reach};
use crate::output::{self, note, out};
use crate::report::report;
use crate::table::table;

/// Arguments of `webhook`.
#[derive(Debug, Args)]
pub struct WebhookArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: WebhookCommand,
}

/// Subcommands of `webhook`.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// have events delivered to a URL, and print the id of the webhook
    Create {
        /// name of the webhook
        name: String,
        /// address that events are posted to
        #[arg(value_name = "URL")]
        receiver: String,
        /// file with the secret that deliveries are signed with
        #[arg(long, value_name = "FILE")]
        secret_file: PathBuf,
        /// type of events to deliver, as `sandbox.lifecycle.created`; repeatable [default: all]
        #[arg(short, long = "event", value_name = "TYPE")]
        events: Vec<String>,
        /// print the webhook as JSON
        #[arg(long)]
        json: bool,
    },
    /// change the name, URL, events, secret or state of a webhook
    #[command(group = clap::ArgGroup::new("changes").required(true).multiple(true))]
    Update {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// new name
        #[arg(long, group = "changes")]
        name: Option<String>,
        /// new address that events are posted to
        #[arg(long, value_name = "URL", group = "changes")]
        receiver: Option<String>,
        /// type of events to deliver, in place of those before; repeatable
        #[arg(short, long = "event", value_name = "TYPE", group = "changes")]
        events: Vec<String>,
        /// file with the new secret that deliveries are signed with
        #[arg(long, value_name = "FILE", group = "changes")]
        secret_file: Option<PathBuf>,
        /// deliver events again
        #[arg(long, group = "changes")]
        enable: bool,
        /// deliver no events
        #[arg(long, group = "changes", conflicts_with = "enable")]
        disable: bool,
        /// print the webhook as JSON
        #[arg(long)]
        json: bool,
    },
    /// list webhooks
    #[command(visible_alias = "ls")]
    List {
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// deliver events again
    Enable {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// print the webhook as JSON
        #[arg(long)]
        json: bool,
    },
    /// keep the webhook, but deliver no events
    Disable {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// print the webhook as JSON
        #[arg(long)]
        json: bool,
    },
    /// show the newest deliveries of a webhook
    Deliveries {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// print JSON, with requests and responses
        #[arg(long)]
        json: bool,
    },
    /// deliver an event again, with the same id and body
    Redeliver {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// id of a delivery, as `sandcove webhook deliveries` shows it
        delivery: String,
        /// print the delivery as JSON, with the requests and responses so far
        #[arg(long)]
        json: bool,
    },
    /// count the deliveries of a webhook by hour, with those that failed and the average duration
    Stats {
        /// id of the webhook
        #[arg(add = candidates::webhooks())]
        id: String,
        /// earliest time, as 2026-01-31T12:00:00Z [default: 24 hours before the latest]
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// latest time [default: now]
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
    /// delete webhooks, and print their ids
    Delete {
        /// ids of webhooks
        #[arg(required = true, value_name = "ID")]
        #[arg(add = candidates::webhooks())]
        ids: Vec<String>,
        /// print JSON
        #[arg(long)]
        json: bool,
    },
}

/// All types of events.
const EVENTS: [&str; 6] = [
    "sandbox.lifecycle.created",
    "sandbox.lifecycle.paused",
    "sandbox.lifecycle.resumed",
    "sandbox.lifecycle.updated",
    "sandbox.lifecycle.killed",
    "sandbox.lifecycle.checkpointed",
];

/// Runs the subcommand.
pub async fn webhook(place: Place, args: WebhookArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    let enable = |enabled| WebhookUpdate { enabled: Some(enabled), ..WebhookUpdate::default() };
    match args.command {
        WebhookCommand::Create { name, receiver, secret_file, events, json } => {
            let signature_secret = secret(&secret_file)?;
            let events = if events.is_empty() { EVENTS.map(str::to_owned).to_vec() } else { events };
            let new = NewWebhook { name, url: receiver, events, signature_secret, enabled: true };
            let webhook = client.create_webhook(&new).await?;
            match json {
                true => out!("{}", json!(webhook)),
                false => out!("{}", webhook.id),
            }
        }
        WebhookCommand::Update { id, name, receiver, events, secret_file, enable, disable, json } => {
            let update = WebhookUpdate {
                name,
                url: receiver,
                events: (!events.is_empty()).then_some(events),
                signature_secret: secret_file.as_deref().map(secret).transpose()?,
                enabled: (enable || disable).then_some(enable),
            };
            change(&client, &id, &update, json).await?;
        }
        WebhookCommand::List { json } => {
            let webhooks = client.webhooks().await?;
            if json {
                out!("{}", json!(webhooks));
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<_> = webhooks.into_iter().map(row).collect();
            let _ = output::write(table(["id", "name", "state", "url", "events"], &rows).as_bytes());
        }
        WebhookCommand::Enable { id, json } => change(&client, &id, &enable(true), json).await?,
        WebhookCommand::Disable { id, json } => change(&client, &id, &enable(false), json).await?,
        WebhookCommand::Deliveries { id, json } => {
            let deliveries = client.deliveries(&id).await.map_err(|error| unknown(&id, error))?.data;
            if json {
                out!("{}", json!(deliveries));
                return Ok(ExitCode::SUCCESS);
            }
            let rows: Vec<_> =
                deliveries.iter().flat_map(|delivery| delivery.attempts.iter().map(attempt)).collect();
            let header = ["id", "time", "event", "sandbox", "status", "answer", "duration"];
            let _ = output::write(table(header, &rows).as_bytes());
        }
        WebhookCommand::Redeliver { id, delivery, json } => {
            let queued = match client.redeliver(&id, &delivery).await {
                Ok(queued) => queued,
                Err(error) if is_unknown(&error) && is_webhook(&client, &id).await? => {
                    bail!(
                        "unknown delivery `{delivery}`\nhint: `sandcove webhook deliveries {id}` shows the newest"
                    )
                }
                Err(error) => return Err(unknown(&id, error)),
            };
            match json {
                true => out!("{}", json!(queued)),
                false => note!("event {} is delivered again", queued.event_id),
            }
        }
        WebhookCommand::Stats { id, since, until, json } => {
            let stats = match client.webhook_stats(&id, since, until).await {
                Ok(stats) => stats,
                // The server refuses times that are not valid like the id of a webhook that does not exist.
                Err(error) if is_unknown(&error) && is_webhook(&client, &id).await? => {
                    return Err(error.into());
                }
                Err(error) => return Err(unknown(&id, error)),
            };
            match json {
                true => out!("{}", json!(stats)),
                false => {
                    let rows = stats_rows(&stats);
                    let _ =
                        output::write(table(["hour", "attempts", "failed", "duration"], &rows).as_bytes());
                }
            }
        }
        WebhookCommand::Delete { ids, json } => {
            let mut done = Done::new(json);
            let mut code = ExitCode::SUCCESS;
            for id in &ids {
                match client.delete_webhook(id).await {
                    Ok(true) => done.add(id, json!({ "id": id })),
                    Ok(false) => {
                        report(&nothing(id));
                        code = ExitCode::FAILURE;
                    }
                    Err(error) => {
                        report(&unknown(id, error));
                        code = ExitCode::FAILURE;
                    }
                }
            }
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The error about a webhook that does not exist.
fn nothing(id: &str) -> anyhow::Error {
    anyhow!("unknown webhook `{id}`\nhint: `sandcove webhook list` shows all")
}

/// The error of a call about a webhook. A server refuses what is no id before it looks for the webhook.
fn unknown(id: &str, error: ClientError) -> anyhow::Error {
    if is_unknown(&error) { nothing(id) } else { error.into() }
}

fn is_unknown(error: &ClientError) -> bool {
    matches!(error.status(), Some(400 | 404))
}

async fn is_webhook(client: &Client, id: &str) -> Result<bool> {
    Ok(client.webhooks().await?.iter().any(|webhook| webhook.id == id))
}

/// Changes a webhook. The server refuses new values that are not valid like the id of one that does not exist.
async fn change(client: &Client, id: &str, update: &WebhookUpdate, as_json: bool) -> Result<()> {
    let webhook = match client.update_webhook(id, update).await {
        Ok(webhook) => webhook,
        Err(error) if is_unknown(&error) && is_webhook(client, id).await? => return Err(error.into()),
        Err(error) => return Err(unknown(id, error)),
    };
    if as_json {
        out!("{}", json!(webhook));
    }
    Ok(())
}

/// The secret that a file has.
fn secret(file: &Path) -> Result<Secret> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("failed to read `{}`", file.display()))?;
    Ok(Secret::new(text.trim()))
}

fn row(webhook: Webhook) -> [String; 5] {
    let events: Vec<&str> =
        webhook.events.iter().map(|event| event.trim_start_matches("sandbox.lifecycle.")).collect();
    let state = if webhook.enabled { "enabled" } else { "disabled" }.to_owned();
    [webhook.id, webhook.name, state, webhook.url, events.join(" ")]
}

fn attempt(attempt: &Attempt) -> [String; 7] {
    let answer = match (&attempt.response_http_status_code, &attempt.error_message) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    };
    [
        attempt.id.clone(),
        format!("{:.0}", attempt.timestamp),
        attempt.event_type.clone(),
        attempt.sandbox_id.clone(),
        attempt.status.clone(),
        answer,
        format!("{} ms", attempt.duration_ms),
    ]
}

/// A row for each hour with attempts, and one for all of them.
fn stats_rows(stats: &WebhookStats) -> Vec<[String; 4]> {
    let row = |hour: String, total: i64, failed: i64, average: f64| {
        [hour, total.to_string(), failed.to_string(), format!("{average:.0} ms")]
    };
    let hours = stats.buckets.iter();
    let mut rows: Vec<_> = hours
        .map(|hour| row(format!("{:.0}", hour.timestamp), hour.total, hour.failed, hour.duration_ms))
        .collect();
    rows.push(row("all".to_owned(), stats.total, stats.failed, stats.duration_ms.average));
    rows
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    #[command(flatten)]
    reach: Reach,
    /// id of a sandbox [default: all sandboxes of the team]
    #[arg(add = candidates::sandboxes())]
    id: Option<SandboxId>,
    /// maximum number of events
    #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Prints what happened to sandboxes, newest first.
pub async fn events(place: Place, args: EventsArgs) -> Result<ExitCode> {
    let client = args.reach.client(&place)?;
    let events = client.events(args.id.as_ref(), args.limit).await?;
    if args.json {
        out!("{}", json!(events));
        return Ok(ExitCode::SUCCESS);
    }
    if events.is_empty()
        && let Some(id) = args.id
    {
        bail!("no event of sandbox {id} is kept");
    }
    let templates = client.templates().await?;
    let rows: Vec<_> = events.iter().map(|event| event_row(event, &templates)).collect();
    let _ = output::write(table(["time", "event", "sandbox", "template"], &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The columns of an event. A template that is deleted, is another team's or has no name is shown by its id.
fn event_row(event: &SandboxEvent, templates: &[Template]) -> [String; 4] {
    let id = &event.sandbox_template_id;
    let template = templates.iter().find(|template| template.template_id == *id);
    let name = template.and_then(|template| template.aliases.first());
    [
        format!("{:.0}", event.timestamp),
        event.kind.clone(),
        event.sandbox_id.clone(),
        name.unwrap_or(id).clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_show_the_names_of_templates() {
        let template = |id: &str, aliases: &[&str]| -> Template {
            serde_json::from_value(json!({
                "templateID": id, "buildID": "b", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 512, "public": false,
                "aliases": aliases, "names": aliases, "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
                "createdBy": null, "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1, "envdVersion": "0.1.0",
                "buildStatus": "ready"
            }))
            .unwrap()
        };
        let event: SandboxEvent = serde_json::from_value(json!({
            "id": "e", "version": "v2", "type": "sandbox.lifecycle.created", "timestamp": "2026-01-01T00:00:00Z",
            "eventCategory": "lifecycle", "eventLabel": "created", "eventData": null, "sandboxId": "s",
            "sandboxExecutionId": "x", "sandboxTemplateId": "t1", "sandboxBuildId": "b", "sandboxTeamId": "team"
        }))
        .unwrap();
        let shown = |templates: &[Template]| event_row(&event, templates)[3].clone();
        assert_eq!(shown(&[template("t0", &["other"]), template("t1", &["mine"])]), "mine");
        assert_eq!(shown(&[template("t1", &[])]), "t1");
        assert_eq!(shown(&[]), "t1");
    }
}

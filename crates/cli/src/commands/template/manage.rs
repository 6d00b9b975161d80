//! Listing, inspecting, deleting, publishing and tagging templates, and the logs of their builds.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use sandcove_client::{BuildEnd, Client, TagFilter, TagOrder};
use sandcove_wire::api::tag::{TagAssignment, TemplateTag};
use sandcove_wire::api::template::{
    BuildStatus, Template, TemplateInterpreter, TemplateWithBuilds, WarmInterpreterState,
};
use serde_json::json;

use super::printer::Printer;
use crate::commands::candidates;
use crate::commands::count;
use crate::commands::done::Done;
use crate::commands::format::Format;
use crate::output::{self, note, out};
use crate::report::report;
use crate::table::{details, table};

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct BuildLogsArgs {
    /// name or id of the template
    #[arg(add = candidates::templates())]
    template: String,
    /// id of the build [default: the newest one]
    #[arg(short, long)]
    build: Option<String>,
    /// wait for the end of the build; the exit status is 1 if it fails
    #[arg(short, long)]
    follow: bool,
    /// print a JSON object for each entry
    #[arg(long)]
    json: bool,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// names or ids of templates
    #[arg(required = true, value_name = "TEMPLATE")]
    #[arg(add = candidates::templates())]
    templates: Vec<String>,
    /// do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `publish` and `unpublish`.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// names or ids of templates
    #[arg(required = true, value_name = "TEMPLATE")]
    #[arg(add = candidates::templates())]
    templates: Vec<String>,
    /// accepted for the E2B CLI; nothing is asked
    #[arg(short, long, hide = true)]
    yes: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `tag`.
#[derive(Debug, Args)]
pub struct TagArgs {
    /// the build that gets the tags: NAME, NAME:TAG or NAME:BUILD
    #[arg(add = candidates::templates())]
    target: String,
    /// tags to assign or remove [default: list the tags of the template]
    tags: Vec<String>,
    /// remove the tags from the template
    #[arg(long, requires = "tags")]
    remove: bool,
    /// list the builds that have had the tags, or all tags of the template, newest assignment first
    #[arg(long, conflicts_with = "remove")]
    history: bool,
    /// print JSON
    #[arg(long)]
    json: bool,
}

/// Prints one line for each template, newest first.
pub async fn list(client: &Client, as_json: bool) -> Result<ExitCode> {
    let templates = client.templates().await?;
    if as_json {
        out!("{}", json!(templates));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = templates.iter().map(row).collect();
    let header = ["id", "name", "access", "status", "cpus", "memory", "created"];
    let _ = output::write(table(header, &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn row(template: &Template) -> [String; 7] {
    let mut names = template.aliases.clone();
    names.sort();
    [
        template.template_id.clone(),
        names.join(" "),
        if template.public { "public" } else { "private" }.to_owned(),
        word(template.build_status).to_owned(),
        template.cpu_count.to_string(),
        format!("{} MiB", template.memory_mb),
        format!("{:.0}", template.created_at),
    ]
}

fn word(status: BuildStatus) -> &'static str {
    match status {
        BuildStatus::Waiting => "waiting",
        BuildStatus::Building => "building",
        BuildStatus::Ready => "ready",
        BuildStatus::Error => "error",
    }
}

/// Prints a template with its builds and tags.
pub async fn inspect(client: &Client, template: &str, format: Format) -> Result<ExitCode> {
    let id = resolved(client, template).await?;
    let whole = client.template(&id).await?;
    let tags = client.tags(&id).await?;
    if format.is_for_people() {
        let _ = output::write(shown(&whole, &tags).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let mut whole = serde_json::to_value(whole)?;
    whole["tags"] = json!(tags);
    out!("{whole:#}");
    Ok(ExitCode::SUCCESS)
}

/// A template for people: its details, and a line for each of its builds with the tags that the build has.
fn shown(whole: &TemplateWithBuilds, tags: &[TemplateTag]) -> String {
    let template = &whole.template;
    let [id, names, access, status, cpus, memory, created] = row(template);
    let mut facts = vec![
        ("name", names),
        ("id", id),
        ("access", access),
        ("status", status),
        ("cpus", cpus),
        ("memory", memory),
        ("disk", format!("{} MiB", template.disk_size_mb)),
        ("agent", template.envd_version.clone()),
        ("created", created),
        ("updated", format!("{:.0}", template.updated_at)),
    ];
    let last = template.last_spawned_at.map(|time| format!(", the last at {time:.0}")).unwrap_or_default();
    facts.push(("sandboxes", format!("{} so far{last}", template.spawn_count)));
    if let Some(interpreter) = &whole.interpreter {
        facts.push(("interpreter", interpreter.python.clone()));
        facts.push(("warm", warm(interpreter)));
        if let Some(modules) = &interpreter.modules {
            facts.push(("warm modules", modules.join(" ")));
        }
    }
    let builds: Vec<_> = whole
        .builds
        .iter()
        .map(|build| {
            let own = tags.iter().filter(|tag| tag.build_id == build.build_id);
            [
                build.build_id.clone(),
                word(build.status).to_owned(),
                own.map(|tag| tag.tag.as_str()).collect::<Vec<_>>().join(" "),
                build.cpu_count.to_string(),
                format!("{} MiB", build.memory_mb),
                format!("{:.0}", build.created_at),
            ]
        })
        .collect();
    let facts = details(&facts);
    match builds.is_empty() {
        true => facts,
        false => {
            format!("{facts}\n{}", table(["build", "status", "tags", "cpus", "memory", "requested"], &builds))
        }
    }
}

/// The state of a warm interpreter, and what it costs and saves.
fn warm(interpreter: &TemplateInterpreter) -> String {
    match interpreter.state {
        WarmInterpreterState::Starting => "starting".to_owned(),
        WarmInterpreterState::Ready => {
            let memory = interpreter.memory_mib.map(|size| format!(", {size} MiB shared by all sandboxes"));
            let start = interpreter.start_ms.map(|time| format!(", saves each {time} ms"));
            format!("yes{}{}", memory.unwrap_or_default(), start.unwrap_or_default())
        }
        WarmInterpreterState::Failed => {
            format!("failed to start: {}", interpreter.reason.as_deref().unwrap_or("no reason is known"))
        }
        WarmInterpreterState::Evicted => "no, until the next sandbox is created".to_owned(),
    }
}

/// Prints the log of a build, and with `--follow` waits for its end.
pub async fn logs(client: &Client, args: BuildLogsArgs) -> Result<ExitCode> {
    let id = resolved(client, &args.template).await?;
    let build = match args.build {
        Some(build) => build,
        None => {
            let newest = client.template(&id).await?.builds.into_iter().next();
            newest
                .with_context(|| {
                    format!(
                        "template {} has no builds\nhint: `sandcove template build --name {0}` builds it",
                        args.template
                    )
                })?
                .build_id
        }
    };
    let printer = Printer::new(args.json);
    if args.follow {
        return match client.follow_build(&id, &build, |entry| printer.logged(entry)).await {
            Ok(BuildEnd::Ready) => Ok(ExitCode::SUCCESS),
            Ok(BuildEnd::Failed(reason)) => bail!("the build failed: {}", reason.message),
            Err(error) => Err(refusal(client, &args.template, error).await),
        };
    }
    let mut offset = 0;
    loop {
        let page = match client.build_status(&id, &build, offset).await {
            Ok(status) => status.log_entries,
            Err(error) => return Err(refusal(client, &args.template, error).await),
        };
        if page.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        offset += page.len();
        page.iter().for_each(|entry| printer.logged(entry));
    }
}

/// Deletes templates, after confirmation on a terminal.
pub async fn delete(client: &Client, args: DeleteArgs) -> Result<ExitCode> {
    if !args.yes && std::io::stdin().is_terminal() {
        note!("this deletes {}: {}", count(args.templates.len(), "template"), args.templates.join(", "));
        output::write_error(b"type `yes` to continue: ");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "yes" | "y") {
            note!("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut done = Done::new(args.json);
    let mut code = ExitCode::SUCCESS;
    for template in &args.templates {
        let id = match resolved(client, template).await {
            Ok(id) => id,
            Err(error) => {
                report(&error);
                code = ExitCode::FAILURE;
                continue;
            }
        };
        match client.delete_template(&id).await {
            Ok(true) => done.add(&id, json!({ "templateID": id })),
            Ok(false) => {
                note!("error: unknown template `{template}`\nhint: `sandcove template list` shows all");
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                report(&refusal(client, template, error).await.context("failed to delete a template"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Publishes templates or takes that back, and prints their names.
pub async fn set_public(client: &Client, args: PublishArgs, public: bool) -> Result<ExitCode> {
    let mut done = Done::new(args.json);
    for template in &args.templates {
        let id = resolved(client, template).await?;
        let names = match client.set_public(&id, public).await {
            Ok(names) => names,
            Err(error) => return Err(refusal(client, template, error).await),
        };
        let object = json!({ "templateID": id, "names": names, "public": public });
        done.add(if names.is_empty() { id } else { names.join(" ") }, object);
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives tags to a build, removes tags, or lists those of a template.
pub async fn tag(client: &Client, args: TagArgs) -> Result<ExitCode> {
    if args.history {
        return history(client, args).await;
    }
    if args.tags.is_empty() {
        let tags = client.tags(&resolved(client, &args.target).await?).await?;
        if args.json {
            out!("{}", json!(tags));
            return Ok(ExitCode::SUCCESS);
        }
        let rows: Vec<_> =
            tags.into_iter().map(|tag| [tag.tag, tag.build_id, format!("{:.0}", tag.created_at)]).collect();
        let _ = output::write(table(["tag", "build", "assigned"], &rows).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    // The part behind the colon names a build.
    let template = args.target.split_once(':').map_or(args.target.as_str(), |(template, _)| template);
    if args.remove {
        return match client.remove_tags(&args.target, &args.tags).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) => Err(refusal(client, template, error).await),
        };
    }
    let assigned = match client.assign_tags(&args.target, &args.tags).await {
        Ok(assigned) => assigned,
        Err(error) => return Err(refusal(client, template, error).await),
    };
    if args.json {
        out!("{}", json!(assigned));
    } else {
        out!("{}", assigned.build_id);
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the builds that have had tags of a template.
async fn history(client: &Client, args: TagArgs) -> Result<ExitCode> {
    let id = resolved(client, &args.target).await?;
    let tags = match args.tags.is_empty() {
        false => args.tags,
        true => {
            let by_name = TagFilter { order: TagOrder::Name, ..TagFilter::default() };
            client.tag_groups(&id, &by_name).await?.into_iter().map(|group| group.tag).collect()
        }
    };
    let mut assignments = Vec::new();
    for tag in tags {
        let of_tag = client.tag_history(&id, &tag).await?;
        assignments.extend(of_tag.into_iter().map(|one| (tag.clone(), one)));
    }
    if args.json {
        let object = |(tag, one): &(String, TagAssignment)| {
            let mut object = json!(one);
            object["tag"] = json!(tag);
            object
        };
        out!("{}", json!(assignments.iter().map(object).collect::<Vec<_>>()));
        return Ok(ExitCode::SUCCESS);
    }
    let row = |(tag, one): (String, TagAssignment)| {
        let built = one.build_finished_at.map_or(String::new(), |time| format!("{time:.0}"));
        [tag, one.build_id, format!("{:.0}", one.assigned_at), built]
    };
    let rows: Vec<_> = assignments.into_iter().map(row).collect();
    let _ = output::write(table(["tag", "build", "assigned", "built"], &rows).as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The id of a template that is given by name or id. Templates of the server and of other teams are known by what they are given by.
async fn resolved(client: &Client, template: &str) -> Result<String> {
    match client.template_named(template).await {
        Ok(Some(alias)) => Ok(alias.template_id),
        Ok(None) => Ok(template.to_owned()),
        Err(error) if error.status() == Some(403) => Ok(template.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// The error of a call that only the team of a template may make.
async fn refusal(client: &Client, template: &str, error: sandcove_client::Error) -> anyhow::Error {
    if error.status() != Some(403) {
        return error.into();
    }
    let whose = match client.template(template).await {
        Ok(whole) if whole.template.is_default == Some(true) => "comes with the server",
        Ok(_) => "belongs to another team",
        // A private one.
        Err(_) => return error.into(),
    };
    anyhow!(
        "template {template} {whose}: it has no build log that you can read, and cannot be deleted, published or tagged\n\
         hint: `sandcove template inspect {template}` shows it; a Dockerfile with `FROM template://{template}` and `sandcove template build` make \
         one of your own"
    )
}

//! Shares stored runs with a team, as files of a volume that the dashboard shows.

use anyhow::{Context, Result, bail};
use sandcove_client::api::volume::VolumeAndToken;
use sandcove_client::{Client, VolumeFiles};
use sandcove_eval::view::Library;
use sandcove_eval::{home, store};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Name of the volume. The dashboard reads it too.
const VOLUME: &str = "evaluations";
/// Directory of the runs: of each its document, what lists show of it, and the report of a red team.
const DIRECTORY: &str = "/runs";

/// Shares a run, the newest without an id, and returns the id and the address of its page. A run that was shared before is replaced.
pub async fn share(client: &Client, id: Option<&str>) -> Result<(String, String)> {
    let document = store::document(id).await?;
    let Some(id) = document["evalId"].as_str().filter(|id| is_name(id)).map(str::to_owned) else {
        bail!(
            "the run has no id that a file can be named after\nhint: `sandcove eval import --new-id` gives it another"
        );
    };
    let files = client.volume_files(&volume(client).await?)?;
    files.make_directory(DIRECTORY).await?;
    write(&files, &format!("{DIRECTORY}/{id}.json"), &document).await?;
    let head = head(&id, &document);
    if head["isRedteam"] == true {
        let report = Library::new(home::directory()).red_team(&id).await?;
        write(&files, &format!("{DIRECTORY}/{id}.report.json"), &json!(report)).await?;
    }
    // The last of both: a run that is listed is there.
    write(&files, &format!("{DIRECTORY}/{id}.head.json"), &head).await?;
    let page = format!("{}/dashboard/evaluations/{id}", client.url());
    Ok((id, page))
}

async fn volume(client: &Client) -> Result<VolumeAndToken> {
    let known = client.volumes().await?.into_iter().find(|volume| volume.name == VOLUME);
    Ok(match known {
        Some(volume) => client.volume(&volume.volume_id).await?,
        None => client.create_volume(VOLUME).await?,
    })
}

async fn write(files: &VolumeFiles, path: &str, document: &Value) -> Result<()> {
    let text = serde_json::to_vec(document)?;
    let size = text.len() as u64;
    let written = files.upload(path, std::io::Cursor::new(text), Some(size)).await;
    written.map(drop).with_context(|| format!("failed to write `{path}` on the volume `{VOLUME}`"))
}

/// Whether a file can be named after an id.
fn is_name(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 100
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(&byte))
}

/// The most characters of the label of a column in a list.
const MAX_LABEL: usize = 200;

/// The part of a run that lists and charts over several runs show.
fn head(id: &str, document: &Value) -> Value {
    let results = &document["results"];
    let prompts = results["prompts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut providers: Vec<&Value> = Vec::new();
    for provider in prompts.iter().map(|prompt| &prompt["provider"]) {
        if !providers.contains(&provider) {
            providers.push(provider);
        }
    }
    let columns: Vec<Value> = prompts.iter().map(column).collect();
    let tests = results["results"].as_array().into_iter().flatten().filter_map(|row| row["testIdx"].as_u64());
    let dataset = Sha256::digest(document["config"]["tests"].to_string());
    json!({
        "evalId": id,
        "createdAt": results["timestamp"],
        "description": document["config"]["description"],
        "author": document["metadata"]["author"],
        "stats": {
            "successes": results["stats"]["successes"],
            "failures": results["stats"]["failures"],
            "errors": results["stats"]["errors"],
        },
        "providers": providers,
        "isRedteam": document["config"]["redteam"].is_object(),
        "numTests": tests.max().map_or(0, |last| last + 1),
        "datasetId": dataset.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "columns": columns,
    })
}

fn column(prompt: &Value) -> Value {
    let label: String = prompt["label"].as_str().unwrap_or_default().chars().take(MAX_LABEL).collect();
    let sums = &prompt["metrics"];
    json!({
        "provider": prompt["provider"],
        "label": label,
        "metrics": {
            "testPassCount": sums["testPassCount"],
            "testFailCount": sums["testFailCount"],
            "testErrorCount": sums["testErrorCount"],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_what_lists_show() {
        let sums = json!({"testPassCount": 2, "testFailCount": 1, "testErrorCount": 0});
        let prompt = |provider: &str| json!({"raw": "x", "label": "ä".repeat(300), "provider": provider, "metrics": sums});
        let column =
            |provider: &str| json!({"provider": provider, "label": "ä".repeat(200), "metrics": sums});
        let document = json!({
            "evalId": "eval-a", "config": {"description": "d", "tests": [1, 2]}, "metadata": {"author": "ada"},
            "results": {
                "timestamp": "2026-11-29T00:00:00.000Z", "stats": {"successes": 2, "failures": 1, "errors": 0, "tokenUsage": {}},
                "prompts": [prompt("echo"), prompt("echo"), prompt("b")], "results": [{"testIdx": 0}, {"testIdx": 4}],
            },
        });
        assert_eq!(
            head("eval-a", &document),
            json!({
                "evalId": "eval-a", "createdAt": "2026-11-29T00:00:00.000Z", "description": "d", "author": "ada",
                "stats": {"successes": 2, "failures": 1, "errors": 0}, "providers": ["echo", "b"], "isRedteam": false,
                "numTests": 5, "datasetId": "49a64717d5d4cb19952e6eac2946415cf6879adacf9908e7d872332d32c6e684",
                "columns": [column("echo"), column("echo"), column("b")],
            })
        );
    }

    #[test]
    fn only_names_of_files_are_shared() {
        assert!(is_name("eval-uC7-2026-11-29T04:13:15"));
        for bad in ["", "../x", "a/b", "a\nb", &"x".repeat(101)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}

//! Shares stored runs with a team, as files of a volume that the dashboard shows.

use anyhow::{Context, Result, bail};
use sandcove_client::api::volume::VolumeAndToken;
use sandcove_client::{Client, VolumeFiles};
use sandcove_eval::store;
use serde_json::{Value, json};

/// Name of the volume. The dashboard reads it too.
const VOLUME: &str = "evaluations";
/// Directory of the runs: of each its document, and what lists show of it.
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
    // The last of both: a run that is listed is there.
    write(&files, &format!("{DIRECTORY}/{id}.head.json"), &head(&id, &document)).await?;
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

/// The part of a run that lists show.
fn head(id: &str, document: &Value) -> Value {
    let results = &document["results"];
    let prompts = results["prompts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut providers: Vec<&Value> = Vec::new();
    for provider in prompts.iter().map(|prompt| &prompt["provider"]) {
        if !providers.contains(&provider) {
            providers.push(provider);
        }
    }
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_what_lists_show() {
        let prompt = |provider: &str| json!({"raw": "x", "provider": provider});
        let document = json!({
            "evalId": "eval-a", "config": {"description": "d"}, "metadata": {"author": "ada"},
            "results": {
                "timestamp": "2026-11-29T00:00:00.000Z", "stats": {"successes": 2, "failures": 1, "errors": 0, "tokenUsage": {}},
                "prompts": [prompt("echo"), prompt("echo"), prompt("b")], "results": [{}, {}],
            },
        });
        assert_eq!(
            head("eval-a", &document),
            json!({
                "evalId": "eval-a", "createdAt": "2026-11-29T00:00:00.000Z", "description": "d", "author": "ada",
                "stats": {"successes": 2, "failures": 1, "errors": 0}, "providers": ["echo", "b"], "isRedteam": false,
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

//! Templates of images, for `sandcove run --image`. One is built at the first run with an image, and used again by later ones.

use anyhow::{Result, bail};
use sandcove_client::{BuildEnd, Client};
use sandcove_wire::api::build::{NewTemplate, StartBuild, TemplateStep};
use sandcove_wire::api::template::BuildStatus;
use sandcove_wire::boot::ENV_INTERPRETER;

use super::assemble::{Lines, digest};
use super::printer::Printer;
use super::registry;
use crate::report::list_of;

/// Maximum length of the part of a name that comes from the image.
const MAX_SLUG: usize = 60;

/// Returns the name of the template of an image, after building it if there is none. With `interpreter`, it has the code interpreter, which
/// needs Python in the image.
///
/// # Errors
/// If the image cannot be pulled, has no Python for the interpreter, or the server does not answer.
pub async fn of_image(client: &Client, image: &str, interpreter: bool) -> Result<String> {
    let name = name(image, interpreter);
    if is_ready(client, &name).await? {
        return Ok(name);
    }
    let printer = Printer::new(false);
    printer.local(&format!("building template {name} from {image}, which later runs use again"));
    let steps = interpreter.then(|| TemplateStep {
        kind: "ENV".to_owned(),
        args: vec![ENV_INTERPRETER.to_owned(), "python".to_owned()],
        ..TemplateStep::default()
    });
    let start = StartBuild {
        from_image: Some(image.to_owned()),
        from_image_registry: registry::login(image),
        steps: steps.into_iter().collect(),
        ..StartBuild::default()
    };
    let new = NewTemplate { name: Some(name.clone()), ..NewTemplate::default() };
    let build = client.request_build(&new).await?;
    client.start_build(&build.template_id, &build.build_id, &start).await?;
    let lines = Lines::default();
    match client
        .follow_build(&build.template_id, &build.build_id, |entry| printer.entry(entry, &lines))
        .await?
    {
        BuildEnd::Ready => Ok(name),
        BuildEnd::Failed(reason) => {
            bail!(
                "failed to build a template from image `{image}`: {}{}",
                reason.message,
                list_of(&reason.message)
            )
        }
    }
}

async fn is_ready(client: &Client, name: &str) -> Result<bool> {
    let Some(found) = client.template_named(name).await? else { return Ok(false) };
    let whole = client.template(&found.template_id).await?;
    Ok(whole.builds.iter().any(|build| build.status == BuildStatus::Ready))
}

/// The name of the template: the end of the reference for people, and a digest of the whole.
fn name(image: &str, interpreter: bool) -> String {
    let end = image.rsplit('/').next().unwrap_or(image);
    let slug: String = end
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(MAX_SLUG)
        .collect();
    let kind = if interpreter { "interpreter" } else { "plain" };
    format!("run-{slug}-{}", &digest(&[image, kind])[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_image_and_is_valid() {
        let python = name("docker.io/library/Python:3.12-slim", true);
        assert!(python.starts_with("run-python-3-12-slim-"), "{python}");
        for image in ["debian", "localhost:5000/a/b@sha256:0123456789abcdef", &"x".repeat(300)] {
            let name = name(image, false);
            assert_eq!(super::super::project::checked_name(&name).unwrap(), name);
        }
        let names = [name("a/b", true), name("c/b", true), name("a/b", false)];
        assert!(names[0] != names[1] && names[0] != names[2]);
    }
}

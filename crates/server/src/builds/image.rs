//! OCI images as bases of builds (contract: templates, sections 9.1 and 11).

use std::sync::Arc;

use sandcove_host::ImageLease;
use sandcove_image::oci::{self, Credentials, Progress};

use super::Shared;
use super::archived::Archived;
use super::engine::BASE;
use super::failure::Failure;
use super::job::Job;
use crate::domain::build::{LogLevel, RegistryCredentials};
use crate::domain::team::Team;
use crate::store::CachedImage;

/// Start of the names of layers with images.
pub(super) const LAYER_PREFIX: &str = "oci-";

/// An image that is there.
pub(super) struct Pulled {
    /// The image.
    pub image: CachedImage,
    /// The template that an archive of one describes.
    pub archived: Option<Archived>,
    /// Whether nothing had to be downloaded.
    pub was_there: bool,
    /// Keeps the layer until the template is stored.
    pub lease: Option<ImageLease>,
}

/// Pulls an image. When its registry does not answer, or the credentials were lost in a restart, the image is used that the
/// reference meant for the team before.
pub(super) async fn pull(shared: &Shared, job: &Job<'_>, reference: &str) -> Result<Pulled, Failure> {
    let team = job.order.team.id;
    let credentials = credentials(job.order.credentials.as_ref());
    let settings = settings(shared, job).await?;
    let mut was_there = false;
    let mut progress = |event: Progress<'_>| {
        was_there |= event == Progress::Exists;
        if let Some(text) = described(&event) {
            job.log.write(LogLevel::Info, Some(BASE), format!("[base] {text}"));
        }
    };
    let imported = oci::import(&shared.host, reference, &credentials, &settings, &mut progress).await;
    let error = match imported {
        Ok(image) => {
            count(shared, &job.order.team, &image, was_there).await?;
            let oci::Image { layer, env, lease, .. } = image;
            let image = CachedImage { layer, env: env.into_iter().collect() };
            shared.store.insert_image(team, reference, &image).await?;
            return Ok(Pulled { image, archived: None, was_there, lease: Some(lease) });
        }
        Err(error) => error,
    };
    let is_lost = job.order.is_resumed && matches!(error, oci::Error::Denied(_));
    let may_be_old = is_lost || (matches!(error, oci::Error::Unreachable { .. }) && !job.order.spec.force);
    let look = job.uses.look().await;
    if may_be_old
        && let Some(image) = shared.store.cached_image(team, reference).await?
        && shared.host.has_layer(&image.layer).await?
    {
        look.keep([image.layer.as_str()]);
        let text = format!("[base] {error}: the image is used that was pulled before");
        job.log.write(LogLevel::Warn, Some(BASE), text);
        return Ok(Pulled { image, archived: None, was_there: true, lease: None });
    }
    if is_lost {
        return Err(Failure::new(format!(
            "{error}: the server was restarted, and had the credentials of the registry in memory only; start the build again"
        )));
    }
    Err(failure(error, &settings, &job.order.team))
}

/// Imports an image from an archive that was uploaded.
pub(super) async fn unpack(
    shared: &Shared,
    job: &Job<'_>,
    files_hash: &str,
    name: Option<&str>,
) -> Result<Pulled, Failure> {
    let path = shared.file_sets.find(job.order.team.id, files_hash).await;
    let path = path.ok_or_else(|| Failure::new("the archive was not uploaded: upload it again"))?;
    let mut was_there = false;
    let mut progress = |event: Progress<'_>| {
        was_there |= event == Progress::Exists;
        if let Some(text) = described(&event) {
            job.log.write(LogLevel::Info, Some(BASE), format!("[base] {text}"));
        }
    };
    let settings = settings(shared, job).await?;
    let imported = oci::import_archive(&shared.host, &path, name, &settings, &mut progress).await;
    // Clients do not know the path.
    let shown = |error: oci::Error| {
        let failure = failure(error, &settings, &job.order.team);
        failure.renamed(&path.display().to_string(), "archive")
    };
    let image = imported.map_err(shown)?;
    count(shared, &job.order.team, &image, was_there).await?;
    let archived = Archived::of(&image);
    let oci::Image { layer, env, lease, .. } = image;
    let image = CachedImage { layer, env: env.into_iter().collect() };
    Ok(Pulled { image, archived, was_there, lease: Some(lease) })
}

/// Counts the layer of an image for a team, if there is room for it on the disk of the team's templates.
async fn count(
    shared: &Shared,
    team: &Team,
    image: &oci::Image<ImageLease>,
    was_there: bool,
) -> Result<(), Failure> {
    let is_new = shared.store.count_image_layer(team.id, &image.layer, image.size_bytes).await?;
    if !is_new || shared.kept_bytes(team).await? <= team.max_kept_bytes() {
        return Ok(());
    }
    // One that was unpacked for the team counts until it is deleted.
    if was_there {
        shared.store.forget_image_layer(team.id, &image.layer).await?;
    }
    Err(Failure::no_disk(team))
}

fn failure(error: oci::Error, settings: &oci::Settings, team: &Team) -> Failure {
    match error {
        oci::Error::Full { .. } => Failure::new(error.to_string()),
        oci::Error::TooLarge { limit: oci::Limit::Bytes(_), .. } if settings.room < settings.max_bytes => {
            Failure::no_disk(team).prefixed(&format!("{error}; "))
        }
        error if error.is_internal() => Failure::internal(error),
        error => Failure::new(error.to_string()),
    }
}

async fn settings(shared: &Shared, job: &Job<'_>) -> Result<oci::Settings, Failure> {
    let team = &job.order.team;
    let room = team.max_kept_bytes().saturating_sub(shared.kept_bytes(team).await?);
    let registries = &shared.settings.registries;
    let host = shared.host.clone();
    Ok(oci::Settings {
        room,
        mirrors: registries.mirrors.clone(),
        insecure: registries.insecure.clone(),
        private: registries.private.clone(),
        allow_private: registries.allow_private,
        guard: Some(Arc::new(move |v6| {
            let host = host.clone();
            Box::pin(async move { host.guarded_socket(v6).await })
        })),
        ..oci::Settings::new(sandcove_isolate::is_public)
    })
}

fn credentials(given: Option<&RegistryCredentials>) -> Credentials {
    match given.cloned() {
        None => Credentials::Anonymous,
        Some(RegistryCredentials::Basic { username, password }) => Credentials::Basic { username, password },
        Some(RegistryCredentials::Aws { access_key_id, secret_access_key, region }) => {
            Credentials::Ecr { access_key_id, secret_access_key, region }
        }
        Some(RegistryCredentials::Gcp { service_account_json }) => Credentials::Gcr { service_account_json },
    }
}

fn described(event: &Progress<'_>) -> Option<String> {
    match event {
        Progress::Resolved { digest, layers, size_bytes } => {
            Some(format!("Image {digest}: {layers} layers, {}", megabytes(*size_bytes)))
        }
        Progress::Exists => Some("The image has been pulled before".to_owned()),
        Progress::Downloading { .. } => None,
        Progress::Unpacked { layer, number, of } => Some(format!("Unpacked layer {number}/{of} {layer}")),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_megabytes() {
        assert_eq!((megabytes(0), megabytes(28_440_123)), ("0.0 MB".to_owned(), "28.4 MB".to_owned()));
    }
}

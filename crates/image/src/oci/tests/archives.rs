//! OCI layouts and archives of `docker save`.

use std::path::Path;

use serde_json::json;
use tar::EntryType;

use super::support::*;
use crate::oci::digest::Digest;
use crate::oci::{Image, Progress, Result, Settings, import_archive};

async fn import(place: &Place, path: &Path, name: Option<&str>) -> Result<Image> {
    let settings = Settings::new(|_| false);
    import_archive(&place.store, path, name, &settings, &mut |_: Progress<'_>| {}).await
}

fn index(image: &TestImage, names: &[&str]) -> Vec<u8> {
    let entries: Vec<_> = names
        .iter()
        .map(|name| {
            let mut entry = described("application/vnd.oci.image.manifest.v1+json", &image.manifest);
            entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
            entry
        })
        .collect();
    json!({ "schemaVersion": 2, "manifests": entries }).to_string().into_bytes()
}

fn layout(place: &Place, image: &TestImage, names: &[&str]) -> std::path::PathBuf {
    let path = place.directory.path().join("layout");
    let blobs = path.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    for blob in image.layers.iter().chain([&image.config, &image.manifest]) {
        std::fs::write(blobs.join(Digest::of(blob).hex()), blob).unwrap();
    }
    std::fs::write(path.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    std::fs::write(path.join("index.json"), index(image, names)).unwrap();
    path
}

#[tokio::test]
async fn a_layout_directory_is_imported() {
    let place = Place::new();
    let source = small();
    let path = layout(&place, &source, &["v1", "v2"]);
    let error = import(&place, &path, None).await.unwrap_err().to_string();
    assert!(error.contains("choose one of v1, v2"), "{error}");
    assert!(import(&place, &path, Some("v3")).await.is_err());
    let image = import(&place, &path, Some("v2")).await.unwrap();
    assert_eq!((image.layer, image.digest), (source.layer_name(), Digest::of(&source.manifest).to_string()));
}

#[tokio::test]
async fn blobs_of_a_layout_are_verified() {
    let place = Place::new();
    let source = small();
    let path = layout(&place, &source, &["v1"]);
    let blob = path.join("blobs/sha256").join(Digest::of(&source.layers[0]).hex());
    let mut data = source.layers[0].clone();
    data[20] ^= 1;
    for (data, expected) in [(data, "has the digest"), (b"x".to_vec(), "has 1 bytes instead of")] {
        std::fs::write(&blob, data).unwrap();
        let error = import(&place, &path, None).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    std::fs::remove_file(&blob).unwrap();
    assert!(import(&place, &path, None).await.unwrap_err().to_string().contains("is missing"));
}

fn saved() -> (Vec<u8>, TestImage) {
    let layer = Tar::new().file("name", "saved").finish();
    let source = TestImage::new(&[layer.clone(), layer.clone()]);
    let manifest =
        json!([{ "Config": "abc.json", "RepoTags": ["x:1"], "Layers": ["one/layer.tar", "two/layer.tar"] }]);
    let archive = Tar::new()
        .directory("one")
        .entry(EntryType::Regular, "one/layer.tar", &layer, |_| {})
        .symlink("two/layer.tar", "../one/layer.tar")
        .entry(EntryType::Regular, "abc.json", &source.config, |_| {})
        .file("manifest.json", &manifest.to_string())
        .finish();
    (archive, source)
}

#[tokio::test]
async fn an_archive_of_docker_save_is_imported() {
    let (archive, source) = saved();
    for data in [archive.clone(), gzip(&archive)] {
        let place = Place::new();
        let path = place.directory.path().join("image.tar");
        std::fs::write(&path, data).unwrap();
        let image = import(&place, &path, Some("x:1")).await.unwrap();
        assert_eq!(image.layer, source.layer_name());
        assert_eq!(std::fs::read_to_string(place.path(&image).join("name")).unwrap(), "saved");
        assert!(import(&place, &path, Some("x:2")).await.is_err());
    }
}

#[tokio::test]
async fn other_files_are_refused() {
    let place = Place::new();
    let path = place.directory.path().join("image.tar");
    let outside = Tar::new().symlink("manifest.json", "../../../../etc/passwd").finish();
    for (data, expected) in [
        (b"no archive at all".to_vec(), "is not usable: it is not a tar archive; use an OCI layout"),
        (vec![b'x'; 5000], "is not usable: it is not a tar archive; use an OCI layout"),
        (Tar::new().file("a", "b").finish(), "neither index.json nor manifest.json"),
        (outside, "neither index.json nor manifest.json"),
        (saved().0[..2000].to_vec(), "ends early"),
    ] {
        std::fs::write(&path, data).unwrap();
        let error = import(&place, &path, None).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(import(&place, Path::new("/nonexistent"), None).await.unwrap_err().is_internal());
}

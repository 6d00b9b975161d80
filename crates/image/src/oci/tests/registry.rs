//! Whole imports from a good registry.

use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use serde_json::json;

use super::support::*;
use crate::oci::digest::Digest;
use crate::oci::{Credentials, Mirror, Progress, import};

fn two_layers() -> TestImage {
    TestImage::new(&[
        Tar::new().directory("bin").file("bin/sh", "first").file("bin/old", "x").finish(),
        Tar::new().file("bin/sh", "second").file("bin/.wh.old", "").finish(),
    ])
}

#[tokio::test]
async fn an_image_becomes_one_layer() {
    let (registry, place) = (Registry::start().await, Place::new());
    let source = two_layers();
    registry.add("v1", &source);
    let seen = Mutex::new(Vec::new());
    let mut progress = |step: Progress<'_>| seen.lock().unwrap().push(format!("{step:?}"));
    let settings = registry.settings();
    let image = import(&place.store, &registry.image(), &Credentials::Anonymous, &settings, &mut progress)
        .await
        .unwrap();
    assert_eq!(image.layer, source.layer_name());
    assert_eq!(image.digest, Digest::of(&source.manifest).to_string());
    assert_eq!(image.env, [("PATH".to_owned(), "/bin".to_owned())]);
    assert_eq!(image.size_bytes, 12);
    let bin = place.path(&image).join("bin");
    assert_eq!(std::fs::read_to_string(bin.join("sh")).unwrap(), "second");
    assert!(!bin.join("old").exists());
    assert_eq!(bin.metadata().unwrap().mtime(), 1_600_000_000);
    assert_eq!(place.names(), [image.layer.as_str()]);
    let seen = seen.into_inner().unwrap();
    assert!(seen[0].starts_with("Resolved") && seen[0].contains("layers: 2"), "{seen:?}");
    assert_eq!(seen.iter().filter(|step| step.starts_with("Downloading")).count(), 2);
    assert!(seen.last().unwrap().contains("number: 2, of: 2"), "{seen:?}");

    // The second import asks the registry, which may refuse this client, but downloads no layer.
    let before = registry.requests().len();
    let mut last = String::new();
    let mut progress = |step: Progress<'_>| last = format!("{step:?}");
    let again = import(&place.store, &registry.image(), &Credentials::Anonymous, &settings, &mut progress)
        .await
        .unwrap();
    assert_eq!((again.layer, again.size_bytes), (image.layer, 12));
    assert_eq!((last.as_str(), registry.requests().len()), ("Exists", before + 2));
}

#[tokio::test]
async fn imports_of_the_same_image_at_once_are_one() {
    let (registry, place) = (Registry::start().await, Place::new());
    registry.add("v1", &two_layers());
    let (settings, image) = (registry.settings(), registry.image());
    let (one, two) = tokio::join!(place.import(&image, &settings), place.import(&image, &settings));
    assert_eq!(one.unwrap().layer, two.unwrap().layer);
    let blobs = registry.requests().iter().filter(|request| request.path.contains("/blobs/")).count();
    assert_eq!(blobs, 4, "two configurations, two layers");
}

#[tokio::test]
async fn a_digest_pins_an_image() {
    let (registry, place) = (Registry::start().await, Place::new());
    let source = small();
    registry.add("v1", &source);
    let digest = Digest::of(&source.manifest);
    let name = format!("{}/a/b:ignored@{digest}", registry.address);
    assert_eq!(place.import(&name, &registry.settings()).await.unwrap().digest, digest.to_string());
    let other = Digest::of(b"other");
    registry.put(&format!("/v2/a/b/manifests/{other}"), &source.manifest);
    let error = place.error(&format!("{}/a/b@{other}", registry.address), &registry.settings()).await;
    assert!(error.contains(&format!("a manifest with the digest {digest}")), "{error}");
}

#[tokio::test]
async fn the_image_for_this_machine_is_chosen() {
    let (registry, place) = (Registry::start().await, Place::new());
    let source = small();
    registry.add("other", &source);
    let listed = |os: &str, architecture: &str, data: &[u8]| {
        let mut entry = described("application/vnd.oci.image.manifest.v1+json", data);
        entry["platform"] = json!({ "os": os, "architecture": architecture });
        entry
    };
    let own = crate::oci::Platform::host().to_string();
    let own = own.split('/').nth(1).unwrap();
    let index = json!({ "schemaVersion": 2, "manifests": [
        listed("linux", "s390x", b"x"), listed("linux", own, &source.manifest), listed("unknown", "unknown", b"y"),
    ]});
    registry.put("/v2/a/b/manifests/v1", index.to_string().as_bytes());
    let image = place.import(&registry.image(), &registry.settings()).await.unwrap();
    assert_eq!(image.layer, source.layer_name());

    let index = json!({ "manifests": [listed("linux", "s390x", b"x"), listed("windows", own, b"y")] });
    registry.put("/v2/a/b/manifests/v1", index.to_string().as_bytes());
    let error = place.error(&registry.image(), &registry.settings()).await;
    let expected = format!("is for linux/s390x, windows/{own}, but this machine needs linux/{own}");
    assert!(error.contains(&expected), "{error}");

    // Without an index, the configuration says what the image is for.
    let other = TestImage::with(&[], |config| config["architecture"] = json!("riscv64"), |_| {});
    registry.add("v1", &other);
    let error = place.error(&registry.image(), &registry.settings()).await;
    assert!(error.contains("is for linux/riscv64, but"), "{error}");
}

#[tokio::test]
async fn layers_may_be_compressed_in_any_way() {
    let (registry, place) = (Registry::start().await, Place::new());
    let plain = [
        Tar::new().file("gzip", "a").finish(),
        Tar::new().file("zstd", "b").finish(),
        Tar::new().file("plain", "c").finish(),
    ];
    let zstd = ruzstd::encoding::compress_to_vec(&plain[1][..], ruzstd::encoding::CompressionLevel::Fastest);
    let blobs = [gzip(&plain[0]), zstd, plain[2].clone()];
    let mut source = TestImage::with(
        &plain,
        |_| {},
        |manifest| {
            manifest["layers"] = json!([
                described("application/vnd.docker.image.rootfs.diff.tar.gzip", &blobs[0]),
                described("application/vnd.oci.image.layer.v1.tar+zstd", &blobs[1]),
                described("application/vnd.oci.image.layer.v1.tar", &blobs[2]),
            ]);
        },
    );
    source.layers = blobs.to_vec();
    registry.add("v1", &source);
    let image = place.import(&registry.image(), &registry.settings()).await.unwrap();
    for (name, text) in [("gzip", "a"), ("zstd", "b"), ("plain", "c")] {
        assert_eq!(std::fs::read_to_string(place.path(&image).join(name)).unwrap(), text);
    }
}

#[tokio::test]
async fn mirrors_are_asked_first_and_get_no_credentials() {
    let (mirror, registry, place) = (Registry::start().await, Registry::start().await, Place::new());
    let source = small();
    registry.add("v1", &source);
    mirror.add("v1", &source);
    let mut settings = registry.settings();
    settings.insecure.push(mirror.address.to_string());
    let url = format!("http://{}", mirror.address);
    settings.mirrors.push(Mirror { registry: registry.address.to_string(), url: url.clone() });
    let credentials =
        Credentials::Basic { username: "u".into(), password: sandcove_wire::secret::Secret::new("p") };
    place.import_as(&registry.image(), &credentials, &settings).await.unwrap();
    assert!(registry.requests().is_empty());
    assert!(mirror.requests().iter().all(|request| request.header("authorization").is_empty()));

    // What a mirror lacks comes from the registry.
    let empty = Registry::start().await;
    settings.insecure.push(empty.address.to_string());
    settings.mirrors[0].url = format!("http://{}/", empty.address);
    Place::new().import_as(&registry.image(), &credentials, &settings).await.unwrap();
    assert_eq!((empty.requests().len(), registry.requests().len()), (3, 3));
}

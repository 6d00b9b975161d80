//! Transfers that break, and data that is not what it should be.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::support::*;
use crate::LayerStore;
use crate::oci::digest::Digest;
use crate::oci::{Credentials, Progress, import};

/// An image whose layer does not compress.
fn large() -> TestImage {
    let mut seed = 1_u32;
    let noise: String = (0..400_000)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + (seed >> 26) as u8)
        })
        .collect();
    TestImage::new(&[Tar::new().file("noise", &noise).finish()])
}

fn is_layer(request: &Request, image: &TestImage) -> bool {
    request.path.ends_with(&Digest::of(&image.layers[0]).to_string())
}

#[tokio::test]
async fn a_broken_transfer_goes_on_where_it_stopped() {
    let (source, place) = (large(), Place::new());
    let copy = source.clone();
    let registry = Registry::with(move |request, good| {
        // Each transfer breaks after 100 kB.
        let cut = (is_layer(request, &copy) && good.body.len() > 100_000).then_some(100_000);
        Response { cut, ..good }
    })
    .await;
    registry.add("v1", &source);
    let image = place.import(&registry.image(), &registry.settings()).await.unwrap();
    assert_eq!(image.size_bytes, 400_000);
    let ranges: Vec<_> =
        registry.requests().iter().map(|request| request.header("range").to_owned()).collect();
    assert!(
        ranges.contains(&"bytes=100000-".to_owned()) && ranges.contains(&"bytes=200000-".to_owned()),
        "{ranges:?}"
    );
}

#[tokio::test]
async fn a_registry_without_ranges_begins_again() {
    for status in [200, 206] {
        let (source, place) = (large(), Place::new());
        let (copy, count) = (source.clone(), AtomicUsize::new(0));
        let registry = Registry::with(move |request, good| {
            if !is_layer(request, &copy) {
                return good;
            }
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => Response { cut: Some(50_000), ..good },
                // A part that was not asked for.
                1 if status == 206 => {
                    Response::new(206, &copy.layers[0][10..]).header("content-range", "bytes 10-20/30")
                }
                _ => Response::new(200, copy.layers[0].clone()),
            }
        })
        .await;
        registry.add("v1", &source);
        assert_eq!(place.import(&registry.image(), &registry.settings()).await.unwrap().size_bytes, 400_000);
    }
}

#[tokio::test]
async fn a_transfer_that_always_breaks_is_an_error() {
    let (source, place) = (large(), Place::new());
    let copy = source.clone();
    let registry =
        Registry::with(move |request, good| Response { cut: is_layer(request, &copy).then_some(0), ..good })
            .await;
    registry.add("v1", &source);
    let error = place.error(&registry.image(), &registry.settings()).await;
    assert!(error.contains("the transfer of a layer broke"), "{error}");
    assert!(place.names().is_empty());
}

#[tokio::test]
async fn every_digest_and_size_is_verified() {
    let source = large();
    let other = gzip(b"other");
    let mut flipped = source.layers[0].clone();
    flipped[1000] ^= 1;
    let shorter = source.layers[0][..1000].to_vec();
    let longer = [&source.layers[0][..], b"x"].concat();
    let layer = format!("/v2/a/b/blobs/{}", Digest::of(&source.layers[0]));
    let config = format!("/v2/a/b/blobs/{}", Digest::of(&source.config));
    let spaced = [&source.config[..source.config.len() - 1], b" "].concat();
    for (path, data, expected) in [
        (&layer, &flipped, "has the digest sha256:"),
        (&layer, &shorter, "but the registry sends 1000"),
        (&layer, &longer, "but the registry sends"),
        (&layer, &other, "but the registry sends"),
        (&config, &spaced, "the configuration has the digest"),
        (&config, &other, "the configuration has"),
    ] {
        let (registry, place) = (Registry::start().await, Place::new());
        registry.add("v1", &source);
        registry.put(path, data);
        let error = place.error(&registry.image(), &registry.settings()).await;
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(place.names().is_empty());
    }
}

#[tokio::test]
async fn layers_are_those_of_the_configuration() {
    let layers = [Tar::new().file("a", "a").finish()];
    let other = Digest::of(b"other").to_string();
    for (source, expected) in [
        (
            TestImage::with(&layers, |config| config["rootfs"]["diff_ids"] = json!([other]), |_| {}),
            "the configuration says",
        ),
        (
            TestImage::with(&layers, |config| config["rootfs"]["diff_ids"] = json!([]), |_| {}),
            "1 layers, but its configuration 0",
        ),
        (
            TestImage::with(&layers, |_| {}, |manifest| manifest["layers"] = json!([])),
            "0 layers, but its configuration 1",
        ),
    ] {
        let (registry, place) = (Registry::start().await, Place::new());
        registry.add("v1", &source);
        let error = place.error(&registry.image(), &registry.settings()).await;
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_import_leaves_nothing() {
    let (source, place) = (large(), Place::new());
    let copy = source.clone();
    let asked = Arc::new(tokio::sync::Notify::new());
    let notify = asked.clone();
    let registry = Registry::with(move |request, good| {
        if is_layer(request, &copy) {
            notify.notify_one();
            std::thread::sleep(Duration::from_millis(200));
        }
        good
    })
    .await;
    registry.add("v1", &source);
    let (settings, image) = (registry.settings(), registry.image());
    tokio::select! {
        _ = place.import(&image, &settings) => panic!("the import was to be cancelled"),
        () = asked.notified() => {}
    }
    assert!(place.names().is_empty());
    place.import(&image, &settings).await.unwrap();
}

#[tokio::test]
async fn limits_are_kept() {
    let (registry, place) = (Registry::start().await, Place::new());
    registry.add("v1", &large());
    let mut settings = registry.settings();
    settings.max_bytes = 100_000;
    let error = place.error(&registry.image(), &settings).await;
    assert!(error.contains("is too large: its compressed layers have 0 MB"), "{error}");
    settings.max_bytes = 399_999;
    let error = place.error(&registry.image(), &settings).await;
    assert!(error.contains("is too large: its files have more data"), "{error}");
    settings.max_bytes = 400_000;
    settings.max_entries = 0;
    let error = place.error(&registry.image(), &settings).await;
    assert!(error.contains("is too large: it has more entries"), "{error}");
    settings.max_entries = 1;
    settings.room = 399_999;
    let error = place.error(&registry.image(), &settings).await;
    assert!(error.contains("is too large: its files have more data"), "{error}");
    settings.room = 400_000;
    place.import(&registry.image(), &settings).await.unwrap();
    settings.room = 0;
    place.import(&registry.image(), &settings).await.expect("an image that is there takes no room");
}

/// A small file system in memory.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(directory.path());
        assert!(mount.status().unwrap().success());
        Self(directory)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_as_such() {
    let registry = Registry::start().await;
    registry.add("v1", &large());
    // Too small for the download; large enough for it, but not for the files as well.
    for size in ["100k", "500k"] {
        let disk = Disk::new(size);
        let store = LayerStore::open(disk.0.path()).unwrap();
        let (image, settings) = (registry.image(), registry.settings());
        let mut progress = |_: Progress<'_>| {};
        let imported = import(&store, &image, &Credentials::Anonymous, &settings, &mut progress).await;
        let error = imported.unwrap_err();
        assert!(
            error.is_internal() && error.to_string().contains("the disk of the layers is full"),
            "{error}"
        );
    }
}

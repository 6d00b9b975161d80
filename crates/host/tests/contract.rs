//! What the server relies on, asked of a host side in the same process and of one at the other end of a socket.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;

use sandcove_host::{Host, serve};
use sandcove_image::files::{Attributes, FileError, Removal};
use sandcove_image::oci::{self, Exported};
use sandcove_isolate::fake::{Fake, Operation};
use sandcove_isolate::{
    Backend, Blueprint, Error, Few, Files, HostRule, Known, Limits, Mount, NetworkPolicy, SandboxSpec, Usage,
};
use sandcove_wire::boot::{Boot, Settings};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(120);
const NEVER: Duration = Duration::from_millis(50);

/// A host side at the other end of a socket, and the task that serves it.
fn there(fake: &Fake) -> (Host, JoinHandle<std::io::Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    (Host::there(near), tokio::spawn(serve(Backend::Fake(fake.clone()), far)))
}

/// Both kinds of host sides, each with a backend of its own.
fn hosts() -> Vec<(Host, Fake)> {
    let (here, fake) = (Fake::default(), Fake::default());
    vec![(Host::here(Backend::Fake(here.clone())), here), (there(&fake).0, fake)]
}

fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

fn blueprint(layers: &[&str]) -> Blueprint {
    Blueprint {
        layers: layers.iter().map(Into::into).collect(),
        limits: Limits { memory_mib: 512, cpus: 2, pids: 100, disk_mib: 1024 },
        boot: Boot {
            template_id: "base".into(),
            hostname: "sandbox".into(),
            nameservers: vec!["10.0.0.1".parse().unwrap()],
            services: Vec::new(),
            zygote: false,
            warm_up: true,
            env: [("A".to_owned(), "é\"\n".to_owned())].into(),
        },
        started: Some("t-0f".into()),
    }
}

fn spec(sandbox: &str) -> SandboxSpec {
    SandboxSpec {
        memory: false,
        id: id(sandbox),
        blueprint: blueprint(&["t-0f/upper", "base-1"]),
        files: Files::Empty,
        mounts: vec![Mount { volume: "v".into(), path: "/data".into() }],
        network: NetworkPolicy { deny_all: true, ..NetworkPolicy::default() },
        settings: Settings { access_token: Some(Secret::new("token")), ..Settings::default() },
    }
}

#[tokio::test]
async fn a_sandbox_is_what_was_asked_for() {
    for (host, fake) in hosts() {
        assert!(!host.holds_anything().await.unwrap());
        let handle = host.create(spec("ione")).await.unwrap();
        assert_eq!((handle.id(), handle.record().limits.cpus), (&id("ione"), 2));
        let made = fake.spec(&id("ione")).unwrap();
        let layers: Vec<_> = made.blueprint.layers.iter().map(|layer| layer.to_str().unwrap()).collect();
        assert_eq!(layers, ["/nonexistent/layers/t-0f/upper", "/nonexistent/layers/base-1"]);
        assert_eq!(made.blueprint.boot, spec("ione").blueprint.boot);
        assert_eq!((&made.mounts, &made.network), (&spec("ione").mounts, &spec("ione").network));
        assert_eq!(made.settings.access_token.as_ref().map(Secret::expose), Some("token"));
        assert!(host.holds_anything().await.unwrap());
        assert!(host.has_files(&id("ione")).await.unwrap());
        assert!(!host.has_files(&id("itwo")).await.unwrap());
    }
}

#[tokio::test]
async fn a_sandbox_is_changed_and_its_end_is_noticed() {
    for (host, fake) in hosts() {
        let handle = host.create(spec("ione")).await.unwrap();
        handle.pause().await.unwrap();
        assert!(fake.is_frozen(&id("ione")));
        handle.resume().await.unwrap();
        assert!(!fake.is_frozen(&id("ione")));
        handle.freeze().await.unwrap();
        handle.set_network(NetworkPolicy::default()).await.unwrap();
        assert_eq!(fake.network(&id("ione")), Some(NetworkPolicy::default()));
        let usage = Usage { cpu_us: 1, memory_bytes: 2, cache_bytes: 3, disk_bytes: 4 };
        fake.set_usage(&id("ione"), usage);
        assert_eq!(handle.usage().await.unwrap(), usage);
        handle.snapshot("s1", 7, None).await.unwrap();
        assert!(host.has_snapshot("s1").await.unwrap());
        assert_eq!(handle.reclaim().await.unwrap(), 0);
        let adopted = host.adopt(&id("ione")).await.unwrap().unwrap();
        assert!(!adopted.has_ended().await.unwrap());
        assert!(timeout(NEVER, handle.wait()).await.is_err());
        fake.crash(&id("ione"));
        timeout(SOON, handle.wait()).await.unwrap();
        timeout(SOON, adopted.wait()).await.unwrap();
        assert!(adopted.has_ended().await.unwrap());
        assert!(host.adopt(&id("ione")).await.unwrap().is_none());
        handle.clone().shut_down().await.unwrap();
        assert!(host.has_files(&id("ione")).await.unwrap());
        handle.destroy().await.unwrap();
        assert!(fake.ids().is_empty() && !host.has_files(&id("ione")).await.unwrap());
        host.delete_snapshot("s1").await.unwrap();
        assert!(!host.has_snapshot("s1").await.unwrap());
    }
}

#[tokio::test]
async fn connections_lead_into_the_sandbox() {
    for (host, fake) in hosts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        fake.listen(80, listener.local_addr().unwrap());
        let handle = host.create(spec("ione")).await.unwrap();
        let refused = handle.connect(81).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let mut stream = handle.connect(80).await.unwrap();
        let (mut service, _) = listener.accept().await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut bytes = [0; 4];
        service.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"ping");
        let socket = host.guarded_socket(false).await.unwrap();
        socket.connect(listener.local_addr().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn failures_keep_their_meaning() {
    for (host, fake) in hosts() {
        fake.fail_next(Operation::Create, 1);
        let Err(Error::Jail { step, reason }) = host.create(spec("ione")).await else { panic!() };
        assert_eq!((step.as_str(), reason.as_str()), ("Create", "scripted fault"));
        fake.limit_slots(0);
        assert!(matches!(host.create(spec("ione")).await, Err(Error::NoSlot(0))));
        assert!(matches!(host.create_volume("v", 1).await, Err(Error::PoolFull)));
    }
}

#[tokio::test]
async fn pooled_sandboxes_are_kept_and_given_up_in_order() {
    for (host, fake) in hosts() {
        let kept = blueprint(&["base-1"]);
        let prepared = host.prepare(kept.clone(), host.create_log().await.unwrap()).await.unwrap();
        host.keep_few_ready(kept.clone(), Few { sandboxes: 1, warm_mib: 5 }, Some(prepared));
        // A request after an order finds it done.
        assert_eq!(host.warm_states(vec![kept.layers.clone()]).await.unwrap(), [None]);
        assert!(fake.is_pooled(&["/nonexistent/layers/base-1".into()]));
        assert!(host.is_ready(&kept).await.unwrap());
        host.stop_keeping(&kept.layers);
        host.warm_states(Vec::new()).await.unwrap();
        assert!(!fake.is_pooled(&["/nonexistent/layers/base-1".into()]));
        // Writing to anything else could keep the sandbox, or this side, waiting.
        assert!(host.prepare(kept, std::fs::File::open("/dev/null").unwrap()).await.is_err());
    }
}

#[tokio::test]
async fn a_sweep_keeps_what_is_known() {
    for (host, fake) in hosts() {
        for name in ["ione", "itwo"] {
            host.create(spec(name)).await.unwrap();
        }
        let known = Known { live: [id("ione")].into(), ..Known::default() };
        assert_eq!(host.sweep(known).await.unwrap().removed, ["itwo"]);
        assert_eq!(fake.ids(), [id("ione")]);
        assert_eq!(host.stop().await.unwrap().removed, [""; 0]);
    }
}

#[tokio::test]
async fn files_of_volumes_are_read_and_written() {
    for (host, fake) in hosts() {
        let directory = tempfile::tempdir().unwrap();
        fake.keep_volumes_in(directory.path().to_owned());
        host.create_volume("v", 10).await.unwrap();
        assert_eq!(host.volume_names().await.unwrap(), ["v"]);
        let volume = host.volume("v");
        let own = own_ids();
        volume.make_directory("/d/e", own, true).await.unwrap();
        let (upload, mut file) = volume.begin_upload("/d/f", own, "u1").await.unwrap();
        file.write_all(b"text").unwrap();
        let entry = upload.finish().await.unwrap();
        assert_eq!((entry.path.as_str(), entry.size), ("/d/f", 4));
        let (mut file, size) = volume.read("/d/f").await.unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), size), ("text", 4));
        let names: Vec<_> = volume.list("/", 2).await.unwrap().into_iter().map(|entry| entry.path).collect();
        assert_eq!(names, ["/d", "/d/e", "/d/f"]);
        assert_eq!(volume.stat("/d/f").await.unwrap().modified_ns, entry.modified_ns);
        assert!(matches!(volume.stat("/x").await, Err(FileError::NotFound(path)) if path == "/x"));
        assert!(matches!(volume.make_directory("/d", own, false).await, Err(FileError::Exists(_))));
        // An upload that nobody finishes leaves nothing.
        drop(volume.begin_upload("/d/g", own, "u2").await.unwrap());
        assert_eq!(volume.clean().await.unwrap(), [""; 0]);
        assert!(std::fs::read_dir(directory.path().join("v/work")).unwrap().next().is_none());
        assert_eq!(volume.remove("/d", "u3").await.unwrap(), Removal::Done);
        volume.take_apart("u3").await.unwrap();
        host.delete_volume("v").await.unwrap();
        volume.take_apart("u3").await.unwrap();
        assert!(volume.stat("/").await.is_err());
    }
}

#[tokio::test]
async fn an_exported_template_is_imported_and_kept_while_it_is_leased() {
    for (host, fake) in hosts() {
        let directory = tempfile::tempdir().unwrap();
        fake.keep_layers_in(directory.path().join("layers"));
        let archive = directory.path().join("archive.tar");
        let files = host.open_files(&["base-1".to_owned()], &Files::Empty).await.unwrap();
        let image = Exported { name: "x:1".into(), user: "root".into(), ..Exported::default() };
        let out = std::fs::File::create(&archive).unwrap();
        files.export(image, out.into()).await.unwrap();
        let settings = oci::Settings::new(sandcove_isolate::is_public);
        let import = async || {
            let mut existed = false;
            let mut progress = |event: oci::Progress<'_>| existed |= event == oci::Progress::Exists;
            let image = oci::import_archive(&host, &archive, None, &settings, &mut progress).await.unwrap();
            (image, existed)
        };
        let (image, existed) = import().await;
        assert!(!existed);
        let layer = directory.path().join("layers").join(&image.layer);
        assert!(layer.is_dir());
        assert_eq!(host.collect_layers([].into()).await.unwrap(), [""; 0]);
        let (again, existed) = import().await;
        assert!(existed && again.layer == image.layer);
        drop((again, image.lease));
        // The leases are given up in order, before the next request.
        host.warm_states(Vec::new()).await.unwrap();
        assert_eq!(host.collect_layers([].into()).await.unwrap(), [image.layer]);
        assert!(!layer.exists());
    }
}

#[tokio::test]
async fn what_leads_out_of_the_pool_is_refused() {
    for (host, fake) in hosts() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("volumes");
        std::fs::create_dir_all(directory.path().join("other/content")).unwrap();
        std::fs::create_dir_all(directory.path().join("other/work")).unwrap();
        fake.keep_volumes_in(inside);
        for layer in ["/etc", "..", "../../etc", "oci-1/upper", "t-1/upper/../../..", ""] {
            let hostile = SandboxSpec { blueprint: blueprint(&[layer]), ..spec("ione") };
            assert!(host.create(hostile).await.is_err(), "{layer:?}");
            assert!(host.open_files(&[layer.to_owned()], &Files::Empty).await.is_err(), "{layer:?}");
            host.keep_ready(blueprint(&[layer]));
        }
        for name in ["../other", "/etc", "..", ".", "", "a/b"] {
            let mounts = vec![Mount { volume: name.into(), path: "/data".into() }];
            assert!(host.create(SandboxSpec { mounts, ..spec("ione") }).await.is_err(), "{name:?}");
            let files = Files::Snapshot(name.into());
            assert!(host.create(SandboxSpec { files, ..spec("ione") }).await.is_err(), "{name:?}");
            assert!(host.volume(name).stat("/").await.is_err(), "{name:?}");
            assert!(host.create_volume(name, 1).await.is_err(), "{name:?}");
            assert!(host.delete_volume(name).await.is_err(), "{name:?}");
            assert!(host.delete_snapshot(name).await.is_err(), "{name:?}");
            assert!(host.publish_layer("s", name).await.is_err(), "{name:?}");
            assert!(host.publish_layer(name, "t-1").await.is_err(), "{name:?}");
            assert!(host.remove_layer(name).await.is_err(), "{name:?}");
            assert!(host.measure(vec![name.to_owned()], [].into()).await.is_err(), "{name:?}");
        }
        assert!(host.publish_layer("s", "base-1").await.is_err());
        assert!(fake.ids().is_empty());
        assert!(directory.path().join("other/content").exists());
    }
}

#[tokio::test]
async fn a_server_that_is_gone_leaves_its_sandboxes() {
    let fake = Fake::default();
    let (host, serving) = there(&fake);
    let handle = host.create(spec("ione")).await.unwrap();
    drop(host);
    assert!(timeout(NEVER, handle.wait()).await.is_err());
    drop(handle);
    timeout(SOON, serving).await.unwrap().unwrap().unwrap();
    assert_eq!(fake.ids(), [id("ione")]);
    let (host, _serving) = there(&fake);
    host.adopt(&id("ione")).await.unwrap().unwrap().destroy().await.unwrap();
}

#[tokio::test]
async fn a_host_side_that_is_gone_is_no_proof_of_anything() {
    let fake = Fake::default();
    let (host, serving) = there(&fake);
    let handle = host.create(spec("ione")).await.unwrap();
    let hold = fake.hold(Operation::Pause);
    let (paused, ()) = tokio::join!(handle.pause(), async {
        hold.reached().await;
        serving.abort();
    });
    assert!(paused.is_err());
    assert!(handle.usage().await.is_err() && host.has_files(&id("ione")).await.is_err());
    assert!(host.adopt(&id("ione")).await.is_err());
    assert!(timeout(NEVER, handle.wait()).await.is_err());
}

#[tokio::test]
async fn a_server_that_sends_no_requests_is_cut_off() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(Backend::fake(), far));
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(timeout(SOON, serving).await.unwrap().unwrap().is_err());
}

#[tokio::test]
async fn a_request_that_is_too_long_is_cut_off_by_its_head() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let serving = tokio::spawn(serve(Backend::fake(), far));
    near.write_all(&(40_u32 << 20).to_le_bytes()).await.unwrap();
    near.write_all(&[0]).await.unwrap();
    assert!(timeout(SOON, serving).await.unwrap().unwrap().is_err());
}

/// Makes objects until the host side refuses one; returns them.
async fn as_many_as_possible<T, E>(mut make: impl AsyncFnMut(usize) -> Result<T, E>) -> Vec<T> {
    let mut made = Vec::new();
    while let Ok(one) = make(made.len()).await {
        made.push(one);
        assert!(made.len() < 20_000, "there is no end");
    }
    made
}

#[tokio::test]
async fn a_hostile_server_has_no_endless_number_of_things_held() {
    for (host, fake) in hosts() {
        let directory = tempfile::tempdir().unwrap();
        fake.keep_volumes_in(directory.path().join("volumes"));
        fake.keep_layers_in(directory.path().join("layers"));
        host.create_volume("v", 10).await.unwrap();
        let volume = host.volume("v");
        let _sandbox = host.create(spec("ione")).await.unwrap();

        let adopt = async |_| host.adopt(&id("ione")).await;
        let handles = as_many_as_possible(adopt).await;
        assert_eq!(handles.len(), 8191);
        // Each waits for the end of the sandbox, and others are served all the same.
        assert!(host.has_files(&id("ione")).await.unwrap());
        drop(handles);
        // What is given up is given up in order, before the next request.
        assert!(adopt(0).await.unwrap().is_some());

        let upload = async |number| volume.begin_upload("/f", own_ids(), &format!("u{number}")).await;
        let mut uploads = as_many_as_possible(async |number| upload(number).await.map(|(it, _)| it)).await;
        assert_eq!(uploads.len(), 1024);
        uploads.pop().unwrap().finish().await.unwrap();
        drop(upload(1024).await.unwrap());
        drop(uploads);

        let log = host.create_log().await.unwrap();
        let prepare = async |_| host.prepare(blueprint(&["base-1"]), log.try_clone().unwrap()).await;
        let prepared = as_many_as_possible(prepare).await;
        assert_eq!(prepared.len(), 256);
        let files =
            as_many_as_possible(async |_| host.open_files(&["base-1".to_owned()], &Files::Empty).await).await;
        assert_eq!(files.len(), 256);
    }
}

#[tokio::test]
async fn a_hostile_server_has_no_endless_number_of_templates_kept() {
    let is_pooled =
        |fake: &Fake, layer: String| fake.is_pooled(&[format!("/nonexistent/layers/{layer}").into()]);
    for (host, fake) in hosts() {
        let few = Few { sandboxes: 1, warm_mib: 5 };
        for number in 0..1100 {
            host.keep_few_ready(blueprint(&[&format!("t-{number}")]), few, None);
        }
        host.warm_states(Vec::new()).await.unwrap();
        assert!(is_pooled(&fake, "t-1023".into()) && !is_pooled(&fake, "t-1024".into()));
        // Those that are known are kept on, and one that is given up makes room.
        host.keep_few_ready(blueprint(&["t-7"]), few, None);
        host.stop_keeping(&["t-7".into()]);
        host.keep_few_ready(blueprint(&["t-2000"]), few, None);
        // Large ones are fewer.
        let mut large = blueprint(&["t-8"]);
        large.boot.env.insert("LARGE".into(), "x".repeat(20 << 20));
        for number in 0..4 {
            host.stop_keeping(&[format!("t-{}", 900 + number).into()]);
            large.layers = vec![format!("large-{number}").into()];
            host.keep_few_ready(large.clone(), few, None);
        }
        host.warm_states(Vec::new()).await.unwrap();
        assert!(is_pooled(&fake, "t-2000".into()) && !is_pooled(&fake, "t-7".into()));
        assert!(is_pooled(&fake, "large-2".into()) && !is_pooled(&fake, "large-3".into()));
    }
}

#[tokio::test]
async fn a_hostile_server_has_no_endless_policies_kept() {
    for (host, _) in hosts() {
        let longest = NetworkPolicy {
            allow_out: vec!["10.0.0.1".to_owned(); 1000],
            allow_names: vec!["x".repeat(260); 1000],
            ..NetworkPolicy::default()
        };
        let handle = host.create(SandboxSpec { network: longest.clone(), ..spec("ione") }).await.unwrap();
        let mut many = longest.clone();
        many.deny_out = vec!["10.0.0.1".to_owned(); 2000];
        let mut headers = longest.clone();
        let value = ("authorization".to_owned(), "x".repeat(5 << 20));
        headers.hosts.push(HostRule { host: "api.example.com".to_owned(), headers: vec![value] });
        let mut long = longest;
        long.allow_names.push("x".repeat(1 << 20));
        for policy in [many, long, headers] {
            assert!(handle.set_network(policy.clone()).await.is_err());
            assert!(host.create(SandboxSpec { network: policy, ..spec("itwo") }).await.is_err());
        }
    }
}

/// Owner and group of the process: others need a right that it may not have.
fn own_ids() -> Attributes {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata(Path::new("/proc/self")).unwrap();
    Attributes { uid: Some(own.uid()), gid: Some(own.gid()), mode: None }
}

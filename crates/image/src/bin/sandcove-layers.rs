//! Builds the layers of the built-in templates for a data directory that has no storage pool yet. `make up` runs it while the compiler
//! works on the rest: the two wait for different things. A server that finds no such layers builds them itself, so that a failure here
//! only costs time.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sandcove_image::{
    Builder, ChrootRunner, Event, HostCertificates, Languages, LayerStore, Result, Sources, templates,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(data_dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sandcove-layers DATA-DIR");
        return ExitCode::from(2);
    };
    match build(&data_dir).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to build the templates ahead; the server will build them: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn build(data_dir: &Path) -> Result<()> {
    let certificates = HostCertificates::read(Path::new(HostCertificates::DIRECTORY))?;
    let store = LayerStore::open(&data_dir.join(LayerStore::AHEAD))?;
    let sources = Sources {
        mirror: std::env::var("SANDCOVE_DEBIAN_MIRROR").ok(),
        cache: std::env::var_os("SANDCOVE_TEMPLATE_CACHE").map(PathBuf::from),
        ahead: None,
    };
    let builder = Builder::new(store, ChrootRunner::default(), sources);
    let mut progress = |event: Event<'_>| match event {
        Event::Building(layer) => eprintln!("building template layer {layer}"),
        Event::Ready(layer, took) => eprintln!("built template layer {layer} in {} s", took.as_secs()),
        Event::Output(_) => {}
    };
    builder.ensure(&templates(&certificates, Languages::Lean), &mut progress).await
}

//! Checks that must hold for any bytes that a server sends to the host side. A program in `fuzz/` searches for bytes that break them; the
//! test below replays the inputs it has collected.

use std::path::{Component, PathBuf};

use sandcove_channel::Received;
use sandcove_isolate::{Backend, Blueprint, Files};

use crate::envelope::ToHost;
use crate::menu::Menu;
use crate::message::{Order, Request};

/// Checks what a server sends: a request that passes names nothing outside the pool.
pub fn requests(input: &[u8]) {
    let menu = Menu::new(Backend::fake());
    let mut received = Received::of(input);
    while let Ok(Some((message, fd))) = received.take::<ToHost>() {
        assert!(fd.is_none(), "a descriptor from nowhere");
        match message {
            ToHost::Ask(_, Request::Create(spec)) => {
                let Ok(spec) = menu.checked_spec(*spec) else { continue };
                check_layers(&spec.blueprint.layers);
                spec.mounts.iter().for_each(|mount| check_name(&mount.volume));
                if let Files::Snapshot(name) = &spec.files {
                    check_name(name);
                }
            }
            ToHost::Ask(_, Request::Prepare(blueprint)) => check_blueprint(menu.resolved(*blueprint)),
            ToHost::Order(Order::KeepReady(blueprint)) => check_blueprint(menu.resolved(blueprint)),
            ToHost::Order(Order::StopKeeping(layers)) => {
                menu.layers(layers).iter().for_each(|layers| check_layers(layers));
            }
            ToHost::Ask(..) | ToHost::Order(_) => {}
        }
    }
}

fn check_blueprint<E>(resolved: Result<Blueprint, E>) {
    let Ok(blueprint) = resolved else { return };
    check_layers(&blueprint.layers);
    blueprint.started.iter().for_each(|snapshot| check_name(snapshot));
}

fn check_layers(layers: &[PathBuf]) {
    for layer in layers {
        assert!(layer.starts_with("/nonexistent/layers"), "{layer:?}");
        assert!(matches!(layer.components().count(), 4 | 5), "{layer:?}");
        assert!(!layer.components().any(|component| component == Component::ParentDir), "{layer:?}");
    }
}

fn check_name(name: &str) {
    assert!(!name.is_empty() && !name.contains('/') && name != "..", "{name:?}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn collected_inputs_pass() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/requests");
        let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty());
        for input in inputs {
            let bytes = std::fs::read(&input).unwrap();
            assert!(Received::of(&bytes).take::<ToHost>().is_ok_and(|found| found.is_some()), "{input:?}");
            requests(&bytes);
        }
    }
}

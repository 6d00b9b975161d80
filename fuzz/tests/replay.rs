//! Every fuzzing program holds for the inputs that were collected for it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

fn replay(program: &str, target: &str) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!inputs.is_empty());
    let ran = Command::new(program).args(&inputs).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert_eq!(said.matches("Executed ").count(), inputs.len(), "{said}");
}

#[test]
fn envelopes_hold() {
    replay(env!("CARGO_BIN_EXE_envelope"), "envelope");
}

#[test]
fn hosts_hold() {
    replay(env!("CARGO_BIN_EXE_host"), "host");
}

#[test]
fn dns_answers_hold() {
    replay(env!("CARGO_BIN_EXE_dns_answer"), "dns_answer");
}

#[test]
fn dns_queries_hold() {
    replay(env!("CARGO_BIN_EXE_dns_query"), "dns_query");
}

#[test]
fn requested_hosts_hold() {
    replay(env!("CARGO_BIN_EXE_requested_host"), "requested_host");
}

#[test]
fn multipart_bodies_hold() {
    replay(env!("CARGO_BIN_EXE_multipart"), "multipart");
}

#[test]
fn paths_hold() {
    replay(env!("CARGO_BIN_EXE_path"), "path");
}

#[test]
fn kernel_frames_hold() {
    replay(env!("CARGO_BIN_EXE_kernel_frames"), "kernel_frames");
}

#[test]
fn jupyter_messages_hold() {
    replay(env!("CARGO_BIN_EXE_jupyter"), "jupyter");
}

#[test]
fn execute_requests_hold() {
    replay(env!("CARGO_BIN_EXE_execute_request"), "execute_request");
}

#[test]
fn file_headers_hold() {
    replay(env!("CARGO_BIN_EXE_file_headers"), "file_headers");
}

#[test]
fn paths_of_volumes_hold() {
    replay(env!("CARGO_BIN_EXE_volume_path"), "volume_path");
}

#[test]
fn queries_hold() {
    replay(env!("CARGO_BIN_EXE_query"), "query");
}

#[test]
fn bodies_hold() {
    replay(env!("CARGO_BIN_EXE_body"), "body");
}

#[test]
fn signed_urls_hold() {
    replay(env!("CARGO_BIN_EXE_signed_url"), "signed_url");
}

#[test]
fn volume_tokens_hold() {
    replay(env!("CARGO_BIN_EXE_volume_token"), "volume_token");
}

#[test]
fn archives_hold() {
    replay(env!("CARGO_BIN_EXE_archive"), "archive");
}

#[test]
fn layers_hold() {
    replay(env!("CARGO_BIN_EXE_layer"), "layer");
}

#[test]
fn requests_of_servers_hold() {
    replay(env!("CARGO_BIN_EXE_requests"), "requests");
}

#[test]
fn variables_hold() {
    replay(env!("CARGO_BIN_EXE_variables"), "variables");
}

#[test]
fn dockerfiles_hold() {
    replay(env!("CARGO_BIN_EXE_dockerfile"), "dockerfile");
}

#[test]
fn messages_of_first_generation_clients_hold() {
    replay(env!("CARGO_BIN_EXE_legacy_rpc"), "legacy_rpc");
}

#[test]
fn cells_of_first_generation_clients_hold() {
    replay(env!("CARGO_BIN_EXE_legacy_cell"), "legacy_cell");
}

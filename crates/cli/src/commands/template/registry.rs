//! Credentials for the registry of a base image, from the configuration file that `docker login` and `podman login` write.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandcove_wire::api::build::RegistryLogin;
use sandcove_wire::secret::Secret;
use serde_json::Value;

/// The registry of an image without one.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// The credentials for an image; `None` if the file has none, or a program keeps them.
pub fn login(image: &str) -> Option<RegistryLogin> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))?;
    let text = std::fs::read_to_string(directory.join("config.json")).ok()?;
    find(&serde_json::from_str(&text).ok()?, image)
}

fn find(config: &Value, image: &str) -> Option<RegistryLogin> {
    let host = registry(image);
    let auths = config["auths"].as_object()?;
    let matches = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
        key == host || key.split('/').next() == Some(host)
    };
    let entry = match host {
        "docker.io" => auths.get(DOCKER_HUB).or_else(|| auths.get("docker.io"))?,
        _ => auths.iter().find(|(key, _)| matches(key))?.1,
    };
    let decoded = STANDARD.decode(entry["auth"].as_str()?).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.trim_end_matches('\0').split_once(':')?;
    let is_usable = !username.is_empty() && !password.is_empty();
    is_usable
        .then(|| RegistryLogin::Registry { username: username.to_owned(), password: Secret::new(password) })
}

/// The host of an image reference: the first component, if it has a dot or a port or is `localhost`.
fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_those_of_the_registry() {
        let config = json!({ "auths": {
            "https://index.docker.io/v1/": { "auth": STANDARD.encode("hub:one") },
            "ghcr.io": { "auth": STANDARD.encode("me:two:three") },
            "empty.example": {},
        }});
        let user = |image: &str| match find(&config, image) {
            Some(RegistryLogin::Registry { username, password }) => {
                format!("{username}:{}", password.expose())
            }
            _ => "none".to_owned(),
        };
        assert_eq!(user("debian:12"), "hub:one");
        assert_eq!(user("me/app"), "hub:one");
        assert_eq!(user("ghcr.io/x/y:1"), "me:two:three");
        for none in ["localhost/x", "host:5000/x", "empty.example/x", "xghcr.io/y"] {
            assert_eq!(user(none), "none", "{none}");
        }
    }
}

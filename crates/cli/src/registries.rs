//! Settings of template builds: registries that images come from, the number of builds at once, and the deletion of what they leave.

use clap::Args;
use sandcove_image::oci::Mirror;
use sandcove_server::Registries;
use serde::Deserialize;

/// Options of template builds.
#[derive(Debug, Clone, Default, Args)]
pub struct BuildLimitArgs {
    /// template builds in progress at once [default: twice the processors, 8 to 32]
    #[arg(long, env = "SANDCOVE_MAX_BUILDS", value_name = "N")]
    max_builds: Option<usize>,
    /// time between deletions of what no template, sandbox or build uses, seconds [default: 600]
    #[arg(long, env = "SANDCOVE_GC_INTERVAL", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    gc_interval: Option<u64>,
    /// servers to ask before a registry for images of template builds, separated by commas [default: none]
    #[arg(long, env = "SANDCOVE_REGISTRY_MIRRORS", value_delimiter = ',', value_name = "REGISTRY=URL", value_parser = mirror)]
    registry_mirrors: Option<Vec<Mirror>>,
    /// registries without TLS, separated by commas; their addresses may be private [default: none]
    #[arg(long, env = "SANDCOVE_INSECURE_REGISTRIES", value_delimiter = ',', value_name = "HOST[:PORT]")]
    insecure_registries: Option<Vec<String>>,
    /// registries with TLS whose addresses may be private, separated by commas; `*` for all [default: none]
    #[arg(long, env = "SANDCOVE_PRIVATE_REGISTRIES", value_delimiter = ',', value_name = "HOST[:PORT]")]
    private_registries: Option<Vec<String>>,
}

/// Options of template builds from the configuration file.
#[derive(Debug, Default)]
pub struct BuildFile {
    pub max_builds: Option<usize>,
    pub gc_interval: Option<u64>,
    pub registry_mirrors: Option<Vec<Mirror>>,
    pub insecure_registries: Option<Vec<String>>,
    pub private_registries: Option<Vec<String>>,
}

/// Settings of template builds.
#[derive(Debug, Clone, Default)]
pub struct BuildChoices {
    /// Builds in progress at once; the server's default when unset.
    pub max_builds: Option<usize>,
    /// Time between deletions of what nothing uses, seconds; the server's default when unset.
    pub gc_interval: Option<u64>,
    /// Registries of images.
    pub registries: Registries,
}

impl BuildChoices {
    /// Merges flags and environment with the file.
    pub fn resolve(args: BuildLimitArgs, file: BuildFile) -> Self {
        let mut private = args.private_registries.or(file.private_registries).unwrap_or_default();
        let allow_private = private.iter().any(|host| host == "*");
        private.retain(|host| host != "*");
        Self {
            max_builds: args.max_builds.or(file.max_builds),
            gc_interval: args.gc_interval.or(file.gc_interval),
            registries: Registries {
                mirrors: args.registry_mirrors.or(file.registry_mirrors).unwrap_or_default(),
                insecure: args.insecure_registries.or(file.insecure_registries).unwrap_or_default(),
                private,
                allow_private,
            },
        }
    }
}

/// Parses a mirror.
fn mirror(text: &str) -> Result<Mirror, String> {
    match text.split_once('=') {
        Some((registry, url))
            if !registry.is_empty() && (url.starts_with("https://") || url.starts_with("http://")) =>
        {
            Ok(Mirror { registry: registry.to_owned(), url: url.trim_end_matches('/').to_owned() })
        }
        _ => Err(format!("`{text}` is not REGISTRY=URL, as in `docker.io=https://mirror.gcr.io`")),
    }
}

/// Reads mirrors from the configuration file.
pub fn mirrors_in_file<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Mirror>>, D::Error> {
    let texts = Option::<Vec<String>>::deserialize(deserializer)?;
    let mirrors = texts.map(|texts| texts.iter().map(|text| mirror(text)).collect());
    mirrors.transpose().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_named_by_their_registry() {
        let found = mirror("docker.io=https://mirror.gcr.io/").unwrap();
        assert_eq!((found.registry.as_str(), found.url.as_str()), ("docker.io", "https://mirror.gcr.io"));
        for bad in ["", "docker.io", "=https://x", "docker.io=mirror"] {
            assert!(mirror(bad).unwrap_err().contains("REGISTRY=URL"), "{bad}");
        }
    }

    #[test]
    fn a_star_stands_for_all_private_registries() {
        let file = BuildFile {
            max_builds: Some(3),
            registry_mirrors: Some(vec![mirror("docker.io=http://m:5000").unwrap()]),
            private_registries: Some(vec!["*".to_owned(), "r.lan".to_owned()]),
            ..BuildFile::default()
        };
        let choices = BuildChoices::resolve(BuildLimitArgs::default(), file);
        assert_eq!(choices.max_builds, Some(3));
        assert_eq!(choices.registries.mirrors.len(), 1);
        assert!(choices.registries.allow_private);
        assert_eq!(choices.registries.private, ["r.lan"]);
    }
}

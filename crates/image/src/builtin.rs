//! The built-in templates.

use std::collections::BTreeMap;

use sandcove_wire::boot::{ENV_LANGUAGES_BUILDING, Service};
use sha2::{Digest, Sha256};

use crate::{File, HostCertificates, Layer, Origin, Recipe};

/// A built-in template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Name that clients request.
    pub name: &'static str,
    /// Id of the template, the same on every installation.
    pub template_id: &'static str,
    /// Layers, lowest first.
    pub layers: Vec<Layer>,
    /// Programs that the agent keeps running in every sandbox.
    pub services: Vec<Service>,
    /// User of requests that name none.
    pub default_user: &'static str,
    /// Working directory of processes that name none; `None` stands for the home of their user.
    pub default_workdir: Option<&'static str>,
    /// Number of CPUs of a sandbox.
    pub cpu_count: u32,
    /// Memory of a sandbox, MiB.
    pub memory_mib: u64,
    /// Disk space for the files a sandbox writes, MiB.
    pub disk_mib: u64,
}

impl Template {
    /// Computes the build id: a UUID derived from the layers, so that it changes with the contents.
    pub fn build_id(&self) -> String {
        let mut digest = Sha256::new();
        for layer in &self.layers {
            digest.update(layer.id.as_str());
        }
        let mut bytes: [u8; 16] = [0; 16];
        bytes.copy_from_slice(&digest.finalize()[..16]);
        // Version 8 (custom), variant RFC 9562.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// Languages of the code interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Languages {
    /// Python, JavaScript, TypeScript, Bash and C++.
    Lean,
    /// The lean languages, while the layer with the others is being built.
    Building,
    /// The lean languages, R, Java and Ruby.
    All,
}

impl Languages {
    /// Short name of the layer with the languages beyond the lean ones.
    pub const LAYER: &str = "languages";
}

/// Lists all built-in templates; a template comes after those it is built on.
pub fn templates(certificates: &HostCertificates, languages: Languages) -> [Template; 2] {
    let base = Layer::new(base(certificates), None);
    let interpreter = Layer::new(code_interpreter(), Some(&base.id));
    let further = (languages == Languages::All).then(|| Layer::new(further(), Some(&interpreter.id)));
    let building =
        (languages == Languages::Building).then(|| (ENV_LANGUAGES_BUILDING.to_owned(), "1".to_owned()));
    [
        Template {
            name: "base",
            template_id: "rki5dems9wqfm4r03t7g",
            layers: vec![base.clone()],
            services: Vec::new(),
            default_user: "user",
            default_workdir: None,
            cpu_count: 2,
            memory_mib: 512,
            disk_mib: 10 * 1024,
        },
        Template {
            name: "code-interpreter-v1",
            template_id: "nlhz8vlwyupq845jsdg9",
            layers: [base, interpreter].into_iter().chain(further).collect(),
            services: vec![Service::interpreter(BTreeMap::from_iter(building))],
            default_user: "user",
            default_workdir: Some("/home/user"),
            cpu_count: 2,
            memory_mib: 2048,
            disk_mib: 10 * 1024,
        },
    ]
}

fn base(certificates: &HostCertificates) -> Recipe {
    let mut files = vec![
        file("etc/profile", 0o644, include_str!("../recipes/base/files/etc/profile")),
        file("etc/sudoers.d/user", 0o440, include_str!("../recipes/base/files/etc/sudoers.d/user")),
        file("usr/local/share/sandcove/npm.txt", 0o644, include_str!("../recipes/base/npm.txt")),
        file("usr/local/bin/apt", 0o755, include_str!("../recipes/base/files/usr/local/bin/apt")),
        file("usr/local/bin/apt-get", 0o755, include_str!("../recipes/base/files/usr/local/bin/apt-get")),
    ];
    for (name, text) in &certificates.0 {
        files.push(file(&format!("usr/local/share/ca-certificates/{name}"), 0o644, text));
    }
    Recipe {
        name: "base",
        origin: Origin::Debian {
            suite: "trixie",
            packages: packages(include_str!("../recipes/base/packages.txt")),
        },
        files,
        script: include_str!("../recipes/base/provision.sh"),
        size_mib: 900,
    }
}

fn code_interpreter() -> Recipe {
    let list = |name: &str, text| file(&format!("usr/local/share/sandcove/{name}"), 0o644, text);
    Recipe {
        name: "code-interpreter",
        origin: Origin::LayerBelow,
        files: vec![
            list("packages.txt", include_str!("../recipes/code-interpreter/packages.txt")),
            list("requirements.txt", include_str!("../recipes/code-interpreter/requirements.txt")),
            list("constraints.txt", include_str!("../recipes/code-interpreter/constraints.txt")),
        ],
        script: include_str!("../recipes/code-interpreter/provision.sh"),
        size_mib: 2000,
    }
}

fn further() -> Recipe {
    let list = |name: &str, text| file(&format!("usr/local/share/sandcove/{name}"), 0o644, text);
    Recipe {
        name: Languages::LAYER,
        origin: Origin::LayerBelow,
        files: vec![
            list("languages.txt", include_str!("../recipes/languages/packages.txt")),
            list("kernels.txt", include_str!("../recipes/languages/kernels.txt")),
        ],
        script: include_str!("../recipes/languages/provision.sh"),
        size_mib: 800,
    }
}

fn file(path: &str, mode: u32, contents: &str) -> File {
    File { path: path.to_owned(), mode, contents: contents.to_owned() }
}

fn packages(list: &str) -> Vec<String> {
    list.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use sandcove_wire::id::TemplateId;

    use super::*;

    fn lean(certificates: &HostCertificates) -> [Template; 2] {
        templates(certificates, Languages::Lean)
    }

    #[test]
    fn ids_have_the_documented_form_and_differ() {
        let [base, interpreter] = lean(&HostCertificates::default());
        for template in [&base, &interpreter] {
            assert!(template.template_id.parse::<TemplateId>().is_ok(), "{}", template.name);
            assert_eq!(template.build_id().len(), 36);
        }
        assert_ne!(base.template_id, interpreter.template_id);
        assert_ne!(base.build_id(), interpreter.build_id());
    }

    #[test]
    fn the_interpreter_stands_on_base() {
        let [base, interpreter] = lean(&HostCertificates::default());
        assert_eq!(interpreter.layers[0], base.layers[0]);
    }

    #[test]
    fn further_languages_are_one_more_layer_of_the_same_template() {
        let [_, lean] = lean(&HostCertificates::default());
        let [_, all] = templates(&HostCertificates::default(), Languages::All);
        assert_eq!(all.layers[..2], lean.layers);
        assert!(all.layers[2].id.as_str().starts_with("languages-"));
        let [_, building] = templates(&HostCertificates::default(), Languages::Building);
        assert_eq!((&building.layers, building.build_id()), (&lean.layers, lean.build_id()));
        assert!(building.services[0].env.contains_key(ENV_LANGUAGES_BUILDING));
        assert!(all.services[0].env.is_empty());
        assert_eq!(all.template_id, lean.template_id);
        assert_ne!(all.build_id(), lean.build_id());
    }

    #[test]
    fn another_authority_is_another_template() {
        let extra = HostCertificates(vec![("a.crt".into(), "A".into())]);
        let (plain, extra) = (lean(&HostCertificates::default()), lean(&extra));
        for (a, b) in plain.iter().zip(&extra) {
            assert_ne!(a.build_id(), b.build_id(), "{}", a.name);
        }
    }

    #[test]
    fn every_direct_python_package_is_pinned() {
        let pinned = packages(include_str!("../recipes/code-interpreter/constraints.txt"));
        for wanted in packages(include_str!("../recipes/code-interpreter/requirements.txt")) {
            let name = wanted.split("==").next().unwrap().to_lowercase();
            let known = pinned.iter().any(|line| line.to_lowercase().starts_with(&format!("{name}==")));
            assert!(known || wanted.contains("=="), "{wanted}");
        }
    }
}

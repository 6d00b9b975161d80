//! The description of a template in an archive beside its files: labels of the image's configuration, which [`super::export`] writes and an
//! import reads. Who imports an archive could have built the same template with steps, so that nothing here gives more rights.

use std::collections::BTreeMap;

use sandcove_image::oci;

use super::interpreter;
use crate::domain::context::Interpreter;
use crate::domain::template::TemplateRecord;

/// Label of every archive of a template: the version of these labels.
const VERSION: &str = "sandcove.template";
const START: &str = "sandcove.start-command";
const READY: &str = "sandcove.ready-command";
/// Label of templates with the code interpreter: the path of its Python.
const INTERPRETER: &str = "sandcove.interpreter";
/// Label with the sources of the modules that are imported ahead, if they are not those of the built-in templates.
const SOURCES: &str = "sandcove.interpreter-sources";
/// Maximum length of a command, bytes.
const MAX_COMMAND: usize = 64 << 10;
const MAX_PATH: usize = 4096;
const MAX_USER: usize = 32;

/// A template in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Archived {
    /// User of the template.
    pub user: String,
    /// Working directory of the template.
    pub workdir: Option<String>,
    pub start_cmd: Option<String>,
    pub ready_cmd: Option<String>,
    /// Code interpreter of the template.
    pub interpreter: Option<Interpreter>,
}

impl Archived {
    /// The template in an image; `None` if the image is of something else, or says what no template says.
    pub(super) fn of<L>(image: &oci::Image<L>) -> Option<Self> {
        Self::from_parts(image.user.as_deref(), image.workdir.as_deref(), &image.labels)
    }

    fn from_parts(
        user: Option<&str>,
        workdir: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Option<Self> {
        labels.get(VERSION).filter(|version| *version == "1")?;
        let command = |label| labels.get(label).filter(|command| is_text(command)).cloned();
        let is_path = |path: &&str| path.starts_with('/') && path.len() <= MAX_PATH && !path.contains('\0');
        Some(Self {
            user: user.filter(|user| is_user(user))?.to_owned(),
            workdir: workdir.filter(is_path).map(str::to_owned),
            start_cmd: command(START),
            ready_cmd: command(READY),
            interpreter: labels.get(INTERPRETER).filter(|path| is_path(&path.as_str())).map(|python| {
                Interpreter {
                    python: python.clone(),
                    sources: labels.get(SOURCES).filter(|sources| is_text(sources)).cloned(),
                }
            }),
        })
    }

    /// The image of a template.
    pub(super) fn image(record: &TemplateRecord, name: &str) -> oci::Exported {
        let mut labels = BTreeMap::from([(VERSION.to_owned(), "1".to_owned())]);
        let interpreter = interpreter::of_services(&record.services);
        let (python, sources) = interpreter.map(|of| (of.python, of.sources)).unzip();
        for (label, value) in [
            (START, record.start_cmd.clone()),
            (READY, record.ready_cmd.clone()),
            (INTERPRETER, python),
            (SOURCES, sources.flatten()),
        ] {
            labels.extend(value.map(|value| (label.to_owned(), value)));
        }
        oci::Exported {
            name: name.to_owned(),
            env: record.build_env.clone(),
            user: record.default_user.clone(),
            workdir: record.default_workdir.clone(),
            command: record.start_cmd.clone(),
            labels,
        }
    }
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_COMMAND && !text.contains('\0')
}

fn is_user(user: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_USER).contains(&user.len()) && user.bytes().all(is_valid) && !user.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_archives_of_templates_say_something_about_a_template() {
        let given = labels(&[(VERSION, "1"), (START, "serve"), (READY, "true")]);
        let archived = Archived::from_parts(Some("app"), Some("/srv"), &given).unwrap();
        assert_eq!((archived.user.as_str(), archived.workdir.as_deref()), ("app", Some("/srv")));
        assert_eq!(
            (archived.start_cmd.as_deref(), archived.ready_cmd.as_deref()),
            (Some("serve"), Some("true"))
        );
        assert_eq!(archived.interpreter, None);
        let mut with_python = given.clone();
        with_python.extend(labels(&[(INTERPRETER, "/usr/bin/python3"), (SOURCES, "/usr/lib")]));
        let interpreter = Archived::from_parts(Some("app"), None, &with_python).unwrap().interpreter.unwrap();
        assert_eq!(
            (interpreter.python.as_str(), interpreter.sources.as_deref()),
            ("/usr/bin/python3", Some("/usr/lib"))
        );
        with_python.insert(INTERPRETER.to_owned(), "python3".to_owned());
        assert_eq!(Archived::from_parts(Some("app"), None, &with_python).unwrap().interpreter, None);
        assert_eq!(Archived::from_parts(Some("app"), None, &labels(&[(START, "serve")])), None);
        assert_eq!(Archived::from_parts(Some("app"), None, &labels(&[(VERSION, "2")])), None);
        for user in [None, Some(""), Some("a b"), Some("../x"), Some("-x"), Some("a:b"), Some("x\ny")] {
            assert_eq!(Archived::from_parts(user, None, &given), None, "{user:?}");
        }
        let relative = Archived::from_parts(Some("app"), Some("srv"), &given).unwrap();
        assert_eq!(relative.workdir, None);
    }
}

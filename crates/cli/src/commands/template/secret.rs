//! Secrets of builds (`--secret`), as Docker has the option.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandcove_wire::secret::Secret;

/// Where a secret comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretOption {
    id: String,
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    File(String),
    Variable(String),
}

/// Reads `id=ID[,src=PATH]`, or `id=ID,env=NAME`.
pub fn parse(text: &str) -> Result<SecretOption, String> {
    let (mut id, mut file, mut variable) = (None, None, None);
    for option in text.split(',') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "id" => id = Some(value.to_owned()),
            "src" | "source" => file = Some(value.to_owned()),
            "env" => variable = Some(value.to_owned()),
            "type" if matches!(value, "file" | "env") => {}
            _ => return Err(format!("unknown option `{option}`; write id=ID,src=PATH or id=ID,env=NAME")),
        }
    }
    let id = id
        .filter(|id| !id.is_empty())
        .ok_or("the secret has no id; write id=ID,src=PATH or id=ID,env=NAME")?;
    let source = match (file, variable) {
        (Some(_), Some(_)) => return Err(format!("the secret `{id}` has both src and env")),
        (Some(path), None) => Source::File(path),
        (None, Some(name)) => Source::Variable(name),
        (None, None) if std::env::var_os(&id).is_some() => Source::Variable(id.clone()),
        (None, None) => Source::File(id.clone()),
    };
    Ok(SecretOption { id, source })
}

impl SecretOption {
    /// The id and the secret as the API takes it.
    pub fn read(&self) -> Result<(String, Secret)> {
        let secret = match &self.source {
            Source::File(path) => std::fs::read(path)
                .with_context(|| format!("failed to read the secret `{}` from `{path}`", self.id))?,
            Source::Variable(name) => std::env::var(name)
                .with_context(|| {
                    format!("failed to read the secret `{}` from the variable `{name}`", self.id)
                })?
                .into_bytes(),
        };
        Ok((self.id.clone(), Secret::new(STANDARD.encode(secret))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_a_file_or_a_variable() {
        let of = |id: &str, source| Ok(SecretOption { id: id.to_owned(), source });
        assert_eq!(parse("id=a,src=/b=c"), of("a", Source::File("/b=c".to_owned())));
        assert_eq!(parse("type=env,id=a,env=B"), of("a", Source::Variable("B".to_owned())));
        assert_eq!(
            parse("id=no-such-variable"),
            of("no-such-variable", Source::File("no-such-variable".to_owned()))
        );
        assert_eq!(parse("id=PATH"), of("PATH", Source::Variable("PATH".to_owned())));
        for wrong in ["", "src=x", "id=", "id=a,src=b,env=c", "id=a,uid=1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

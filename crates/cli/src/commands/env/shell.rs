//! Variables in the words of a shell.

use sandcove_dockerfile::quoted;

use super::Variables;

/// A program that reads variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// bash, zsh, dash and others like sh
    #[default]
    #[value(alias = "sh", alias = "zsh")]
    Bash,
    /// the shell fish
    Fish,
    /// Windows PowerShell and its successors
    Powershell,
    /// a file of lines `NAME=value`, as for `docker run --env-file`
    File,
}

impl Shell {
    /// The commands, or lines, that set and unset `variables`.
    pub(super) fn text(self, variables: &Variables) -> String {
        let unset = variables.unset.iter().filter_map(|name| self.unset(name));
        unset.chain(variables.set.iter().map(|(name, value)| self.set(name, value))).collect()
    }

    fn set(self, name: &str, value: &str) -> String {
        match self {
            Self::Bash => format!("export {name}={}\n", quoted(value)),
            Self::Fish => format!("set -gx {name} '{}'\n", value.replace('\\', "\\\\").replace('\'', "\\'")),
            Self::Powershell => format!("$env:{name} = '{}'\n", value.replace('\'', "''")),
            Self::File => format!("{name}={value}\n"),
        }
    }

    fn unset(self, name: &str) -> Option<String> {
        match self {
            Self::Bash => Some(format!("unset {name}\n")),
            Self::Fish => Some(format!("set -e {name}\n")),
            Self::Powershell => Some(format!("$env:{name} = $null\n")),
            Self::File => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_its_own_words() {
        let variables = Variables::of_addresses("http://127.0.0.1:3000", "http://127.0.0.1:3000", "it's");
        assert_eq!(
            Shell::Bash.text(&variables),
            "export E2B_API_URL=http://127.0.0.1:3000\nexport E2B_SANDBOX_URL=http://127.0.0.1:3000\n\
             export E2B_VOLUME_API_URL=http://127.0.0.1:3000\n\
             export E2B_DASHBOARD_BASE=http://127.0.0.1:3000/dashboard\nexport E2B_API_KEY='it'\\''s'\n"
        );
        let variables = Variables { set: vec![("A", "it's".to_owned())], unset: vec!["B"] };
        assert_eq!(Shell::Fish.text(&variables), "set -e B\nset -gx A 'it\\'s'\n");
        assert_eq!(Shell::Powershell.text(&variables), "$env:B = $null\n$env:A = 'it''s'\n");
        assert_eq!(Shell::File.text(&variables), "A=it's\n");
    }
}

//! The shell of systems without bash, or without any. Clients name `/bin/bash` in every command, and small images have none there.

use std::borrow::Cow;
use std::path::Path;

/// The shell that clients name.
const BASH: &str = "/bin/bash";
/// Shells that run in its place, by preference. They all take `-l`, `-i` and `-c`.
const INSTEAD: [&str; 3] = ["/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];
/// Characters that mean something to a shell, outside words and quotes.
const SHELL_ONLY: &[char] =
    &['|', '&', ';', '<', '>', '(', ')', '$', '`', '*', '?', '[', '{', '~', '#', '!', '\n'];

/// The program and the arguments to run for `command` with `arguments`: these, unless the program is a shell that is missing. Another
/// shell takes its place then. Where there is none at all, a command line of nothing but words is run without one.
pub(super) fn present<'a>(command: &'a str, arguments: &'a [String]) -> (Cow<'a, str>, Cow<'a, [String]>) {
    choose(command, arguments, |path| Path::new(path).exists())
}

fn choose<'a>(
    command: &'a str,
    arguments: &'a [String],
    exists: impl Fn(&str) -> bool,
) -> (Cow<'a, str>, Cow<'a, [String]>) {
    let unchanged = (Cow::Borrowed(command), Cow::Borrowed(arguments));
    if command != BASH || exists(BASH) {
        return unchanged;
    }
    if let Some(shell) = INSTEAD.into_iter().find(|shell| exists(shell)) {
        return (Cow::Borrowed(shell), Cow::Borrowed(arguments));
    }
    match words(arguments) {
        Some((program, rest)) => (Cow::Owned(program), Cow::Owned(rest)),
        None => unchanged,
    }
}

/// The words of `-l -c LINE`, if a shell would do nothing but run them.
fn words(arguments: &[String]) -> Option<(String, Vec<String>)> {
    let [.., option, line] = arguments else { return None };
    if option != "-c" || line.contains(SHELL_ONLY) {
        return None;
    }
    let mut words = shlex::split(line)?.into_iter();
    let program = words.next().filter(|program| !program.is_empty() && !program.contains('='))?;
    Some((program, words.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_bash_is_replaced() {
        let with = |present: &'static [&str]| move |path: &str| present.contains(&path);
        let chosen = |command: &str, present| choose(command, &[], with(present)).0.into_owned();
        assert_eq!(chosen("/bin/bash", &["/bin/bash", "/bin/sh"]), "/bin/bash");
        assert_eq!(chosen("/bin/bash", &["/bin/sh"]), "/bin/sh");
        assert_eq!(chosen("/bin/bash", &["/bin/sh", "/usr/local/bin/bash"]), "/usr/local/bin/bash");
        assert_eq!(chosen("/bin/bash", &[]), "/bin/bash");
        assert_eq!(chosen("/bin/zsh", &["/bin/sh"]), "/bin/zsh");
    }

    #[test]
    fn words_run_without_a_shell_where_there_is_none() {
        let run = |line: &str| {
            let arguments = ["-l", "-c", line].map(str::to_owned);
            let (program, rest) = choose("/bin/bash", &arguments, |_| false);
            [vec![program.into_owned()], rest.into_owned()].concat().join("|")
        };
        assert_eq!(run("/app/hello"), "/app/hello");
        assert_eq!(run(" hello 'two words' \"x\"y \\ "), "hello|two words|xy| ");
        for line in ["a; b", "a && b", "a > b", "a $HOME", "a *", "A=1 b", "'a", "", "a\nb", "\"$(b)\""] {
            assert_eq!(run(line), format!("/bin/bash|-l|-c|{line}"), "needs a shell");
        }
        let interactive = ["-i", "-l"].map(str::to_owned);
        assert_eq!(choose("/bin/bash", &interactive, |_| false).0, "/bin/bash");
    }
}

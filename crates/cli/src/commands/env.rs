//! `sandcove env`, and what `up` and `serve` print: the variables that clients need to use a server.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sandcove_dockerfile::quoted;

use super::reach::{Place, Reach};
use super::serve::not_running;
use crate::data_dir::ServerFile;
use crate::output;

/// Variables whose value is the server's address.
const ADDRESSES: [&str; 3] = ["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"];
/// The variable whose value is a key.
const KEY: &str = "E2B_API_KEY";

/// Prints the variables for the server that a command would use, or the value of one of them.
pub fn env(reach: &Reach, place: &Place, name: Option<&str>) -> Result<ExitCode> {
    let Some(target) = reach.target(place)? else { bail!(not_running(None)) };
    let text = match name {
        None => exports(&target.url, &quoted(target.api_key.expose())),
        Some(KEY) => format!("{}\n", target.api_key.expose()),
        Some(name) if ADDRESSES.contains(&name) => format!("{}\n", target.url),
        Some(name) => bail!("unknown variable `{name}`; use {} or {KEY}", ADDRESSES.join(", ")),
    };
    let _ = output::write(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Prints the variables after a start. When the output may end in a log, a command that prints the key takes the place of
/// the key; `eval "$(sandcove up)"` works in both cases.
pub fn announce(file: &ServerFile, data_dir: &Path) -> Result<()> {
    let key = if std::io::stdout().is_terminal() {
        quoted(file.api_key.expose())
    } else {
        let program = std::env::current_exe().context("failed to find the path of this program")?;
        let data_dir = std::path::absolute(data_dir).context("failed to find the current directory")?;
        let [program, data_dir] = [program, data_dir].map(|path| quoted(&path.to_string_lossy()));
        format!("\"$({program} --data-dir {data_dir} env {KEY})\"")
    };
    let _ = output::write(exports(&file.url, &key).as_bytes());
    Ok(())
}

fn exports(url: &str, key: &str) -> String {
    let url = quoted(url);
    let addresses = ADDRESSES.iter().map(|name| format!("export {name}={url}\n"));
    addresses.chain([format!("export {KEY}={key}\n")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_can_read_the_variables() {
        assert_eq!(
            exports("http://127.0.0.1:3000", "e2b_00"),
            "export E2B_API_URL=http://127.0.0.1:3000\nexport E2B_SANDBOX_URL=http://127.0.0.1:3000\n\
             export E2B_VOLUME_API_URL=http://127.0.0.1:3000\nexport E2B_API_KEY=e2b_00\n"
        );
    }
}

//! Paths of requests: what resolves is absolute, and a relative one holds no way up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sandcove_agent::account::Accounts;
use sandcove_agent::path::{clean, resolve};

fuzz_target!(|input: (String, String)| {
    let (path, passwd) = input;
    let accounts = Accounts::parse(&passwd, "");
    let Some(account) = accounts.lookup("user").or_else(|| Accounts::default().lookup("root")) else { return };
    if let Ok(resolved) = resolve(&path, &account, None)
        && account.home.starts_with('/')
    {
        assert!(resolved.starts_with('/'));
        assert!(path.is_empty() || path.starts_with('/') || !resolved.split('/').any(|part| part == ".."));
    }
    let once = clean(&path);
    assert_eq!(clean(&once), once);
});

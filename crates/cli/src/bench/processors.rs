//! Processor time of this host.

use std::time::Duration;

/// Milliseconds of a clock tick in `/proc`, on the machines that Sandcove runs on.
const TICK_MS: u64 = 10;

/// Time for which processors have worked since the start of the host; `None` where the kernel does not say.
pub fn busy() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    Some(Duration::from_millis(ticks(&text)? * TICK_MS))
}

/// Whether the address of a server is one of this host, whose processors are those that work.
pub fn is_here(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Clock ticks of all processors in user mode, with a nice value, in the kernel, in interrupts and in those that are deferred.
fn ticks(stat: &str) -> Option<u64> {
    let mut times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<u64>);
    let mut next = || times.next()?.ok();
    let (user, nice, system, _idle, _waiting, interrupts, deferred) =
        (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    Some(user + nice + system + interrupts + deferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_counts() {
        let text = "cpu  100 20 3 9000 800 40 5 777 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(ticks(text), Some(168));
        assert_eq!(ticks("intr 1"), None);
        assert!(busy().is_some_and(|busy| busy > Duration::ZERO));
    }

    #[test]
    fn a_server_of_this_host_has_an_address_of_it() {
        for url in
            ["http://127.0.0.1:3000", "http://localhost:3000/", "http://[::1]:3000", "http://127.0.0.1"]
        {
            assert!(is_here(url), "{url}");
        }
        for url in ["https://api.example.com", "http://192.0.2.1:3000", "http://localhost.example.com:80"] {
            assert!(!is_here(url), "{url}");
        }
    }
}

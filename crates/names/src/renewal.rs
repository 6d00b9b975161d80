//! When a certificate is ordered: at the first start, and when a third of its time is left. What fails is tried again ever later, and there
//! are only so many orders in an hour, however often the server is started.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::order::Orders;
use crate::state::{Attempts, State};
use crate::{Acme, Error, Settings, Zone};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
/// Maximum number of orders in an hour. Authorities allow more.
const MAX_ORDERS: usize = 5;
/// Maximum pause after a failure, seconds.
const MAX_PAUSE: i64 = 12 * HOUR;
/// Maximum sleep before a look at the clock, which may be set while machines sleep.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The certificate of a domain, over the years.
pub struct Renewal {
    settings: Settings,
    acme: Acme,
    state: State,
    zone: Zone,
}

/// The time of a certificate, seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Validity {
    from: i64,
    until: i64,
}

impl Renewal {
    /// Keeps account and certificate in `directory`. `zone` answers the authority's checks.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn open(directory: &Path, settings: &Settings, acme: Acme, zone: Zone) -> Result<Self, Error> {
        Ok(Self { settings: settings.clone(), acme, state: State::open(directory)?, zone })
    }

    /// The certificate that was issued last, with its chain and its key in PEM, if it is for the domain. It may have expired.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn certificate(&self) -> Result<Option<Vec<u8>>, Error> {
        let kept = self.state.certificate()?;
        Ok(kept.filter(|pem| validity(pem, &self.settings.domain).is_some()))
    }

    /// Orders a certificate whenever it is time, and hands each one to `show`. Never returns.
    pub async fn run(self, show: impl Fn(&[u8])) {
        let mut attempt_at = i64::MIN;
        loop {
            let due = match self.certificate() {
                Ok(kept) => kept.and_then(|pem| validity(&pem, &self.settings.domain)).map(Validity::renewal),
                Err(error) => {
                    report(&error);
                    None
                }
            };
            sleep_until(due.unwrap_or(i64::MIN).max(attempt_at)).await;
            attempt_at = match self.attempt().await {
                Ok(pem) => {
                    show(&pem);
                    i64::MIN
                }
                Err(retry_at) => retry_at,
            };
        }
    }

    /// Tries once; otherwise says when to try again.
    async fn attempt(&self) -> Result<Vec<u8>, i64> {
        let (domain, acme, state, zone) = (&self.settings.domain, &self.acme, &self.state, &self.zone);
        let orders = Orders { domain, acme, state, zone };
        let mut attempts = state.attempts().unwrap_or_default();
        let is_open = orders.is_open().unwrap_or(false);
        if let Some(free_at) = attempts.free_at(now()).filter(|_| !is_open) {
            tracing::warn!(
                "{MAX_ORDERS} certificates for {domain} were ordered within an hour; the next one is ordered after {}",
                date(free_at)
            );
            return Err(free_at);
        }
        let counted = || {
            attempts.orders.push(now());
            state.keep_attempts(&attempts)
        };
        match orders.obtain(counted).await.and_then(|pem| self.checked(pem)) {
            Ok((pem, validity)) => {
                let attempts =
                    Attempts { orders: state.attempts().unwrap_or_default().orders, ..Attempts::default() };
                state.keep_attempts(&attempts).unwrap_or_else(|error| report(&error));
                tracing::info!(
                    "a certificate for {domain} and *.{domain} was issued, valid until {}",
                    date(validity.until)
                );
                Ok(pem)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn checked(&self, pem: Vec<u8>) -> Result<(Vec<u8>, Validity), Error> {
        let domain = &self.settings.domain;
        let validity = validity(&pem, domain).ok_or_else(|| Error::Unusable(domain.clone()))?;
        Ok((pem, validity))
    }

    /// Keeps and reports a failure; says when to try again.
    fn failed(&self, error: &Error) -> i64 {
        let mut attempts = self.state.attempts().unwrap_or_default();
        attempts.failures = attempts.failures.saturating_add(1);
        attempts.reason = Some(error.to_string());
        self.state.keep_attempts(&attempts).unwrap_or_else(|error| report(&error));
        let retry_at = now() + attempts.pause(error.is_passing());
        let hint = match error {
            Error::NotChecked { record: Some(record), .. } => {
                format!("; the DNS needs the record `{record}`")
            }
            Error::NotChecked { .. } => {
                let (all, challenge) = self.settings.records();
                format!(
                    "; the DNS needs the records `{}`, or only `{challenge}` if the names lead here already",
                    all.join("`, `")
                )
            }
            _ => String::new(),
        };
        tracing::error!(
            error = error as &dyn std::error::Error,
            "no certificate for {} was issued{hint}; the next attempt is after {}, or when the server starts",
            self.settings.domain,
            date(retry_at)
        );
        retry_at
    }
}

impl Validity {
    /// When the next certificate is ordered.
    fn renewal(self) -> i64 {
        self.until - (self.until - self.from) / 3
    }
}

impl Attempts {
    /// When the next order may be made, if not now. Forgets orders that do not count any more.
    fn free_at(&mut self, now: i64) -> Option<i64> {
        self.orders.retain(|made| (now - HOUR..=now).contains(made));
        let surplus = (self.orders.len() + 1).checked_sub(MAX_ORDERS + 1)?;
        self.orders.get(surplus).map(|made| made + HOUR)
    }

    /// The pause after the failures so far, seconds.
    fn pause(&self, is_passing: bool) -> i64 {
        let (first, factor) = if is_passing { (MINUTE / 2, 2_i64) } else { (5 * MINUTE, 4) };
        first.saturating_mul(factor.saturating_pow(self.failures.saturating_sub(1))).min(MAX_PAUSE)
    }
}

/// The time of the first certificate of a PEM text, if it is for `domain` and the names below it.
fn validity(pem: &[u8], domain: &str) -> Option<Validity> {
    let leaf = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = X509Certificate::from_der(&leaf).ok()?;
    let names = &parsed.subject_alternative_name().ok()??.value.general_names;
    let wildcard = format!("*.{domain}");
    let covers = |wanted: &str| {
        names
            .iter()
            .any(|name| matches!(name, GeneralName::DNSName(name) if name.eq_ignore_ascii_case(wanted)))
    };
    let validity = parsed.validity();
    (covers(domain) && covers(&wildcard))
        .then(|| Validity { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
}

fn report(error: &Error) {
    tracing::error!(
        error = error as &dyn std::error::Error,
        "the state of the certificate's renewal is not kept"
    );
}

async fn sleep_until(time: i64) {
    while let Ok(left @ 1..) = u64::try_from(time.saturating_sub(now())) {
        tokio::time::sleep(Duration::from_secs(left).min(MAX_SLEEP)).await;
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown day".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_orders_in_an_hour() {
        let mut attempts = Attempts::default();
        for made in 0..MAX_ORDERS as i64 {
            assert_eq!(attempts.free_at(1000 + made), None);
            attempts.orders.push(1000 + made);
        }
        assert_eq!(attempts.free_at(1100), Some(1000 + HOUR));
        assert_eq!(attempts.free_at(1000 + HOUR), Some(1000 + HOUR));
        assert_eq!(attempts.free_at(1001 + HOUR), None);
        assert_eq!(attempts.orders.len(), MAX_ORDERS - 1);
        // A clock that was set back does not stop renewal for years.
        attempts.orders = vec![i64::MAX - 1; MAX_ORDERS];
        assert_eq!(attempts.free_at(1000), None);
    }

    #[test]
    fn pauses_grow_up_to_half_a_day() {
        let pause = |failures, is_passing| Attempts { failures, ..Attempts::default() }.pause(is_passing);
        assert_eq!([1, 2, 3].map(|failures| pause(failures, true)), [30, 60, 120]);
        assert_eq!([1, 2, 3].map(|failures| pause(failures, false)), [300, 1200, 4800]);
        assert_eq!((pause(40, true), pause(u32::MAX, false)), (MAX_PAUSE, MAX_PAUSE));
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_time_is_left() {
        assert_eq!(Validity { from: 0, until: 90 }.renewal(), 60);
    }

    #[test]
    fn a_certificate_is_for_the_domain_and_all_names_below_it() {
        let made = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let key = rcgen::KeyPair::generate().unwrap();
            rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap().pem().into_bytes()
        };
        assert!(validity(&made(&["example.com", "*.example.com"]), "example.com").is_some());
        assert!(validity(&made(&["*.example.com"]), "example.com").is_none());
        assert!(validity(&made(&["example.org", "*.example.org"]), "example.com").is_none());
        assert!(validity(b"none", "example.com").is_none());
    }
}

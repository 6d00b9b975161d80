//! Properties of query strings and bodies that hold for any bytes a client sends.

use http::Uri;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sandcove_wire::api::{event, network, sandbox, snapshot, team, volume};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::parse;
use super::paging::{PageRequest, Position};
use super::params::Query;
use super::webhooks;
use crate::domain::egress_proxy::EgressProxy;
use crate::domain::network::{NetworkChange, NetworkRules};
use crate::domain::reference::Reference;

/// Checks a query string.
pub fn query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let query = Query::parse(&text);
    if let Ok(Some(number)) = query.integer("limit") {
        assert_eq!(query.integer_in("limit", number..=number, 0).ok(), Some(number));
    }
    if let Ok(limit) = query.integer_in("limit", 1..=100, 50) {
        assert!((1..=100).contains(&limit));
    }
    for value in query.list("state") {
        assert!(!value.is_empty() && !value.contains(',') && value.trim() == value);
    }
    if let Ok(pairs) = query.metadata() {
        let encoded: Vec<String> =
            pairs.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
        let again = Query::parse(&format!("metadata={}", encode(&encode(&encoded.join("&")))));
        assert_eq!(again.metadata().ok(), Some(pairs), "labels do not come back");
    }
    if let Ok(page) = PageRequest::from_query(&query) {
        let row =
            |second| Position { time: Timestamp::from_second(second).unwrap_or_default(), id: "a".into() };
        let rows: Vec<Position> = (0..150).map(row).collect();
        let cut = page.cut(rows.clone(), Position::clone);
        assert!(cut.rows.len() <= 100 && cut.rows.iter().all(|row| rows.contains(row)));
        assert!(cut.rows.is_sorted() || cut.rows.iter().rev().is_sorted());
    }
    if let Ok(reference) = text.parse::<Reference>() {
        assert_eq!(reference.to_string().parse::<Reference>().ok(), Some(reference));
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Checks a body. Byte 0 selects the call that it is for.
pub fn body(input: &[u8]) {
    let [call, json @ ..] = input else { return };
    match call % 10 {
        0 => {
            let Some(body) = comes_back::<sandbox::NewSandbox>(json) else { return };
            rules(body.network, body.allow_internet_access);
            let _ = body.template_id.parse::<Reference>();
        }
        1 => {
            let Some(body) = comes_back::<network::NetworkUpdate>(json) else { return };
            let given = body.egress_proxy.clone().unwrap_or_default();
            let proxy = EgressProxy::new(given).ok().flatten().map(|proxy| proxy.sealed(None));
            let change = NetworkChange { update: body, proxy };
            if let Ok(rules) = NetworkRules::default().replaced(change) {
                check_policy(&rules);
            }
        }
        2 => {
            let Some(body) = comes_back::<event::NewWebhook>(json) else { return };
            receiver(body.url);
        }
        3 => {
            let Some(body) = comes_back::<event::WebhookUpdate>(json) else { return };
            body.url.into_iter().for_each(receiver);
        }
        4 => drop(comes_back::<snapshot::NewSnapshot>(json)),
        5 => drop(comes_back::<volume::EntryUpdate>(json)),
        6 => drop(comes_back::<team::Named>(json)),
        7 => drop(comes_back::<sandbox::Timeout>(json)),
        8 => drop(comes_back::<sandbox::Connect>(json)),
        _ => drop(comes_back::<snapshot::Fork>(json)),
    }
}

/// Reads a body, and checks that it says the same when it is written again.
fn comes_back<T: DeserializeOwned + Serialize>(json: &[u8]) -> Option<T> {
    let body = parse::<T>(json).ok()?;
    let text = serde_json::to_vec(&body).ok();
    assert!(text.is_some(), "a body that was read cannot be written");
    let again = text.as_deref().and_then(|text| parse::<T>(text).ok());
    let again = again.and_then(|again| serde_json::to_vec(&again).ok());
    assert_eq!(again, text, "a body does not come back");
    Some(body)
}

fn rules(network: Option<network::Network>, internet: Option<bool>) {
    if let Ok(rules) = NetworkRules::new(network, internet) {
        check_policy(&rules);
    }
}

/// Checks that nothing a client writes gets into a rule of the firewall or into a header but what belongs there.
fn check_policy(rules: &NetworkRules) {
    let policy = rules.policy();
    let is_range = |range: &String| {
        let (address, prefix) = range.split_once('/').unwrap_or((range, "32"));
        address.parse::<std::net::Ipv4Addr>().is_ok() && prefix.parse::<u8>().is_ok_and(|prefix| prefix <= 32)
    };
    assert!(policy.allow_out.iter().chain(&policy.deny_out).all(is_range), "{policy:?}");
    let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    assert!(policy.allow_names.iter().all(is_name), "{policy:?}");
    for port in [80, 65535] {
        let mask = rules.masked_host(port);
        assert!(mask.is_none_or(|mask| http::HeaderValue::try_from(mask).is_ok()));
    }
}

/// Checks that the receiver of events is a URL of the web.
fn receiver(url: String) {
    let Ok(url) = webhooks::url(url) else { return };
    let uri = url.parse::<Uri>();
    assert!(uri.is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty())), "{url:?} names no host");
    assert!(!url.contains(char::is_whitespace) && !url.contains(char::is_control));
}

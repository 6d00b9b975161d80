//! Selects the content coding of a download from `Accept-Encoding` (contract: envd, section 4). Pure.

/// A content coding, in which the bytes of a file are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// No coding: the plain bytes.
    Identity,
    /// Gzip compression.
    Gzip,
}

/// The content codings that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Preferred coding; `None` when the client accepts none that is available.
    pub(super) best: Option<Coding>,
    /// Whether the client accepts the plain bytes, which ranges and conditions need.
    pub(super) identity: bool,
}

/// Reads the header; a missing header counts as empty. Unknown codings and malformed entries are skipped. Of codings with the
/// same weight the first counts.
pub(super) fn accepted(header: &str) -> Accepted {
    let entries = header.split(',').filter_map(entry);
    let mut liked: Vec<(&str, f32)> = entries.collect();
    let weight =
        |name: &str| liked.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, weight)| *weight);
    let identity = weight("identity").or(weight("*")).is_none_or(|weight| weight > 0.0);
    let gzip_refused = weight("gzip") == Some(0.0);

    liked.retain(|(_, weight)| *weight > 0.0);
    liked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let best = liked.iter().find_map(|(name, _)| match name.to_ascii_lowercase().as_str() {
        "gzip" => Some(Coding::Gzip),
        "identity" => Some(Coding::Identity),
        "*" if identity => Some(Coding::Identity),
        "*" if !gzip_refused => Some(Coding::Gzip),
        _ => None,
    });
    Accepted { best: best.or(identity.then_some(Coding::Identity)), identity }
}

fn entry(text: &str) -> Option<(&str, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = parts.find_map(|p| p.strip_prefix("q=").or(p.strip_prefix("Q=")));
    let weight = weight.map_or(Ok(1.0), str::parse::<f32>).ok()?;
    (0.0..=1.0).contains(&weight).then_some((name, weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_liked_coding_wins() {
        use Coding::{Gzip, Identity};
        let cases = [
            ("", Some(Identity)),
            ("identity", Some(Identity)),
            ("gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Gzip)),
            ("br, identity, gzip", Some(Identity)),
            ("gzip;q=0.5, identity", Some(Identity)),
            ("identity;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("*", Some(Identity)),
            ("*;q=0", None),
            ("*;q=0, gzip", Some(Gzip)),
            ("identity;q=0", None),
            ("identity;q=0, *", Some(Gzip)),
            ("identity;q=0, gzip;q=0, *", None),
            ("br", Some(Identity)),
            ("gzip;q=0", Some(Identity)),
            ("gzip;q=x, ,;q=1", Some(Identity)),
        ];
        for (header, best) in cases {
            assert_eq!(accepted(header).best, best, "{header:?}");
        }
    }

    #[test]
    fn plain_bytes_are_taken_unless_refused() {
        for (header, identity) in
            [("", true), ("gzip", true), ("*;q=0", false), ("identity;q=0", false), ("*;q=0, identity", true)]
        {
            assert_eq!(accepted(header).identity, identity, "{header:?}");
        }
    }
}

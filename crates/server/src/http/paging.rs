//! Pages over lists that grow: a token names the row after which a page begins, so new rows shift nothing (contract:
//! control-plane, section 4.4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use http::HeaderValue;
use jiff::Timestamp;

use super::params::{Query, invalid};
use crate::{Error, Result};

/// Maximum and default size of a page.
const MAX_PAGE: i64 = 100;

/// The order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// The page that a request asks for.
#[derive(Debug)]
pub(super) struct PageRequest {
    limit: usize,
    after: Option<Position>,
    order: Order,
}

/// The position of a row: rows are ordered by time, then id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) time: Timestamp,
    pub(super) id: String,
}

/// A page of rows.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) rows: Vec<T>,
    /// The token of the next page; none on the last.
    pub(super) next: Option<HeaderValue>,
}

impl PageRequest {
    /// Reads `limit`, `nextToken` and `order`.
    pub(super) fn from_query(query: &Query) -> Result<Self> {
        let order = match query.text("order") {
            None | Some("desc") => Order::Descending,
            Some("asc") => Order::Ascending,
            Some(_) => return Err(invalid("order", "must be asc or desc")),
        };
        let limit = query.integer_in("limit", 1..=MAX_PAGE, MAX_PAGE)?;
        let after = query.text("nextToken").map(|token| parse_token(token, order)).transpose()?;
        Ok(Self { limit: usize::try_from(limit).unwrap_or(1), after, order })
    }

    /// The requested page of `rows`.
    pub(super) fn cut<T>(&self, rows: Vec<T>, position: impl Fn(&T) -> Position) -> Page<T> {
        let mut placed: Vec<(Position, T)> = rows.into_iter().map(|row| (position(&row), row)).collect();
        placed.sort_by(|(a, _), (b, _)| match self.order {
            Order::Ascending => a.cmp(b),
            Order::Descending => b.cmp(a),
        });
        if let Some(after) = &self.after {
            placed.retain(|(place, _)| match self.order {
                Order::Ascending => place > after,
                Order::Descending => place < after,
            });
        }
        let more = placed.len() > self.limit;
        placed.truncate(self.limit);
        let next = placed.last().filter(|_| more).and_then(|(place, _)| token(place, self.order));
        Page { rows: placed.into_iter().map(|(_, row)| row).collect(), next }
    }
}

fn token(position: &Position, order: Order) -> Option<HeaderValue> {
    let suffix = match order {
        Order::Ascending => "__asc",
        Order::Descending => "",
    };
    let text = URL_SAFE.encode(format!("{}__{}{suffix}", position.time, position.id));
    HeaderValue::from_str(&text).ok()
}

fn parse_token(token: &str, order: Order) -> Result<Position> {
    let invalid = || Error::InvalidPageToken;
    let text =
        URL_SAFE.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(invalid)?;
    let body = match (text.strip_suffix("__asc"), order) {
        (Some(body), Order::Ascending) => body,
        (None, Order::Descending) => text.as_str(),
        _ => return Err(invalid()),
    };
    let (time, id) = body.split_once("__").ok_or_else(invalid)?;
    Ok(Position { time: time.parse().map_err(|_| invalid())?, id: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(second: i64, id: &str) -> Position {
        Position { time: Timestamp::from_second(second).unwrap(), id: id.to_owned() }
    }

    fn request(order: Order, token: Option<&HeaderValue>) -> PageRequest {
        let after = token.map(|token| parse_token(token.to_str().unwrap(), order).unwrap());
        PageRequest { limit: 2, after, order }
    }

    #[test]
    fn ascending_is_the_exact_reverse_and_new_rows_do_not_shift_pages() {
        let rows = vec![row(1, "a"), row(2, "b"), row(2, "c"), row(3, "d")];
        let down = request(Order::Descending, None).cut(rows.clone(), Position::clone);
        assert_eq!(down.rows, [row(3, "d"), row(2, "c")]);
        let mut grown = rows.clone();
        grown.push(row(9, "new"));
        let second = request(Order::Descending, down.next.as_ref()).cut(grown, Position::clone);
        assert_eq!(second.rows, [row(2, "b"), row(1, "a")]);
        assert!(second.next.is_none());
        let up = request(Order::Ascending, None).cut(rows, Position::clone);
        assert_eq!(up.rows, [row(1, "a"), row(2, "b")]);
    }

    #[test]
    fn garbage_and_tokens_of_the_other_order_are_refused() {
        let descending = token(&row(1, "a"), Order::Descending).unwrap();
        assert!(parse_token(descending.to_str().unwrap(), Order::Ascending).is_err());
        for bad in ["", "!!!", "YWJj", "bm90LWEtdGltZV9fYQ=="] {
            assert!(parse_token(bad, Order::Descending).is_err(), "{bad}");
        }
    }
}

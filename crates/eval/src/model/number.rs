//! Numbers as JavaScript writes them: 1, not 1.0.

use serde_json::{Number, Value};

/// A JSON number that is written without a fraction when it has none. Infinite ones become null where a value is asked for, and
/// 0 here.
pub fn number(n: f64) -> Number {
    if n.fract() == 0.0 && n.abs() < 9_007_199_254_740_992.0 {
        return Number::from(n as i64);
    }
    Number::from_f64(n).unwrap_or_else(|| Number::from(0))
}

/// A JSON value of a number; null if it is not finite.
pub fn number_value(n: f64) -> Value {
    if n.is_finite() { Value::Number(number(n)) } else { Value::Null }
}

/// Serializes a number as JavaScript writes it, for `serialize_with`.
pub fn serialize<S: serde::Serializer>(n: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&number_value(*n), serializer)
}

/// Serializes an optional number as JavaScript writes it, for `serialize_with`.
pub fn serialize_option<S: serde::Serializer>(n: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&n.map(number_value), serializer)
}

/// Returns the text of a number with two decimals, as JavaScript rounds it: 0.125 is 0.13, where Rust rounds to the even digit.
pub fn with_cents(n: f64) -> String {
    // Only eighths can lie in the middle between two hundredths.
    let eighths = n * 8.0;
    let is_between = eighths.fract() == 0.0 && eighths % 2.0 != 0.0;
    format!("{:.2}", if is_between { n + 0.001 * n.signum() } else { n })
}

/// Returns the text of a number as JavaScript prints it.
pub fn text(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if n == 0.0 {
        return "0".to_owned();
    }
    let magnitude = n.abs();
    if (1e-6..1e21).contains(&magnitude) {
        return format!("{n}");
    }
    let text = format!("{n:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent}"),
        _ => text,
    }
}

/// Returns a number with its noun in singular or plural.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_between_hundredths_is_rounded_away_from_zero() {
        let of = with_cents;
        assert_eq!(
            [of(0.125), of(0.625), of(-0.375), of(0.5), of(1.0)],
            ["0.13", "0.63", "-0.38", "0.50", "1.00"]
        );
        assert_eq!([of(0.615), of(1.005), of(2.0 / 3.0)], ["0.61", "1.00", "0.67"]);
    }

    #[test]
    fn numbers_are_written_like_javascript() {
        for (n, expected) in
            [(1.0, "1"), (0.1, "0.1"), (1e21, "1e+21"), (1e-7, "1e-7"), (123456789.5, "123456789.5")]
        {
            assert_eq!(text(n), expected);
        }
        assert_eq!(number(1.0).to_string(), "1");
    }
}

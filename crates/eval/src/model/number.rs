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
    fn numbers_are_written_like_javascript() {
        for (n, expected) in
            [(1.0, "1"), (0.1, "0.1"), (1e21, "1e+21"), (1e-7, "1e-7"), (123456789.5, "123456789.5")]
        {
            assert_eq!(text(n), expected);
        }
        assert_eq!(number(1.0).to_string(), "1");
    }
}

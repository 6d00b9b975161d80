//! Expressions of derived metrics: the arithmetic of mathjs over names, as far as metrics need it.

mod evaluate;
mod functions;
mod parse;

pub use evaluate::evaluate;
pub use parse::{Expression, parse};

/// Reason why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text is not an expression, from this character on, counted from 1.
    #[error("`{found}` at character {at} is unexpected")]
    Unexpected {
        /// The word or sign, or `the end`.
        found: String,
        /// The position.
        at: usize,
    },
    /// The expression is nested too deeply.
    #[error("the expression is nested too deeply")]
    TooDeep,
    /// No metric or constant has the name.
    #[error("no metric is named `{0}`")]
    UnknownName(String),
    /// No function has the name.
    #[error("unknown function `{0}`")]
    UnknownFunction(String),
    /// The function takes another number of arguments.
    #[error("`{name}` does not take {given} arguments")]
    Arguments {
        /// The function.
        name: String,
        /// The number of arguments in the expression.
        given: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, ExpressionError> {
        let known = |name: &str| match name {
            "a" => Some(3.0),
            "b" => Some(4.0),
            "__count" => Some(2.0),
            _ => None,
        };
        evaluate(&parse(text)?, &known)
    }

    #[test]
    fn operators_bind_as_in_mathjs() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("-2 ^ 2", -4.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("2 ^ -1", 0.5),
            ("-7 mod 3", 2.0),
            ("7 % 4", 3.0),
            ("3! / 2", 3.0),
            ("1.5e1 + .5", 15.5),
            ("a / __count", 1.5),
            ("a > b ? 1 : a < b ? 2 : 3", 2.0),
            ("a == 3 and not (b == 3) or false", 1.0),
            ("true xor a >= 3", 0.0),
            ("0.1 + 0.2 == 0.3", 1.0),
            ("a != b", 1.0),
            // The branch that is not taken may name what does not exist.
            ("a > 0 ? a : missing", 3.0),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
        assert!(value("0 / 0").unwrap().is_nan());
    }

    #[test]
    fn functions_are_those_of_mathjs() {
        for (text, expected) in [
            ("round(2.5 / 3, 2)", 0.83),
            ("round(-2.5)", -3.0),
            ("round(1.005, 2)", 1.01),
            ("floor(2.49, 1)", 2.4),
            ("sqrt(a^2 + b^2)", 5.0),
            ("max(1, [5, 2], 3)", 5.0),
            ("mean([1, 2, 6])", 3.0),
            ("median(5, 1, 3, 2)", 2.5),
            ("sum(1, 2) + prod(2, 3)", 9.0),
            ("std(2, 4)", std::f64::consts::SQRT_2),
            ("variance(2, 4)", 2.0),
            ("log(8, 2) + log2(8) + log10(1000)", 9.0),
            ("cbrt(27) + nthRoot(16, 4)", 5.0),
            ("hypot(3, 4) + sign(-9) + square(3)", 13.0),
            ("cos(pi) + e - e", -1.0),
        ] {
            let found = value(text).unwrap();
            assert!((found - expected).abs() < 1e-12, "{text}: {found}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| value(text).unwrap_err().to_string();
        assert_eq!(error("missing * 2"), "no metric is named `missing`");
        assert_eq!(error("a +"), "`the end` at character 4 is unexpected");
        assert_eq!(error("a && b"), "`&` at character 3 is unexpected");
        assert_eq!(error("(a"), "`the end` at character 3 is unexpected");
        assert_eq!(error("nope(1)"), "unknown function `nope`");
        assert_eq!(error("sqrt(1, 2)"), "`sqrt` does not take 2 arguments");
        assert_eq!(value(&"(".repeat(10_000)), Err(ExpressionError::TooDeep));
        assert_eq!(value(&"-".repeat(10_000)), Err(ExpressionError::TooDeep));
        assert_eq!(value(&"1+".repeat(10_000)), Err(ExpressionError::TooDeep));
        assert_eq!(value(&"1^".repeat(10_000)), Err(ExpressionError::TooDeep));
    }
}

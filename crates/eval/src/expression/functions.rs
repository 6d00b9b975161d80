//! Functions and constants of expressions.

use super::ExpressionError;

/// Returns the value of a constant.
pub fn constant(name: &str) -> Option<f64> {
    Some(match name {
        "pi" | "PI" => std::f64::consts::PI,
        "e" | "E" => std::f64::consts::E,
        "tau" => std::f64::consts::TAU,
        "Infinity" => f64::INFINITY,
        "NaN" => f64::NAN,
        "true" => 1.0,
        "false" => 0.0,
        _ => return None,
    })
}

/// Calls a function.
///
/// # Errors
/// [`ExpressionError`] for an unknown function, and for one that takes another number of arguments.
pub fn call(name: &str, arguments: &[f64]) -> Result<f64, ExpressionError> {
    let value = match arguments {
        [one] => of_one(name, *one),
        [one, two] => of_two(name, *one, *two),
        _ => None,
    };
    match value.or_else(|| of_all(name, arguments)) {
        Some(value) => Ok(value),
        None if exists(name) => {
            Err(ExpressionError::Arguments { name: name.to_owned(), given: arguments.len() })
        }
        None => Err(ExpressionError::UnknownFunction(name.to_owned())),
    }
}

fn exists(name: &str) -> bool {
    of_one(name, 1.0).or_else(|| of_two(name, 1.0, 1.0)).or_else(|| of_all(name, &[1.0])).is_some()
}

fn of_one(name: &str, x: f64) -> Option<f64> {
    Some(match name {
        "abs" => x.abs(),
        "sign" if x == 0.0 => 0.0,
        "sign" => x.signum(),
        "sqrt" => x.sqrt(),
        "cbrt" => x.cbrt(),
        "square" => x * x,
        "cube" => x * x * x,
        "exp" => x.exp(),
        "expm1" => x.exp_m1(),
        "log" => x.ln(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "log1p" => x.ln_1p(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "factorial" => factorial(x),
        "nthRoot" => x.sqrt(),
        "ceil" => x.ceil(),
        "floor" => x.floor(),
        "fix" => x.trunc(),
        // Halves go away from zero, as in mathjs.
        "round" => x.round(),
        "number" | "unaryPlus" => x,
        "unaryMinus" => -x,
        "not" => f64::from(u8::from(x == 0.0)),
        _ => return None,
    })
}

fn of_two(name: &str, x: f64, y: f64) -> Option<f64> {
    Some(match name {
        "pow" => x.powf(y),
        "mod" => modulo(x, y),
        "log" => x.ln() / y.ln(),
        "atan2" => x.atan2(y),
        "nthRoot" => x.powf(1.0 / y),
        "divide" => x / y,
        "subtract" => x - y,
        "ceil" => at_places(x, y, f64::ceil)?,
        "floor" => at_places(x, y, f64::floor)?,
        "fix" => at_places(x, y, f64::trunc)?,
        "round" => rounded(x, y)?,
        _ => return None,
    })
}

fn of_all(name: &str, all: &[f64]) -> Option<f64> {
    if all.is_empty() {
        return None;
    }
    let count = all.len() as f64;
    let sum = || all.iter().sum::<f64>();
    let variance = || {
        let mean = sum() / count;
        let squares: f64 = all.iter().map(|x| (x - mean).powi(2)).sum();
        if all.len() == 1 { 0.0 } else { squares / (count - 1.0) }
    };
    Some(match name {
        "max" => all.iter().copied().reduce(f64::max)?,
        "min" => all.iter().copied().reduce(f64::min)?,
        "sum" | "add" => sum(),
        "prod" | "multiply" => all.iter().product(),
        "mean" => sum() / count,
        "median" => median(all),
        "variance" => variance(),
        "std" => variance().sqrt(),
        "hypot" => all.iter().map(|x| x * x).sum::<f64>().sqrt(),
        _ => return None,
    })
}

fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// The remainder with the sign of the divisor; a divisor of 0 leaves the number.
pub fn modulo(x: f64, y: f64) -> f64 {
    if y == 0.0 { x } else { x - y * (x / y).floor() }
}

/// The factorial of a whole number up to 170; nothing else has one here.
pub fn factorial(n: f64) -> f64 {
    if n < 0.0 || n.fract() != 0.0 {
        return f64::NAN;
    }
    if n > 170.0 { f64::INFINITY } else { (1..=n as u32).map(f64::from).product() }
}

/// The most decimal places that rounding takes.
const MAX_PLACES: f64 = 15.0;

fn at_places(x: f64, places: f64, round: fn(f64) -> f64) -> Option<f64> {
    if !(0.0..=MAX_PLACES).contains(&places) || places.fract() != 0.0 {
        return None;
    }
    let scale = 10f64.powi(places as i32);
    Some(round(x * scale) / scale)
}

/// A number rounded as it is written in decimals: 1.005 to two places is 1.01, although its binary form is a little less.
fn rounded(x: f64, places: f64) -> Option<f64> {
    if !x.is_finite() {
        return Some(x);
    }
    let down = at_places(x, places, f64::trunc)?;
    let places = places as usize;
    let written = x.abs().to_string();
    let next = written.split_once('.').and_then(|(_, decimals)| decimals.as_bytes().get(places).copied());
    if next.is_none_or(|digit| digit < b'5') {
        return format!("{x:.places$}").parse().ok();
    }
    let step = 10f64.powi(-(places as i32)).copysign(x);
    format!("{:.places$}", down + step).parse().ok()
}

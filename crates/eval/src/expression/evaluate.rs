//! Computing parsed expressions. Truth is 1, falsehood 0.

use super::functions;
use super::{Expression, ExpressionError};

/// Computes an expression over the names that `known` knows.
///
/// # Errors
/// [`ExpressionError`] for an expression with an unknown name or a wrong call of a function.
pub fn evaluate(
    expression: &Expression,
    known: &dyn Fn(&str) -> Option<f64>,
) -> Result<f64, ExpressionError> {
    let of = |expression: &Expression| evaluate(expression, known);
    Ok(match expression {
        Expression::Number(number) => *number,
        Expression::Name(name) => known(name)
            .or_else(|| functions::constant(name))
            .ok_or_else(|| ExpressionError::UnknownName(name.clone()))?,
        Expression::List(items) => match items.as_slice() {
            [only] => of(only)?,
            _ => {
                return Err(ExpressionError::Arguments { name: "[…]".to_owned(), given: items.len() });
            }
        },
        Expression::Call(name, items) => {
            let mut arguments = Vec::new();
            flatten(items, known, &mut arguments)?;
            functions::call(name, &arguments)?
        }
        Expression::Unary(operator, operand) => {
            let operand = of(operand)?;
            match *operator {
                "-" => -operand,
                "not" => truth(operand == 0.0),
                "!" => functions::factorial(operand),
                _ => operand,
            }
        }
        Expression::Binary("and", left, right) => truth(of(left)? != 0.0 && of(right)? != 0.0),
        Expression::Binary("or", left, right) => truth(of(left)? != 0.0 || of(right)? != 0.0),
        Expression::Binary(operator, left, right) => binary(operator, of(left)?, of(right)?),
        Expression::Choice(condition, yes, no) => {
            // What is not a number holds no more than 0 does.
            let holds = of(condition)?;
            if holds != 0.0 && !holds.is_nan() { of(yes)? } else { of(no)? }
        }
    })
}

/// The values of arguments, those of lists one by one.
fn flatten(
    items: &[Expression],
    known: &dyn Fn(&str) -> Option<f64>,
    out: &mut Vec<f64>,
) -> Result<(), ExpressionError> {
    for item in items {
        match item {
            Expression::List(inner) => flatten(inner, known, out)?,
            other => out.push(evaluate(other, known)?),
        }
    }
    Ok(())
}

fn binary(operator: &str, left: f64, right: f64) -> f64 {
    match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        "%" | "mod" => functions::modulo(left, right),
        "^" => left.powf(right),
        "xor" => truth((left != 0.0) != (right != 0.0)),
        "==" => truth(nearly(left, right)),
        "!=" => truth(!nearly(left, right)),
        "<" => truth(left < right && !nearly(left, right)),
        ">" => truth(left > right && !nearly(left, right)),
        "<=" => truth(left <= right || nearly(left, right)),
        _ => truth(left >= right || nearly(left, right)),
    }
}

/// Whether two numbers differ by no more than rounding does.
fn nearly(left: f64, right: f64) -> bool {
    left == right || (left - right).abs() <= (left.abs().max(right.abs()) * 1e-12).max(1e-15)
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

//! Parsing expressions: one method for each level of precedence, from the weakest to the strongest.

use super::ExpressionError;

/// Levels of nesting in an expression.
const MAX_DEPTH: usize = 100;
/// Operators in an expression: a chain of them is as deep as it is long.
const MAX_OPERATORS: usize = 500;

/// A parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// A metric or a constant.
    Name(String),
    /// `[a, b]`
    List(Vec<Expression>),
    /// `name(a, b)`
    Call(String, Vec<Expression>),
    /// An operator before or after its operand: `-`, `+`, `not`, `!`.
    Unary(&'static str, Box<Expression>),
    /// An operator between its operands.
    Binary(&'static str, Box<Expression>, Box<Expression>),
    /// `condition ? yes : no`
    Choice(Box<Expression>, Box<Expression>, Box<Expression>),
}

/// The operators between two operands, by precedence from the weakest to the strongest.
const LEVELS: &[&[&str]] =
    &[&["or"], &["xor"], &["and"], &["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%", "mod"]];

/// Parses an expression.
///
/// # Errors
/// [`ExpressionError`] for a text that is no expression.
pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
    let mut parser = Parser { text, at: 0, depth: 0, operators: 0 };
    let whole = parser.choice()?;
    if parser.rest().is_empty() { Ok(whole) } else { Err(parser.unexpected()) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    operators: usize,
}

impl<'a> Parser<'a> {
    /// The text from the next word or sign on.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    /// Takes a sign or a word, if it is next. A word ends where it cannot go on.
    fn take(&mut self, token: &str) -> bool {
        let word = token.ends_with(|c: char| c.is_ascii_alphabetic());
        let next = self.rest().strip_prefix(token);
        let taken = next.is_some_and(|after| !word || !after.starts_with(is_word));
        if taken {
            self.at += token.len();
        }
        taken
    }

    fn expect(&mut self, token: &str) -> Result<(), ExpressionError> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&mut self) -> ExpressionError {
        let rest = self.rest();
        let word: String = rest.chars().take_while(|c| is_word(*c)).collect();
        let found = match rest.chars().next() {
            None => "the end".to_owned(),
            Some(sign) if word.is_empty() => sign.to_string(),
            Some(_) => word,
        };
        ExpressionError::Unexpected { found, at: self.text[..self.at].chars().count() + 1 }
    }

    /// Parses one level further down.
    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<T, ExpressionError> {
        self.depth += 1;
        let parsed = if self.depth > MAX_DEPTH { Err(ExpressionError::TooDeep) } else { parse(self) };
        self.depth -= 1;
        parsed
    }

    /// Counts an operator.
    fn operator(&mut self) -> Result<(), ExpressionError> {
        self.operators += 1;
        if self.operators > MAX_OPERATORS { Err(ExpressionError::TooDeep) } else { Ok(()) }
    }

    fn choice(&mut self) -> Result<Expression, ExpressionError> {
        self.nested(|parser| {
            let condition = parser.binary(LEVELS)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.choice()?;
            parser.expect(":")?;
            let no = parser.choice()?;
            Ok(Expression::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
        })
    }

    fn binary(&mut self, levels: &[&[&'static str]]) -> Result<Expression, ExpressionError> {
        let Some((operators, stronger)) = levels.split_first() else { return self.unary() };
        let mut left = self.binary(stronger)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            self.operator()?;
            let right = self.binary(stronger)?;
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, ExpressionError> {
        match ["-", "+", "not"].into_iter().find(|operator| self.take(operator)) {
            Some(operator) => {
                let operand = self.nested(Self::unary)?;
                Ok(Expression::Unary(operator, Box::new(operand)))
            }
            None => self.power(),
        }
    }

    /// The exponent of a power may have a sign, and be a power.
    fn power(&mut self) -> Result<Expression, ExpressionError> {
        let base = self.factorial()?;
        if !self.take("^") {
            return Ok(base);
        }
        let exponent = self.nested(Self::unary)?;
        Ok(Expression::Binary("^", Box::new(base), Box::new(exponent)))
    }

    fn factorial(&mut self) -> Result<Expression, ExpressionError> {
        let mut operand = self.operand()?;
        while !self.rest().starts_with("!=") && self.take("!") {
            self.operator()?;
            operand = Expression::Unary("!", Box::new(operand));
        }
        Ok(operand)
    }

    fn operand(&mut self) -> Result<Expression, ExpressionError> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.items("]").map(Expression::List);
        }
        let rest = self.rest();
        match rest.chars().next() {
            Some(digit) if digit.is_ascii_digit() || digit == '.' => self.number(rest),
            Some(letter) if is_word(letter) => {
                let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
                self.at += name.len();
                if self.take("(") {
                    return self.items(")").map(|items| Expression::Call(name, items));
                }
                Ok(Expression::Name(name))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn items(&mut self, end: &str) -> Result<Vec<Expression>, ExpressionError> {
        let mut items = Vec::new();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(self.choice()?);
            if self.take(end) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn number(&mut self, rest: &str) -> Result<Expression, ExpressionError> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let more = digits(&exponent[sign..]);
            length += if more > 0 { 1 + sign + more } else { 0 };
        }
        let number = rest[..length].parse().map_err(|_| self.unexpected())?;
        self.at += length;
        Ok(Expression::Number(number))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

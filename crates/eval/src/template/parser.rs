//! From tokens to a tree, with the precedence the nunjucks language has.

mod blocks;

use serde_json::Value;

use super::TemplateError;
use super::lexer::{Spot, Token};
use super::syntax::{Binary, Expr, Part, Unary};
use crate::model::number_value;

type Parsed<T> = Result<T, TemplateError>;

pub struct Parser {
    tokens: Vec<Spot>,
    at: usize,
    depth: usize,
}

const MAX_DEPTH: usize = 200;

impl Parser {
    pub fn new(tokens: Vec<Spot>) -> Self {
        Self { tokens, at: 0, depth: 0 }
    }

    /// The whole template.
    pub fn template(mut self) -> Parsed<Vec<Part>> {
        let (parts, _) = self.parts(&[])?;
        Ok(parts)
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)].token
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        let line = self.tokens[self.at.min(self.tokens.len() - 1)].line;
        TemplateError { message: message.into(), line }
    }

    fn skip_op(&mut self, op: &str) -> bool {
        let found = matches!(self.peek(), Token::Op(found) if *found == op);
        self.at += usize::from(found);
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Token::Name(found) if found == name);
        self.at += usize::from(found);
        found
    }

    fn op(&mut self, op: &str) -> Parsed<()> {
        if self.skip_op(op) { Ok(()) } else { Err(self.error(format!("expected `{op}`"))) }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Token::Name(name) => Ok(name),
            _ => Err(self.error("expected a name")),
        }
    }

    fn end_block(&mut self) -> Parsed<()> {
        match self.next() {
            Token::BlockEnd => Ok(()),
            _ => Err(self.error("expected `%}`")),
        }
    }

    /// Parts up to one of the block words in `until`, whose tag is begun but not finished; that word comes back.
    fn parts(&mut self, until: &[&str]) -> Parsed<(Vec<Part>, String)> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("the template is too deeply nested"));
        }
        let mut parts = Vec::new();
        let word = loop {
            match self.next() {
                Token::Text(text) => parts.push(Part::Text(text)),
                Token::PrintStart => {
                    parts.push(Part::Print(self.expression()?));
                    if self.next() != Token::PrintEnd {
                        return Err(self.error("expected `}}`"));
                    }
                }
                Token::BlockStart => {
                    let word = self.name()?;
                    if until.contains(&word.as_str()) {
                        break word;
                    }
                    parts.push(self.block(&word)?);
                }
                Token::End if until.is_empty() => break String::new(),
                Token::End => {
                    return Err(self.error(format!("expected `{}`, got end of file", until.join("` or `"))));
                }
                _ => return Err(self.error("unexpected token")),
            }
        };
        self.depth -= 1;
        Ok((parts, word))
    }

    fn body(&mut self, end: &str) -> Parsed<Vec<Part>> {
        self.end_block()?;
        let (parts, _) = self.parts(&[end])?;
        // `{% endblock name %}` and its like may repeat a name.
        if let Token::Name(_) = self.peek() {
            self.at += 1;
        }
        self.end_block()?;
        Ok(parts)
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("the expression is too deeply nested"));
        }
        let then = self.or()?;
        let expression = if self.skip_name("if") {
            let condition = Box::new(self.or()?);
            let otherwise = if self.skip_name("else") { Some(Box::new(self.or()?)) } else { None };
            Expr::Inline { then: Box::new(then), condition, otherwise }
        } else {
            then
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut left = self.and()?;
        while self.skip_name("or") {
            left = binary(Binary::Or, left, self.and()?);
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut left = self.not()?;
        while self.skip_name("and") {
            left = binary(Binary::And, left, self.not()?);
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expr> {
        if self.skip_name("not") {
            return Ok(Expr::Unary(Unary::Not, Box::new(self.not()?)));
        }
        self.contained()
    }

    fn contained(&mut self) -> Parsed<Expr> {
        let mut left = self.test()?;
        loop {
            let before = self.at;
            let negated = self.skip_name("not");
            if !self.skip_name("in") {
                self.at = before;
                return Ok(left);
            }
            let right = self.test()?;
            left = binary(if negated { Binary::NotIn } else { Binary::In }, left, right);
        }
    }

    fn test(&mut self) -> Parsed<Expr> {
        let left = self.compare()?;
        if !self.skip_name("is") {
            return Ok(left);
        }
        let negated = self.skip_name("not");
        let name = match self.next() {
            Token::Name(name) => name,
            _ => return Err(self.error("expected the name of a test after `is`")),
        };
        let (arguments, _) = if self.skip_op("(") { self.arguments()? } else { Default::default() };
        Ok(Expr::Test(Box::new(left), name, arguments, negated))
    }

    fn compare(&mut self) -> Parsed<Expr> {
        const COMPARISONS: &[(&str, Binary)] = &[
            ("==", Binary::Equal),
            ("===", Binary::Identical),
            ("!=", Binary::NotEqual),
            ("!==", Binary::NotIdentical),
            ("<", Binary::Less),
            (">", Binary::Greater),
            ("<=", Binary::LessOrEqual),
            (">=", Binary::GreaterOrEqual),
        ];
        let mut left = self.level(0)?;
        while let Some((_, operator)) = COMPARISONS.iter().find(|(op, _)| self.skip_op(op)) {
            left = binary(*operator, left, self.level(0)?);
        }
        Ok(left)
    }

    /// The arithmetic operators: each has a level of its own, as the language has it.
    fn level(&mut self, level: usize) -> Parsed<Expr> {
        const LEVELS: &[(&str, Binary)] = &[
            ("~", Binary::Concat),
            ("+", Binary::Add),
            ("-", Binary::Subtract),
            ("*", Binary::Multiply),
            ("/", Binary::Divide),
            ("//", Binary::FloorDivide),
            ("%", Binary::Remainder),
            ("**", Binary::Power),
        ];
        let Some((op, operator)) = LEVELS.get(level) else { return self.unary(false) };
        let mut left = self.level(level + 1)?;
        while self.skip_op(op) {
            left = binary(*operator, left, self.level(level + 1)?);
        }
        Ok(left)
    }

    fn unary(&mut self, without_filters: bool) -> Parsed<Expr> {
        let node = if self.skip_op("-") {
            Expr::Unary(Unary::Minus, Box::new(self.unary(true)?))
        } else if self.skip_op("+") {
            Expr::Unary(Unary::Plus, Box::new(self.unary(true)?))
        } else {
            self.primary()?
        };
        if without_filters { Ok(node) } else { self.filters(node) }
    }

    fn filters(&mut self, mut node: Expr) -> Parsed<Expr> {
        while self.skip_op("|") {
            let name = self.filter_name()?;
            let (arguments, named) = if self.skip_op("(") { self.arguments()? } else { Default::default() };
            node = Expr::Filter(Box::new(node), name, arguments, named);
        }
        Ok(node)
    }

    fn filter_name(&mut self) -> Parsed<String> {
        let mut name = self.name()?;
        while self.skip_op(".") {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let node = match self.next() {
            Token::Str(text) => Expr::Literal(Value::String(text)),
            Token::Num(n) => Expr::Literal(number_value(n)),
            Token::Regex(body, flags) => Expr::Regex(body, flags),
            Token::Name(name) => match name.as_str() {
                "true" => Expr::Literal(Value::Bool(true)),
                "false" => Expr::Literal(Value::Bool(false)),
                "none" | "null" => Expr::Literal(Value::Null),
                _ => Expr::Name(name),
            },
            Token::Op("(") => {
                let mut items = vec![self.expression()?];
                let mut tuple = false;
                while self.skip_op(",") {
                    tuple = true;
                    if matches!(self.peek(), Token::Op(")")) {
                        break;
                    }
                    items.push(self.expression()?);
                }
                self.op(")")?;
                if tuple { Expr::List(items) } else { items.remove(0) }
            }
            Token::Op("[") => {
                let mut items = Vec::new();
                while !self.skip_op("]") {
                    items.push(self.expression()?);
                    if !self.skip_op(",") {
                        self.op("]")?;
                        break;
                    }
                }
                Expr::List(items)
            }
            Token::Op("{") => self.dict()?,
            _ => {
                self.at -= 1;
                return Err(self.error("expected a value"));
            }
        };
        self.postfix(node)
    }

    fn dict(&mut self) -> Parsed<Expr> {
        let mut entries = Vec::new();
        while !self.skip_op("}") {
            let key = match self.next() {
                Token::Name(name) => Expr::Literal(Value::String(name)),
                Token::Str(text) => Expr::Literal(Value::String(text)),
                Token::Num(n) => Expr::Literal(number_value(n)),
                _ => return Err(self.error("expected a key")),
            };
            self.op(":")?;
            entries.push((key, self.expression()?));
            if !self.skip_op(",") {
                self.op("}")?;
                break;
            }
        }
        Ok(Expr::Dict(entries))
    }

    fn postfix(&mut self, mut node: Expr) -> Parsed<Expr> {
        loop {
            if self.skip_op("(") {
                let (arguments, named) = self.arguments()?;
                node = Expr::Call(Box::new(node), arguments, named);
            } else if self.skip_op("[") {
                let key = self.expression()?;
                self.op("]")?;
                node = Expr::Member(Box::new(node), Box::new(key));
            } else if self.skip_op(".") {
                let key = match self.next() {
                    Token::Name(name) => Value::String(name),
                    Token::Num(n) => number_value(n),
                    _ => return Err(self.error("expected a name after `.`")),
                };
                node = Expr::Member(Box::new(node), Box::new(Expr::Literal(key)));
            } else {
                return Ok(node);
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "positional and named arguments")]
    fn arguments(&mut self) -> Parsed<(Vec<Expr>, Vec<(String, Expr)>)> {
        let (mut positional, mut named) = (Vec::new(), Vec::new());
        while !self.skip_op(")") {
            let value = self.expression()?;
            match value {
                Expr::Name(name) if self.skip_op("=") => named.push((name, self.expression()?)),
                value => positional.push(value),
            }
            if !self.skip_op(",") {
                self.op(")")?;
                break;
            }
        }
        Ok((positional, named))
    }
}

fn binary(operator: Binary, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operator, Box::new(left), Box::new(right))
}

//! The tags of templates: conditions, loops, macros, files.

use std::rc::Rc;

use super::super::lexer::Token;
use super::super::syntax::{Expr, ImportedNames, Macro, Part};
use super::{Parsed, Parser};

impl Parser {
    /// Reads the rest of a tag that begins with a word, and what belongs to it.
    pub(super) fn block(&mut self, word: &str) -> Parsed<Part> {
        match word {
            "if" | "ifAsync" => self.block_if(),
            "for" | "asyncEach" | "asyncAll" => self.block_for(word),
            "set" => self.block_set(),
            "macro" => {
                let name = self.name()?;
                let parameters = self.parameters()?;
                let body = self.body("endmacro")?;
                Ok(Part::Macro(Rc::new(Macro { name, parameters, body })))
            }
            "call" => {
                let parameters =
                    if matches!(self.peek(), Token::Op("(")) { self.parameters()? } else { Vec::new() };
                let call = self.unary(true)?;
                let body = self.body("endcall")?;
                Ok(Part::Call(call, Rc::new(Macro { name: "caller".to_owned(), parameters, body })))
            }
            "filter" => {
                let name = self.filter_name()?;
                let (arguments, _) = if self.skip_op("(") { self.arguments()? } else { Default::default() };
                Ok(Part::Filter(name, arguments, self.body("endfilter")?))
            }
            "switch" => self.block_switch(),
            "include" => self.block_include(),
            "import" => self.block_import(),
            "from" => self.block_from(),
            "extends" | "block" => Err(self.error(format!(
                "`{{% {word} %}}` is not supported in prompts; use `{{% include %}}` or `{{% macro %}}`"
            ))),
            other => Err(self.error(format!("unknown block tag: {other}"))),
        }
    }

    fn block_include(&mut self) -> Parsed<Part> {
        let file = self.expression()?;
        let optional = self.skip_name("ignore");
        if optional && !self.skip_name("missing") {
            return Err(self.error("expected `missing` after `ignore`"));
        }
        self.end_block()?;
        Ok(Part::Include(file, optional))
    }

    fn block_import(&mut self) -> Parsed<Part> {
        let file = self.expression()?;
        if !self.skip_name("as") {
            return Err(self.error("expected `as` and a name after the file of an import"));
        }
        let names = ImportedNames::All(self.name()?);
        self.end_import(file, names)
    }

    fn block_from(&mut self) -> Parsed<Part> {
        let file = self.expression()?;
        if !self.skip_name("import") {
            return Err(self.error("expected `import` after the file"));
        }
        let mut names = Vec::new();
        loop {
            let name = self.name()?;
            let own = if self.skip_name("as") { self.name()? } else { name.clone() };
            names.push((name, own));
            if !self.skip_op(",") {
                break;
            }
        }
        self.end_import(file, ImportedNames::Some(names))
    }

    fn end_import(&mut self, file: Expr, names: ImportedNames) -> Parsed<Part> {
        let with_context = self.skip_name("with");
        if (with_context || self.skip_name("without")) && !self.skip_name("context") {
            return Err(self.error("expected `context`"));
        }
        self.end_block()?;
        Ok(Part::Import { file, names, with_context })
    }

    fn block_if(&mut self) -> Parsed<Part> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        let mut condition = self.expression()?;
        loop {
            self.end_block()?;
            let (body, word) = self.parts(&["elif", "elseif", "else", "endif"])?;
            branches.push((condition, body));
            match word.as_str() {
                "elif" | "elseif" => condition = self.expression()?,
                "else" => {
                    otherwise = self.body("endif")?;
                    break;
                }
                _ => {
                    self.end_block()?;
                    break;
                }
            }
        }
        Ok(Part::If(branches, otherwise))
    }

    fn block_for(&mut self, word: &str) -> Parsed<Part> {
        let mut targets = vec![self.name()?];
        while self.skip_op(",") {
            targets.push(self.name()?);
        }
        if !self.skip_name("in") {
            return Err(self.error("expected `in` in a for loop"));
        }
        let over = self.expression()?;
        let end = if word == "for" {
            "endfor"
        } else if word == "asyncEach" {
            "endeach"
        } else {
            "endall"
        };
        self.end_block()?;
        let (body, word) = self.parts(&["else", end])?;
        let otherwise = if word == "else" {
            self.body(end)?
        } else {
            self.end_block()?;
            Vec::new()
        };
        Ok(Part::For { targets, over, body, otherwise })
    }

    fn block_set(&mut self) -> Parsed<Part> {
        let mut targets = vec![self.name()?];
        while self.skip_op(",") {
            targets.push(self.name()?);
        }
        if self.skip_op("=") {
            let value = self.expression()?;
            self.end_block()?;
            return Ok(Part::Set(targets, value));
        }
        Ok(Part::SetBlock(targets, self.body("endset")?))
    }

    fn block_switch(&mut self) -> Parsed<Part> {
        let subject = self.expression()?;
        self.end_block()?;
        let (_, mut word) = self.parts(&["case", "default", "endswitch"])?;
        let (mut cases, mut otherwise) = (Vec::new(), Vec::new());
        loop {
            match word.as_str() {
                "case" => {
                    let value = self.expression()?;
                    self.end_block()?;
                    let (body, next) = self.parts(&["case", "default", "endswitch"])?;
                    cases.push((value, body));
                    word = next;
                }
                "default" => {
                    self.end_block()?;
                    (otherwise, word) = self.parts(&["case", "endswitch"])?;
                }
                _ => {
                    self.end_block()?;
                    return Ok(Part::Switch(subject, cases, otherwise));
                }
            }
        }
    }

    fn parameters(&mut self) -> Parsed<Vec<(String, Option<Expr>)>> {
        self.op("(")?;
        let mut parameters = Vec::new();
        while !self.skip_op(")") {
            let name = self.name()?;
            let default = if self.skip_op("=") { Some(self.expression()?) } else { None };
            parameters.push((name, default));
            if !self.skip_op(",") {
                self.op(")")?;
                break;
            }
        }
        Ok(parameters)
    }
}

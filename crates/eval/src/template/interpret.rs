//! Runs a template.

mod modules;

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use serde_json::{Value, json};

use super::files::Files;
use super::filters;
use super::globals;
use super::syntax::{Binary, Expr, ImportedNames, Macro, Part, Unary};
use super::value::{self, Val};
use super::{TemplateError, methods};
use crate::model::Object;

type Done<T> = Result<T, TemplateError>;

/// A template may print this much.
const MAX_OUTPUT: usize = 64 * 1024 * 1024;
const MAX_CALLS: usize = 64;

/// The values of names while a template is rendered.
pub struct Interpreter<'v> {
    vars: &'v Object,
    env: &'v Value,
    filters: &'v HashMap<String, String>,
    /// Names set by the template, innermost last.
    frames: Vec<HashMap<String, Val>>,
    /// The first frame that the template may write to: what an included file sets stays in it.
    floor: usize,
    calls: usize,
    files: Files<'v>,
}

impl<'v> Interpreter<'v> {
    pub fn new(
        vars: &'v Object,
        env: &'v Value,
        filters: &'v HashMap<String, String>,
        base: Option<&'v Path>,
    ) -> Self {
        let files = Files::new(base);
        Self { vars, env, filters, frames: vec![HashMap::new()], floor: 0, calls: 0, files }
    }

    pub fn run(&mut self, parts: &[Part], out: &mut String) -> Done<()> {
        for part in parts {
            self.part(part, out)?;
            if out.len() > MAX_OUTPUT {
                return Err(error("the template prints more than 64 MiB"));
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &Part, out: &mut String) -> Done<()> {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Print(expr) => match self.borrow(expr) {
                Some(Value::String(text)) => out.push_str(text),
                _ => self.eval(expr)?.print(out),
            },
            Part::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.eval(condition)?.truthy() {
                        return self.run(body, out);
                    }
                }
                self.run(otherwise, out)?;
            }
            Part::For { targets, over, body, otherwise } => self.each(targets, over, body, otherwise, out)?,
            Part::Set(targets, expr) => {
                let value = self.eval(expr)?;
                for target in targets {
                    self.assign(target, value.clone());
                }
            }
            Part::SetBlock(targets, body) => {
                let mut text = String::new();
                self.run(body, &mut text)?;
                for target in targets {
                    self.assign(target, Val::from(text.clone()));
                }
            }
            Part::Macro(found) => self.assign(&found.name, Val::Macro(Rc::clone(found))),
            Part::Call(call, body) => {
                self.frames.push(HashMap::from([("caller".to_owned(), Val::Macro(Rc::clone(body)))]));
                let value = self.eval(call);
                self.frames.pop();
                value?.print(out);
            }
            Part::Filter(name, arguments, body) => {
                let mut text = String::new();
                self.run(body, &mut text)?;
                let arguments = self.all(arguments)?;
                self.filter(name, Val::from(text), &arguments, &Object::new())?.print(out);
            }
            Part::Switch(subject, cases, otherwise) => {
                let subject = self.eval(subject)?;
                // An empty case falls through to the next, as in JavaScript.
                let mut matched = false;
                for (value, body) in cases {
                    matched = matched || value::identical(&subject, &self.eval(value)?);
                    if matched && !body.is_empty() {
                        return self.run(body, out);
                    }
                }
                self.run(otherwise, out)?;
            }
            Part::Include(file, optional) => self.include(file, *optional, out)?,
            Part::Import { file, names, with_context } => {
                let module = self.module(file, *with_context)?;
                match names {
                    ImportedNames::All(name) => self.assign(name, Val::Module(module)),
                    ImportedNames::Some(names) => {
                        for (name, own) in names {
                            match Val::exported(&module, name) {
                                Val::Undefined => return Err(error(format!("cannot import `{name}`"))),
                                found => self.assign(own, found),
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn each(
        &mut self,
        targets: &[String],
        over: &Expr,
        body: &[Part],
        otherwise: &[Part],
        out: &mut String,
    ) -> Done<()> {
        let over = self.eval(over)?.into_json();
        let rows: Vec<Vec<Value>> = match (&over, targets.len()) {
            (Value::Object(map), 2) => {
                map.iter().map(|(key, value)| vec![Value::String(key.clone()), value.clone()]).collect()
            }
            (_, 1) => value::items(&over).into_iter().map(|item| vec![item]).collect(),
            _ => value::items(&over).iter().map(value::items).collect(),
        };
        if rows.is_empty() {
            return self.run(otherwise, out);
        }
        let length = rows.len();
        self.frames.push(HashMap::new());
        for (at, row) in rows.into_iter().enumerate() {
            let mut cells = row.into_iter();
            let loop_state = json!({
                "index": at + 1, "index0": at, "revindex": length - at, "revindex0": length - at - 1,
                "first": at == 0, "last": at + 1 == length, "length": length,
            });
            if let Some(frame) = self.frames.last_mut() {
                for target in targets {
                    frame.insert(target.clone(), cells.next().map_or(Val::Undefined, Val::Json));
                }
                frame.insert("loop".to_owned(), Val::Json(loop_state));
            }
            let ran = self.run(body, out);
            if ran.is_err() {
                self.frames.pop();
                return ran;
            }
        }
        self.frames.pop();
        Ok(())
    }

    /// Sets a name where it is known, else in the innermost frame.
    fn assign(&mut self, name: &str, value: Val) {
        let known = self.frames[self.floor..].iter().rposition(|frame| frame.contains_key(name));
        let at = known.map_or(self.frames.len() - 1, |at| at + self.floor);
        self.frames[at].insert(name.to_owned(), value);
    }

    fn lookup(&self, name: &str) -> Val {
        if let Some(value) = self.frames.iter().rev().find_map(|frame| frame.get(name)) {
            return value.clone();
        }
        match self.vars.get(name) {
            Some(value) => Val::Json(value.clone()),
            None if name == "env" => Val::Json(self.env.clone()),
            None => match globals::NAMES.into_iter().find(|global| *global == name) {
                Some(global) => Val::Global(global),
                None => Val::Undefined,
            },
        }
    }

    /// A plain path to a variable, without copying what it leads to.
    fn borrow(&self, expr: &Expr) -> Option<&Value> {
        match expr {
            Expr::Name(name) => {
                if self.frames.iter().any(|frame| frame.contains_key(name)) {
                    return None;
                }
                self.vars.get(name).or_else(|| (name == "env").then_some(self.env))
            }
            Expr::Member(of, key) => match (self.borrow(of)?, &**key) {
                (Value::Object(map), Expr::Literal(Value::String(key))) => map.get(key),
                (Value::Array(items), Expr::Literal(Value::Number(n))) => items.get(n.as_u64()? as usize),
                _ => None,
            },
            _ => None,
        }
    }

    fn all(&mut self, exprs: &[Expr]) -> Done<Vec<Val>> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    fn eval(&mut self, expr: &Expr) -> Done<Val> {
        if let Some(value) = self.borrow(expr) {
            return Ok(Val::Json(value.clone()));
        }
        Ok(match expr {
            Expr::Literal(value) => Val::Json(value.clone()),
            Expr::Regex(body, flags) => Val::Regex(body.clone(), flags.clone()),
            Expr::Name(name) => self.lookup(name),
            Expr::Member(of, key) => {
                let of = self.eval(of)?;
                let key = self.eval(key)?.into_json();
                of.member(&key)
            }
            Expr::Call(what, arguments, named) => {
                let target = self.eval(what)?;
                let arguments = self.all(arguments)?;
                let named = self.named(named)?;
                self.call(target, arguments, named)?
            }
            Expr::Filter(of, name, arguments, named) => {
                let of = self.eval(of)?;
                let arguments = self.all(arguments)?;
                let named = self.named(named)?.into_iter().map(|(key, val)| (key, val.into_json())).collect();
                self.filter(name, of, &arguments, &named)?
            }
            Expr::Test(of, name, arguments, negated) => {
                let of = self.eval(of)?;
                let arguments = self.all(arguments)?;
                Val::from(filters::test(name, &of, &arguments)? != *negated)
            }
            Expr::List(items) => {
                Val::Json(Value::Array(self.all(items)?.into_iter().map(Val::into_json).collect()))
            }
            Expr::Dict(entries) => {
                let mut map = Object::new();
                for (key, value) in entries {
                    let key = self.eval(key)?.to_text();
                    map.insert(key, self.eval(value)?.into_json());
                }
                Val::Json(Value::Object(map))
            }
            Expr::Unary(operator, of) => {
                let of = self.eval(of)?;
                match operator {
                    Unary::Not => Val::from(!of.truthy()),
                    Unary::Minus => value::arithmetic(-of.to_number()),
                    Unary::Plus => value::arithmetic(of.to_number()),
                }
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right)?,
            Expr::Inline { then, condition, otherwise } => {
                if self.eval(condition)?.truthy() {
                    self.eval(then)?
                } else {
                    match otherwise {
                        Some(otherwise) => self.eval(otherwise)?,
                        None => Val::from(String::new()),
                    }
                }
            }
        })
    }

    /// A filter of the configuration, else of the language.
    fn filter(&self, name: &str, of: Val, arguments: &[Val], named: &Object) -> Done<Val> {
        let Some(module) = self.filters.get(name) else { return filters::apply(name, of, arguments, named) };
        let module = module.replace("export default ", "module.exports = ");
        let code = format!(
            "(...all) => {{ const module = {{ exports: {{}} }}; let exports = module.exports;\n{module}\n\
             const found = module.exports.default ?? module.exports; return found(...all) }}"
        );
        let mut all = vec![of.into_json()];
        all.extend(arguments.iter().cloned().map(Val::into_json));
        crate::javascript::call(&code, &all)
            .map(Val::Json)
            .map_err(|problem| error(format!("the filter `{name}` failed: {problem}")))
    }

    fn named(&mut self, named: &[(String, Expr)]) -> Done<Vec<(String, Val)>> {
        named.iter().map(|(name, expr)| Ok((name.clone(), self.eval(expr)?))).collect()
    }

    fn binary(&mut self, operator: Binary, left: &Expr, right: &Expr) -> Done<Val> {
        let left = self.eval(left)?;
        match operator {
            Binary::Or if left.truthy() => return Ok(left),
            Binary::And if !left.truthy() => return Ok(left),
            _ => {}
        }
        let right = self.eval(right)?;
        let ordered = |wanted: fn(std::cmp::Ordering) -> bool| {
            Val::from(value::compare(&left, &right).is_some_and(wanted))
        };
        let (a, b) = (left.to_number(), right.to_number());
        Ok(match operator {
            Binary::Or | Binary::And => right,
            Binary::In | Binary::NotIn => match methods::contains(&right, &left) {
                Some(found) => Val::from(found == (operator == Binary::In)),
                None => {
                    let needle = left.to_text();
                    return Err(error(format!(
                        "cannot use \"in\" operator to search for \"{needle}\" in unexpected types"
                    )));
                }
            },
            Binary::Equal => Val::from(value::loosely_equal(&left, &right)),
            Binary::NotEqual => Val::from(!value::loosely_equal(&left, &right)),
            Binary::Identical => Val::from(value::identical(&left, &right)),
            Binary::NotIdentical => Val::from(!value::identical(&left, &right)),
            Binary::Less => ordered(std::cmp::Ordering::is_lt),
            Binary::Greater => ordered(std::cmp::Ordering::is_gt),
            Binary::LessOrEqual => ordered(std::cmp::Ordering::is_le),
            Binary::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
            Binary::Concat => Val::from(left.to_text() + &right.to_text()),
            Binary::Add => value::add(&left, &right),
            Binary::Subtract => value::arithmetic(a - b),
            Binary::Multiply => value::arithmetic(a * b),
            Binary::Divide => value::arithmetic(a / b),
            Binary::FloorDivide => value::arithmetic((a / b).floor()),
            Binary::Remainder => value::arithmetic(a % b),
            Binary::Power => value::arithmetic(a.powf(b)),
        })
    }

    fn call(&mut self, target: Val, arguments: Vec<Val>, named: Vec<(String, Val)>) -> Done<Val> {
        match target {
            Val::Macro(found) => self.call_macro(&found, arguments, named),
            // The macros of a file may call each other.
            Val::Imported(found, module) => {
                self.frames.push((*module).clone());
                let called = self.call_macro(&found, arguments, named);
                self.frames.pop();
                called
            }
            Val::Method(of, name) => Ok(match *of {
                Val::Changing(of) => of.borrow_mut().call_method(&name),
                of => methods::call(&of, &name, &arguments),
            }),
            Val::Global(name) => Ok(globals::call(name, arguments)),
            Val::Changing(of) => of.borrow_mut().call().ok_or_else(not_a_function),
            _ => Err(not_a_function()),
        }
    }

    fn call_macro(&mut self, found: &Macro, arguments: Vec<Val>, named: Vec<(String, Val)>) -> Done<Val> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(error("macros call each other too deeply"));
        }
        let mut frame = HashMap::new();
        let mut arguments = arguments.into_iter();
        for (name, default) in &found.parameters {
            let given = match arguments.next() {
                Some(value) => Some(value),
                None => named.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()),
            };
            let value = match (given, default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default)?,
                (None, None) => Val::Undefined,
            };
            frame.insert(name.clone(), value);
        }
        if let Some((_, caller)) = named.into_iter().find(|(name, _)| name == "caller") {
            frame.insert("caller".to_owned(), caller);
        }
        self.frames.push(frame);
        let mut text = String::new();
        let ran = self.run(&found.body, &mut text);
        self.frames.pop();
        self.calls -= 1;
        ran.map(|()| Val::from(text))
    }
}

fn not_a_function() -> TemplateError {
    error("unable to call something that is undefined or no function")
}

fn error(message: impl Into<String>) -> TemplateError {
    TemplateError { message: message.into(), line: 0 }
}

//! Files that a template includes and imports.

use std::collections::HashMap;
use std::rc::Rc;

use super::super::syntax::Expr;
use super::super::value::Val;
use super::{Done, Interpreter, error};
use crate::model::Object;

impl Interpreter<'_> {
    /// Prints another file, which sees all names and sets none of them.
    pub(super) fn include(&mut self, file: &Expr, optional: bool, out: &mut String) -> Done<()> {
        let name = self.eval(file)?.to_text();
        let Some(opened) = self.files.open(&name)? else {
            return if optional { Ok(()) } else { Err(error(format!("template not found: {name}"))) };
        };
        let floor = std::mem::replace(&mut self.floor, self.frames.len());
        self.frames.push(HashMap::new());
        let ran = self.run(&opened, out);
        self.frames.pop();
        self.floor = floor;
        self.files.close();
        ran
    }

    /// Returns the macros and the names that another file defines, apart from those that begin with `_`.
    pub(super) fn module(&mut self, file: &Expr, with_context: bool) -> Done<Rc<HashMap<String, Val>>> {
        let name = self.eval(file)?.to_text();
        let Some(opened) = self.files.open(&name)? else {
            return Err(error(format!("template not found: {name}")));
        };
        let none = Object::new();
        let mut inner = Interpreter {
            vars: if with_context { self.vars } else { &none },
            env: self.env,
            filters: self.filters,
            frames: if with_context { self.frames.clone() } else { Vec::new() },
            floor: 0,
            calls: self.calls,
            files: self.files.clone(),
        };
        inner.floor = inner.frames.len();
        inner.frames.push(HashMap::new());
        let ran = inner.run(&opened, &mut String::new());
        let mut defined = inner.frames.pop().unwrap_or_default();
        self.files.close();
        ran?;
        defined.retain(|name, _| !name.starts_with('_'));
        Ok(Rc::new(defined))
    }
}

//! Rooms: the top-level modules of a crate. `rooms.toml` puts each on a floor, and a room may import what is on lower floors only, so
//! that no two rooms can need each other. Imports are read from the source text; code that only tests and fuzzers compile is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Deserialize;

/// Directions of each crate, from `rooms.toml`.
pub type Houses = BTreeMap<String, House>;

/// The section of one crate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct House {
    /// Crates of the workspace that it imports.
    #[serde(default)]
    pub imports: Vec<String>,
    /// Other packages that it must not list.
    #[serde(default)]
    pub never: Vec<String>,
    /// Rooms from top to bottom. Rooms on one floor do not import each other.
    floors: Vec<Vec<String>>,
    /// Arrows that the floors forbid and a reason permits.
    #[serde(default)]
    except: Vec<Exception>,
}

/// An arrow that is permitted although it leads up or sideways.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    from: String,
    to: String,
    reason: String,
}

/// Imports from one room to another, each with a file and line where it is written.
type Arrows = BTreeMap<(String, String), String>;

/// Refuses an arrow that the floors of `rooms.toml` forbid, and a room without a floor.
pub fn check(root: &Path) -> Result<()> {
    let houses = read(root)?;
    let mut broken = Vec::new();
    for (name, sources) in crates(root)? {
        match houses.get(&name) {
            Some(house) => broken.extend(problems(&name, house, &Plan::read(&sources)?)),
            None => broken.push(format!("rooms.toml has no section for the crate {name}")),
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("{}", broken.join("\n")) }
}

/// Prints the rooms, arrows and circles of every crate, or of `only`.
pub fn print(root: &Path, only: Option<&str>) -> Result<()> {
    for (name, sources) in crates(root)? {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let plan = Plan::read(&sources)?;
        let circles = plan.circles();
        println!(
            "{name}: {} rooms, {} arrows, {} circles",
            plan.rooms.len(),
            plan.arrows.len(),
            circles.len()
        );
        for room in &plan.rooms {
            let to: Vec<&str> =
                plan.arrows.keys().filter(|(from, _)| from == room).map(|(_, to)| to.as_str()).collect();
            println!("  {room}{}{}", if to.is_empty() { "" } else { " -> " }, to.join(", "));
        }
        for circle in circles {
            println!("  circle: {}", circle.join(", "));
        }
    }
    Ok(())
}

/// Reads `rooms.toml`.
pub fn read(root: &Path) -> Result<Houses> {
    let text = std::fs::read_to_string(root.join("rooms.toml")).context("failed to read rooms.toml")?;
    toml::from_str(&text).context("rooms.toml is not valid")
}

/// The crates of the workspace that have rooms, with the directories of their sources.
pub fn crates(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let entry = entry?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path().join("src")));
    }
    found.sort();
    Ok(found)
}

/// Violations in one crate, a sentence each.
fn problems(name: &str, house: &House, plan: &Plan) -> Vec<String> {
    let mut floor_of = BTreeMap::new();
    let mut problems = Vec::new();
    for (number, floor) in house.floors.iter().enumerate() {
        for room in floor {
            if floor_of.insert(room.as_str(), number).is_some() {
                problems.push(format!("{name}: rooms.toml has the room {room} on two floors"));
            }
            if !plan.rooms.contains(room) {
                problems.push(format!("{name}: rooms.toml names {room}, and the crate has no such module"));
            }
        }
    }
    for room in &plan.rooms {
        if !floor_of.contains_key(room.as_str()) {
            problems.push(format!("{name}: the room {room} has no floor in rooms.toml"));
        }
    }
    for ((from, to), place) in &plan.arrows {
        let (Some(above), Some(below)) = (floor_of.get(from.as_str()), floor_of.get(to.as_str())) else {
            continue;
        };
        let excepted =
            house.except.iter().any(|e| &e.from == from && &e.to == to && !e.reason.trim().is_empty());
        if above >= below && !excepted {
            let way = if above == below { "sideways" } else { "up" };
            problems.push(format!("{name}: {from} imports {to}, which leads {way} in rooms.toml ({place})"));
        }
    }
    for e in &house.except {
        if !plan.arrows.contains_key(&(e.from.clone(), e.to.clone())) {
            problems.push(format!("{name}: rooms.toml permits {} -> {}, which nobody needs", e.from, e.to));
        }
    }
    problems
}

/// The rooms of one crate and the imports between them.
struct Plan {
    rooms: BTreeSet<String>,
    arrows: Arrows,
}

impl Plan {
    fn read(sources: &Path) -> Result<Self> {
        let mut files = Vec::new();
        list(sources, &mut files)?;
        let mut parsed = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file)?;
            let tokens: TokenStream =
                text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
            let inside = file.strip_prefix(sources)?.with_extension("");
            let mut module: Vec<String> =
                inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            parsed.push((file, module, tokens));
        }
        // The roots come first: they say what is compiled for tests only, and which names the crate exports again.
        let mut scan = Scan::default();
        let is_root = |module: &[String]| matches!(module, [name] if name == "lib" || name == "main");
        parsed.sort_by_key(|(_, module, _)| (!is_root(module), module.len()));
        let mut rooms = BTreeSet::new();
        for (file, module, tokens) in &parsed {
            if is_root(module) {
                scan.file(file, &[], tokens);
            } else if !scan.skipped.iter().any(|skipped| module.starts_with(skipped)) {
                if module[0] != "bin" {
                    rooms.insert(module[0].clone());
                }
                scan.file(file, module, tokens);
            }
        }
        let mut arrows = Arrows::new();
        for (from, name, place) in scan.found {
            let to = if rooms.contains(&name) { Some(&name) } else { scan.exported.get(&name) };
            if let Some(to) = to.filter(|to| **to != from && rooms.contains(*to)) {
                arrows.entry((from, to.clone())).or_insert(place);
            }
        }
        Ok(Self { rooms, arrows })
    }

    /// Groups of rooms that reach each other.
    fn circles(&self) -> Vec<Vec<&str>> {
        let mut circles: Vec<Vec<&str>> = Vec::new();
        for room in &self.rooms {
            if circles.iter().flatten().any(|known| known == room) {
                continue;
            }
            let reached = self.reached(room);
            let circle: Vec<&str> =
                reached.iter().filter(|other| self.reached(other).contains(room.as_str())).copied().collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles
    }

    fn reached(&self, room: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut next = vec![room];
        while let Some(room) = next.pop() {
            for (_, to) in self.arrows.keys().filter(|(from, _)| from == room) {
                if reached.insert(to.as_str()) {
                    next.push(to);
                }
            }
        }
        reached
    }
}

/// Adds the Rust files below a directory.
pub fn list(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The state of a walk through the tokens of a crate.
#[derive(Default)]
struct Scan {
    file: PathBuf,
    /// Importing room, first name of the path below the crate's root, place.
    found: Vec<(String, String, String)>,
    /// Names that the root exports again, with the room they come from.
    exported: BTreeMap<String, String>,
    /// Modules that only tests and fuzzers compile.
    skipped: Vec<Vec<String>>,
}

impl Scan {
    fn file(&mut self, file: &Path, module: &[String], tokens: &TokenStream) {
        file.clone_into(&mut self.file);
        self.walk(module, tokens);
    }

    fn walk(&mut self, module: &[String], tokens: &TokenStream) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        let mut for_tests = false;
        while at < tokens.len() {
            match &tokens[at..] {
                [TokenTree::Punct(p), TokenTree::Group(attribute), ..]
                    if p.as_char() == '#' && attribute.delimiter() == Delimiter::Bracket =>
                {
                    for_tests |= is_for_tests(attribute.stream());
                    at += 2;
                    continue;
                }
                rest if for_tests => {
                    let end = end_of_item(rest);
                    if let Some(name) = declared_module(&rest[..end]) {
                        self.skipped.push([module, &[name]].concat());
                    }
                    at += end;
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(body), ..]
                    if word == "mod" =>
                {
                    self.walk(&[module, &[name.to_string()]].concat(), &body.stream());
                    at += 3;
                }
                [TokenTree::Ident(word), ..] if module.is_empty() && word == "use" => {
                    let end = end_of_item(&tokens[at..]);
                    self.export(&tokens[at + 1..at + end]);
                    at += end;
                }
                [TokenTree::Ident(word), ..] if word == "crate" || word == "super" => {
                    at += self.path(module, &tokens[at..]);
                }
                [TokenTree::Group(group), ..] => {
                    self.walk(module, &group.stream());
                    at += 1;
                }
                _ => at += 1,
            }
            for_tests = false;
        }
    }

    /// Reads a path that begins with `crate` or `super`; returns how many tokens its beginning takes.
    fn path(&mut self, module: &[String], tokens: &[TokenTree]) -> usize {
        let mut base = module;
        let mut at = 0;
        while let [TokenTree::Ident(word), TokenTree::Punct(a), TokenTree::Punct(b), ..] = &tokens[at..] {
            if a.as_char() != ':' || b.as_char() != ':' {
                break;
            }
            match word.to_string().as_str() {
                "crate" => base = &[],
                "super" => base = &base[..base.len().saturating_sub(1)],
                _ => break,
            }
            at += 3;
        }
        if base.is_empty() && at > 0 && !module.is_empty() {
            match tokens.get(at) {
                Some(TokenTree::Ident(name)) => self.note(&module[0], name),
                Some(TokenTree::Group(group)) => {
                    let mut first = true;
                    for token in group.stream() {
                        match &token {
                            TokenTree::Ident(name) if first => {
                                self.note(&module[0], name);
                                first = false;
                            }
                            TokenTree::Punct(p) if p.as_char() == ',' => first = true,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        at.max(1)
    }

    fn note(&mut self, from: &str, name: &proc_macro2::Ident) {
        let place = format!("{}:{}", self.file.display(), name.span().start().line);
        self.found.push((from.to_owned(), name.to_string(), place));
    }

    /// Notes the names that `use room::{A, B as C};` makes the root export.
    fn export(&mut self, path: &[TokenTree]) {
        let Some(TokenTree::Ident(room)) = path.first() else { return };
        let room = room.to_string();
        let mut names = Vec::new();
        leaves(path, &mut names);
        self.exported.extend(names.into_iter().map(|name| (name, room.clone())));
    }
}

/// The names that a `use` brings in: the last word of each path in it.
fn leaves(path: &[TokenTree], names: &mut Vec<String>) {
    let mut last = None;
    for token in path {
        match token {
            TokenTree::Ident(name) => last = Some(name.to_string()),
            TokenTree::Group(group) => {
                last = None;
                leaves(&group.stream().into_iter().collect::<Vec<_>>(), names);
            }
            TokenTree::Punct(p) if p.as_char() == ',' => names.extend(last.take()),
            _ => {}
        }
    }
    names.extend(last);
}

fn is_for_tests(attribute: TokenStream) -> bool {
    let text = attribute.to_string();
    text.starts_with("cfg") && !text.contains("not") && (text.contains("test") || text.contains("fuzzing"))
}

/// How many tokens the item at the beginning of `tokens` takes.
fn end_of_item(tokens: &[TokenTree]) -> usize {
    let is_use = matches!(tokens.first(), Some(TokenTree::Ident(word)) if word == "use");
    tokens
        .iter()
        .position(|token| match token {
            TokenTree::Punct(p) => p.as_char() == ';',
            TokenTree::Group(group) => !is_use && group.delimiter() == Delimiter::Brace,
            _ => false,
        })
        .map_or(tokens.len(), |end| end + 1)
}

/// The name in `mod name;` or `pub mod name;`.
fn declared_module(item: &[TokenTree]) -> Option<String> {
    item.windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "mod" => Some(name.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOORS: &str = "[house]\nfloors = [['top'], ['middle', 'beside'], ['bottom']]\n";

    /// The complaints about a crate with these files.
    fn complaints(rules: &str, files: &[(&str, &str)]) -> String {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("rooms.toml"), rules).unwrap();
        let sources = root.path().join("crates/house/src");
        for (name, text) in [
            ("lib.rs", "mod top; mod middle; mod beside; mod bottom; pub use bottom::deep::{Ground as Floor, Cellar};"),
            ("top.rs", "use crate::middle::Door; fn f() { g!(crate::bottom::x()) }"),
            ("middle/mod.rs", "mod inner; use crate::{Cellar, bottom};"),
            ("middle/inner.rs", "use super::Door; use super::super::bottom::Stairs;"),
            ("beside.rs", "#[cfg(test)] mod tests { use crate::top::Roof; }"),
            ("bottom.rs", "#[cfg(test)] use crate::top::Roof;"),
        ]
        .iter()
        .chain(files)
        {
            let path = sources.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        check(root.path()).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn imports_from_lower_floors_are_fine() {
        assert_eq!(complaints(FLOORS, &[]), "");
    }

    #[test]
    fn an_arrow_up_is_refused_with_its_place() {
        let told = complaints(FLOORS, &[("bottom.rs", "\nfn f() { crate::top::g() }")]);
        assert!(told.contains("house: bottom imports top, which leads up"), "{told}");
        assert!(told.contains("bottom.rs:2"), "{told}");
        let told = complaints(FLOORS, &[("middle/inner.rs", "use super::super::{bottom::{A, B}, top::C};")]);
        assert!(told.contains("middle imports top"), "{told}");
    }

    #[test]
    fn rooms_side_by_side_stay_apart() {
        let told = complaints(FLOORS, &[("beside.rs", "use crate::middle;")]);
        assert!(told.contains("beside imports middle, which leads sideways"), "{told}");
    }

    #[test]
    fn names_that_the_root_exports_again_count() {
        let told = complaints(FLOORS, &[("lib.rs", "pub use top::Roof;"), ("bottom.rs", "use crate::Roof;")]);
        assert!(told.contains("bottom imports top"), "{told}");
    }

    #[test]
    fn every_room_has_a_floor() {
        let told = complaints(FLOORS, &[("attic.rs", "")]);
        assert!(told.contains("the room attic has no floor"), "{told}");
        let told = complaints("[house]\nfloors = [['top', 'gone'], ['middle'], ['bottom', 'beside']]", &[]);
        assert!(told.contains("names gone"), "{told}");
    }

    #[test]
    fn an_exception_needs_a_reason_and_a_use() {
        let except = |reason: &str| {
            format!("{FLOORS}[[house.except]]\nfrom = 'beside'\nto = 'middle'\nreason = '{reason}'\n")
        };
        let arrow = [("beside.rs", "use crate::middle;")];
        assert_eq!(complaints(&except("the two are one subject"), &arrow), "");
        assert!(complaints(&except(""), &arrow).contains("sideways"));
        assert!(complaints(&except("the two are one subject"), &[]).contains("nobody needs"));
    }
}

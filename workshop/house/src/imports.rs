//! Which file of a crate imports which, by every path in it that leads into the crate: `use` and others. What
//! the file of a folder exports is followed to the file that defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::source::{Crate, Source, is_root};
use crate::tokens::{Token, after_group};

type ModulePath = Vec<String>;

/// Exports are followed so far.
const DEPTH: usize = 16;

#[derive(Default)]
struct Module {
    file: String,
    /// Names that come from elsewhere: the path, as it stands in the module.
    names: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    defined: BTreeSet<String>,
    /// Paths that its code follows, and whether they are exports.
    paths: Vec<(Vec<String>, bool)>,
}

/// The imports of one crate.
pub struct Imports {
    modules: BTreeMap<ModulePath, Module>,
    edges: BTreeSet<(String, String)>,
}

impl Imports {
    /// Reads a crate, without files of tests and programs.
    pub fn read(krate: &Crate) -> Self {
        let tests = test_files(krate);
        let mut imports = Self { modules: BTreeMap::new(), edges: BTreeSet::new() };
        for source in &krate.sources {
            if !tests.contains(&source.path) && !source.path.starts_with("bin/") {
                imports.read_file(source);
            }
        }
        imports.link();
        imports
    }

    /// Importing file, imported file.
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.edges.iter().map(|(from, to)| (&**from, &**to))
    }

    fn read_file(&mut self, source: &Source) {
        let path = if is_root(&source.path) { Vec::new() } else { split(&source.path) };
        Reader { source, tokens: &source.code, modules: &mut self.modules }
            .module(path, 0..source.code.len());
    }

    fn link(&mut self) {
        let mut edges = BTreeSet::new();
        for (at, module) in self.modules.iter().filter(|(_, module)| !is_root(&module.file)) {
            for (path, exported) in &module.paths {
                let Some(to) = self.resolve(at, path, DEPTH) else { continue };
                let to_file = &self.modules[&to].file;
                let is_door = *exported && to.starts_with(at);
                if *to_file != module.file && !is_door {
                    edges.insert((module.file.clone(), to_file.clone()));
                }
            }
        }
        self.edges = edges;
    }

    /// The module that a path leads to: the one that defines what it names. `None` of another crate's.
    fn resolve(&self, at: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let depth = depth.checked_sub(1)?;
        let mut module = at.clone();
        let mut rest = path;
        while let Some(first) = rest.first() {
            match &**first {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                _ => break,
            }
            rest = &rest[1..];
        }
        let relative = rest.len() == path.len();
        for (i, name) in rest.iter().enumerate() {
            let child: ModulePath = module.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            let there = self.modules.get(&module)?;
            if let Some(from) = there.names.get(name).filter(|from| from[..] != path[..]) {
                module = self.resolve(&module, from, depth)?;
                continue;
            }
            if there.defined.contains(name) {
                return Some(module);
            }
            let glob = there.globs.iter().find_map(|glob| self.through(&module, glob, name, depth));
            return match glob {
                Some(found) => Some(found),
                None if relative && i == 0 => None,
                None => Some(module),
            };
        }
        (!relative || module != *at).then_some(module)
    }

    /// The module that defines a name which a glob may bring.
    fn through(&self, at: &ModulePath, glob: &[String], name: &str, depth: usize) -> Option<ModulePath> {
        let from = self.resolve(at, glob, depth)?;
        let there = self.modules.get(&from)?;
        if there.defined.contains(name) {
            return Some(from);
        }
        let path = there.names.get(name)?;
        self.resolve(&from, path, depth)
    }

    /// Files that import each other, over however many others.
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let files: BTreeSet<&str> = self.edges().flat_map(|(from, to)| [from, to]).collect();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            files.iter().map(|file| (*file, self.reached(file))).collect();
        let mut circles = BTreeSet::new();
        for file in &files {
            let circle: BTreeSet<String> = reached[file]
                .iter()
                .filter(|other| reached[*other].contains(file))
                .map(|other| (*other).to_owned())
                .collect();
            circles.extend((circle.len() > 1).then_some(circle));
        }
        circles.into_iter().collect()
    }

    /// Every file that imports lead to from one.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let fresh = self.edges().filter(|(from, to)| *from == file && !reached.contains(to));
            let fresh: Vec<&str> = fresh.map(|(_, to)| to).collect();
            reached.extend(&fresh);
            next.extend(fresh);
        }
        reached
    }

    /// Lists the imports between the files of a circle.
    pub fn within(&self, circle: &BTreeSet<String>) -> String {
        let mut text = String::new();
        for (from, to) in self.edges().filter(|(from, to)| circle.contains(*from) && circle.contains(*to)) {
            writeln!(text, "    {from} imports {to}").expect("a string takes everything");
        }
        text
    }
}

fn split(path: &str) -> ModulePath {
    path.split('/').map(str::to_owned).collect()
}

/// Files that only tests compile.
fn test_files(krate: &Crate) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for source in &krate.sources {
        let folder = if is_root(&source.path) { String::new() } else { format!("{}/", source.path) };
        files.extend(source.test_modules().into_iter().map(|name| format!("{folder}{name}")));
    }
    files
}

/// Reads the modules of one file.
struct Reader<'a> {
    source: &'a Source,
    tokens: &'a [Token],
    modules: &'a mut BTreeMap<ModulePath, Module>,
}

impl Reader<'_> {
    fn module(&mut self, path: ModulePath, range: std::ops::Range<usize>) {
        let mut module = Module { file: self.source.path.clone(), ..Module::default() };
        let mut at = range.start;
        while at < range.end {
            at = self.next(&path, &mut module, at);
        }
        self.modules.insert(path, module);
    }

    /// Reads what begins at `at`, and gives where the next thing begins.
    fn next(&mut self, path: &ModulePath, module: &mut Module, at: usize) -> usize {
        let Some(word) = self.tokens[at].word() else { return at + 1 };
        let following = self.tokens.get(at + 1);
        match (word, following) {
            ("use", Some(Token::Sign('<'))) => at + 1,
            ("use", _) => self.import(module, at),
            ("mod", Some(Token::Word(name))) if self.tokens.get(at + 2) == Some(&Token::Open('{')) => {
                let end = after_group(self.tokens, at + 2);
                let inner = path.iter().chain([name]).cloned().collect();
                self.module(inner, at + 3..end - 1);
                end
            }
            (
                "struct" | "enum" | "fn" | "trait" | "type" | "const" | "static" | "union" | "mod",
                Some(Token::Word(name)),
            ) => {
                module.defined.insert(name.clone());
                at + 2
            }
            ("macro_rules", Some(Token::Sign('!'))) => {
                module.defined.extend(self.tokens.get(at + 2).and_then(Token::word).map(str::to_owned));
                at + 3
            }
            _ => self.path(module, at),
        }
    }

    fn is_path_sign(&self, at: usize) -> bool {
        self.tokens.get(at) == Some(&Token::Sign(':')) && self.tokens.get(at + 1) == Some(&Token::Sign(':'))
    }

    /// A path outside `use`, if one begins here.
    fn path(&self, module: &mut Module, start: usize) -> usize {
        let continues = start >= 2 && self.is_path_sign(start - 2);
        let mut at = start;
        let mut words = vec![self.tokens[at].word().expect("looked at").to_owned()];
        while self.is_path_sign(at + 1) {
            let Some(word) = self.tokens.get(at + 3).and_then(Token::word) else { break };
            words.push(word.to_owned());
            at += 3;
        }
        if words.len() > 1 && !continues {
            module.paths.push((words, false));
        }
        at + 1
    }

    /// A `use`, up to its semicolon.
    fn import(&self, module: &mut Module, start: usize) -> usize {
        let exported = match start.checked_sub(1).map(|before| &self.tokens[before]) {
            Some(Token::Word(word)) => word == "pub",
            Some(Token::Close(')')) => true,
            _ => false,
        };
        let mut at = start + 1;
        if self.is_path_sign(at) {
            at += 2;
        }
        let end = self.tokens[at..].iter().position(|token| *token == Token::Sign(';'));
        let end = at + end.expect("a `use` has its end");
        self.tree(module, exported, &[], at..end);
        end + 1
    }

    fn tree(&self, module: &mut Module, exported: bool, prefix: &[String], range: std::ops::Range<usize>) {
        let mut words = prefix.to_vec();
        let mut at = range.start;
        let mut alias = None;
        while at < range.end {
            match &self.tokens[at] {
                Token::Word(word) if word == "as" => {
                    alias = self.tokens[at + 1].word().map(str::to_owned);
                    at += 2;
                }
                Token::Word(word) => {
                    words.push(word.clone());
                    at += 1;
                }
                Token::Sign('*') => {
                    module.globs.push(words.clone());
                    module.paths.push((words.clone(), exported));
                    words.clear();
                    at += 1;
                }
                Token::Sign(',') => {
                    record(module, exported, prefix, &words, alias.take());
                    words = prefix.to_vec();
                    at += 1;
                }
                Token::Open('{') => {
                    let end = after_group(self.tokens, at);
                    self.tree(module, exported, &words, at + 1..end - 1);
                    words.clear();
                    at = end;
                }
                _ => at += 1,
            }
        }
        record(module, exported, prefix, &words, alias);
    }
}

/// Notes one name that a `use` brings.
fn record(module: &mut Module, exported: bool, prefix: &[String], words: &[String], alias: Option<String>) {
    if words.len() <= prefix.len() {
        return;
    }
    let mut path = words.to_vec();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    let Some(name) = alias.or_else(|| path.last().cloned()) else { return };
    module.paths.push((path.clone(), exported));
    module.names.insert(name, path);
}

//! The source files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tokens::{self, Token};

/// A crate of the workspace.
pub struct Crate {
    /// Of its package: `pagepool-net`.
    pub name: String,
    /// From the workspace: `crates/pagepool-net/src`.
    pub folder: String,
    /// Its files below `src`.
    pub sources: Vec<Source>,
}

/// A source file.
pub struct Source {
    /// From `src`, without `.rs`: `mem/arena/buddy`.
    pub path: String,
    /// All of it.
    pub text: String,
    /// All words and signs.
    pub tokens: Vec<Token>,
    /// The words and signs without unit tests.
    pub code: Vec<Token>,
}

/// Whether a file is the root of a crate.
pub fn is_root(path: &str) -> bool {
    ["lib", "main"].contains(&path) || path.starts_with("bin/")
}

/// Whether the first part of a path is the root of a crate.
pub fn is_root_layer(top: &str) -> bool {
    ["lib", "main", "bin"].contains(&top)
}

/// The folder of the repository.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Crate {
    /// All crates, published or not, by name.
    pub fn all() -> Vec<Self> {
        let mut crates: Vec<_> = ["crates", "workshop"].into_iter().flat_map(Self::below).collect();
        crates.sort_by(|a, b| a.name.cmp(&b.name));
        crates
    }

    fn below(folder: &str) -> Vec<Self> {
        let entries = fs::read_dir(workspace().join(folder)).expect("a folder of the workspace");
        let names = entries.map(|entry| entry.expect("it is being listed").file_name());
        let paths = names.map(|name| format!("{folder}/{}", name.to_string_lossy()));
        paths.filter_map(|path| Self::read(&path)).collect()
    }

    /// `None` of a folder that is no crate.
    fn read(path: &str) -> Option<Self> {
        let (folder, at) = (format!("{path}/src"), workspace().join(path));
        let src = at.join("src");
        let manifest = fs::read_to_string(at.join("Cargo.toml")).ok().filter(|_| src.exists())?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let mut sources: Vec<_> = rust_files(&src).iter().map(|path| Source::read(path, &src)).collect();
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Some(Self { name: name.expect("a package has a name").to_owned(), folder, sources })
    }
}

/// The files of the repository that end so, without what builds and the fuzzer left there.
pub fn files_with(extensions: &[&str]) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![workspace()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("it is being listed").path();
            let name = path.file_name().expect("it is being listed").to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && !["target", "corpus", "artifacts"].contains(&&*name)
            {
                folders.push(path);
            } else if path.extension().is_some_and(|end| extensions.iter().any(|e| end == *e)) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the crate");
    let paths = entries.map(|entry| entry.expect("it is being listed").path());
    let (folders, files): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
    files.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}

impl Source {
    fn read(at: &Path, src: &Path) -> Self {
        let text = fs::read_to_string(at).expect("a source file");
        let path = at.strip_prefix(src).expect("it is in src").with_extension("");
        let path = path.to_string_lossy().into_owned();
        let tokens = tokens::all(&text, &path);
        let (code, _) = tokens::without_tests(&tokens);
        Self { path, text, tokens, code }
    }

    /// The modules that only tests compile.
    pub fn test_modules(&self) -> Vec<String> {
        tokens::without_tests(&self.tokens).1
    }

    /// Blocks, functions and implementations, and attributes such as `#[unsafe(no_mangle)]`.
    pub fn is_unsafe(&self) -> bool {
        let opens = |next: &Token| {
            matches!(next, Token::Open('{' | '('))
                || ["fn", "impl", "trait", "extern"].iter().any(|word| next.is(word))
        };
        self.code.windows(2).any(|pair| pair[0].is("unsafe") && opens(&pair[1]))
    }

    /// Whether code names a crate.
    pub fn names(&self, krate: &str) -> bool {
        self.code.windows(2).any(|pair| pair[0].is(krate) && matches!(pair[1], Token::Sign(':' | ';')))
    }

    /// Lines of code: no comments, no blank lines, nothing from the unit tests on, which stand last.
    pub fn code_lines(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_tests = |pair: &[&str]| pair[0].starts_with("#[cfg(") && pair[1].starts_with("mod tests");
        let end = lines.windows(2).position(is_tests).unwrap_or(lines.len());
        let attributes = lines[..end].iter().rev().take_while(|line| line.starts_with("#[")).count();
        let code = lines[..end - attributes].iter().map(|line| line.split("//").next().unwrap_or("").trim());
        code.filter(|line| !line.is_empty()).count()
    }
}

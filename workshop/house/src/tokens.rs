//! The words and signs of a source file, without comments.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A word or sign.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name or a keyword.
    Word(String),
    /// A sign. A literal counts as the sign `0`.
    Sign(char),
    /// A bracket that opens a group.
    Open(char),
    /// A bracket that closes a group.
    Close(char),
}

impl Token {
    /// The word, if it is one.
    pub fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Whether it is this word.
    pub fn is(&self, word: &str) -> bool {
        self.word() == Some(word)
    }
}

/// All of a file.
pub fn all(text: &str, path: &str) -> Vec<Token> {
    let stream = TokenStream::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        match tree {
            TokenTree::Ident(word) => tokens.push(Token::Word(word.to_string())),
            TokenTree::Punct(sign) => tokens.push(Token::Sign(sign.as_char())),
            TokenTree::Literal(_) => tokens.push(Token::Sign('0')),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::None => (' ', ' '),
                };
                tokens.push(Token::Open(open));
                flatten(group.stream(), tokens);
                tokens.push(Token::Close(close));
            }
        }
    }
}

/// Splits a file into what is compiled without tests, and the names of the modules that are not.
pub fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut test_modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let start = after_attributes(tokens, at);
        at = after_item(tokens, start);
        let item = &tokens[start..at];
        if let [.., Token::Word(keyword), Token::Word(name), Token::Sign(';')] = item
            && keyword == "mod"
        {
            test_modules.push(name.clone());
        }
    }
    (kept, test_modules)
}

/// `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_test_attribute(tokens: &[Token]) -> bool {
    let [Token::Sign('#'), Token::Open('['), cfg, Token::Open('('), first, rest @ ..] = tokens else {
        return false;
    };
    let all = first.is("all") && rest.iter().take_while(|t| **t != Token::Close(')')).any(|t| t.is("test"));
    cfg.is("cfg") && (first.is("test") || all)
}

/// Where the item begins that the attributes from `at` on belong to.
fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while tokens.get(at) == Some(&Token::Sign('#')) {
        at = after_group(tokens, at + 1);
    }
    at
}

/// Behind the group that opens at `at`.
pub fn after_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Open(_) => depth += 1,
            Token::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Behind the item that begins at `at`: an item of a module, a field, a variant or a statement.
fn after_item(tokens: &[Token], mut at: usize) -> usize {
    let is_item = |token: &Token| {
        ["pub", "use", "mod", "fn", "const", "static", "impl", "struct", "enum", "trait", "type", "unsafe"]
            .iter()
            .any(|word| token.is(word))
    };
    let commas_end = !tokens.get(at).is_some_and(is_item);
    let braces_end = !tokens[at..].iter().take(3).any(|token| token.is("use"));
    while at < tokens.len() {
        match &tokens[at] {
            Token::Sign(';') => return at + 1,
            Token::Sign(',') if commas_end => return at + 1,
            Token::Close(_) => return at,
            Token::Open('{') if braces_end => return after_group(tokens, at),
            Token::Open(_) => at = after_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

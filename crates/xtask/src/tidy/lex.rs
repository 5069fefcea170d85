//! Just enough of Rust's grammar to tell code from comments and texts, and to find
//! the paths that code names.

/// A source file taken apart.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The code; comments and texts are blanks, lines are where they were.
    pub(crate) code: String,
    /// Texts (string literals) with the lines they start on, from 1.
    pub(crate) texts: Vec<(usize, String)>,
}

impl Source {
    /// Takes `text` apart. Never fails: what is no Rust gives something harmless.
    pub(crate) fn parse(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut scan = Scan {
            chars: &chars,
            at: 0,
            line: 1,
            out: Source::default(),
        };
        while scan.at < chars.len() {
            scan.step();
        }
        scan.out
    }
}

struct Scan<'a> {
    chars: &'a [char],
    at: usize,
    line: usize,
    out: Source,
}

impl Scan<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn keep(&mut self) {
        let c = self.peek(0);
        self.line += usize::from(c == '\n');
        self.out.code.push(c);
        self.at += 1;
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count.min(self.chars.len() - self.at) {
            let new_line = self.peek(0) == '\n';
            self.line += usize::from(new_line);
            self.out.code.push(if new_line { '\n' } else { ' ' });
            self.at += 1;
        }
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.blank(1);
                }
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.text(),
            ('\'', _) => self.quote(),
            (c, _) if c.is_alphanumeric() || c == '_' => self.word(),
            _ => self.keep(),
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    self.blank(1);
                    if self.at >= self.chars.len() {
                        return;
                    }
                    continue;
                }
            }
            self.blank(2);
            if depth == 0 || self.at >= self.chars.len() {
                return;
            }
        }
    }

    fn text(&mut self) {
        let (line, mut text) = (self.line, String::new());
        self.blank(1);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            let escaped = self.peek(0) == '\\';
            text.push(self.peek(usize::from(escaped)));
            self.blank(1 + usize::from(escaped));
        }
        self.blank(1);
        self.out.texts.push((line, text));
    }

    /// A character or a lifetime: only the first has a closing quote.
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.blank(3);
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.blank(1);
            }
            self.blank(1);
        } else if self.peek(2) == '\'' {
            self.blank(3);
        } else {
            self.keep();
        }
    }

    /// A word, or a raw text whose prefix looks like one.
    fn word(&mut self) {
        let start = self.at;
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            self.keep();
        }
        let word: String = self.chars[start..self.at].iter().collect();
        let hashes = (0..).take_while(|i| self.peek(*i) == '#').count();
        if ["r", "br", "cr"].contains(&word.as_str()) && self.peek(hashes) == '"' {
            self.raw_text(hashes);
        }
    }

    fn raw_text(&mut self, hashes: usize) {
        let line = self.line;
        self.blank(hashes + 1);
        let start = self.at;
        let closes = |s: &Self| s.peek(0) == '"' && (1..=hashes).all(|i| s.peek(i) == '#');
        while self.at < self.chars.len() && !closes(self) {
            self.blank(1);
        }
        let text = self.chars[start..self.at].iter().collect();
        self.blank(hashes + 1);
        self.out.texts.push((line, text));
    }
}

/// A path as code names it: `std::fs::read`, `tokio::select`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Its parts; the last one of a glob import is `*`.
    pub(crate) parts: Vec<String>,
    /// It stands in a `use` or an `extern crate`.
    pub(crate) import: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Colons,
    Sign(char),
}

fn tokens(code: &str) -> Vec<(usize, Token)> {
    let mut found = Vec::new();
    for (i, text) in code.lines().enumerate() {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let word_end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            let word = &rest[..word_end.unwrap_or(rest.len())];
            let (token, used) = if !word.is_empty() {
                (Token::Word(word.to_owned()), word.len())
            } else if rest.starts_with("::") {
                (Token::Colons, 2)
            } else {
                (Token::Sign(c), c.len_utf8())
            };
            rest = &rest[used..];
            if !matches!(token, Token::Sign(c) if c.is_whitespace()) {
                found.push((i + 1, token));
            }
        }
    }
    found
}

/// All paths in `code` (see [`Source::code`]), imports taken apart.
pub(crate) fn paths(code: &str) -> Vec<Path> {
    let tokens = tokens(code);
    let mut walk = Walk {
        tokens: &tokens,
        at: 0,
        found: Vec::new(),
    };
    while walk.at < tokens.len() {
        walk.step();
    }
    walk.found
}

struct Walk<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    found: Vec<Path>,
}

impl Walk<'_> {
    fn token(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, t)| t)
    }

    fn take_word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.token() else {
            return None;
        };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn take(&mut self, token: &Token) -> bool {
        let there = self.token() == Some(token);
        self.at += usize::from(there);
        there
    }

    fn step(&mut self) {
        let line = self.tokens[self.at].0;
        let Some(word) = self.take_word() else {
            self.at += 1;
            return;
        };
        match word.as_str() {
            "use" => self.import(&[]),
            "crate" if self.follows("extern") => self.import(&[]),
            _ => {
                let mut parts = vec![word];
                while self.take(&Token::Colons) {
                    match self.take_word() {
                        Some(word) => parts.push(word),
                        None => break,
                    }
                }
                self.push(line, parts, false);
            }
        }
    }

    /// Is the token before the one just taken this word?
    fn follows(&self, word: &str) -> bool {
        let before = self.at.checked_sub(2).and_then(|i| self.tokens.get(i));
        matches!(before, Some((_, Token::Word(w))) if w == word)
    }

    fn push(&mut self, line: usize, parts: Vec<String>, import: bool) {
        self.found.push(Path {
            line,
            parts,
            import,
        });
    }

    fn import(&mut self, prefix: &[String]) {
        let mut parts = prefix.to_vec();
        self.take(&Token::Colons);
        let line = self.tokens.get(self.at).map_or(0, |(line, _)| *line);
        loop {
            if let Some(word) = self.take_word() {
                if word != "self" || parts.is_empty() {
                    parts.push(word);
                }
            } else if self.take(&Token::Sign('*')) {
                parts.push("*".into());
            } else if self.take(&Token::Sign('{')) {
                return self.group(&parts);
            } else {
                break;
            }
            if !self.take(&Token::Colons) {
                break;
            }
        }
        if self.take(&Token::Word("as".into())) {
            self.take_word();
        }
        if !parts.is_empty() {
            self.push(line, parts, true);
        }
    }

    fn group(&mut self, prefix: &[String]) {
        while self.at < self.tokens.len() && !self.take(&Token::Sign('}')) {
            let before = self.at;
            self.import(prefix);
            self.take(&Token::Sign(','));
            // What is no import tree is stepped over, so that the walk always ends.
            self.at += usize::from(self.at == before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<String> {
        let found = paths(&Source::parse(code).code);
        found.iter().map(|p| p.parts.join("::")).collect()
    }

    #[test]
    fn comments_and_texts_are_no_code() {
        let text =
            "a // b\n/* c /* d */ e */ f \"g \\\" h\" i r#\"j \" k\"# l '\"' m '\\'' n b\"o\" 'p";
        let source = Source::parse(text);
        let words: Vec<_> = source.code.split_whitespace().collect();
        assert_eq!(words, ["a", "f", "i", "r", "l", "m", "n", "b", "'p"]);
        assert_eq!(source.code.lines().count(), 2);
        let texts: Vec<_> = source.texts.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, ["g \" h", "j \" k", "o"]);
        assert!(source.texts.iter().all(|(line, _)| *line == 2));
    }

    #[test]
    fn unfinished_files_end_the_scan() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "use a::{b, ;", "use"] {
            let source = Source::parse(text);
            paths(&source.code);
        }
    }

    #[test]
    fn imports_are_taken_apart() {
        let found = names("use std::{fs, io::{self, Read as _}, time::*};\nuse ::tokio as t;");
        let wanted = [
            "std::fs",
            "std::io",
            "std::io::Read",
            "std::time::*",
            "tokio",
        ];
        assert_eq!(found, wanted);
        assert_eq!(names("extern crate sled;"), ["extern", "sled"]);
    }

    #[test]
    fn paths_in_code_are_found_with_their_lines() {
        let code = "fn f() {\n    tokio::time::sleep(d);\n    x.rand::<u8>();\n}";
        let found = paths(&Source::parse(code).code);
        let sleep = found.iter().find(|p| p.parts[0] == "tokio").unwrap();
        assert_eq!((sleep.line, sleep.parts.len(), sleep.import), (2, 3, false));
        assert!(found.iter().any(|p| p.parts == ["rand"]));
    }
}

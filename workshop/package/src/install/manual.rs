//! Manual pages of section 3, from the comments of a header: a page for each function and each struct, and
//! one for the terms.

use std::collections::BTreeSet;

pub struct ManualPage {
    pub file: String,
    pub text: String,
}

/// A declaration with a comment in a header.
struct Item<'a> {
    name: &'a str,
    about: Vec<&'a str>,
    declaration: &'a str,
}

/// The labels that divide a function's comment, and their sections in a page.
const SECTIONS: &[(&str, &str)] =
    &[("Thread: ", "THREAD"), ("Ownership: ", "OWNERSHIP"), ("Errors: ", "ERRORS"), ("Cost: ", "COST")];

pub fn pages(header: &str, include: &str, version: &str) -> Vec<ManualPage> {
    let items = items(header);
    let names: BTreeSet<&str> = items.iter().map(|item| item.name).collect();
    let writer = Writer { names, include, version };
    let mut pages: Vec<_> = items.iter().map(|item| writer.item(item)).collect();
    pages.push(writer.overview(header, &items));
    pages
}

/// The functions and structs of a header that have a comment. A name that ends with `_` belongs to the inline
/// functions, and gets no page.
fn items(header: &str) -> Vec<Item<'_>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    for block in header.split("\n/**\n").skip(1) {
        let Some((about, after)) = block.split_once("\n */\n") else { continue };
        let Some((declaration, name)) = declared(after) else { continue };
        let about = about.lines().map(|line| line.strip_prefix(" * ").unwrap_or("")).collect();
        if name.starts_with("pagepool_") && !name.ends_with('_') && items.iter().all(|item| item.name != name)
        {
            items.push(Item { name, about, declaration });
        }
    }
    items
}

/// The function, or the struct with fields, that begins here: its declaration and its name.
fn declared(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix("struct ")
        && let Some((name, _)) = rest.split_once(" {\n").filter(|(name, _)| !name.contains([';', '(', ' ']))
    {
        return Some((&text[..text.find("\n};\n")? + 3], name));
    }
    let declaration = &text[..text.find(';')? + 1];
    if declaration.starts_with(['#', '}', ' ']) {
        return None;
    }
    let (before, _) = declaration.split_once('(')?;
    before.rsplit([' ', '*']).next().map(|name| (declaration, name))
}

struct Writer<'a> {
    names: BTreeSet<&'a str>,
    include: &'a str,
    version: &'a str,
}

impl Writer<'_> {
    fn item(&self, item: &Item) -> ManualPage {
        let (about, labelled) = divided(&item.about);
        let whole = about.join(" ");
        let first = whole.split_once(". ").map_or(whole.as_str(), |(first, _)| first).trim_end_matches('.');
        let mut text = self.head(item.name, first);
        text += &format!(".SH SYNOPSIS\n.nf\n.B #include <{}>\n.PP\n", self.include);
        let struct_fields = item.declaration.starts_with("struct ") && item.declaration.ends_with("};");
        text += &if struct_fields { uncommented(item.declaration) } else { bold_lines(item.declaration) };
        text += ".fi\n.SH DESCRIPTION\n";
        text += &self.paragraphs(&about);
        if struct_fields {
            text += &self.fields(item.declaration);
        }
        for (title, lines) in labelled {
            text += &format!(".SH {title}\n{}", self.paragraphs(&lines));
        }
        text += &self.see_also(item);
        ManualPage { file: format!("{}.3", item.name), text }
    }

    fn head(&self, name: &str, about: &str) -> String {
        let mut letters = about.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
        let line = self.words(&(first + letters.as_str()), false);
        let title = name.to_uppercase();
        format!(
            ".TH {title} 3 \"\" \"pagepool {}\" \"pagepool\"\n.SH NAME\n{name} \\- {line}\n",
            self.version
        )
    }

    fn fields(&self, declaration: &str) -> String {
        let mut text = String::new();
        for block in declaration.split("    /**\n").skip(1) {
            let Some((about, after)) = block.split_once("     */\n") else { continue };
            let Some((field, _)) = after.split_once(';') else { continue };
            let about: Vec<&str> =
                about.lines().map(|line| line.trim_start().trim_start_matches('*').trim_start()).collect();
            let field: Vec<&str> = field.split_whitespace().collect();
            text += &format!(".TP\n.B {}\n{}", code(&field.join(" ")), self.paragraphs(&about));
        }
        text
    }

    /// Formats lines of a comment. An empty line separates paragraphs; an indented line with two columns is a
    /// term.
    fn paragraphs(&self, lines: &[&str]) -> String {
        let mut text = String::new();
        for paragraph in lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty()) {
            if !text.is_empty() {
                text += ".PP\n";
            }
            for line in paragraph {
                match line.strip_prefix("  ").map(str::trim_start).and_then(|line| line.split_once("  ")) {
                    Some((term, about)) => {
                        text += &format!(".TP\n.B {}\n{}\n", code(term), self.line(about.trim()))
                    }
                    None => text += &format!("{}\n", self.line(line.trim())),
                }
            }
        }
        text
    }

    /// A line of text that roff does not take for a request.
    fn line(&self, text: &str) -> String {
        let line = self.words(text, true);
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    }

    /// Text as roff, with functions and code in bold if `bold` is set.
    fn words(&self, text: &str, bold: bool) -> String {
        let mut roff = String::new();
        for (i, part) in text.split('`').enumerate() {
            if i % 2 == 1 {
                roff += &if bold { format!("\\fB{}\\fR", code(part)) } else { code(part) };
                continue;
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for word in part.split_inclusive(|c| !is_name(c)) {
                let name = word.trim_end_matches(|c| !is_name(c));
                let rest = &word[name.len()..];
                match self.names.contains(name) && bold {
                    true => roff += &format!("\\fB{name}\\fR(3){}", plain(rest)),
                    false => roff += &plain(word),
                }
            }
        }
        with_minus(&roff)
    }

    /// The functions and structs of this header that the page names.
    fn see_also(&self, item: &Item) -> String {
        let text = item.about.join(" ") + " " + item.declaration;
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> =
            words.filter(|word| self.names.contains(word) && *word != item.name).collect();
        let mut all = vec!["pagepool"];
        all.extend(named);
        see(&all)
    }

    /// The page of the terms and rules that all functions share, from the comment at the head of the header.
    fn overview(&self, header: &str, items: &[Item]) -> ManualPage {
        let stem = self.include.trim_end_matches(".h");
        let about = header.split_once("/*\n").and_then(|(_, rest)| rest.split_once("\n */"));
        let lines = about.map_or("", |(about, _)| about).lines();
        let lines: Vec<&str> = lines.map(|line| line.strip_prefix(" * ").unwrap_or("")).collect();
        let mut text = self.head(stem, "a user-space page pool for packet buffers, its C interface");
        text += &format!(".SH SYNOPSIS\n.nf\n.B #include <{}>\n.PP\n", self.include);
        text += ".B cc app.c $(pkg\\-config \\-\\-cflags \\-\\-libs pagepool)\n.fi\n.SH DESCRIPTION\n";
        text += &self.paragraphs(&lines);
        let names: Vec<&str> = items.iter().map(|item| item.name).collect();
        text += &see(&names);
        ManualPage { file: format!("{stem}.3"), text }
    }
}

fn see(names: &[&str]) -> String {
    let mut text = String::from(".SH SEE ALSO\n");
    for (i, name) in names.iter().enumerate() {
        text += &format!(".BR {name} (3){}\n", if i + 1 < names.len() { "," } else { "" });
    }
    text
}

/// Divides a comment into the text before its labels, and the text of each label.
fn divided<'a>(lines: &[&'a str]) -> (Vec<&'a str>, Vec<(&'static str, Vec<&'a str>)>) {
    let (mut about, mut labelled) = (Vec::new(), Vec::<(_, Vec<_>)>::new());
    for line in lines {
        let label = SECTIONS.iter().find_map(|(label, title)| Some((title, line.strip_prefix(label)?)));
        match (label, labelled.last_mut()) {
            (Some((title, rest)), _) => labelled.push((*title, vec![rest])),
            (None, Some((_, rest))) => rest.push(line.trim_start()),
            (None, None) => about.push(*line),
        }
    }
    (about, labelled)
}

/// A struct without its comments.
fn uncommented(declaration: &str) -> String {
    let mut inside = false;
    let mut text = String::new();
    for line in declaration.lines() {
        inside |= line.trim_start().starts_with("/**");
        if !inside {
            text += &bold_lines(line);
        }
        inside &= !line.trim_end().ends_with("*/");
    }
    text
}

fn bold_lines(declaration: &str) -> String {
    declaration.lines().map(|line| format!("\\fB{}\\fR\n", code(line))).collect()
}

/// Code as roff: each hyphen is a minus sign, so that it can be copied.
fn code(text: &str) -> String {
    plain(text).replace('-', "\\-")
}

/// Makes each hyphen that begins a word a minus sign.
fn with_minus(roff: &str) -> String {
    let mut before = ' ';
    let mut text = String::new();
    for c in roff.chars() {
        if c == '-' && [' ', '('].contains(&before) {
            text.push('\\');
        }
        text.push(c);
        before = c;
    }
    text
}

fn plain(text: &str) -> String {
    text.replace('\\', "\\e")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r"/*
 * What it is.
 *
 *   term  what it means
 */
#define X 1

/**
 * Opaque.
 */
struct pagepool_buf;

/**
 * Parameters. Linux: `flags`.
 */
struct pagepool_params {
    /**
     * The order, -1 for none.
     */
    uint32_t order;
};

/**
 * Returns a buffer; see pagepool_get. On failure
 * -EINVAL.
 *
 * Thread: any.
 * Errors: -ESTALE for a
 *     bad handle, `a-b`.
 */
int pagepool_put(struct pagepool_buf *buf);

/**
 * Gets
 */
int pagepool_get(void);

/**
 * Inside.
 */
int pagepool_get_(void);
";

    const PUT: &str = r#".TH PAGEPOOL_PUT 3 "" "pagepool 1.2.3" "pagepool"
.SH NAME
pagepool_put \- returns a buffer; see pagepool_get
.SH SYNOPSIS
.nf
.B #include <pagepool.h>
.PP
\fBint pagepool_put(struct pagepool_buf *buf);\fR
.fi
.SH DESCRIPTION
Returns a buffer; see \fBpagepool_get\fR(3). On failure
\-EINVAL.
.SH THREAD
any.
.SH ERRORS
\-ESTALE for a
bad handle, \fBa\-b\fR.
.SH SEE ALSO
.BR pagepool (3),
.BR pagepool_get (3)
"#;

    fn page(name: &str) -> String {
        let pages = pages(HEADER, "pagepool.h", "1.2.3");
        pages.into_iter().find(|page| page.file == name).expect("it has a page").text
    }

    #[test]
    fn a_function_has_a_page_with_what_its_comment_says() {
        assert_eq!(page("pagepool_put.3"), PUT);
    }

    #[test]
    fn a_struct_has_a_page_with_its_fields() {
        let page = page("pagepool_params.3");
        assert!(
            page.contains("\\fBstruct pagepool_params {\\fR\n\\fB    uint32_t order;\\fR\n\\fB};\\fR\n"),
            "{page}"
        );
        assert!(page.contains(".TP\n.B uint32_t order\nThe order, \\-1 for none.\n"), "{page}");
    }

    #[test]
    fn terms_have_a_page_and_what_is_inside_has_none() {
        assert!(page("pagepool.3").contains("What it is.\n.PP\n.TP\n.B term\nwhat it means\n"));
        let files: Vec<_> = pages(HEADER, "pagepool.h", "1").into_iter().map(|page| page.file).collect();
        assert_eq!(files, ["pagepool_params.3", "pagepool_put.3", "pagepool_get.3", "pagepool.3"]);
    }
}

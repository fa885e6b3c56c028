//! A page of Markdown: its sections, its links and its code blocks.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};
use std::collections::BTreeMap;

/// The parts of a page that the tests read.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The anchors of its headings, as GitHub and mdBook make them.
    pub(crate) anchors: Vec<String>,
    /// The targets of its links and pictures, with their lines.
    pub(crate) links: Vec<(usize, String)>,
    pub(crate) parts: Vec<Part>,
}

/// A code block or a comment, in the order of the page.
#[derive(Debug)]
pub(crate) enum Part {
    Code {
        line: usize,
        info: String,
        text: String,
    },
    /// The text of an HTML comment.
    Comment {
        line: usize,
        text: String,
    },
}

impl Page {
    pub(crate) fn read(text: &str) -> Self {
        let mut page = Self::default();
        let line_of = |at: usize| text[..at].matches('\n').count() + 1;
        let mut code: Option<(usize, String, String)> = None;
        let mut heading: Option<String> = None;
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let options = Options::ENABLE_TABLES;
        for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let count = seen.entry(anchor.clone()).or_default();
                    page.anchors.push(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                    *count += 1;
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info,
                        CodeBlockKind::Indented => CowStr::Borrowed(""),
                    };
                    code = Some((line_of(range.start), info.into_string(), String::new()));
                }
                Event::End(TagEnd::CodeBlock) => {
                    if let Some((line, info, text)) = code.take() {
                        page.parts.push(Part::Code { line, info, text });
                    }
                }
                Event::Start(Tag::Link { dest_url, link_type, .. }) if link_type != LinkType::Email => {
                    page.links.push((line_of(range.start), dest_url.into_string()));
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    page.links.push((line_of(range.start), dest_url.into_string()));
                }
                Event::Text(part) => match (&mut code, &mut heading) {
                    (Some((_, _, text)), _) => text.push_str(&part),
                    (None, Some(heading)) => heading.push_str(&part),
                    (None, None) => {}
                },
                Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let comment = html.trim().strip_prefix("<!--").and_then(|html| html.strip_suffix("-->"));
                    if let Some(text) = comment {
                        let text = text.trim().to_owned();
                        page.parts.push(Part::Comment { line: line_of(range.start), text });
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// Returns the anchor of a heading: letters, digits, `-` and `_` in lower case, with `-` for each space.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || matches!(c, '-' | '_') => Some(c),
            _ => None,
        })
        .collect()
}

#[test]
fn the_parts_of_a_page_are_found() {
    let text = "# A `b` of C's\n\n<!-- test: machines a b -->\n\n[x](y.md#z) ![p](q.png)\n\n```console machine=a\n$ c\n```\n\n# A b of C's\n";
    let page = Page::read(text);
    assert_eq!(page.anchors, ["a-b-of-cs", "a-b-of-cs-1"]);
    assert_eq!(page.links, [(5, "y.md#z".to_owned()), (5, "q.png".to_owned())]);
    let [Part::Comment { line: 3, text: comment }, Part::Code { line: 7, info, text }] = &page.parts[..]
    else {
        panic!("{page:?}")
    };
    assert_eq!((&**comment, &**info, &**text), ("test: machines a b", "console machine=a", "$ c\n"));
}

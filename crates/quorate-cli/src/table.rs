//! Tables for people. On a terminal, cells are wrapped to its width. Elsewhere, each row is one line, so that
//! `grep` and `cut` find whole rows.

use crate::terminal::{Output, Tone};
use comfy_table::{Color, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// The number of spaces between two columns.
const GAP: u16 = 2;
/// The longest word that is never cut, if the table fits the terminal otherwise, in columns of the terminal.
const WORD_MAX: u16 = 32;

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// Formats a table with a heading for standard output. Lines have no trailing spaces.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[Cell; N]]) -> String {
    render(Some(&head), rows, 0, Output::stdout())
}

/// Formats rows without a heading for standard output. Each line begins with `indent` spaces.
pub(crate) fn grid<const N: usize>(indent: u16, rows: &[[Cell; N]]) -> String {
    render(None, rows, indent, Output::stdout())
}

/// Formats names and their values for standard output, one pair a row.
pub(crate) fn fields<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    grid(GAP, &pairs(rows))
}

/// Formats names and their values for a part of the screen, one pair a row.
pub(crate) fn fields_within<'a>(width: u16, rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    render(None, &pairs(rows), GAP, Output { width: Some(width), colour: false })
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> Vec<[Cell; 2]> {
    rows.into_iter().map(|(name, value)| [name.into(), value.into()]).collect()
}

fn render<const N: usize>(
    head: Option<&[&str; N]>,
    rows: &[[Cell; N]],
    indent: u16,
    output: Output,
) -> String {
    if head.is_none() && rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if output.colour {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    if let Some(head) = head {
        table.set_header(head.iter().map(comfy_table::Cell::new));
    }
    table.add_rows(rows.iter().map(|row| row.iter().map(styled)));
    for (index, column) in table.column_iter_mut().enumerate() {
        let gap = if index + 1 == N { 0 } else { GAP };
        column.set_padding((if index == 0 { indent } else { 0 }, gap));
    }
    if let Some(width) = output.width {
        wrap(&mut table, width, indent);
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end_matches(' ');
        text.push('\n');
    }
    text
}

/// Wraps the cells to `width`. Words stay whole if there is room for the longest word of each column.
fn wrap(table: &mut Table, width: u16, indent: u16) {
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let most = table.column_max_content_widths();
    let words: Vec<u16> = longest_words(table).into_iter().map(|word| word.min(WORD_MAX)).collect();
    let gaps = GAP * u16::try_from(most.len().saturating_sub(1)).unwrap_or(u16::MAX);
    let needed = words.iter().fold(indent.saturating_add(gaps), |sum, word| sum.saturating_add(*word));
    if needed > width {
        return;
    }
    for (column, word) in table.column_iter_mut().zip(words) {
        // A boundary includes the padding.
        let padded = word.saturating_add(column.padding_width());
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(padded)));
    }
}

fn longest_words(table: &Table) -> Vec<u16> {
    let word = |cell: &comfy_table::Cell| {
        let words = cell.content();
        words.split_whitespace().map(columns).max().unwrap_or(0)
    };
    (0..table.column_max_content_widths().len())
        .map(|index| {
            let cells = table.column_cells_with_header_iter(index).flatten();
            cells.map(word).max().unwrap_or(0)
        })
        .collect()
}

/// Returns the number of columns of the terminal that `text` fills.
fn columns(text: &str) -> u16 {
    u16::try_from(ratatui::text::Span::raw(text).width()).unwrap_or(u16::MAX)
}

fn styled(cell: &Cell) -> comfy_table::Cell {
    let text = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => text,
        Tone::Caution => text.fg(Color::DarkYellow),
        Tone::Trouble => text.fg(Color::DarkRed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Output = Output { width: None, colour: false };

    fn row(cells: [&str; 2]) -> [Cell; 2] {
        cells.map(Cell::from)
    }

    #[test]
    fn columns_are_aligned_also_with_wide_characters() {
        let rows = [row(["x", "1"]), row(["їжак-їжак", "2"]), row(["日本語", "3"]), row(["é🦀", "4"])];
        assert_eq!(
            render(Some(&["NAME", "B"]), &rows, 0, PIPE),
            "NAME       B\nx          1\nїжак-їжак  2\n日本語     3\né🦀        4\n"
        );
        assert_eq!(render(Some(&["A", "B"]), &[], 0, PIPE), "A  B\n");
        assert_eq!(render::<2>(None, &[], 0, PIPE), "");
    }

    #[test]
    fn rows_are_wrapped_to_the_terminal_and_whole_on_a_pipe() {
        let long = "the node did not answer within 200 ms because its disk is full";
        let rows = [row(["redis://10.0.0.1:6379", long])];
        let pipe = render(None, &rows, 2, PIPE);
        assert_eq!(pipe, format!("  redis://10.0.0.1:6379  {long}\n"));
        let narrow = render(None, &rows, 2, Output { width: Some(50), colour: false });
        let lines: Vec<&str> = narrow.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| columns(line) <= 50), "{narrow}");
        assert!(lines[0].starts_with("  redis://10.0.0.1:6379  the node"), "{narrow}");
        assert!(lines[1].starts_with(&" ".repeat(25)), "the value stays in its column: {narrow}");
        let words: Vec<&str> = narrow.split_whitespace().skip(1).collect();
        assert_eq!(words.join(" "), long, "no word is cut: {narrow}");
    }

    #[test]
    fn a_terminal_that_is_too_narrow_cuts_words_and_loses_nothing() {
        let rows = [row(["redis://10.0.0.1:6379", "日本語日本語日本語"])];
        let text = render(None, &rows, 2, Output { width: Some(20), colour: false });
        assert!(text.lines().all(|line| columns(line) <= 20), "{text}");
        let letters = text.chars().filter(|c| !c.is_whitespace()).count();
        assert_eq!(letters, "redis://10.0.0.1:6379日本語日本語日本語".chars().count(), "{text}");
    }

    #[test]
    fn only_trouble_has_a_colour_and_only_where_colour_is_on() {
        let rows = [[Cell::from("a"), Cell::new("failed", Tone::Trouble)], row(["b", "done"])];
        assert!(!render(None, &rows, 0, PIPE).contains('\u{1b}'));
        let coloured = render(None, &rows, 0, Output { width: Some(80), colour: true });
        let lines: Vec<&str> = coloured.lines().collect();
        assert!(lines[0].contains("\u{1b}[38;5;1mfailed"), "{coloured:?}");
        assert!(!lines[1].contains('\u{1b}'), "{coloured:?}");
        // These are the sequences that the output keeps, and no others.
        let kept = crate::terminal::keep_colours(&coloured, |text| text.replace('\u{1b}', " "));
        assert_eq!(kept, coloured);
    }
}

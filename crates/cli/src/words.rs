//! Words for people.

use std::fmt::{self, Write};

/// `1 thread`, `2 threads`
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Text between the tags of XML or HTML; what XML has no word for is left out.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '\u{fffe}' | '\u{ffff}' => Ok(()),
            c if c.is_control() => f.write_char(' '),
            c => f.write_char(c),
        })
    }
}
